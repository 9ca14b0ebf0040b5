"""Computing the group's assignment when the coordinator asks for it (KIP-848, K60, K61).

The coordinator asks for it in the answer to a heartbeat. The member fetches the group's members and
topics, its assignor computes in a job while heartbeats continue, and the member sends the result to
the coordinator. If a step fails, the member drops the computation: the coordinator asks again, or
computes the assignment itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode, KohortError
from kohort.group.assignors.interface import (
    Assignment,
    Assignor,
    ClusterView,
    RebalanceProtocol,
)
from kohort.group.effects import AssignmentJob, MemberJob, Send, SubscriptionJob
from kohort.group.events import AssignorUnsupported
from kohort.group.member.consumer import rhythm
from kohort.group.member.consumer.session import (
    Computation,
    ConsumerMemberDecision,
    ConsumerMemberSession,
    ConsumerMemberState,
)
from kohort.group.member.events import RETRY_DUE, JobDone
from kohort.group.member.leader import subscription_user_data
from kohort.group.member.offers import own_user_data
from kohort.group.subscription import Subscription, decode_assignment, encode_assignment
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    InstalledMember,
    PreparedMember,
)
from kohort.wire.messages.consumer_group import (
    ClientAssignor,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Prepared = ConsumerGroupPrepareAssignmentResponse
Installed = ConsumerGroupInstallAssignmentResponse

_FAILED = 1
# A cooperative assignor withholds moving partitions in one round and assigns them in the next.
_ROUNDS = 4


class ComputationLost(Struct, frozen=True):
    """A trigger of the table: a request of the computation failed."""

    cause: str = ""


# ------------------------------------------------------------------------------------ announcing


def announce(decision: ConsumerMemberDecision) -> None:
    """Announce the assignors, and request each one's user data.

    This happens when the member joins or changes its subscription, rather than with each
    heartbeat, because changed user data triggers a new assignment.
    """
    if any(each.is_asked for each in decision.assignors):
        ask(decision)
    else:
        _announce(decision, own_user_data(decision.assignors, decision.session.topics))


def ask(decision: ConsumerMemberDecision) -> None:
    """Have the shell ask the assignors: machines never run application code."""
    job = SubscriptionJob(decision.token(), decision.session.topics)
    decision.jobs.append(job)
    decision.session = replace(decision.session, asking=job.token, unasked=False)


def holds_back(decision: ConsumerMemberDecision) -> bool:
    """Return whether the next heartbeat waits for the assignors' data: only when joining."""
    session = decision.session
    waits = session.asking is not None or session.unasked
    return waits and not session.is_member and decision.state is ConsumerMemberState.JOINING


def is_said(decision: ConsumerMemberDecision, done: JobDone) -> bool:
    """Return whether the job was the request for user data."""
    return done.token == decision.session.asking


def has_failed(decision: ConsumerMemberDecision, done: JobDone) -> bool:
    """Return whether the request for user data failed."""
    return is_said(decision, done) and done.assignments is None


def ask_later(decision: ConsumerMemberDecision, done: JobDone) -> None:
    """An assignor raised: report it to the application, and retry after a wait (KIP-580)."""
    decision.raised.append(KohortError(done.error))
    decision.session = replace(decision.session, asking=None, unasked=True)
    rhythm.beat_soon(decision)
    decision.back_off(RETRY_DUE)


def note_said(decision: ConsumerMemberDecision, done: JobDone) -> None:
    """Report the assignors' data to the coordinator at once."""
    decision.session = replace(decision.session, asking=None)
    _announce(decision, done.assignments or {})
    rhythm.beat_soon(decision)


def _announce(decision: ConsumerMemberDecision, said: Mapping[str, bytes]) -> None:
    announced = tuple(
        ClientAssignor(
            name=each.name,
            maximum_version=each.version,
            version=each.version,
            metadata=said.get(each.name, b""),
        )
        for each in decision.assignors
    )
    decision.session = replace(decision.session, announced=announced)


def note_coordinator(decision: ConsumerMemberDecision, *, asks_members: bool) -> None:
    """Report once that this coordinator, like Kafka's, never asks members (K60)."""
    tells = not asks_members and decision.session.asks_members and decision.assignors
    decision.session = replace(decision.session, asks_members=asks_members)
    if tells:
        decision.observed.append(
            AssignorUnsupported(
                group=decision.config.group_id,
                now=decision.now,
                member=decision.session.member_id,
                assignors=tuple(each.name for each in decision.assignors),
            )
        )


# ------------------------------------------------------------------------------------- computing


def note_answer(decision: ConsumerMemberDecision, answer: ConsumerGroupHeartbeatResponse) -> None:
    """Begin a computation if the coordinator asks for one and none is in progress."""
    session = decision.session
    if answer.assignment is not None or answer.assignment_metadata is not None:
        decision.session = replace(session, assignment_metadata=answer.assignment_metadata)
    is_free = (
        session.computation is None and decision.state is not ConsumerMemberState.PREPARE_LEAVING
    )
    if answer.should_compute_assignment and is_free and decision.assignors:
        request = ConsumerGroupPrepareAssignmentRequest(
            group_id=decision.config.group_id,
            member_id=decision.session.member_id,
            member_epoch=decision.session.epoch,
        )
        _send(decision, Computation(), request)


