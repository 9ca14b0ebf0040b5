"""Joining: give partitions up, JoinGroup, the leader's work, SyncGroup."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.group.assignors.interface import Assignment
from kohort.group.effects import AssignmentJob, SubscriptionJob
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.classic.session import ClassicMemberDecision, ClassicMemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CommitAnswered,
    HeartbeatAnswered,
    JobDone,
)
from kohort.group.member.leader import subscriptions_of
from kohort.group.member.offers import own_user_data
from kohort.group.member.session import revoked_or_lost
from kohort.group.subscription import (
    NO_GENERATION,
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

# The fields of a membership that come from the coordinator.
Answer: TypeAlias = HeartbeatAnswered | CommitAnswered | JoinGroupResponse | SyncGroupResponse

# The coordinator may hold the answer to JoinGroup for the whole rebalance timeout. Java's client
# waits this much longer.
_JOIN_TIMEOUT_LAPSE_MS = 5_000
_REASON_LENGTH = 255  # KIP-800


def forget_coordinator(decision: ClassicMemberDecision, _event: object = None) -> None:
    """L10: the coordinator has moved; the member keeps its partitions.

    Requests sent to the old coordinator get no answer.
    """
    decision.session = replace(
        decision.session, coordinator_known=False, heartbeat=None, request=None
    )
    lookup.look_up(decision)


def rejoin(decision: ClassicMemberDecision, reason: str) -> None:
    """Begin to rejoin; the application first gives up partitions (L3, L4)."""
    owed = None if decision.session.is_member else still_owed(decision)
    session = decision.session = replace(decision.session, reason=reason, rejoin=owed)
    given_up = None if session.prepared else _given_up(decision)
    decision.session = replace(session, prepared=True, user_data=None)
    if given_up is None:
        send_join(decision)
    else:
        decision.enter(ClassicMemberState.REVOKING, reason)
        decision.call(revoked_or_lost(decision.session), given_up)


def still_owed(decision: ClassicMemberDecision) -> str | None:
    """Return why a removed member has to join twice; None: once is enough.

    When a dynamic member rejoins, the group rebalances. A static member may rejoin without a
    rebalance (KIP-345). If it gave up partitions in the first round of a cooperative rebalance,
    they would then have no owner (KIP-429), so it asks for that rebalance. Java's client does not.
    """
    return decision.session.rejoin if decision.config.group_instance_id is not None else None


def _given_up(decision: ClassicMemberDecision) -> frozenset[TopicPartition] | None:
    """Return the partitions to give up before joining; None: the application is not called."""
    session = decision.session
    if session.is_member and not decision.is_cooperative:
        return session.owned  # L3c: all partitions; the application is asked even if there are none
    gone = session.owned  # L3b: other members may already own these partitions
    if session.is_member:
        # L3d: only partitions outside the subscription or lent; reading of the rest continues.
        lent, topics = decision.lent, session.topics
        gone = frozenset(each for each in gone if each.topic not in topics or each in lent)
    return gone or None


def send_join(decision: ClassicMemberDecision, _event: object = None) -> None:
    """Join with the current identity, or find the coordinator first."""
    decision.cancel(HEARTBEAT_DUE, SESSION_OVERDUE, RETRY_DUE)
    if not decision.session.coordinator_known:
        decision.enter(ClassicMemberState.UNJOINED, decision.session.reason)
        lookup.look_up(decision)
        return
    session = decision.session
    decision.session = replace(session, joined_topics=session.topics, heartbeat=None, job=None)
    decision.enter(ClassicMemberState.PREPARING_REBALANCE, session.reason)
    if session.user_data is None and any(each.is_asked for each in decision.assignors):
        job = SubscriptionJob(decision.token(), session.topics)
        decision.session = replace(decision.session, job=job)
        decision.jobs.append(job)
    else:
        _send_join(decision)


def join_as_said(decision: ClassicMemberDecision, done: JobDone) -> None:
    """L2: join with the assignors' user data; retries of this join send the same data."""
    decision.session = replace(decision.session, job=None, user_data=done.assignments or {})
    _send_join(decision)


def _send_join(decision: ClassicMemberDecision) -> None:
    config, session = decision.config, decision.session
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=session.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=decision.protocol_type,
        protocols=_protocols(decision),
        reason=session.reason[:_REASON_LENGTH] or None,
    )
    sent = decision.send(request, config.max_poll_interval_ms + _JOIN_TIMEOUT_LAPSE_MS)
    decision.session = replace(decision.session, request=sent)


def _protocols(decision: ClassicMemberDecision) -> tuple[JoinGroupRequestProtocol, ...]:
    """L2: return each assignor with the topics, the owned partitions and their generation."""
    session = decision.session
    user_data = session.user_data
    if user_data is None:
        user_data = own_user_data(decision.assignors, session.topics)
    return tuple(
        JoinGroupRequestProtocol(
            name=each.name,
            metadata=encode_subscription(
                Subscription(
                    topics=session.joined_topics,
                    owned=session.owned,
                    generation=session.generation,
                    user_data=user_data.get(each.name),
                    rack_id=decision.config.rack_id,
                )
            ),
        )
        for each in decision.assignors
    )


def try_again_later(decision: ClassicMemberDecision, reason: str) -> None:
    """Join again after a wait: the failure may be temporary."""
    decision.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    decision.session = replace(decision.session, request=None, heartbeat=None, job=None)
    decision.enter(ClassicMemberState.UNJOINED, reason)
    decision.back_off(RETRY_DUE)
    lookup.look_up(decision)


# ----------------------------------------------------------------------------------- join answered


