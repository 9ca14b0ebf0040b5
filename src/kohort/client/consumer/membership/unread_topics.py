"""Topics that no member of a classic group is assigned after a static member came back."""

from __future__ import annotations

import logging

from kohort.client.admin.group_descriptions import classic_group
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.errors import KohortError
from kohort.wire.messages.groups import DescribeGroupsRequest

log = logging.getLogger("kohort.client")

_SETTLED = "Stable"


async def warn_of_unread(
    cluster: Cluster,
    coordinator: Coordinator,
    instance: str,
    topics: frozenset[str],
    deadline: Deadline,
) -> None:
    """Warn of topics that the group does not assign until its next rebalance (KIP-345).

    The coordinator lets a static member come back without a rebalance, even if its subscription has
    changed.

    Args:
        cluster: The brokers.
        coordinator: The group's coordinator.
        instance: The member's `group.instance.id`.
        topics: Subscribed topics of which it has no partition.
        deadline: When to give up asking, silently.
    """
    try:
        if not topics <= cluster.metadata.topics.keys():
            await cluster.refresh(deadline)
        known = cluster.metadata.topics
        there = {name for name in topics if name in known and known[name].partitions}
        unread = there - await _assigned(coordinator, deadline) if there else set()
    except KohortError as error:
        log.debug("group %s cannot be described: %s", coordinator.group_id, error)
        return
    if unread:
        log.warning(
            "group %s: the static member %s is back without a rebalance, and the group has not"
            " assigned its current subscription: no member reads %s. Call enforce_rebalance() on"
            " it once",
            *(coordinator.group_id, instance, ", ".join(sorted(unread))),
        )


async def _assigned(coordinator: Coordinator, deadline: Deadline) -> frozenset[str]:
    """Return the topics of which members have partitions.

    Raises:
        KohortError: The assignment is not known, because the group is rebalancing.
    """
    group_id = coordinator.group_id
    response = await coordinator.call(
        DescribeGroupsRequest(groups=(group_id,)),
        lambda answer: [group.error_code for group in answer.groups],
        deadline,
    )
    for group in response.groups:
        if group.group_id == group_id and group.group_state == _SETTLED:
            members = classic_group(group).members
            return frozenset(where.topic for each in members for where in each.assignment)
    raise KohortError("the group has no assignment now")
