"""OffsetDelete: forget some positions of a classic group (C56, KIP-496)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.subscriptions import is_subscribed
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets import delete as offsets
from kohort.group.coordinator.refusals import refuse as refused
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.wire.messages.offsets import OffsetDeleteRequest

Deletion: TypeAlias = RequestArrived[OffsetDeleteRequest]


def refuse_unknown(decision: ClassicDecision, deletion: Deletion) -> None:
    """C56: there is no group, so no positions."""
    _refuse(decision, deletion, ErrorCode.GROUP_ID_NOT_FOUND)


def is_of_others(decision: ClassicDecision, _deletion: Deletion) -> bool:
    """C56: whether the members are not consumers: then nobody knows which positions they need."""
    return decision.group.protocol_type != PROTOCOL_TYPE


def refuse(decision: ClassicDecision, deletion: Deletion) -> None:
    """C56: a group that is in use, in a way that the coordinator does not understand."""
    _refuse(decision, deletion, ErrorCode.NON_EMPTY_GROUP)


def delete(decision: ClassicDecision, deletion: Deletion) -> None:
    """C56: forget the positions in all topics that no member subscribes to."""
    group, request = decision.group, deletion.request
    result = offsets.delete(
        request,
        decision.log.offsets_of(group.group_id),
        {t.name for t in request.topics if is_subscribed(group, t.name)},
    )
    decision.records.extend(result.records)
    decision.reply(deletion.token, result.response, deletion.version)


def _refuse(decision: ClassicDecision, deletion: Deletion, code: ErrorCode) -> None:
    response = refused(deletion.request, deletion.version, code)
    decision.reply(deletion.token, response, deletion.version)
