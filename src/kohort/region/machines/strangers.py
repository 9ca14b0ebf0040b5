"""Members of the operators' group that are no operators of the region."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.region.machines.events import GroupMember
from kohort.region.machines.state import RegionState


def strangers_among(members: Iterable[GroupMember], state: RegionState) -> list[GroupMember]:
    """Return the members of the group that no operator of the region is."""
    operators = {each.client_id for each in state.operators.values()}
    return [each for each in members if each.client_id not in operators]


def told_stranger(member: GroupMember) -> str:
    """Say who it is, what it does to the region, and what to do about it."""
    return (
        f"{member.client_id} on {member.host} is in the group and no operator of the region, "
        "which does not see the records of the partitions that it has: end it, or give it "
        "another group.id"
    )
