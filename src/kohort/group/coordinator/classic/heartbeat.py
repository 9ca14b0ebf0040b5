"""Heartbeat (C44)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.identity import generation_error
from kohort.group.coordinator.events import RequestArrived
from kohort.wire.messages.membership import HeartbeatRequest, HeartbeatResponse

Heartbeat: TypeAlias = RequestArrived[HeartbeatRequest]

_ALIVE = HeartbeatResponse(error_code=ErrorCode.NONE)


def is_current(decision: ClassicDecision, heartbeat: Heartbeat) -> bool:
    """Whether the sender is a member of the present generation."""
    return _error(decision, heartbeat) is None


def refuse(decision: ClassicDecision, heartbeat: Heartbeat) -> None:
    """C18, C44: of a stranger or an older generation; a group without members has only those."""
    code = _error(decision, heartbeat) or ErrorCode.UNKNOWN_MEMBER_ID
    decision.reply(heartbeat.token, HeartbeatResponse(error_code=code), heartbeat.version)


def _error(decision: ClassicDecision, heartbeat: Heartbeat) -> ErrorCode | None:
    request = heartbeat.request
    return generation_error(
        decision.group, request.member_id, request.group_instance_id, request.generation_id
    )


def accept(decision: ClassicDecision, heartbeat: Heartbeat) -> None:
    """C44: also before the assignment is there: the member has done its part."""
    rebalance.restart_session(decision, decision.group.members[heartbeat.request.member_id])
    decision.reply(heartbeat.token, _ALIVE, heartbeat.version)


def call_back(decision: ClassicDecision, heartbeat: Heartbeat) -> None:
    """C44: alive, and asked to join again."""
    rebalance.restart_session(decision, decision.group.members[heartbeat.request.member_id])
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    decision.reply(heartbeat.token, response, heartbeat.version)
