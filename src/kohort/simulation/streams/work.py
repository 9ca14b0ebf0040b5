"""The processing of simulated instances, which count how often each record was processed.

A value has a byte for each record of its key, with the number of times the record was counted. So
the state shows how often each record was processed, and which were lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence

from kohort.client.consumer.records import ConsumerRecord
from kohort.simulation.streams.base import BaseProcess, Disk
from kohort.simulation.streams.scenario import CHANGELOG, INPUT, OUTPUT, STATELESS
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.interface import Output, Pair
from kohort.types import TopicPartition

KEYS = tuple(f"key-{number}".encode() for number in range(5))
_ENOUGH = 200
# Each record with such an offset leads to an output.
OUTPUT_EVERY = 10
_MOST_COUNTED = 255

State = Mapping[bytes, bytes]


def counted(state: State, key: int, first: int, end: int) -> bytes:
    """Return how often each of the records [first, end) of a key was counted."""
    value = state.get(KEYS[key], b"")[_place(first, key) : _place(end, key)]
    return value.ljust(_place(end, key) - _place(first, key), b"\0")


def _place(offset: int, key: int) -> int:
    """Return the number of a key's records before an offset."""
    return (offset - key + len(KEYS) - 1) // len(KEYS) if offset > key else 0


class SimulatedStore:
    """The store of one task.

    Args:
        task: The task that it belongs to.
    """

    def __init__(self, task: SimulatedTask) -> None:
        disk = task.disk
        known = disk is not None and disk.checkpoint is not None
        self.state: dict[bytes, bytes] = dict(disk.flushed) if disk is not None and known else {}
        self._task = task
        self._changed: dict[bytes, bytes] = {}

    def count(self, offset: int) -> None:
        """Count a record."""
        key, at = KEYS[offset % len(KEYS)], offset // len(KEYS)
        value = bytearray(self.state.get(key, b"").ljust(at + 1, b"\0"))
        value[at] = min(value[at] + 1, _MOST_COUNTED)
        self.state[key] = self._changed[key] = bytes(value)

    def restore(self, pairs: Iterable[Pair], /) -> None:
        """Apply changes."""
        for key, value in pairs:
            self.state[key] = value or b""

    def changes(self) -> Sequence[Pair]:
        """Return the changes since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed.items())

    def flush(self) -> None:
        """Write the state to disk."""
        task = self._task
        task.process.step("flush")
        if task.disk is not None and task.process.alive:
            task.disk.flushed = dict(self.state)


class SimulatedTask:
    """One task.

    Args:
        process: Its process.
        task: The task.
        disk: Its disk; None: in memory.
    """

    def __init__(self, process: BaseProcess, task: Task, disk: Disk | None) -> None:
        self.process = process
        self.task = task
        self.disk = disk
        self.outputs: list[Output] = []
        self.stores: dict[str, SimulatedStore] = {}
        self.changelogs: dict[str, str] = {}
        if not task.sub_topology:
            self.stores["counts"] = SimulatedStore(self)
            self.changelogs["counts"] = CHANGELOG
        self._waiting: list[int] = []
        self._positions: dict[TopicPartition, int] = {}

    def add(self, _partition: TopicPartition, records: Sequence[ConsumerRecord], /) -> None:
        """Add records."""
        self._waiting += (each.offset for each in records)

    def is_paused(self, _partition: TopicPartition, /) -> bool:
        """Whether it has enough records."""
        return len(self._waiting) > _ENOUGH

    def set_at_end(self, _partition: TopicPartition, _is_at_end: bool, /) -> None:
        """Do nothing: it only reads one partition."""

    def process_some(self, budget: int, /) -> Awaitable[int]:
        """Process some records, which takes a while."""
        return _Processing(self, budget)

    async def take(self, budget: int) -> int:
        """Process some records, as the scenario has it: at once, or for some time."""
        taken, self._waiting = self._waiting[:budget], self._waiting[budget:]
        if taken:
            takes_ms = self.process.streams.processing_ms()
            if takes_ms:
                await asyncio.sleep(takes_ms / 1000)
            for offset in taken:
                self._process(offset)
            self.process.step("processed")
        return len(taken)

    def _process(self, offset: int) -> None:
        for store in self.stores.values():
            store.count(offset)
        place = self.place
        self._positions[place] = offset + 1
        if offset % OUTPUT_EVERY == 0:
            self.outputs.append(Output(OUTPUT, str(place).encode(), str(offset).encode()))
        self.process.streams_world.processed(self.process, self.task, offset)

    @property
    def place(self) -> TopicPartition:
        """The partition that it reads."""
        topic = STATELESS if self.task.sub_topology else INPUT
        return TopicPartition(topic, self.task.partition)

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the next offsets."""
        return self._positions

    def close(self) -> None:
        """Release the disk."""
        if self.disk is not None and self.disk.user is self.process:
            self.disk.user = None


class SimulatedDirectory:
    """The directory of one task at one instance.

    Args:
        process: The process that opens it.
        task: The task.
        disk: Its content.
    """

    def __init__(self, process: BaseProcess, task: Task, disk: Disk) -> None:
        self.disk = disk
        self._process = process
        self._task = task
        self._place = TopicPartition(CHANGELOG, task.partition)

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        """Return the offset up to which the disk has the changelog."""
        at = self.disk.checkpoint
        return {} if at is None else {self._place: at}

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int], /) -> None:
        """Store such an offset."""
        process, at = self._process, offsets.get(self._place)
        process.step("checkpoint")
        if process.alive and at is not None:
            process.streams_world.checkpointed(process, self._task, self.disk, at)
            self.disk.checkpoint = at


class _Processing:
    """Processing that begins when it is awaited; a killed process may never await it.

    Args:
        task: The task.
        budget: Maximum number of records.
    """

    def __init__(self, task: SimulatedTask, budget: int) -> None:
        self._task = task
        self._budget = budget

    def __await__(self) -> Generator[object, None, int]:
        """Process the records."""
        return self._task.take(self._budget).__await__()
