"""Log state: what the records of the group log add up to.

`LogState.apply` is its only writer, while the coordinator runs and while it loads, so a reloaded
coordinator has the same log state as the one that wrote the log.
"""

from __future__ import annotations

from typing import cast

from immutables import Map

from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.fold import StoredGroup
from kohort.group.coordinator.consumer import configs
from kohort.group.coordinator.consumer import fold as consumer_fold
from kohort.group.coordinator.consumer.group import ConsumerGroup
from kohort.group.coordinator.draft import fold as draft_fold
from kohort.group.coordinator.draft.fold import StoredDraftGroup
from kohort.group.coordinator.offsets.fold import StoredOffset, stored_offset
from kohort.types import TopicPartition
from kohort.values import dataclass, replace
from kohort.wire.messages.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from kohort.wire.messages.draft_records import DraftGroupKey, DraftGroupValue
from kohort.wire.messages.group_config_records import GroupConfigKey, GroupConfigValue
from kohort.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)

Offsets = Map[TopicPartition, StoredOffset]
NO_OFFSETS: Offsets = Map()


@dataclass(frozen=True, slots=True)
class LogState:
    """The fold of the log.

    Attributes:
        groups: Classic groups as last written.
        offsets: Positions of each group that has any.
        draft_groups: Groups of the draft protocol as last written.
        consumer_groups: Groups of the consumer protocol (KIP-848).
        group_configs: What groups have set otherwise than the broker; they need not exist.
    """

    groups: Map[str, StoredGroup] = Map()
    offsets: Map[str, Offsets] = Map()
    draft_groups: Map[str, StoredDraftGroup] = Map()
    consumer_groups: Map[str, ConsumerGroup] = Map()
    group_configs: Map[str, configs.GroupConfigs] = Map()

    def knows(self, group_id: str) -> bool:
        """Whether there is such a group; one that only has positions is a group too (C50)."""
        return (
            group_id in self.groups or group_id in self.offsets or group_id in self.consumer_groups
        )

    def offsets_of(self, group_id: str) -> Offsets:
        """Return the positions of a group, empty when it has none."""
        return self.offsets.get(group_id, NO_OFFSETS)

    def apply(self, record: GroupRecord) -> LogState:
        """Return the state after one more record. A tombstone for nothing is legal (B2)."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            return self._with_offset(key, value if isinstance(value, OffsetCommitValue) else None)
        if isinstance(key, DraftGroupKey):
            return self._with_draft_group(
                key, value if isinstance(value, DraftGroupValue) else None
            )
        if isinstance(key, GroupConfigKey):
            return self._with_config(key, value if isinstance(value, GroupConfigValue) else None)
        if not isinstance(key, GroupMetadataKey):
            return self._with_consumer_group(key, cast("ConsumerGroupValue | None", value))
        if isinstance(value, GroupMetadataValue):
            group = fold.stored_group(value)
            return replace(self, groups=self.groups.set(key.group, group))
        if key.group in self.groups:
            return replace(self, groups=self.groups.delete(key.group))
        return self

    def _with_consumer_group(
        self, key: ConsumerGroupKey, value: ConsumerGroupValue | None
    ) -> LogState:
        groups = self.consumer_groups
        before = groups.get(key.group_id)
        after = consumer_fold.apply(before, key, value)
        if after is before:
            return self
        if after is None:
            return replace(self, consumer_groups=groups.delete(key.group_id))
        return replace(self, consumer_groups=groups.set(key.group_id, after))

    def _with_config(self, key: GroupConfigKey, value: GroupConfigValue | None) -> LogState:
        known = self.group_configs
        if value is not None:
            return replace(self, group_configs=known.set(key.group, configs.fold(value)))
        return replace(self, group_configs=known.delete(key.group)) if key.group in known else self

    def _with_draft_group(self, key: DraftGroupKey, value: DraftGroupValue | None) -> LogState:
        groups = self.draft_groups
        if value is not None:
            return replace(self, draft_groups=groups.set(key.group, draft_fold.stored_group(value)))
        return replace(self, draft_groups=groups.delete(key.group)) if key.group in groups else self

    def _with_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> LogState:
        partition = TopicPartition(key.topic, key.partition)
        offsets = self.offsets_of(key.group)
        if value is not None:
            offsets = offsets.set(partition, stored_offset(value))
        elif partition in offsets:
            offsets = offsets.delete(partition)
        else:
            return self
        if offsets:
            return replace(self, offsets=self.offsets.set(key.group, offsets))
        return replace(self, offsets=self.offsets.delete(key.group))
