"""Positions of a classic group go when nobody has used them for long, and then the group (C60)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.draft import GroupDraft
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.classic.subscriptions import is_subscribed
from kohort.group.coordinator.events import PendingExpired, RetentionCheckDue
from kohort.group.coordinator.offsets.expiry import is_expired
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.events import GroupDeleted
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.types import TopicPartition


def keep(_draft: GroupDraft, _due: RetentionCheckDue) -> None:
    """C60: during a rebalance, or with members that are not consumers, nothing expires."""


def are_consumers(draft: GroupDraft, _due: RetentionCheckDue) -> bool:
    """Whether it is known which topics the members read."""
    return draft.group.protocol_type == PROTOCOL_TYPE


def expire_unread(draft: GroupDraft, _due: RetentionCheckDue) -> None:
    """C60: with members, positions go whose topics nobody reads, counted from their commit."""
    expired = [p for p in _expired(draft, None) if not is_subscribed(draft.group, p.topic)]
    _forget(draft, expired)


def expire(draft: GroupDraft, _due: RetentionCheckDue) -> None:
    """C60: without members, all go some time after the last member did; at last the group."""
    group_id = draft.group.group_id
    stored = draft.log.groups.get(group_id)
    since_ms = stored.state_timestamp if stored and stored.protocol_type else -1
    expired = _expired(draft, since_ms if since_ms >= 0 else None)
    _forget(draft, expired)
    if len(expired) < len(draft.log.offsets_of(group_id)):
        return
    if stored is not None:
        draft.records.append(fold.group_tombstone(group_id))
    for member_id in draft.group.pending:
        draft.cancel(PendingExpired(group_id, member_id))
    draft.enter(GroupState.DEAD)
    draft.observed.append(GroupDeleted(group=group_id, now=draft.now))


def _expired(draft: GroupDraft, counted_from_ms: int | None) -> list[TopicPartition]:
    retention_ms = draft.config.offsets_retention_ms
    return [
        partition
        for partition, stored in sorted(draft.log.offsets_of(draft.group.group_id).items())
        if is_expired(stored, draft.wall_ms, retention_ms, counted_from_ms)
    ]


def _forget(draft: GroupDraft, partitions: Iterable[TopicPartition]) -> None:
    group_id = draft.group.group_id
    draft.records.extend(offset_tombstone(group_id, partition) for partition in partitions)
