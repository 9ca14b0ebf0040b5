"""Runs the application's function between the records and the sink; checkpoints cut its work.

One `Work` belongs to one operator. The event loop puts items into its inbox, and one thread (or one
task) processes them in order. Commands overtake records: a reset must not wait behind records that
it discards, nor a checkpoint behind a full queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from immutables import Map
from msgspec import Struct

from kohort.client.consumer._consumer_records import bytes_of
from kohort.errors import KohortError
from kohort.region.errors import FunctionError, RegionOrderError, SinkError, StateLimitError
from kohort.region.machines.coding import output_of
from kohort.region.machines.events import CutMade, Delivered, Discarded, Stopped
from kohort.region.machines.records import Partitions, RegionPartition
from kohort.region.states import ALL_BYTES_MAX, KeyedState, check_size

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord
    from kohort.region.sinks.sink import CutWriter

Rows: TypeAlias = "Iterable[Mapping[str, Any]] | Any | None"
Function: TypeAlias = "Callable[[RegionPartition, Sequence[ConsumerRecord], KeyedState], Rows]"


_POLLED_BATCHES = 4
# Maximum bytes of records that wait for the function, besides those that the consumer has fetched.
WAITING_BYTES_MAX = 64 * 1024 * 1024


class Batch(Struct, frozen=True):
    """Records of one partition, in order.

    Attributes:
        partition: Their partition.
        read: Number of the `Read` that they came from.
        records: The records.
    """

    partition: RegionPartition
    read: int
    records: Sequence[ConsumerRecord]


class Load(Struct, frozen=True):
    """Read a partition from an offset, with a state."""

    partition: RegionPartition
    read: int
    offset: int
    state: bytes


class Stop(Struct, frozen=True):
    """Stop reading partitions; their deliveries stay part of the next cut."""

    partitions: Partitions


class Discard(Struct, frozen=True):
    """Discard everything since the last complete checkpoint: a new attempt begins."""

    attempt: int


class Cut(Struct, frozen=True):
    """Make a cut: hand over everything delivered."""

    checkpoint: int
    attempt: int


class CutParts(Struct, frozen=True):
    """The parts of a cut before its states are stored.

    Attributes:
        cut: The cut, without references to states.
        states: The states that changed.
    """

    cut: CutMade
    states: Mapping[RegionPartition, bytes]


Command: TypeAlias = Load | Stop | Discard | Cut
Item: TypeAlias = Command | Batch
Report: TypeAlias = Delivered | Stopped | Discarded | CutParts


class _Open:
    """A partition that is being read."""

    __slots__ = ("next_offset", "read", "state", "stopped", "stored")

    def __init__(self, load: Load) -> None:
        self.read = load.read
        self.next_offset = load.offset
        self.state = KeyedState.from_bytes(load.state)
        self.stored = load.state
        self.stopped = False


class Inbox:
    """Items for the worker thread; commands come first.

    Args:
        capacity: Maximum number of waiting records.
        capacity_bytes: Maximum bytes of their keys, values and headers.
        batch_max: Maximum number of records per call of the function.

    Attributes:
        polled_max: Number of records per poll: several batches, because polls are costly.
    """

    def __init__(
        self, capacity: int, capacity_bytes: int = WAITING_BYTES_MAX, batch_max: int = 500
    ) -> None:
        self.polled_max = _POLLED_BATCHES * batch_max
        self._batch_max = batch_max
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._ready = threading.Condition()
        self._commands: deque[Command] = deque()
        self._batches: deque[tuple[Batch, int]] = deque()
        # The records that a drain keeps from the function; None: no drain.
        self._drained: deque[tuple[Batch, int]] | None = None
        self._records = 0
        self._bytes = 0
        self._closed = False

    @property
    def pending(self) -> int:
        """Number of waiting records."""
        return self._records

    @property
    def is_full(self) -> bool:
        """Whether reading should pause."""
        return self._records >= self._capacity or self._bytes >= self._capacity_bytes

    def put_records(
        self, partition: RegionPartition, read: int, records: Sequence[ConsumerRecord]
    ) -> None:
        """Add records of one partition, divided into batches."""
        for start in range(0, len(records), self._batch_max):
            self.put(Batch(partition, read, records[start : start + self._batch_max]))

    def put(self, item: Item) -> None:
        """Add an item; a discard drops the waiting records."""
        size = bytes_of(item.records) if isinstance(item, Batch) else 0
        with self._ready:
            if isinstance(item, Batch):
                waiting = self._batches if self._drained is None else self._drained
                waiting.append((item, size))
                self._records += len(item.records)
                self._bytes += size
            else:
                if isinstance(item, Discard):
                    self._batches.clear()
                    self._drained = None if self._drained is None else deque()
                    self._records = self._bytes = 0
                self._commands.append(item)
            self._ready.notify()

    def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None if none arrived in time, or none will arrive."""
        with self._ready:
            self._ready.wait_for(self._has_any, timeout_s)
            if self._commands:
                return self._commands.popleft()
            if self._batches and not self._closed:
                batch, size = self._batches.popleft()
                self._records -= len(batch.records)
                self._bytes -= size
                return batch
            return None

    def set_aside(self) -> None:
        """Move the waiting records to the drain buffer until `put_back`; commands continue."""
        with self._ready:
            self._drained = deque() if self._drained is None else self._drained
            self._drained.extend(self._batches)
            self._batches.clear()

    def put_back(self) -> None:
        """Return the records in the drain buffer, if there is one, to the function's queue."""
        with self._ready:
            if self._drained is not None:
                self._batches, self._drained = self._drained, None
                self._ready.notify()

    def _has_any(self) -> bool:
        return bool(self._commands or self._batches or self._closed)

    @property
    def is_closed(self) -> bool:
        """Whether no further item will arrive."""
        return self._closed

    def close(self) -> None:
        """Wake up the waiting thread."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()


class Work:
    """Tracks positions, states and output of one operator; used by one thread.

    Args:
        report: Called with the result of an item, from any thread.
        writer_for: Returns the writer for the output of an attempt.
    """

    def __init__(
        self, report: Callable[[Report], None], writer_for: Callable[[int], CutWriter]
    ) -> None:
        self._report = report
        self._writer_for = writer_for
        self._open: dict[RegionPartition, _Open] = {}
        self._writer: CutWriter | None = None

    def _out(self) -> CutWriter:
        if self._writer is None:
            self._writer = self._writer_for(0)
        return self._writer

    def admit(self, batch: Batch) -> KeyedState | None:
        """Return the state to call the function with; None: the batch is from an old `Read`.

        Raises:
            RegionOrderError: Its records were already delivered.
        """
        found = self._open.get(batch.partition)
        if found is None or found.read != batch.read or found.stopped:
            return None
        first = batch.records[0].offset
        if first < found.next_offset:
            raise RegionOrderError(
                f"records of {batch.partition} are repeated: offset {first} after "
                f"{found.next_offset - 1}"
            )
        return found.state

    def delivered(self, batch: Batch, rows: Rows) -> None:
        """Accept the rows that the function returned for a batch.

        Raises:
            FunctionError: The rows cannot be written; the message names their records.
            KohortError: The sink refuses them.
        """
        if rows is not None:
            try:
                self.write(batch.partition, rows)
            except KohortError:
                raise
            except Exception as error:
                raise FunctionError(
                    f"what the function returned for {_offsets(batch)} cannot be written: "
                    f"{type(error).__name__}: {error}"
                ) from error
        self.advance(batch.partition, batch.records[-1].offset + 1)

    def write(self, partition: RegionPartition, rows: Rows) -> None:
        """Write rows to the sink."""
        self._out().write(partition, rows)

    def advance(
        self, partition: RegionPartition, next_offset: int, state: bytes | None = None
    ) -> None:
        """Record that everything before an offset was delivered.

        Args:
            partition: A partition that is being read.
            next_offset: The offset.
            state: Its state at that offset; None: the function has changed it in place.
        """
        found = self._open[partition]
        if state is not None:
            found.state = KeyedState.from_bytes(state)
        found.next_offset = next_offset
        self._report(Delivered(partition, next_offset, found.read))

    def positions(self) -> dict[RegionPartition, int]:
        """Return the partitions being read, with the offset of each one's next record."""
        return {place: each.next_offset for place, each in self._open.items() if not each.stopped}

    def state_of(self, partition: RegionPartition) -> bytes:
        """Return the state of a partition that is being read."""
        return self._open[partition].state.to_bytes()

    def obey(self, command: Command) -> None:
        """Carry out a command, and report its result."""
        match command:
            case Load():
                self._open[command.partition] = _Open(command)
            case Stop():
                self._stop(command.partitions)
            case Discard():
                self._discard(command)
            case Cut():
                self._cut(command)

    def _stop(self, partitions: Partitions) -> None:
        for each in partitions:
            if each in self._open:
                self._open[each].stopped = True
        self._report(Stopped(partitions))

    def _discard(self, command: Discard) -> None:
        if self._writer is not None:
            self._writer.abort()
        self._open.clear()
        self._writer = self._writer_for(command.attempt)
        self._report(Discarded(command.attempt))

    def _cut(self, command: Cut) -> None:
        states = self._changed_states()
        output = _checked(
            command.checkpoint, self._out().prepare(command.checkpoint, command.attempt)
        )
        positions = {place: each.next_offset for place, each in self._open.items()}
        reads = {place: each.read for place, each in self._open.items()}
        for place, state in states.items():
            self._open[place].stored = state
        for place in [place for place, each in self._open.items() if each.stopped]:
            del self._open[place]
        of = (command.checkpoint, command.attempt)
        cut = CutMade(*of, Map(positions), Map(reads), Map(), output)
        self._report(CutParts(cut, states))

    def _changed_states(self) -> dict[RegionPartition, bytes]:
        stored = {place: _stored(place, each.state) for place, each in self._open.items()}
        for place, state in stored.items():
            check_size(place, state)
        whole = sum(map(len, stored.values()))
        if whole > ALL_BYTES_MAX:
            raise StateLimitError(
                f"the states of {len(stored)} partitions have {whole} bytes together, and a "
                f"region allows {ALL_BYTES_MAX} in one operator"
            )
        return {p: state for p, state in stored.items() if state != self._open[p].stored}


