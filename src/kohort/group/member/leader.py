"""The leader's part: from the members' subscriptions to an assignment for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map

from kohort.errors import RemoteProtocolError
from kohort.group.assignors.interface import Assignor, ClusterView
from kohort.group.effects import AssignmentJob
from kohort.group.subscription import Subscription, decode_subscription, encode_assignment
from kohort.wire.messages.membership import JoinGroupResponseMember


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
        Exception: Whatever the assignor raises; the shell reports it with `JobDone`.
    """
    assignment = assignors[job.assignor].assign(cluster, job.subscriptions)
    return {
        member_id: encode_assignment(assignment.get(member_id, ()))
        for member_id in job.subscriptions
    }
