"""DeleteGroups of a draft group (KIP-229, which the design did not know)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import fold
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.events import GroupDeleted
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

Delete = RequestArrived[DeleteGroupsRequest]


def refuse(change: GroupChange, deletion: Delete) -> None:
    """A group with consumers is in use."""
    _answer(change, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(change: GroupChange, deletion: Delete) -> None:
    """D16: forget the positions and the group; its name is free for any protocol."""
    group_id = change.group.group_id
    for partition in sorted(change.log.offsets_of(group_id)):
        change.records.append(offset_tombstone(group_id, partition))
    change.records.append(fold.group_tombstone(group_id))
    change.observed.append(GroupDeleted(group=group_id, now=change.now))
    _answer(change, deletion, ErrorCode.NONE)


def _answer(change: GroupChange, deletion: Delete, code: ErrorCode) -> None:
    result = DeletableGroupResult(group_id=change.group.group_id, error_code=code)
    change.reply(deletion.token, DeleteGroupsResponse(results=(result,)), deletion.version)
