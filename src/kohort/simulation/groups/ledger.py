"""The simulation's own records, independent of the machines, for the checkers.

Nothing here relies on a machine. The group log is folded separately, from its bytes. Deliveries and
accepted commits are recorded as they happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec import Struct, field

from kohort.group.coordinator.classic.fold import StoredGroup
from kohort.group.coordinator.state import LogState
from kohort.group.events import (
    Assigned,
    GenerationStarted,
    GroupEvent,
    ProtocolChanged,
    RebalanceStarted,
)
from kohort.group.subscription import decode_subscription
from kohort.simulation.groups.log import Encoded, decoded
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import (
    GroupMetadataKey,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP = "delays"


class Reading(Struct):
    """The group's progress in a partition.

    Attributes:
        delivered: Every record below was delivered to some member.
        is_clean: Whether the last owner had committed all records it had read when it gave it up.
        is_tainted: Whether guarantees no longer hold: the topic was deleted, and a late commit for
            the old topic looks like one for the new topic (before KIP-516); or the log lost its
            owner.
        repeated: How many records were handed out more than once.
    """

    delivered: int = 0
    is_clean: bool = False
    is_tainted: bool = False
    repeated: int = 0


class Ledger(Struct):
    """The history of a run so far.

    Attributes:
        fold: The fold of the group log, from its bytes.
        readings: The group's progress in each partition.
        positions: For each client and partition, the next offset to deliver.
        generations: How many generations began.
        rebalances: How many rebalances began.
        lost_at: When each former member lost its membership.
        newest: The newest generation the coordinator has begun, or loaded.
        assigned_ms: When the newest assignment was accepted.
        newest_epoch: The highest epoch that a consumer group's log had.
        generations_at_calm: How many generations had begun when faults stopped.
        before: Each group before its last record.
    """

    fold: LogState = field(default_factory=LogState)
    readings: dict[TopicPartition, Reading] = field(default_factory=dict)
    positions: dict[tuple[str, int, TopicPartition], int] = field(default_factory=dict)
    generations: int = 0
    rebalances: int = 0
    lost_at: dict[tuple[str, int], int] = field(default_factory=dict)
    newest: int = -1
    assigned_ms: int = 0
    newest_epoch: int = 0
    generations_at_calm: int = 0
    before: dict[str, StoredGroup | None] = field(default_factory=dict)

    def append(self, written: Iterable[Encoded]) -> None:
        """Fold newly written records."""
        for key, value in written:
            read = decoded(key, value)
            if read is not None:
                if isinstance(read.key, GroupMetadataKey):
                    self.before[read.key.group] = self.fold.groups.get(read.key.group)
                elif isinstance(read.key, OffsetCommitKey):
                    self._positioned(read.key, read.value)
                self.fold = self.fold.apply(read)

    def cut(self, records: Iterable[GroupRecord], names: Mapping[UUID, str]) -> None:
        """Restart from the intact part of a damaged log: later confirmations are lost.

        Positions go back, so records are read again. A member keeps partitions of its epoch that
        the coordinator no longer knows about; no guarantees hold for them.

        Args:
            records: The intact records.
            names: The topics by their ids.
        """
        before, self.fold = self.fold, LogState()
        for record in records:
            self.fold = self.fold.apply(record)
        positions, left = before.offsets_of(GROUP), self.fold.offsets_of(GROUP)
        for partition in {*positions, *left}:
            if positions.get(partition) != left.get(partition):
                self.reading(partition).is_clean = False
        for _, topic_id, number in _given(before) - _given(self.fold):
            if topic_id in names:
                self.reading(TopicPartition(names[topic_id], number)).is_tainted = True
        self.before.clear()
        self.newest_epoch = 0

    def _positioned(self, key: OffsetCommitKey, value: GroupValue | None) -> None:
        """Note that records will be read again after a position was deleted or went back.

        A commit in flight while its partition is given up may arrive after a newer commit.
        """
        reading = self.reading(TopicPartition(key.topic, key.partition))
        offset = value.offset if isinstance(value, OffsetCommitValue) else -1
        if key.group == GROUP and offset < reading.delivered:
            reading.is_clean = False

    def loaded(self, log: LogState) -> None:
        """Note that a coordinator has loaded the log."""
        stored = log.groups.get(GROUP) or log.draft_groups.get(GROUP)
        self.newest = stored.generation if stored is not None else 0

    def before_last(self, group_id: str) -> StoredGroup | None:
        """Return a group before its last record."""
        return self.before.get(group_id)

    def members(self, group_id: str) -> frozenset[str]:
        """Return the ids of the members in the log."""
        stored = self.fold.groups.get(group_id)
        if stored is not None:
            return frozenset(stored.members)
        draft = self.fold.draft_groups.get(group_id)
        if draft is not None:
            return frozenset(draft.consumers)
        consumer = self.fold.consumer_groups.get(group_id)
        return frozenset(consumer.members) if consumer is not None else frozenset()

    def subscriptions(self, group_id: str) -> dict[str, frozenset[str]]:
        """Return the topics that each member in the log subscribes to."""
        stored = self.fold.groups.get(group_id)
        consumer = self.fold.consumer_groups.get(group_id)
        if consumer is not None:
            return {i: consumer.topics_of(m) for i, m in sorted(consumer.members.items())}
        draft = self.fold.draft_groups.get(group_id)
        if draft is not None:
            return {i: frozenset(each.topics) for i, each in sorted(draft.consumers.items())}
        if stored is None:
            return {}
        return {
            member_id: decode_subscription(member.subscription).topics
            for member_id, member in sorted(stored.members.items())
        }

    def reading(self, partition: TopicPartition) -> Reading:
        """Return how far a partition was read."""
        found = self.readings.get(partition)
        if found is None:
            found = self.readings[partition] = Reading()
        return found

    def committed(self, group_id: str, partition: TopicPartition) -> int:
        """Return the offset stored for a partition, -1 for none."""
        stored = self.fold.offsets_of(group_id).get(partition)
        return stored.offset if stored is not None else -1

    def note_reset(self, partition: TopicPartition) -> None:
        """Note that a position beyond the end of a recreated topic was reset."""
        self.reading(partition).is_tainted = True

    def observe(self, event: GroupEvent) -> None:
        """Count the coordinator's events."""
        if isinstance(event, GenerationStarted):
            self.generations += 1
            if event.group == GROUP:
                self.newest = event.generation
        elif isinstance(event, ProtocolChanged) and event.group == GROUP:
            self.newest = event.generation
        elif isinstance(event, Assigned):
            self.assigned_ms = event.now
        elif isinstance(event, RebalanceStarted):
            self.rebalances += 1


def _given(log: LogState) -> set[tuple[str, UUID, int]]:
    """Return each member's partitions in the log, including those it has yet to give up."""
    group = log.consumer_groups.get(GROUP)
    return {
        (member.member_id, topic_id, number)
        for member in (group.members.values() if group is not None else ())
        for owned in (member.assigned, member.revoking)
        for topic_id, numbers in owned.items()
        for number in numbers
    }
