"""Who is in the group of a region's operators, as the brokers describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode, KafkaError
from kohort.region.machines.events import GroupMember

if TYPE_CHECKING:
    from kohort.client.async_admin import AsyncAdminClient


async def members_of(admin: AsyncAdminClient, group_id: str) -> tuple[GroupMember, ...]:
    """Return the members of a group; none if there is no such group.

    Raises:
        KafkaError: It cannot be described.
    """
    try:
        found = await admin.describe_groups([group_id])
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return ()
    members = found[group_id].members
    return tuple(GroupMember(m.member_id, m.client_id, m.client_host) for m in members)
