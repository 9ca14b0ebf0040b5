"""DeleteGroups of a classic group (C57, KIP-229)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.decision import ClassicDecision
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


def refuse_unknown(decision: ClassicDecision, deletion: Delete) -> None:
    """C57: there is nothing to delete."""
    _answer(decision, deletion, ErrorCode.GROUP_ID_NOT_FOUND)


def refuse(decision: ClassicDecision, deletion: Delete) -> None:
    """C57: a group with members is in use."""
    _answer(decision, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(decision: ClassicDecision, deletion: Delete) -> None:
    """C57: forget the positions and the group."""
    group_id = decision.group.group_id
    for partition in sorted(decision.log.offsets_of(group_id)):
        decision.records.append(offset_tombstone(group_id, partition))
    decision.records.append(fold.group_tombstone(group_id))
    for member_id in decision.group.pending:
        decision.cancel(PendingExpired(group_id, member_id))
    decision.enter(GroupState.DEAD)
    decision.observed.append(GroupDeleted(group=group_id, now=decision.now))
    _answer(decision, deletion, ErrorCode.NONE)


def _answer(decision: ClassicDecision, deletion: Delete, code: ErrorCode) -> None:
    """Answer for this group only: the shard puts the answers for several together."""
    result = DeletableGroupResult(group_id=decision.group.group_id, error_code=code)
    decision.reply(deletion.token, DeleteGroupsResponse(results=(result,)), deletion.version)
