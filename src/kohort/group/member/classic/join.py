"""Joining: give partitions up, JoinGroup, the leader's work, SyncGroup."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.group.assignors.interface import Assignment
from kohort.group.effects import AssignmentJob, SubscriptionJob
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.classic import coordinator
from kohort.group.member.classic.session import MemberDraft, MemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    RETRY_DUE,
    SESSION_OVERDUE,
)
from kohort.group.member.leader import subscriptions_of
from kohort.group.member.offers import own_words
from kohort.group.subscription import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

# Java's client waits this much longer for JoinGroup than the rebalance may take, because the
# answer is parked for all of that time.
_JOIN_TIMEOUT_LAPSE_MS = 5_000
_REASON_LENGTH = 255  # KIP-800


def rejoin(draft: MemberDraft, reason: str) -> None:
    """Begin a rebalance on our side. The application first gives up what it has to (L3, L4)."""
    owed = None if draft.session.is_member else still_owed(draft)
    session = draft.session = replace(draft.session, reason=reason, rejoin=owed)
    given_up = None if session.prepared else _given_up(draft)
    draft.session = replace(session, prepared=True, said=None)
    if given_up is None:
        send_join(draft)
    else:
        draft.enter(MemberState.REVOKING, reason)
        draft.call(*given_up)


def still_owed(draft: MemberDraft) -> str | None:
    """Return why a member that has lost its place has to join twice; None: once is enough.

    A dynamic member's return is a rebalance. A static one may come back quietly (KIP-345), and then
    the rebalance that it was about to ask for is still to come: what it gave up for others in the
    first round of a cooperative rebalance would be nobody's (KIP-429). Java's client forgets it.
    """
    return draft.session.rejoin if draft.config.group_instance_id is not None else None


def _given_up(draft: MemberDraft) -> tuple[Ownership, frozenset[TopicPartition]] | None:
    """Return what the application is told before the member joins; None: nothing."""
    session = draft.session
    if not session.is_member:
        # L3b: others may have these partitions already.
        return (Ownership.LOST, session.owned) if session.owned else None
    if draft.is_cooperative:
        # L3d: only what is not wanted any more; the rest is kept and read on.
        gone = frozenset(each for each in session.owned if each.topic not in session.topics)
        return (Ownership.REVOKED, gone) if gone else None
    # L3c: eager members give everything up, and are asked to even when that is nothing.
    return Ownership.REVOKED, session.owned


def send_join(draft: MemberDraft) -> None:
    """Join, or first find whom to join."""
    draft.cancel(HEARTBEAT_DUE, SESSION_OVERDUE, RETRY_DUE)
    if not draft.session.coordinator_known:
        draft.enter(MemberState.UNJOINED, draft.session.reason)
        lookup.look_up(draft)
        return
    session = draft.session
    draft.session = replace(session, joined_topics=session.topics, heartbeat=None, job=None)
    draft.enter(MemberState.PREPARING_REBALANCE, session.reason)
    if session.said is None and any(each.is_asked for each in draft.assignors):
        job = SubscriptionJob(draft.token(), session.topics)
        draft.session = replace(draft.session, job=job)
        draft.jobs.append(job)
    else:
        _send_join(draft)


def note_said(draft: MemberDraft, said: Mapping[str, bytes]) -> None:
    """L2: join with what the assignors have to say; other attempts of this join say the same."""
    draft.session = replace(draft.session, job=None, said=said)
    _send_join(draft)


def _send_join(draft: MemberDraft) -> None:
    config, session = draft.config, draft.session
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=session.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=_protocols(draft),
        reason=session.reason[:_REASON_LENGTH] or None,
    )
    sent = draft.send(request, config.max_poll_interval_ms + _JOIN_TIMEOUT_LAPSE_MS)
    draft.session = replace(draft.session, request=sent)


def _protocols(draft: MemberDraft) -> tuple[JoinGroupRequestProtocol, ...]:
    """L2: for each assignor what we want, what we own and since which generation."""
    session = draft.session
    said = own_words(draft.assignors, session.topics) if session.said is None else session.said
    return tuple(
        JoinGroupRequestProtocol(
            name=each.name,
            metadata=encode_subscription(
                Subscription(
                    topics=session.joined_topics,
                    owned=session.owned,
                    generation=session.generation,
                    user_data=said.get(each.name),
                    rack_id=draft.config.rack_id,
                )
            ),
        )
        for each in draft.assignors
    )


def try_again_later(draft: MemberDraft, reason: str) -> None:
    """Joining failed in a way that a wait may cure."""
    draft.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    draft.session = replace(draft.session, request=None, heartbeat=None, job=None)
    draft.enter(MemberState.UNJOINED, reason)
    coordinator.retry_later(draft)
    lookup.look_up(draft)


# ----------------------------------------------------------------------------------- join answered


def is_known_answer(draft: MemberDraft, answer: JoinGroupResponse) -> bool:
    """Whether the answer makes sense: our kind of group, and an assignor that we have."""
    same_type = answer.protocol_type in (None, PROTOCOL_TYPE)
    return same_type and any(answer.protocol_name == each.name for each in draft.assignors)


def become_part(draft: MemberDraft, answer: JoinGroupResponse) -> None:
    """A generation has begun: from here on heartbeats are due (L9)."""
    draft.session = replace(
        draft.session,
        request=None,
        member_id=answer.member_id,
        generation=answer.generation_id,
        assignor=answer.protocol_name or "",
        group_topics=frozenset(),
        failures=0,
    )
    draft.enter(MemberState.COMPLETING_REBALANCE)
    draft.start(HEARTBEAT_DUE, draft.config.until_first_heartbeat_ms)
    draft.start(SESSION_OVERDUE, draft.config.session_timeout_ms)
    if answer.leader == answer.member_id:
        _lead(draft, answer)
    else:
        _send_sync(draft, ())


def _lead(draft: MemberDraft, answer: JoinGroupResponse) -> None:
    """L8: as leader watch what everybody subscribes to, and share it out unless told not to."""
    subscriptions = subscriptions_of(answer.members)
    topics = frozenset().union(*(entry.topics for entry in subscriptions.values()))
    draft.session = replace(draft.session, group_topics=topics)
    if answer.skip_assignment:
        _send_sync(draft, ())  # KIP-814: the group keeps what it has
        return
    job = AssignmentJob(draft.token(), draft.session.assignor, subscriptions)
    draft.session = replace(draft.session, job=job)
    draft.jobs.append(job)


def hand_over(draft: MemberDraft, assignments: dict[str, bytes]) -> None:
    """The leader's assignment is made."""
    draft.session = replace(draft.session, job=None)
    _send_sync(
        draft,
        tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in sorted(assignments.items())
        ),
    )


