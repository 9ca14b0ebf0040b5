"""DescribeGroups and ListGroups: look at groups without touching them (C58, C59)."""

from __future__ import annotations

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState, Member
from kohort.group.coordinator.records import LogState
from kohort.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsRequest,
)

# KIP-430: a set of bits by AclOperation. Nobody is kept from anything here, so it is all that Kafka
# knows of groups: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
# KIP-1043: from this version on a group that does not exist is an error.
_NOT_FOUND_SINCE = 6


def describe(log: LogState, group: ClassicGroup, version: int) -> DescribedGroup:
    """Return a group; what its members asked for is shown only while it is stable.

    What they got last is shown always, also while they join again.
    """
    if group.state is GroupState.DEAD:
        return _unknown(group.group_id, version, f"Group {group.group_id} not found.")
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if stable else "",
        members=tuple(_member(log, group, member, stable) for member in group.sorted_members()),
    )


def not_classic(group_id: str, version: int) -> DescribedGroup:
    """Return the answer for a group of another protocol: there is none of this one."""
    return _unknown(group_id, version, f"Group {group_id} is not a classic group.")


def _unknown(group_id: str, version: int, message: str) -> DescribedGroup:
    newer = version >= _NOT_FOUND_SINCE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.NONE,
        error_message=clipped(message) if newer else None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def _member(
    log: LogState, group: ClassicGroup, member: Member, stable: bool
) -> DescribedGroupMember:
    stored = log.groups.get(group.group_id)
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if stable else b"",
        member_assignment=stored.assignment_of(member.member_id) if stored else b"",
    )


def listed(group: ClassicGroup) -> ListedGroup:
    """Return the group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state.value,
        group_type="classic",
    )


def passes(entry: ListedGroup, request: ListGroupsRequest) -> bool:
    """Whether a group passes the filters, which ignore case (C59; KIP-518, KIP-848)."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return (not states or entry.group_state.lower() in states) and (
        not types or entry.group_type.lower() in types
    )
