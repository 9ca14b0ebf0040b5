"""Is the sender who it says it is, and does it live in the present generation?"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.group import ClassicGroup


def member_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None
) -> ErrorCode | None:
    """Return why a sender is not the member it says it is, None if it is (C18)."""
    if group_instance_id is not None:
        holder = group.static.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None


def generation_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Return as `member_error`, then whether the generation is another one."""
    error = member_error(group, member_id, group_instance_id)
    if error is None and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
