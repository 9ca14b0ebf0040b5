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
from kohort.group.effects import AssignmentJob
from kohort.group.subscription import Subscription, decode_subscription, encode_assignment
from kohort.types import TopicPartition
from kohort.wire.messages.membership import JoinGroupResponseMember

_NOTHING = Assignment(frozenset())

# KAFKA-13406: where claims contradict each other, this one knows better than the check.
_KNOWS_THE_RULE = "cooperative-sticky"


def subscriptions_of(members: Iterable[JoinGroupResponseMember]) -> Map[str, Subscription]:
    """Read what the members asked for.

    Bytes that are no subscription hurt only who sent them: that member gets nothing.
    """
    return Map({member.member_id: _subscription(member) for member in members})


def _subscription(member: JoinGroupResponseMember) -> Subscription:
    try:
        return decode_subscription(member.metadata, member.group_instance_id)
    except RemoteProtocolError:
        return Subscription(topics=frozenset(), group_instance_id=member.group_instance_id)


def topics(job: AssignmentJob) -> frozenset[str]:
    """Return the topics whose number of partitions has to be known for the job."""
    return frozenset().union(*(entry.topics for entry in job.subscriptions.values()))


def compute(
    job: AssignmentJob, assignors: Mapping[str, Assignor], cluster: ClusterView
) -> dict[str, bytes]:
    """Do the job: return each member's assignment as SyncGroup carries it.

    Args:
        job: The job.
        assignors: The assignors this member knows, by name.
        cluster: The topics of `topics(job)` that exist.

    Raises:
        LocalProtocolError: The assignor breaks the rule of the cooperative protocol (L8).
        Exception: Whatever the assignor raises; the shell reports it with `JobDone`.
    """
    assignment = assignors[job.assignor].assign_with_user_data(cluster, job.subscriptions)
    given = {member: assignment.get(member, _NOTHING) for member in job.subscriptions}
    cooperative = common_protocol(assignors.values()) is RebalanceProtocol.COOPERATIVE
    if cooperative and job.assignor != _KNOWS_THE_RULE:
        _check_nothing_moves(job, given)
    return {
        member: encode_assignment(each.partitions, each.user_data) for member, each in given.items()
    }


def _check_nothing_moves(job: AssignmentJob, given: Mapping[str, Assignment]) -> None:
    """L8: what one member has to give up first is not given to another one in the same round."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, entry in job.subscriptions.items():
        added |= given[member].partitions - entry.owned
        revoked |= entry.owned - given[member].partitions
    moving = sorted(added & revoked)
    if moving:
        names = ", ".join(f"{topic}-{number}" for topic, number in moving[:5])
        raise LocalProtocolError(
            f"assignor {job.assignor} gives partitions to a member while another one owns them,"
            f" which the cooperative protocol forbids: {names}"
        )


def unknown_claims(job: AssignmentJob, cluster: ClusterView) -> frozenset[TopicPartition]:
    """Return partitions that members own and that the leader does not know (KIP-429).

    Its metadata may be older than that of the leader before it: it should ask anew before it takes
    them away from their owners.
    """
    claimed = frozenset().union(*(entry.owned for entry in job.subscriptions.values()))
    return frozenset(
        each for each in claimed if each.partition >= cluster.partitions.get(each.topic, 0)
    )