def _send(decision: ConsumerMemberDecision, computation: Computation, request: Message) -> None:
    token = decision.token()
    decision.sends.append(Send(token, request))
    computation = replace(computation, token=token)
    decision.session = replace(decision.session, computation=computation)


def is_awaited(session: ConsumerMemberSession, token: int) -> bool:
    """Return whether a token belongs to the computation's request or job."""
    return session.computation is not None and session.computation.token == token


def prepared(decision: ConsumerMemberDecision, answer: Prepared) -> None:
    """K61: run the assignor with only the coordinator's data."""
    names = {assignor.name for assignor in decision.assignors}
    if answer.error_code != ErrorCode.NONE or answer.assignor_name not in names:
        forget(decision, answer)
        return
    token = decision.token()
    ids = {topic.topic_id: topic.topic_name for topic in answer.topics}
    decision.session = replace(
        decision.session,
        computation=Computation(
            token, answer.group_epoch, answer.assignor_name, Map((n, i) for i, n in ids.items())
        ),
    )
    decision.jobs.append(
        AssignmentJob(
            token,
            answer.assignor_name,
            Map({each.member_id: _subscription(each, answer, ids) for each in answer.members}),
            Map({topic.topic_name: topic.num_partitions for topic in answer.topics}),
        )
    )


def _subscription(
    member: PreparedMember, answer: Prepared, names: Mapping[uuid.UUID, str]
) -> Subscription:
    """Return a member as assignors see it; its owned partitions are its present target."""
    return Subscription(
        topics=frozenset(member.subscribed_topic_names),
        owned=frozenset(
            TopicPartition(names[topic.topic_id], number)
            for topic in member.topic_partitions
            if topic.topic_id in names
            for number in topic.partitions
        ),
        generation=answer.group_epoch,
        user_data=member.metadata or None,
        rack_id=member.rack_id,
        group_instance_id=member.instance_id,
    )


def computed(decision: ConsumerMemberDecision, done: JobDone) -> None:
    """K61: send the coordinator the result, or the error."""
    computation = decision.session.computation
    assert computation is not None
    members = (
        None if done.assignments is None else _installed(decision, computation, done.assignments)
    )
    request = ConsumerGroupInstallAssignmentRequest(
        group_id=decision.config.group_id,
        member_id=decision.session.member_id,
        member_epoch=decision.session.epoch,
        group_epoch=computation.epoch,
        error=_FAILED if members is None else 0,
        members=members or (),
    )
    _send(decision, computation, request)


def _installed(
    decision: ConsumerMemberDecision, computation: Computation, assignments: Mapping[str, bytes]
) -> tuple[InstalledMember, ...] | None:
    """Replace topic names by ids; None: the assignor assigned a topic that does not exist."""
    version = next(each.version for each in decision.assignors if each.name == computation.assignor)
    members = []
    for member_id in sorted(assignments):
        partitions, user_data = decode_assignment(assignments[member_id])
        if not all(partition.topic in computation.topics for partition in partitions):
            return None
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            by_topic.setdefault(topic, []).append(number)
        entries = tuple(
            TopicPartitions(topic_id=computation.topics[topic], partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
        members.append(
            InstalledMember(
                member_id=member_id,
                topic_partitions=entries,
                version=version,
                metadata=user_data or b"",
            )
        )
    return tuple(members)


def installed(decision: ConsumerMemberDecision, answer: Installed) -> None:
    """Send a heartbeat at once to get this member's part; the broker reports refused results."""
    forget(decision, answer)
    rhythm.beat_soon(decision)


def forget(decision: ConsumerMemberDecision, _event: object) -> None:
    """Drop the computation; if the coordinator still needs it, it asks again."""
    decision.session = replace(decision.session, computation=None)


# ------------------------------------------------------------------------------- what shells call


def compute(
    job: MemberJob, assignors: Mapping[str, Assignor], cluster: ClusterView
) -> dict[str, bytes]:
    """Do the job: return each member's assignment for SyncGroup, or the assignors' data.

    The coordinator ensures that a partition is released before it is assigned. A cooperative
    assignor withholds moving partitions, so it runs once more as if they had been released.

    Raises:
        Exception: Whatever the assignor raises; the shell reports it with `JobDone`.
    """
    if isinstance(job, SubscriptionJob):
        return subscription_user_data(job, assignors)
    assignor, subscriptions = assignors[job.assignor], dict(job.subscriptions)
    given: dict[str, Assignment] = {}
    for _ in range(_ROUNDS):
        made = assignor.assign_with_user_data(cluster, subscriptions)
        # the coordinator refuses assignments to unknown members
        given = {each: made.get(each, _NOTHING) for each in {*job.subscriptions, *made}}
        after = {
            each: replace(entry, owned=given[each].partitions)
            for each, entry in subscriptions.items()
        }
        if after == subscriptions or _COOPERATIVE not in assignor.supported_protocols:
            break
        subscriptions = after
    return {each: encode_assignment(a.partitions, a.user_data) for each, a in given.items()}


_NOTHING = Assignment(frozenset())
_COOPERATIVE = RebalanceProtocol.COOPERATIVE
