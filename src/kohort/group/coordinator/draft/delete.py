"""DeleteGroups of a draft group (KIP-229, which the design did not know)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import fold
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.events import GroupDeleted
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

Delete = RequestArrived[DeleteGroupsRequest]


def refuse(decision: DraftDecision, deletion: Delete) -> None:
    """A group with consumers is in use."""
    _answer(decision, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(decision: DraftDecision, deletion: Delete) -> None:
    """D16: forget the positions and the group; its name is free for any protocol."""
    group_id = decision.group.group_id
    for partition in sorted(decision.log.offsets_of(group_id)):
        decision.records.append(offset_tombstone(group_id, partition))
    decision.records.append(fold.group_tombstone(group_id))
    decision.observed.append(GroupDeleted(group=group_id, now=decision.now))
    _answer(decision, deletion, ErrorCode.NONE)


def _answer(decision: DraftDecision, deletion: Delete, code: ErrorCode) -> None:
    result = DeletableGroupResult(group_id=decision.group.group_id, error_code=code)
    decision.reply(deletion.token, DeleteGroupsResponse(results=(result,)), deletion.version)
