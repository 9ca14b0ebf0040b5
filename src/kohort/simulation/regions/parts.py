"""What surrounds the processes of a simulated region: the control log, the records, the sink."""

from __future__ import annotations

from collections.abc import Callable

from immutables import Map
from msgspec import Struct, field

from kohort.region.machines.coding import decode
from kohort.region.machines.records import OperatorId, RegionPartition, RegionRecord
from kohort.simulation.chance import Stream


class ControlLog:
    """One compacted partition.

    Attributes:
        end: Offset of the next record.
        entries: What is left, by offset, in order.
        everything: All that was ever appended.
    """

    def __init__(self) -> None:
        self.end = 0
        self.everything: list[tuple[bytes, bytes | None]] = []
        self.entries: dict[int, tuple[bytes, bytes | None]] = {}
        self.decoded: dict[tuple[bytes | None, bytes], RegionRecord] = {}

    def append(self, batch: list[tuple[bytes, bytes | None]]) -> int:
        """Append a batch, and return the offset behind it."""
        self.everything += batch
        for each in batch:
            self.entries[self.end] = each
            self.end += 1
        return self.end

    def compact(self, chance: Stream) -> int:
        """Do what Kafka's cleaner may do now, and return how many records went.

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
        """As the real thing, but each record once."""
        known = self.decoded.get((key, value))
        if known is None:
            known = self.decoded[key, value] = decode(key, value)
        return known


class Piece(Struct, frozen=True):
    """What an operator wrote: the records of a partition between two offsets.

    Attributes:
        partition: The partition.
        first: Offset of the first record.
        end: Offset behind the last one.
        before: The state that the function had before the first of them.
        after: The state after the last.
    """

    partition: RegionPartition
    first: int
    end: int
    before: int
    after: int


def advanced(state: int, partition: RegionPartition, first: int, end: int) -> int:
    """Return what the function makes of a state with these records: all of them in order."""
    for offset in range(first, end):
        state = (state * 31 + offset * 7 + partition.partition + 1) % 2_147_483_647
    return state


class Source(Struct):
    """The topic: each partition holds the integers from 0 on.

    Attributes:
        life: How often the topic was made.
        ends: End of each partition.
    """

    life: int = 1
    ends: dict[RegionPartition, int] = field(default_factory=dict)

    def add(self) -> None:
        """Add a partition to the topic that there is."""
        number = sum(each.topic_id == self.topic_id for each in self.ends)
        self.ends[RegionPartition("numbers", self.topic_id, number)] = 0

    @property
    def topic_id(self) -> str:
        """Id of the topic that there is."""
        return f"life-{self.life}"

    @property
    def partitions(self) -> list[RegionPartition]:
        """Partitions of the topic that there is."""
        return [each for each in self.ends if each.topic_id == self.topic_id]

    def counts(self) -> Map[str, int]:
        """Return how many partitions the topic has, by its id."""
        return Map({self.topic_id: len(self.partitions)})

    def recreate(self) -> None:
        """Delete the topic, and make it again."""
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
        watch: Is told each commit.
    """

    watch: Callable[[int, dict[OperatorId, str]], None]
    visible: list[int] = field(default_factory=list)
    files: dict[str, list[Piece]] = field(default_factory=dict)
    states: dict[str, tuple[RegionPartition, int, int]] = field(default_factory=dict)

    def commit(self, checkpoint: int, outputs: dict[OperatorId, str]) -> None:
        """Make a checkpoint visible; nothing happens if it is."""
        if not self.visible or checkpoint > self.visible[-1]:
            self.visible.append(checkpoint)
            self.watch(checkpoint, outputs)