def _send_sync(draft: MemberDraft, assignments: tuple[SyncGroupRequestAssignment, ...]) -> None:
    session = draft.session
    request = SyncGroupRequest(
        group_id=draft.config.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=draft.config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=session.assignor,
        assignments=assignments,
    )
    sent = draft.send(request)
    draft.session = replace(draft.session, request=sent)


# ----------------------------------------------------------------------------------- sync answered


def take_assignment(draft: MemberDraft, answer: SyncGroupResponse) -> None:
    """L5: what we were given. The application first gives up what moves to somebody else."""
    draft.session = replace(draft.session, request=None)
    try:
        partitions, user_data = decode_assignment(answer.assignment)
    except RemoteProtocolError as error:
        draft.raised.append(error)
        try_again_later(draft, "the assignment cannot be read")
        return
    draft.session = replace(draft.session, prepared=False)
    if not _matches(partitions, draft.session.topics):
        # L5: made for an older subscription of ours: no callback, another try.
        try_again_later(draft, "the assignment does not match the subscription")
        return
    draft.session = replace(draft.session, assignment=Assignment(partitions, user_data))
    draft.enter(MemberState.ASSIGNING)
    moving = draft.session.owned - partitions
    if moving:
        # KIP-429: whoever is to have them gets them in the rebalance after this one.
        again = draft.session.rejoin or "need to revoke partitions and re-join"
        draft.session = replace(draft.session, rejoin=again)
        draft.call(Ownership.REVOKED, moving)
    else:
        take_up(draft)


def take_up(draft: MemberDraft) -> None:
    """L5: what was added; the application is told even when that is nothing."""
    assignment, owned = draft.session.assignment, draft.session.owned
    assert assignment is not None
    draft.session = replace(draft.session, owned=assignment.partitions, assignment=None)
    draft.call(Ownership.ASSIGNED, assignment.partitions - owned, assignment.user_data)


def _matches(partitions: frozenset[TopicPartition], topics: frozenset[str]) -> bool:
    return all(partition.topic in topics for partition in partitions)


def settle(draft: MemberDraft) -> None:
    """The application knows its partitions. If anything changed in the meantime, join again."""
    draft.enter(MemberState.STABLE)
    session = draft.session
    if not session.is_member:
        rejoin(draft, "the member was removed from the group")
    elif session.topics != session.joined_topics:
        rejoin(draft, "the subscription changed")
    elif session.rejoin is not None:
        rejoin(draft, session.rejoin)


# ---------------------------------------------------------------------------------------- identity


def reset_identity(draft: MemberDraft, code: int) -> None:
    """L10: forget the generation, and the member id too unless only the generation is wrong."""
    keep_id = code == ErrorCode.ILLEGAL_GENERATION  # KAFKA-13419
    draft.session = replace(
        draft.session,
        generation=NO_GENERATION,
        member_id=draft.session.member_id if keep_id else "",
        heartbeat=None,
    )


def join_anew(draft: MemberDraft, code: int) -> None:
    """L10: removed; what we own, or have kept through a rebalance, is lost."""
    reset_identity(draft, code)
    # Whatever is still on its way belongs to a rebalance that is over for us.
    draft.session = replace(draft.session, prepared=False, request=None, job=None)
    rejoin(draft, f"the coordinator answered {ErrorCode(code).name}")


def fail(draft: MemberDraft, code: int, what: str) -> None:
    """L10: an error after which the member cannot go on; what it owns is lost."""
    draft.raised.append(KafkaError(code, what))
    draft.cancel(*draft.session.deadlines.due_times())
    draft.session = replace(
        draft.session,
        request=None,
        heartbeat=None,
        job=None,
        assignment=None,
        rejoin=None,
        prepared=False,
        member_id="",
        generation=NO_GENERATION,
    )
    draft.enter(MemberState.FATAL, what)
    if draft.session.owned and draft.session.callback is None:
        draft.call(Ownership.LOST, draft.session.owned)
