"""One running task: the steps of a sub-topology, for one partition, over open stores.

Apart from its stores, a task does no I/O, and it knows nothing about brokers. Its runner

* adds fetched records (`add`), takes the next one (`next`), processes it (`process`), and pauses
  the partitions in `paused`;
* commits periodically: `cut` returns outputs, changes of the stores and positions at one moment.
  Send outputs and changes, wait until both are acknowledged, commit the positions to the group,
  then flush the stores and write the checkpoint (`TaskDirectory.commit`).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task
from collections import Counter
from collections.abc import Awaitable, Collection, Mapping
from types import CoroutineType
from typing import Any, TypeAlias

from msgspec import Struct

from kohort.errors import LocalProtocolError
from kohort.streams.app.steps import Anything, Bound, Items, Source
from kohort.streams.app.topology import Program
from kohort.streams.errors import RecordFailedError
from kohort.streams.runtime.buffers import Buffers, InputRecord
from kohort.streams.runtime.failures import current_task, is_of_the_record
from kohort.streams.runtime.interface import Output
from kohort.streams.stores.store import Change, Store
from kohort.types import TopicPartition
from kohort.wire.records.record import Headers

log = logging.getLogger(__name__)

# The awaitable of a coroutine function, and the awaitable of a whole record.
_AWAITABLE = frozenset({CoroutineType, Future, Task})
_NO_HEADERS: Headers = ()

_PREFIX = "__streams.errors."
_LONGEST = 1_000  # maximum length of a message


class Cut(Struct, frozen=True):
    """A task's work since the last cut.

    Attributes:
        outputs: The records to write, in order.
        changes: The changes of each store, by the name of its changelog topic.
        positions: The next offset of each partition with processed records.
    """

    outputs: list[Output]
    changes: dict[str, list[Change]]
    positions: dict[TopicPartition, int]


class _Node:
    """A bound step, and the steps that receive its items."""

    __slots__ = ("call", "children", "finish", "name")

    def __init__(self, name: str, bound: Bound) -> None:
        self.name = name
        self.call, self.finish = bound
        self.children: tuple[_Node, ...] = ()


_Work: TypeAlias = tuple[_Node, Anything, Anything, int]
_Waiting: TypeAlias = tuple[_Node, Anything, Anything, int, Awaitable[Any]]


class StreamTask:
    """A task with restored stores.

    Args:
        program: The program.
        sub_topology: The number of its part.
        partition: The partition of the task.
        stores: The open stores of the part.
        buffered: Number of waiting records at which a partition is paused.

    Attributes:
        outputs: The output since the last `cut`.
        processed: Number of processed records, including skipped ones.
        skipped: Number of records that were skipped or became dead letters, by step.
        dropped: Number of items skipped, by step and reason.

    Raises:
        LocalProtocolError: A store is missing.
    """

    def __init__(
        self,
        program: Program,
        sub_topology: int,
        partition: int,
        stores: Mapping[str, Store],
        *,
        buffered: int = 1_000,
    ) -> None:
        part = program.parts[sub_topology]
        if missing := sorted({step.name for step in part.stores} - stores.keys()):
            raise LocalProtocolError(f"task {sub_topology}_{partition}: no stores {missing}")
        self.outputs: list[Output] = []
        self.processed = 0
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[tuple[str, str]] = Counter()
        self._program = program
        self._partition = partition
        self._stores = {step.name: stores[step.name] for step in part.stores}
        self._open = tuple(self._stores.values())
        self._positions: dict[TopicPartition, int] = {}
        self._record: InputRecord | None = None  # the record being processed
        self._first_output = 0  # index in `outputs` of that record's first output
        self._is_broken = False
        inputs = [TopicPartition(topic, partition) for topic in part.topics]
        self._buffers = Buffers(inputs, buffered)
        nodes = {step.number: _Node(step.name, step.bind(self)) for step in part.steps}
        for step in part.steps:
            for parent in sorted(set(step.parents)):
                nodes[parent].children += (nodes[step.number],)
        self._entries = {
            step.topic: nodes[step.number] for step in part.steps if isinstance(step, Source)
        }

    # ------------------------------------------------------------------------------------- reading

    def add(self, partition: TopicPartition, records: Collection[InputRecord]) -> None:
        """Add fetched records of one of its partitions.

        Raises:
            LocalProtocolError: The partition is not one of its own, or offsets are out of order.
        """
        self._buffers.add(partition, records)

    def set_at_end(self, partition: TopicPartition, is_at_end: bool) -> None:
        """Record whether a partition was read to its end: then `next` does not wait for it."""
        self._buffers.set_at_end(partition, is_at_end)

    def next(self, *, wait: bool = True) -> InputRecord | None:
        """Take the next record by timestamp, or None if it cannot be determined yet.

        Args:
            wait: Whether to wait for partitions that are empty and not at their end.
        """
        return self._buffers.next(wait=wait)

    def awaited(self) -> frozenset[TopicPartition]:
        """Return the partitions that `next` waits for."""
        return self._buffers.awaited()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions to pause."""
        return self._buffers.paused()

    @property
    def buffered(self) -> int:
        """Number of waiting records."""
        return len(self._buffers)

    # ---------------------------------------------------------------------------------- processing

    def process(self, record: InputRecord) -> Awaitable[None] | None:
        """Process one record.

        Returns:
            None when it is done. If a function of the program is a coroutine function, an awaitable
            that must be awaited before the next record.

        Raises:
            RecordFailedError: It cannot be processed, and `on_error` is "stop". It has changed
                neither outputs nor stores; the task cannot continue.
            LocalProtocolError: The previous record is not done or has failed, or this record does
                not belong to the task.
            StateError: A store failed; the task cannot continue.
        """
        self._begin(record)
        entry = self._entries[record.topic]
        work: list[_Work] = [(entry, record.key, record.value, record.timestamp)]
        waiting = self._run(work)
        if waiting is not None:
            return self._await(work, waiting)
        self._end(record)
        return None

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition with processed records."""
        return dict(self._positions)

    def cut(self) -> Cut:
        """Return outputs, changes and positions at this moment, and start the next cut.

        Raises:
            LocalProtocolError: A record is being processed.
        """
        if self._record is not None:
            raise LocalProtocolError("a record is being processed: await it first")
        outputs, self.outputs = self.outputs, []
        changes = {
            self._program.changelog(name): found
            for name, store in self._stores.items()
            if (found := store.changes())
        }
        return Cut(outputs, changes, self.positions())

    @property
    def pending(self) -> int:
        """Number of outputs and changes that wait for a commit."""
        return len(self.outputs) + sum(store.pending for store in self._open)

    # -------------------------------------------------------------------------- for steps (`Run`)

    def store(self, name: str) -> Store:
        """Return an open store."""
        return self._stores[name]

    def emit(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Add a record to the outputs."""
        headers = _NO_HEADERS if self._record is None else self._record.headers
        self.outputs.append(Output(topic, key, value, timestamp, headers))

    def drop(self, step: str, reason: str) -> None:
        """Count an item that a step skips; log the first, second, fourth, eighth, ... one."""
        self.dropped[step, reason] += 1
        count = self.dropped[step, reason]
        if count & (count - 1) == 0:
            log.warning(
                "%s: step %s skips the record: %s (%d so far)",
                _place(self._record),
                step,
                reason,
                count,
            )

    # ------------------------------------------------------------------------------------ running

    def _begin(self, record: InputRecord) -> None:
        if self._is_broken:
            raise LocalProtocolError(
                "the task has failed: close it, restore its stores and create a new one"
            )
        if self._record is not None:
            raise LocalProtocolError(f"{_place(self._record)} is not done yet: await it")
        if record.topic not in self._entries or record.partition != self._partition:
            raise LocalProtocolError(f"{_place(record)} does not belong to this task")
        self._record = record
        self._first_output = len(self.outputs)
        for store in self._open:
            store.begin()

    def _end(self, record: InputRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        self._positions[partition] = record.offset + 1
        self.processed += 1
        self._record = None

    def _run(self, work: list[_Work]) -> _Waiting | None:
        """Run steps depth first; stop at a function that must be awaited."""
        node = work[-1][0]
        try:
            while work:
                node, key, value, time = work.pop()
                result = None
                if node.call is not None:
                    result = node.call(key, value, time)
                    if type(result) in _AWAITABLE:
                        return node, key, value, time, result
                _push(work, node, node.finish(key, value, time, result))
        except BaseException as error:  # noqa: BLE001 - `_fail` raises it, or logs it
            work.clear()
            self._fail(error, node)
        return None

    async def _await(self, work: list[_Work], waiting: _Waiting) -> None:
        """Continue after each awaited function until the record is done."""
        record, runner = self._record, current_task()
        assert record is not None
        going_on: _Waiting | None = waiting
        while going_on is not None:
            node, key, value, time, awaitable = going_on
            try:
                result = await awaitable
                _push(work, node, node.finish(key, value, time, result))
            except BaseException as error:  # noqa: BLE001 - `_fail` raises it, or logs it
                work.clear()
                self._fail(error, node, runner)
            going_on = self._run(work) if work else None
        self._end(record)

    # ------------------------------------------------------------------------------------ failing

    def _fail(
        self, error: BaseException, node: _Node, awaited_by: asyncio.Task[object] | None = None
    ) -> None:
        """Undo the effects of the record, then follow `on_error`."""
        record = self._record
        assert record is not None
        for store in self._open:
            store.undo()
        del self.outputs[self._first_output :]
        is_poison = is_of_the_record(error, awaited_by)
        if not is_poison or self._program.on_error == "stop":
            self._is_broken = True
            self._record = None
            if not is_poison:
                raise error
            place = TopicPartition(record.topic, record.partition)
            raise RecordFailedError(place, record.offset, node.name, _words(error)) from error
        self._pass_over(record, error, node.name)

    def _pass_over(self, record: InputRecord, error: BaseException, step: str) -> None:
        topic = self._program.dead_letter_topic
        self.skipped[step] += 1
        log.warning(
            "%s: the step %s failed (%s); the record is %s",
            _place(record),
            step,
            _words(error),
            "skipped" if topic is None else f"written to {topic}",
            exc_info=error,
        )
        if topic is not None:
            headers = (*record.headers, *error_headers(record, error, step))
            self.outputs.append(Output(topic, record.key, record.value, record.timestamp, headers))


def _push(work: list[_Work], node: _Node, items: Items) -> None:
    """Add items so that the first item for the first child is taken next."""
    children = node.children
    if children:
        for key, value, time in reversed(items):
            work.extend([(child, key, value, time) for child in reversed(children)])


def _place(record: InputRecord | None) -> str:
    return "" if record is None else f"{record.topic}-{record.partition}@{record.offset}"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def error_headers(record: InputRecord, error: BaseException, step: str) -> Headers:
    """Return the headers of a dead letter in addition to those of its record.

    The names are those of KIP-1034. The step replaces the stack trace, which is in the log.
    """
    said = {
        "exception": type(error).__qualname__,
        "message": str(error)[:_LONGEST],
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "step": step,
    }
    return tuple(
        (_PREFIX + name, text.encode(errors="backslashreplace")) for name, text in said.items()
    )
