"""The leader's part: from the members' subscriptions to an assignment for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.group.assignors.interface import (
    Assignment,
    Assignor,
    ClusterView,
    RebalanceProtocol,
    common_protocol,
)
from kohort.group.assignors.ownership import claimed_generation, given_twice, settle_claims
from kohort.group.effects import AssignmentJob, MemberJob, SubscriptionJob
from kohort.group.subscription import Subscription, decode_subscription, encode_assignment
from kohort.types import TopicPartition
from kohort.wire.messages.membership import JoinGroupResponseMember

_NOTHING = Assignment(frozenset())
# The largest record that Kafka's coordinator can write with the default `message.max.bytes`.
_MAX_BYTES = 1 << 20

# KAFKA-13406: this assignor resolves contradictory claims more precisely than the check.
_KNOWS_THE_RULE = "cooperative-sticky"


def subscriptions_of(members: Iterable[JoinGroupResponseMember]) -> Map[str, Subscription]:
    """Decode the members' subscriptions.

    A member that sent invalid bytes gets no partitions; others are not affected.
    """
    return Map({member.member_id: _subscription(member) for member in members})


def _subscription(member: JoinGroupResponseMember) -> Subscription:
    try:
        return decode_subscription(member.metadata, member.group_instance_id)
    except RemoteProtocolError:
        return Subscription(topics=frozenset(), group_instance_id=member.group_instance_id)


def topics(job: MemberJob) -> frozenset[str]:
    """Return the topics whose partition counts the job needs."""
    if isinstance(job, SubscriptionJob):
        return frozenset()
    return frozenset().union(*(entry.topics for entry in job.subscriptions.values()))


def compute(
    job: MemberJob, assignors: Mapping[str, Assignor], cluster: ClusterView
) -> dict[str, bytes]:
    """Do the job: return each member's assignment for SyncGroup, or the assignors' user data.

    Args:
        job: The job.
        assignors: The assignors this member knows, by name.
        cluster: The topics of `topics(job)` that exist.

    Raises:
        LocalProtocolError: The assignment is invalid for the group, or breaks the rule of the
            cooperative protocol (L8).
        Exception: Any error of the assignor; the shell reports it with `JobDone`.
    """
    if isinstance(job, SubscriptionJob):
        return subscription_user_data(job, assignors)
    assignment = assignors[job.assignor].assign_with_user_data(cluster, job.subscriptions)
    given = {member: assignment.get(member, _NOTHING) for member in job.subscriptions}
    _check_wanted(job, given)
    _check_given_once(job, given)
    cooperative = common_protocol(assignors.values()) is RebalanceProtocol.COOPERATIVE
    if cooperative and job.assignor != _KNOWS_THE_RULE:
        _check_nothing_moves(job, given)
    return {
        member: encode_assignment(each.partitions, each.user_data) for member, each in given.items()
    }


def subscription_user_data(
    job: SubscriptionJob, assignors: Mapping[str, Assignor]
) -> dict[str, bytes]:
    """Return the assignors' user data for the leader, without assignors that have none.

    Raises:
        LocalProtocolError: An assignor raised, or its data cannot be sent; the message names it.
    """
    said = {name: _user_data(name, each, job.topics) for name, each in assignors.items()}
    return {name: data for name, data in said.items() if data is not None}


def _user_data(name: str, assignor: Assignor, wanted: frozenset[str]) -> bytes | None:
    where = f"subscription_user_data of assignor {name}"
    try:
        data: object = assignor.subscription_user_data(wanted)
    except Exception as error:
        raise LocalProtocolError(f"{where} raised {type(error).__name__}: {error}") from error
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise LocalProtocolError(f"{where} returned {type(data).__name__}, not bytes or None")
    if len(data) > _MAX_BYTES:
        raise LocalProtocolError(f"{where} returned {len(data)} bytes, more than {_MAX_BYTES}")
    return data


def _check_wanted(job: AssignmentJob, given: Mapping[str, Assignment]) -> None:
    """L5: refuse unsubscribed topics; a member that gets them would rejoin forever."""
    for member, each in given.items():
        wanted = job.subscriptions[member].topics
        others = sorted({topic for topic, _ in each.partitions} - wanted)
        if others:
            raise LocalProtocolError(
                f"assignor {job.assignor} gives member {member} partitions of {others[0]}, which it"
                " does not subscribe to"
            )


def _check_given_once(job: AssignmentJob, given: Mapping[str, Assignment]) -> None:
    """S4: refuse a partition given to two members: both would read it."""
    twice = given_twice({member: each.partitions for member, each in given.items()})
    if twice is not None:
        partition, one, other = twice
        raise LocalProtocolError(
            f"assignor {job.assignor} gives {_name(partition)} to two members: {one} and {other}"
        )


def _check_nothing_moves(job: AssignmentJob, given: Mapping[str, Assignment]) -> None:
    """L8: refuse to move a partition before its owner has released it in an earlier round.

    A stale claim (KIP-792) gives no right to a partition, but its member must release it, too.
    """
    owned = settle_claims(job.subscriptions)
    claims: dict[TopicPartition, list[str]] = {}
    for member, entry in job.subscriptions.items():
        for partition in entry.owned:
            claims.setdefault(partition, []).append(member)
    for member, each in given.items():
        for partition in sorted(each.partitions - owned[member]):
            others = [other for other in claims.get(partition, ()) if other != member]
            if others:
                owner = next((other for other in others if partition in owned[other]), others[0])
                raise LocalProtocolError(_moves(job, partition, member, owner))


def _moves(job: AssignmentJob, partition: TopicPartition, member: str, owner: str) -> str:
    generation = claimed_generation(job.subscriptions[owner])
    text = (
        f"assignor {job.assignor} gives {_name(partition)} to member {member} while member {owner}"
        f" owns it since generation {generation}"
    )
    if partition in job.subscriptions[member].owned:
        text += f" (the claim of {member} is of {claimed_generation(job.subscriptions[member])})"
    return (
        f"{text}, which the cooperative protocol forbids: no member may get it until its"
        " owner has given it up. `without_moving` takes such partitions out"
    )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def unknown_claims(job: AssignmentJob, cluster: ClusterView) -> frozenset[TopicPartition]:
    """Return owned partitions that are missing from the leader's metadata (KIP-429).

    Its metadata may be older than the previous leader's, so it should refresh the metadata before
    it takes them away from their owners.
    """
    claimed = frozenset().union(*(entry.owned for entry in job.subscriptions.values()))
    return frozenset(
        each for each in claimed if each.partition >= cluster.partitions.get(each.topic, 0)
    )
