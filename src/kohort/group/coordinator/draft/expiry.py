"""Expired deadlines (D12, D13), changed topics (D14), and loading and unloading."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import STORED, DraftState
from kohort.group.coordinator.events import JoinExpired, LoadFinished, SessionExpired, Unload
from kohort.group.events import Cause


def is_parked(decision: DraftDecision, expired: SessionExpired) -> bool:
    """Return whether a request of the consumer is parked, which shows that it is alive."""
    return expired.member_id in decision.group.joining


def spare(_decision: DraftDecision, _expired: SessionExpired) -> None:
    """Keep the consumer; its session restarts when its join is answered."""


def expire_consumer(decision: DraftDecision, expired: SessionExpired) -> None:
    """D12: remove a dead consumer, and rebalance."""
    rebalance.remove(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.prepare(decision, Cause.SESSION_EXPIRED, expired.member_id)


def expire_absent(decision: DraftDecision, expired: SessionExpired) -> None:
    """D12: remove a consumer that died in the rebalance, which may have waited only for it."""
    rebalance.remove(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.go_on_if_all_joined(decision)


def expire_join(decision: DraftDecision, _expired: JoinExpired) -> None:
    """D13: continue with the consumers that have joined."""
    rebalance.go_on(decision)


# ------------------------------------------------------------------------------ topics have changed


def is_affected(decision: DraftDecision, _event: object) -> bool:
    """Return whether the partitions of a subscribed topic differ from those assigned."""
    stored = STORED.of(decision.log).get(decision.group.group_id)
    return stored is not None and dict(stored.topics) != rebalance.present_topics(decision)


def call_everybody(decision: DraftDecision, _event: object) -> None:
    """D14: assign the partitions again."""
    rebalance.prepare(decision, Cause.TOPICS_CHANGED)


def pass_over(_decision: DraftDecision, _event: object) -> None:
    """Do nothing: the topics are read when the partitions are assigned."""


# --------------------------------------------------------------------- the shard comes, and goes


def restart_sessions(decision: DraftDecision, _loaded: LoadFinished) -> None:
    """D2, D12: start all sessions now, because the last heartbeats are unknown."""
    for consumer in decision.group.sorted_consumers():
        rebalance.restart_session(decision, consumer)


def restart_and_call(decision: DraftDecision, loaded: LoadFinished) -> None:
    """D14: restart sessions and rebalance: a topic changed while there was no coordinator."""
    restart_sessions(decision, loaded)
    call_everybody(decision, loaded)


def release(decision: DraftDecision, _unload: Unload) -> None:
    """D1: answer parked requests, because another broker is the coordinator now."""
    rebalance.answer_all(decision, ErrorCode.NOT_COORDINATOR)
    decision.enter(DraftState.NONE)
