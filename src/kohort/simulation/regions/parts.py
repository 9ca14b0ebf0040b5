"""The surroundings of a simulated region's processes: the control log, the records, the sink."""

from __future__ import annotations

from collections.abc import Callable

from immutables import Map
from msgspec import Struct, field

from kohort.region.machines.coding import decode
from kohort.region.machines.records import OperatorId, RegionPartition, RegionRecord
from kohort.simulation.engine import Stream


class ControlLog:
    """One compacted partition.

    Attributes:
        end: Offset of the next record.
        entries: The remaining records, by offset, in order.
        everything: All records ever appended, including compacted ones.
    """

    def __init__(self) -> None:
        self.end = 0
        self.everything: list[tuple[bytes, bytes | None]] = []
        self.entries: dict[int, tuple[bytes, bytes | None]] = {}
        self.decoded: dict[tuple[bytes | None, bytes], RegionRecord] = {}

    def append(self, batch: list[tuple[bytes, bytes | None]]) -> int:
        """Append a batch, and return the offset after it."""
        self.everything += batch
        for each in batch:
            self.entries[self.end] = each
            self.end += 1
        return self.end

    def compact(self, chance: Stream) -> int:
        """Compact like Kafka's cleaner, and return how many records were removed.

        Up to some offset only the last record of each key stays; tombstones may go too.
        """
        until = chance.between(0, self.end)
        removes_tombstones = chance.happens(0.7)
        last = {key: offset for offset, (key, _) in self.entries.items()}
        gone = [
            offset
            for offset, (key, value) in self.entries.items()
            if offset < until and (last[key] != offset or (value is None and removes_tombstones))
        ]
        for offset in gone:
            del self.entries[offset]
        return len(gone)

    def decode(self, key: bytes | None, value: bytes) -> RegionRecord:
        """Decode like the real function, but each record only once."""
        known = self.decoded.get((key, value))
        if known is None:
            known = self.decoded[key, value] = decode(key, value)
        return known


class Piece(Struct, frozen=True):
    """Output of an operator: the records of a partition between two offsets.

    Attributes:
        partition: The partition.
        first: Offset of the first record.
        end: Offset after the last one.
        before: The function's state before the first record.
        after: The function's state after the last record.
    """

    partition: RegionPartition
    first: int
    end: int
    before: int
    after: int


def advanced(state: int, partition: RegionPartition, first: int, end: int) -> int:
    """Return the function's new state after these records, in order."""
    for offset in range(first, end):
        state = (state * 31 + offset * 7 + partition.partition + 1) % 2_147_483_647
    return state


class Source(Struct):
    """The topic: each partition holds the integers from 0 on.

    Attributes:
        life: How often the topic was created.
        ends: End of each partition.
    """

    life: int = 1
    ends: dict[RegionPartition, int] = field(default_factory=dict)

    def add(self) -> None:
        """Add a partition to the present topic."""
        number = sum(each.topic_id == self.topic_id for each in self.ends)
        self.ends[RegionPartition("numbers", self.topic_id, number)] = 0

    @property
    def topic_id(self) -> str:
        """Return the id of the present topic."""
        return f"life-{self.life}"

    @property
    def partitions(self) -> list[RegionPartition]:
        """Return the partitions of the present topic."""
        return [each for each in self.ends if each.topic_id == self.topic_id]

    def counts(self) -> Map[str, int]:
        """Return the partition count of the topic, by its id."""
        return Map({self.topic_id: len(self.partitions)})

    def recreate(self) -> None:
        """Delete and recreate the topic."""
        count = len(self.partitions)
        self.life += 1
        for _ in range(count):
            self.add()


class Sink(Struct):
    """Where output becomes visible, one atomic commit for each checkpoint.

    Attributes:
        visible: The checkpoints that are visible, in order.
        files: What operators wrote, by reference.
        states: States that operators wrote, by reference: partition, offset, state.
        watch: Called with each commit.
    """

    watch: Callable[[int, dict[OperatorId, str]], None]
    visible: list[int] = field(default_factory=list)
    files: dict[str, list[Piece]] = field(default_factory=dict)
    states: dict[str, tuple[RegionPartition, int, int]] = field(default_factory=dict)

    def commit(self, checkpoint: int, outputs: dict[OperatorId, str]) -> None:
        """Make a checkpoint visible, unless it is visible already."""
        if not self.visible or checkpoint > self.visible[-1]:
            self.visible.append(checkpoint)
            self.watch(checkpoint, outputs)