def _checked(checkpoint: int, output: object) -> str:
    """Return a reference to output after checking that it fits into a record.

    Raises:
        SinkError: It is invalid.
    """
    try:
        return output_of(output)
    except (TypeError, ValueError) as error:
        raise SinkError(
            f"the sink returned {str(output)[:40]!r} as its reference to the output of checkpoint "
            f"{checkpoint}, which is {error}. It must be a text of at most 65,536 characters, "
            "and empty only when nothing was written"
        ) from error


def call(function: Function, batch: Batch, state: KeyedState) -> Rows:
    """Call the application's function.

    Raises:
        FunctionError: It raised an exception; the message names the records.
    """
    try:
        rows = function(batch.partition, batch.records, state)
        return rows if rows is None or not hasattr(rows, "__next__") else list(rows)
    except Exception as error:
        raise failed(batch, error) from error


def failed(batch: Batch, error: BaseException) -> FunctionError:
    """Return the error of a function that raised an exception."""
    return FunctionError(
        f"the function raised {type(error).__name__} for {_offsets(batch)}: {error}"
    )


def _offsets(batch: Batch) -> str:
    first, last = batch.records[0].offset, batch.records[-1].offset
    return f"offsets {first} to {last} of {batch.partition}"


def _stored(partition: RegionPartition, state: KeyedState) -> bytes:
    try:
        return state.to_bytes()
    except (TypeError, ValueError) as error:
        raise FunctionError(f"the state of {partition} cannot be stored: {error}") from error
