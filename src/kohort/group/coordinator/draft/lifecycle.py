"""The coordinator comes up, or goes (D1, D2, D15)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance, topics
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.events import LoadFinished, Unload


def restart_sessions(decision: DraftDecision, _loaded: LoadFinished) -> None:
    """D2, D12: nobody knows when the consumers were last heard of: count from now."""
    for consumer in decision.group.sorted_consumers():
        rebalance.restart_session(decision, consumer)


def restart_and_call(decision: DraftDecision, loaded: LoadFinished) -> None:
    """D14: a topic has changed while nobody coordinated the group."""
    restart_sessions(decision, loaded)
    topics.call_everybody(decision, loaded)


def release(decision: DraftDecision, _unload: Unload) -> None:
    """D1: who waits for an answer is told to look for the new coordinator."""
    rebalance.answer_all(decision, ErrorCode.NOT_COORDINATOR)
    decision.enter(DraftState.NONE)