def is_known_answer(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> bool:
    """Return whether the answer names this member's protocol type and one of its assignors."""
    same_type = answer.protocol_type in (None, decision.protocol_type)
    return same_type and any(answer.protocol_name == each.name for each in decision.assignors)


def become_part(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """Enter the new generation and start sending heartbeats (L9)."""
    decision.session = replace(
        decision.session,
        request=None,
        member_id=answer.member_id,
        generation=answer.generation_id,
        assignor=answer.protocol_name or "",
        group_topics=frozenset(),
        failures=0,
    )
    decision.enter(ClassicMemberState.COMPLETING_REBALANCE)
    decision.start(HEARTBEAT_DUE, decision.config.until_first_heartbeat_ms)
    decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    if answer.leader == answer.member_id:
        _lead(decision, answer)
    else:
        _send_sync(decision, ())


def _lead(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L8: as leader, watch all subscriptions; assign partitions unless the answer skips it."""
    subscriptions = subscriptions_of(answer.members)
    topics = frozenset().union(*(entry.topics for entry in subscriptions.values()))
    decision.session = replace(decision.session, group_topics=topics)
    if answer.skip_assignment:
        _send_sync(decision, ())  # KIP-814: the group keeps its assignment
        return
    job = AssignmentJob(decision.token(), decision.session.assignor, subscriptions)
    decision.session = replace(decision.session, job=job)
    decision.jobs.append(job)


def hand_over(decision: ClassicMemberDecision, done: JobDone) -> None:
    """Send the leader's assignment to the coordinator with SyncGroup."""
    assignments = done.assignments or {}
    decision.session = replace(decision.session, job=None)
    _send_sync(
        decision,
        tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in sorted(assignments.items())
        ),
    )


def _send_sync(
    decision: ClassicMemberDecision, assignments: tuple[SyncGroupRequestAssignment, ...]
) -> None:
    session = decision.session
    request = SyncGroupRequest(
        group_id=decision.config.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=decision.config.group_instance_id,
        protocol_type=decision.protocol_type,
        protocol_name=session.assignor,
        assignments=assignments,
    )
    sent = decision.send(request)
    decision.session = replace(decision.session, request=sent)


# ----------------------------------------------------------------------------------- sync answered


def take_assignment(decision: ClassicMemberDecision, answer: SyncGroupResponse) -> None:
    """L5: accept an assignment. The application first gives up partitions that move away."""
    decision.session = replace(decision.session, request=None)
    try:
        partitions, user_data = decode_assignment(answer.assignment)
    except RemoteProtocolError as error:
        decision.raised.append(error)
        try_again_later(decision, "the assignment cannot be read")
        return
    decision.session = replace(decision.session, prepared=False)
    if not _matches(partitions, decision.session.topics):
        # L5: computed for an older subscription of this member: join again without a callback.
        try_again_later(decision, "the assignment does not match the subscription")
        return
    decision.session = replace(decision.session, assignment=Assignment(partitions, user_data))
    decision.enter(ClassicMemberState.ASSIGNING)
    moving = decision.session.owned - partitions
    if moving:
        # KIP-429: the next rebalance gives these partitions to their new owners.
        reason = decision.session.rejoin or "need to revoke partitions and re-join"
        decision.session = replace(decision.session, rejoin=reason)
        decision.call(Ownership.REVOKED, moving)
    else:
        take_up(decision)


def take_up(decision: ClassicMemberDecision) -> None:
    """L5: report added partitions; the listener is called even if there are none."""
    assignment, owned = decision.session.assignment, decision.session.owned
    assert assignment is not None
    decision.session = replace(decision.session, owned=assignment.partitions, assignment=None)
    decision.call(Ownership.ASSIGNED, assignment.partitions - owned, assignment.user_data)


def _matches(partitions: frozenset[TopicPartition], topics: frozenset[str]) -> bool:
    return all(partition.topic in topics for partition in partitions)


def settle(decision: ClassicMemberDecision) -> None:
    """Complete the rebalance; join again if anything changed while the listener ran."""
    decision.enter(ClassicMemberState.STABLE)
    session = decision.session
    if not session.is_member:
        rejoin(decision, "the member was removed from the group")
    elif session.topics != session.joined_topics:
        rejoin(decision, "the subscription changed")
    elif session.rejoin is not None:
        rejoin(decision, session.rejoin)


# ---------------------------------------------------------------------------------------- identity


def reset_identity(decision: ClassicMemberDecision, answer: Answer) -> None:
    """L10: forget the generation; keep the member id only if just the generation is wrong."""
    keep_id = answer.error_code == ErrorCode.ILLEGAL_GENERATION  # KAFKA-13419
    decision.session = replace(
        decision.session,
        generation=NO_GENERATION,
        member_id=decision.session.member_id if keep_id else "",
        heartbeat=None,
    )


def join_anew(decision: ClassicMemberDecision, answer: Answer) -> None:
    """L3b, L10: join as a removed member; all partitions it owned or kept are lost."""
    reset_identity(decision, answer)
    # Any request in flight belongs to a rebalance that this member has left.
    decision.session = replace(decision.session, prepared=False, request=None, job=None)
    rejoin(decision, f"the coordinator answered {ErrorCode(answer.error_code).name}")


def fail(decision: ClassicMemberDecision, code: int, what: str) -> None:
    """L10: enter the failed state; the member's partitions are lost."""
    decision.raised.append(KafkaError(code, what))
    decision.cancel(*decision.session.deadlines.due_times())
    decision.session = replace(
        decision.session,
        request=None,
        heartbeat=None,
        job=None,
        assignment=None,
        rejoin=None,
        prepared=False,
        member_id="",
        generation=NO_GENERATION,
    )
    decision.enter(ClassicMemberState.FATAL, what)
    if decision.session.owned and decision.session.callback is None:
        decision.call(revoked_or_lost(decision.session), decision.session.owned)
