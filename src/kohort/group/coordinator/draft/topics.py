"""The number of a topic's partitions has changed, or a topic has come or gone (D14)."""

from __future__ import annotations

from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.events import Cause


def is_affected(decision: DraftDecision, _event: object) -> bool:
    """Whether a topic that somebody wants has other partitions than were shared out."""
    stored = decision.log.draft_groups.get(decision.group.group_id)
    return stored is not None and dict(stored.topics) != rebalance.present_topics(decision)


def call_everybody(decision: DraftDecision, _event: object) -> None:
    """D14: share them out anew."""
    rebalance.prepare(decision, Cause.TOPICS_CHANGED)


def pass_over(_decision: DraftDecision, _event: object) -> None:
    """Nothing to do: what matters is looked at when the partitions are shared out."""
