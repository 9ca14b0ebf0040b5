"""Heartbeat (D2, D4, D6, D7, D12)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.events import RequestArrived
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftHeartbeatResponse

Heartbeat: TypeAlias = RequestArrived[DraftHeartbeatRequest]


def is_of_a_consumer(decision: DraftDecision, heartbeat: Heartbeat) -> bool:
    """D7: whether the sender's id is in the group."""
    return heartbeat.request.consumer_id in decision.group.consumers


def is_current(decision: DraftDecision, heartbeat: Heartbeat) -> bool:
    """Whether the sender is in the group, and has missed no rebalance."""
    of_now = heartbeat.request.group_generation_id == decision.group.generation
    return of_now and is_of_a_consumer(decision, heartbeat)


def refuse_unknown(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    """D3, D7: it was given up, or never was a consumer of this group."""
    _answer(decision, heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)


def call_back(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    """D4: alive, and asked to join again."""
    _keep_alive(decision, heartbeat)
    _answer(decision, heartbeat, ErrorCode.ILLEGAL_GENERATION)


def accept(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    """D2, D6, D12: alive."""
    _keep_alive(decision, heartbeat)
    _answer(decision, heartbeat, ErrorCode.NONE)


def _keep_alive(decision: DraftDecision, heartbeat: Heartbeat) -> None:
    rebalance.restart_session(decision, decision.group.consumers[heartbeat.request.consumer_id])


def _answer(decision: DraftDecision, heartbeat: Heartbeat, code: ErrorCode) -> None:
    response = DraftHeartbeatResponse(error_code=code)
    decision.reply(heartbeat.token, response, heartbeat.version)
