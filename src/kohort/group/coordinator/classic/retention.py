"""Positions of a classic group go when nobody has used them for long, and then the group (C60)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.classic.subscriptions import is_subscribed
from kohort.group.coordinator.events import PendingExpired, RetentionCheckDue
from kohort.group.coordinator.offsets.expiry import is_expired
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.events import GroupDeleted
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.types import TopicPartition


def keep(_decision: ClassicDecision, _due: RetentionCheckDue) -> None:
    """C60: during a rebalance, or with members that are not consumers, nothing expires."""


def are_consumers(decision: ClassicDecision, _due: RetentionCheckDue) -> bool:
    """Whether it is known which topics the members read."""
    return decision.group.protocol_type == PROTOCOL_TYPE


def expire_unread(decision: ClassicDecision, _due: RetentionCheckDue) -> None:
    """C60: with members, positions go whose topics nobody reads, counted from their commit."""
    expired = [p for p in _expired(decision, None) if not is_subscribed(decision.group, p.topic)]
    _forget(decision, expired)


def expire(decision: ClassicDecision, _due: RetentionCheckDue) -> None:
    """C60: without members, all go some time after the last member did; at last the group."""
    group_id = decision.group.group_id
    stored = decision.log.groups.get(group_id)
    since_ms = stored.state_timestamp if stored and stored.protocol_type else -1
    expired = _expired(decision, since_ms if since_ms >= 0 else None)
    _forget(decision, expired)
    if len(expired) < len(decision.log.offsets_of(group_id)):
        return
    if stored is not None:
        decision.records.append(fold.group_tombstone(group_id))
    for member_id in decision.group.pending:
        decision.cancel(PendingExpired(group_id, member_id))
    decision.enter(GroupState.DEAD)
    decision.observed.append(GroupDeleted(group=group_id, now=decision.now))


def _expired(decision: ClassicDecision, counted_from_ms: int | None) -> list[TopicPartition]:
    retention_ms = decision.config.offsets_retention_ms
    return [
        partition
        for partition, stored in sorted(decision.log.offsets_of(decision.group.group_id).items())
        if is_expired(stored, decision.wall_ms, retention_ms, counted_from_ms)
    ]


def _forget(decision: ClassicDecision, partitions: Iterable[TopicPartition]) -> None:
    group_id = decision.group.group_id
    decision.records.extend(offset_tombstone(group_id, partition) for partition in partitions)
