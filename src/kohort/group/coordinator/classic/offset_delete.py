"""OffsetDelete: forget some positions of a classic group (C56, KIP-496)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.draft import GroupDraft
from kohort.group.coordinator.classic.subscriptions import is_subscribed
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets import delete as offsets
from kohort.group.coordinator.refusals import refuse as refused
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.wire.messages.offsets import OffsetDeleteRequest

Deletion: TypeAlias = RequestArrived[OffsetDeleteRequest]


def refuse_unknown(draft: GroupDraft, deletion: Deletion) -> None:
    """C56: there is no group, so no positions."""
    _refuse(draft, deletion, ErrorCode.GROUP_ID_NOT_FOUND)


def is_of_others(draft: GroupDraft, _deletion: Deletion) -> bool:
    """C56: whether the members are not consumers: then nobody knows which positions they need."""
    return draft.group.protocol_type != PROTOCOL_TYPE


def refuse(draft: GroupDraft, deletion: Deletion) -> None:
    """C56: a group that is in use, in a way that the coordinator does not understand."""
    _refuse(draft, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(draft: GroupDraft, deletion: Deletion) -> None:
    """C56: forget the positions in all topics that no member subscribes to."""
    group, request = draft.group, deletion.request
    result = offsets.delete(
        request,
        draft.log.offsets_of(group.group_id),
        {t.name for t in request.topics if is_subscribed(group, t.name)},
    )
    draft.records.extend(result.records)
    draft.reply(deletion.token, result.response, deletion.version)


def _refuse(draft: GroupDraft, deletion: Deletion, code: ErrorCode) -> None:
    response = refused(deletion.request, deletion.version, code)
    draft.reply(deletion.token, response, deletion.version)
