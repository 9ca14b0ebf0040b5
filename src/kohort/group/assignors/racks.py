"""The racks in which each partition can be read locally, for assignors (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import field

from kohort.group.assignors.interface import ClusterView
from kohort.group.assignors.server import PartitionRacks
from kohort.group.subscription import Subscription


class RackedClusterView(ClusterView, frozen=True):
    """The cluster as an assignor sees it when brokers report their racks.

    Attributes:
        racks: For each topic the racks of the replicas of each partition, in order.
    """

    racks: PartitionRacks = field(default_factory=dict)


def racks_that_count(
    cluster: ClusterView, subscriptions: Mapping[str, Subscription], topics: Iterable[str]
) -> PartitionRacks | None:
    """Return the racks of the partitions, None if no replica is in the rack of any member.

    Args:
        cluster: The cluster, a `RackedClusterView` if its racks are known.
        subscriptions: The members.
        topics: The topics concerned.
    """
    if not isinstance(cluster, RackedClusterView):
        return None
    inhabited = {entry.rack_id for entry in subscriptions.values() if entry.rack_id}
    used = (racks for topic in topics for racks in cluster.racks.get(topic, ()))
    return None if all(racks.isdisjoint(inhabited) for racks in used) else cluster.racks
