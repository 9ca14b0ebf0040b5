"""The members of a region's group, as the brokers describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.errors import ErrorCode, KafkaError
from kohort.region.machines.events import GroupMember

if TYPE_CHECKING:
    from kohort.client.admin.aio import AsyncAdminClient

# In other states a live member may be missing for a moment.
_AT_REST = frozenset(("Stable", "Empty", "Dead"))


class OperatorGroup(Struct, frozen=True):
    """The group of a region's operators.

    Attributes:
        members: Its members.
        is_at_rest: Whether no rebalance is under way, so that `members` has every live member.
        topics: What its members subscribe to by name.
    """

    members: tuple[GroupMember, ...] = ()
    is_at_rest: bool = True
    topics: frozenset[str] = frozenset()


async def described(admin: AsyncAdminClient, group_id: str) -> OperatorGroup:
    """Return a group as it is now; a group that does not exist has no members.

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
