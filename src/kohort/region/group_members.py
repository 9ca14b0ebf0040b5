"""The members of a region's group, as described by the brokers, and checks against them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.errors import ErrorCode, KafkaError
from kohort.region.errors import RegionError
from kohort.region.machines.events import GroupMember
from kohort.region.sinks.owners import check_unused

if TYPE_CHECKING:
    from kohort.client.admin.aio import AsyncAdminClient
    from kohort.region.sinks.sink import Publisher

# In other states a live member may be missing temporarily.
_AT_REST = frozenset(("Stable", "Empty", "Dead"))


class OperatorGroup(Struct, frozen=True):
    """The group of a region's operators.

    Attributes:
        members: Its members.
        is_at_rest: Whether the group is not rebalancing, so that `members` lists every live member.
        topics: The topics that its members subscribe to by name.
    """

    members: tuple[GroupMember, ...] = ()
    is_at_rest: bool = True
    topics: frozenset[str] = frozenset()


async def described(admin: AsyncAdminClient, group_id: str) -> OperatorGroup:
    """Return the current description of a group; a missing group has no members.

    Raises:
        KafkaError: It cannot be described.
    """
    try:
        found = (await admin.describe_groups([group_id]))[group_id]
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return OperatorGroup()
    members = (GroupMember(m.member_id, m.client_id, m.client_host) for m in found.members)
    topics = frozenset[str]().union(*(each.topics for each in found.members))
    return OperatorGroup(tuple(members), found.state in _AT_REST, topics)


async def check_creation(
    region: str, group_id: str, publisher: Publisher, admin: AsyncAdminClient
) -> None:
    """Check that a region may be created: its output and its group must be unused.

    Args:
        region: The region's name.
        group_id: Group of its operators.
        publisher: Its output, not opened yet.
        admin: The admin client.

    Raises:
        SinkError: The output belongs to another region.
        RegionError: The group has members, which cannot be operators of this region.
        KafkaError: The group cannot be described.
    """
    await asyncio.to_thread(check_unused, publisher, region)
    members = (await described(admin, group_id)).members
    if members:
        names = ", ".join(f"{each.client_id} on {each.host}" for each in members)
        raise RegionError(
            f"region {region} does not exist yet, and its group {group_id} has members: {names}. "
            "Each would get part of the partitions. If they are operators of a region, give this "
            "one its name; otherwise stop them, or give this region its own group_id. A member "
            "that was killed counts until its session expires"
        )
