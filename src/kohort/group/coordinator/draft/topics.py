"""The number of a topic's partitions has changed, or a topic has come or gone (D14)."""

from __future__ import annotations

from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.events import Cause


def is_affected(change: GroupChange, _event: object) -> bool:
    """Whether a topic that somebody wants has other partitions than were shared out."""
    stored = change.log.draft_groups.get(change.group.group_id)
    return stored is not None and dict(stored.topics) != rebalance.present_topics(change)


def call_everybody(change: GroupChange, _event: object) -> None:
    """D14: share them out anew."""
    rebalance.prepare(change, Cause.TOPICS_CHANGED)


def pass_over(_change: GroupChange, _event: object) -> None:
    """Nothing to do: what matters is looked at when the partitions are shared out."""
