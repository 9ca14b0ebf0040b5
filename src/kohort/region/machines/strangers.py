"""Members of the operators' group that are not operators, and operators that are not members."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.region.machines.events import GroupMember
from kohort.region.machines.state import Operator, RegionState


def strangers_among(members: Iterable[GroupMember], state: RegionState) -> list[GroupMember]:
    """Return the members of the group that are not operators of the region."""
    operators = {each.client_id for each in state.operators.values()}
    return [each for each in members if each.client_id not in operators]


def gone_among(
    members: Iterable[GroupMember], before: RegionState, after: RegionState
) -> list[Operator]:
    """Return the operators that were in the group and no longer are.

    An operator registers before it joins. So it counts as gone only if it owned partitions or has
    not taken part in a reset, or if no other operator is in the group.

    Args:
        members: The group, at rest.
        before: The region before the group was described.
        after: The region afterwards.
    """
    present = {each.client_id for each in members}
    operators = [each for _, each in sorted(after.operators.items())]
    missing = [e for e in operators if e.client_id not in present and before.active(e.id)]
    known = [before.operators[each.id.name] for each in missing]
    gone = [each.id for each in known if each.owned or each.attempt < before.attempt]
    if gone and len(missing) == len(operators):
        return missing
    return [each for each in missing if each.id in gone]


def told_stranger(member: GroupMember) -> str:
    """Describe the member, its effect on the region, and the remedy."""
    return (
        f"{member.client_id} on {member.host} is in the group but not an operator of the region, "
        "which does not get the records of its partitions: stop it, or give it "
        "another group.id"
    )
