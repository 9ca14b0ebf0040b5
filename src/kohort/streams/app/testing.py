"""A driver that runs a program in memory, without a broker, to test applications.

    driver = app.test()
    driver.send("flights", "D-1", {"delay": 5}, timestamp=0)
    assert driver.read("delays") == [("D-1", 5)]

All tasks run in the calling thread, with stores in memory. If the program also reads a topic that
it writes, its records are processed before `send` returns. `restart` drops the tasks and restores
their state from the changelogs, as a move to another process does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable
from types import TracebackType
from typing import NamedTuple, Self

from kohort.client.producer.partitioner import partition_for_key
from kohort.errors import LocalProtocolError
from kohort.streams.app.serdes import Decoded
from kohort.streams.app.steps import Sink, Source, Storing
from kohort.streams.app.topology import Program
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import StreamsError
from kohort.streams.runtime.interface import Output
from kohort.streams.runtime.task import StreamTask
from kohort.streams.stores.memory import MemoryStore
from kohort.streams.stores.store import Change
from kohort.types import TopicPartition
from kohort.wire.records.record import Headers


class DriverRecord(NamedTuple):
    """A record as a consumer would return it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class TestDriver:
    """Runs a program in memory.

    Args:
        program: The program.
        partitions: Number of partitions of every topic.

    Attributes:
        program: As given.
        tasks: Its tasks.
        time_ms: The timestamp of records sent without one.
    """

    __test__ = False  # stops pytest from collecting the class because of its name

    def __init__(self, program: Program, partitions: int = 1) -> None:
        self.program = program
        self.time_ms = 0
        self.tasks: dict[Task, StreamTask] = {}
        self._partitions = partitions
        self._ends: Counter[TopicPartition] = Counter()
        self._changelogs: defaultdict[tuple[str, int], list[Change]] = defaultdict(list)
        self._written: defaultdict[str, list[Output]] = defaultdict(list)
        self._runner: asyncio.Runner | None = None
        steps = [step for part in program.parts for step in part.steps]
        self._sources = {step.topic: step for step in steps if isinstance(step, Source)}
        self._sinks = {step.topic: step for step in steps if isinstance(step, Sink)}
        self._start()

    def send(
        self,
        topic: str,
        key: Decoded,
        value: Decoded,
        *,
        timestamp: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write a record to a topic that the program reads; process it and all resulting records.

        Args:
            topic: The topic.
            key: The record's key, serialized with the topic's serde; None: no key.
            value: The record's value, serialized with the topic's serde; None: no value.
            timestamp: The record's timestamp in milliseconds; `time_ms` by default.
            partition: The record's partition; by default chosen by its key.
            headers: The record's headers.

        Raises:
            RecordFailedError: The record cannot be processed, and `on_error` is "stop".
            LocalProtocolError: The program does not read the topic.
        """
        source = self._source(topic)
        self.send_bytes(
            topic,
            None if key is None else source.key.serialize(key),
            None if value is None else source.value.serialize(value),
            timestamp=timestamp,
            partition=partition,
            headers=headers,
        )

    def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send raw bytes, including bytes that no serializer returns."""
        self._source(topic)
        time = self.time_ms if timestamp is None else timestamp
        self._deliver(Output(topic, key, value, time, headers), partition)

    def read(self, topic: str) -> list[tuple[Decoded, Decoded]]:
        """Return the decoded keys and values of a topic's records since the last call."""
        sink = self._sinks[topic]
        read_key, read_value = sink.key.deserialize, sink.value.deserialize
        return [
            (
                None if each.key is None else read_key(each.key),
                None if each.value is None else read_value(each.value),
            )
            for each in self.read_records(topic)
        ]

    def read_records(self, topic: str) -> list[Output]:
        """Return a topic's records since the last call, undecoded; topics include dead letters."""
        return self._written.pop(topic, [])

    def table(self, name: str) -> dict[Decoded, Decoded]:
        """Return the decoded content of a store in all its tasks, without closed windows."""
        number, step = self._store(name)
        return {
            key: value
            for task, running in self.tasks.items()
            if task.sub_topology == number
            for key, value in step.items(running.store(name))
        }

    def changelog(self, name: str, partition: int = 0) -> list[Change]:
        """Return the changelog of a store so far."""
        self._store(name)
        return list(self._changelogs[self.program.changelog(name), partition])

    def restart(self) -> None:
        """Replace all tasks by new ones, with state restored from the changelogs."""
        self.tasks.clear()
        self._start()

    def close(self) -> None:
        """Close the event loop of the coroutine functions, if there is one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        """Return the driver itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the driver."""
        self.close()

    # ------------------------------------------------------------------------------------ running

    def _start(self) -> None:
        for part in self.program.parts:
            for partition in range(self._partitions):
                stores = {step.name: MemoryStore(step.name) for step in part.stores}
                for name, store in stores.items():
                    store.restore(self._changelogs[self.program.changelog(name), partition])
                task = Task(part.number, partition)
                self.tasks[task] = StreamTask(self.program, part.number, partition, stores)

    def _deliver(self, first: Output, partition: int | None = None) -> None:
        """Process a record and, in order, all records that result from it."""
        waiting = [(first, partition)]
        while waiting:
            record, where = waiting.pop(0)
            for made in self._process(record, where):
                self._written[made.topic].append(made)
                if made.topic in self._sources:
                    waiting.append((made, None))

    def _process(self, record: Output, partition: int | None) -> list[Output]:
        if partition is None:
            partition = self._partition(record.key)
        place = TopicPartition(record.topic, partition)
        _, key, value, timestamp, headers = record
        arrived = DriverRecord(*place, self._ends[place], timestamp, key, value, headers)
        self._ends[place] += 1
        task = self.tasks[Task(self.program.topology.number_of[record.topic], partition)]
        task.add(place, [arrived])
        taken = task.next(wait=False)
        assert taken is not None
        waiting = task.process(taken)
        if waiting is not None:
            self._run(waiting)
        cut = task.cut()
        for topic, changes in cut.changes.items():
            self._changelogs[topic, partition] += changes
        for step in self.program.parts[self.program.topology.number_of[record.topic]].stores:
            task.store(step.name).flush()
        return cut.outputs

    def _run(self, waiting: Awaitable[None]) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def run() -> None:
            await waiting

        self._runner.run(run())

    def _partition(self, key: bytes | None) -> int:
        return 0 if key is None else partition_for_key(key, self._partitions)

    def _source(self, topic: str) -> Source:
        if topic not in self._sources:
            raise LocalProtocolError(
                f"the program reads {sorted(self.program.source_topics)}, not {topic}"
            )
        return self._sources[topic]

    def _store(self, name: str) -> tuple[int, Storing]:
        for part in self.program.parts:
            for step in part.stores:
                if step.name == name:
                    return part.number, step
        names = sorted(step.name for part in self.program.parts for step in part.stores)
        raise StreamsError(f"there is no store {name!r}; there are {names}")
