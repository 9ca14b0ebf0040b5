"""Heartbeat (D2, D4, D6, D7, D12)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.coordinator.events import RequestArrived
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftHeartbeatResponse

Heartbeat: TypeAlias = RequestArrived[DraftHeartbeatRequest]


def is_of_a_consumer(change: GroupChange, heartbeat: Heartbeat) -> bool:
    """D7: whether the sender's id is in the group."""
    return heartbeat.request.consumer_id in change.group.consumers


def is_current(change: GroupChange, heartbeat: Heartbeat) -> bool:
    """Whether the sender is in the group, and has missed no rebalance."""
    of_now = heartbeat.request.group_generation_id == change.group.generation
    return of_now and is_of_a_consumer(change, heartbeat)


def refuse_unknown(change: GroupChange, heartbeat: Heartbeat) -> None:
    """D3, D7: it was given up, or never was a consumer of this group."""
    _answer(change, heartbeat, ErrorCode.UNKNOWN_MEMBER_ID)


def call_back(change: GroupChange, heartbeat: Heartbeat) -> None:
    """D4: alive, and asked to join again."""
    _keep_alive(change, heartbeat)
    _answer(change, heartbeat, ErrorCode.ILLEGAL_GENERATION)


def accept(change: GroupChange, heartbeat: Heartbeat) -> None:
    """D2, D6, D12: alive."""
    _keep_alive(change, heartbeat)
    _answer(change, heartbeat, ErrorCode.NONE)


def _keep_alive(change: GroupChange, heartbeat: Heartbeat) -> None:
    rebalance.restart_session(change, change.group.consumers[heartbeat.request.consumer_id])


def _answer(change: GroupChange, heartbeat: Heartbeat, code: ErrorCode) -> None:
    response = DraftHeartbeatResponse(error_code=code)
    change.reply(heartbeat.token, response, heartbeat.version)
