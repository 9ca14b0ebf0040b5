"""DeleteGroups of a classic group (C57, KIP-229)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.draft import GroupDraft
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.events import PendingExpired, RequestArrived
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.events import GroupDeleted
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

Delete = RequestArrived[DeleteGroupsRequest]


def refuse_unknown(draft: GroupDraft, deletion: Delete) -> None:
    """C57: there is nothing to delete."""
    _answer(draft, deletion, ErrorCode.GROUP_ID_NOT_FOUND)


def refuse(draft: GroupDraft, deletion: Delete) -> None:
    """C57: a group with members is in use."""
    _answer(draft, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(draft: GroupDraft, deletion: Delete) -> None:
    """C57: forget the positions and the group."""
    group_id = draft.group.group_id
    for partition in sorted(draft.log.offsets_of(group_id)):
        draft.records.append(offset_tombstone(group_id, partition))
    draft.records.append(fold.group_tombstone(group_id))
    for member_id in draft.group.pending:
        draft.cancel(PendingExpired(group_id, member_id))
    draft.enter(GroupState.DEAD)
    draft.observed.append(GroupDeleted(group=group_id, now=draft.now))
    _answer(draft, deletion, ErrorCode.NONE)


def _answer(draft: GroupDraft, deletion: Delete, code: ErrorCode) -> None:
    """Answer for this group only: the shard puts the answers for several together."""
    result = DeletableGroupResult(group_id=draft.group.group_id, error_code=code)
    draft.reply(deletion.token, DeleteGroupsResponse(results=(result,)), deletion.version)
