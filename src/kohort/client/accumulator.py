"""Records on their way to the brokers: batches per partition, in order, within a bound of memory.

Without I/O, clock and locks. Times are milliseconds of the caller's clock. Records are added to
`OpenBatches`, which threads share under a lock; the batches that it has sealed go on to the
`Accumulator`, which belongs to the loop alone.

The order of an idempotent producer (KIP-98) is kept like this. A batch gets its sequence number
when it is first taken. One that must be sent again goes back to the head of its partition, and from
there on one batch at a time is in flight until none of them is left. A batch that the broker calls
out of order while an earlier one is undecided is only early. When the first undecided one is called
so, something before it never arrived: if that is known (a batch was given up), nothing after it can
have been written either, so the rest is numbered anew under the next epoch; if not, the broker has
lost what it acknowledged.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from kohort.types import TopicPartition
from kohort.values import dataclass
from kohort.wire.records import Compression, RecordBatchBuilder
from kohort.wire.schema import Buffer

D = TypeVar("D")

# What a record takes in a batch beside its key and value, at most: its varints and attributes.
RECORD_OVERHEAD = 30
HEADER_OVERHEAD = 10

_MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF


def record_size(
    key: Buffer | None, value: Buffer | None, headers: Iterable[tuple[str, Buffer | None]]
) -> int:
    """Return about how many bytes a record takes in a batch, rather too many."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # A character of a name takes up to four bytes.
        size += HEADER_OVERHEAD + 4 * len(name) + (0 if content is None else len(content))
    return size


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an idempotent producer is.

    Attributes:
        producer_id: Given by the broker.
        epoch: Likewise.
    """

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Numbering:
    """The place of a batch in the broker's book of a partition; -1 everywhere for no place.

    Attributes:
        producer_id: Of the producer.
        epoch: The producer's epoch in this partition.
        sequence: Number of the batch's first record.
    """

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


UNNUMBERED = Numbering()


class Batch(Generic[D]):
    """Records of one partition that are sent together.

    Attributes:
        partition: Where they go.
        number: Place among the partition's batches.
        created: When the first record came.
        builder: The records.
        deliveries: What was given along with each record, and the record's timestamp.
        reserved: Bytes of memory it counts for.
        is_done: Whether its fate is known.
        numbering: Its place in the broker's book; None as long as it was never taken.
        not_before: When it may be taken (again).
        attempts: How often it was taken.
    """

    __slots__ = (
        "attempts",
        "builder",
        "created",
        "deliveries",
        "is_done",
        "not_before",
        "number",
        "numbering",
        "partition",
        "reserved",
    )

    def __init__(self, partition: TopicPartition, created: int) -> None:
        self.partition = partition
        self.number = -1
        self.created = created
        self.builder = RecordBatchBuilder()
        self.deliveries: list[tuple[D, int]] = []
        self.reserved = 0
        self.is_done = False
        self.numbering: Numbering | None = None
        self.not_before = 0
        self.attempts = 0

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.builder.count

    @property
    def size(self) -> int:
        """Bytes of them, before compression."""
        return self.builder.size

    def encode(self, codec: Compression) -> Buffer:
        """Return the bytes to send."""
        numbering = self.numbering or UNNUMBERED
        return self.builder.build(
            codec,
            producer_id=numbering.producer_id,
            producer_epoch=numbering.epoch,
            base_sequence=numbering.sequence,
        )


def _by_number(batch: Batch[D]) -> int:
    return batch.number


class _Queue(Generic[D]):
    """The batches of one partition: those that wait, in order, and those that are in flight."""

    __slots__ = (
        "epoch",
        "gap",
        "in_flight",
        "is_known",
        "next_number",
        "next_sequence",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: list[Batch[D]] = []
        self.in_flight: list[Batch[D]] = []
        self.next_number = 0
        self.next_sequence = 0
        self.epoch: int | None = None
        self.is_known = False  # whether the broker has a place for us in its book
        self.gap: int | None = None  # number of the last batch that was given up

    def number(self, batch: Batch[D], identity: Identity | None) -> None:
        """Give a batch its place in the broker's book, unless it has one."""
        if batch.numbering is not None:
            return
        if identity is None:
            batch.numbering = UNNUMBERED
            return
        if self.epoch is None:
            self.epoch = identity.epoch
        batch.numbering = Numbering(identity.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) & _MAX_SEQUENCE

    def is_settling(self) -> bool:
        """Whether batches of an epoch that is over are still in flight."""
        return any(
            each.numbering is not None
            and each.numbering.producer_id >= 0
            and each.numbering.epoch != self.epoch
            for each in self.in_flight
        )

    def is_first_undecided(self, batch: Batch[D]) -> bool:
        return all(each.number >= batch.number for each in (*self.in_flight, *self.waiting))


class OpenBatches(Generic[D]):
    """The batches that records are still added to, one per partition.

    Args:
        batch_size: Bytes of a full batch, before compression.
        largest_batch: Bytes up to which it grows while there is no hurry.
        linger_ms: How long a batch waits to become fuller.
    """

    def __init__(self, *, batch_size: int, largest_batch: int, linger_ms: int) -> None:
        self.sealed: deque[Batch[D]] = deque()
        self._batch_size = batch_size
        self._largest_batch = max(batch_size, largest_batch)
        self._linger_ms = linger_ms
        self._open: dict[TopicPartition, Batch[D]] = {}  # the oldest first

    def append(
        self,
        partition: TopicPartition,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]],
        delivery: D,
        size: int,
        now: int,
        *,
        hurried: bool = True,
    ) -> bool:
        """Add a record.

        Args:
            partition: Where it goes.
            timestamp: Milliseconds since the epoch.
            key: Its key.
            value: Its value.
            headers: Names and values.
            delivery: Kept for when its fate is known.
            size: What `record_size` says.
            now: The time.
            hurried: False when full batches have to wait anyway; then they may become fuller,
                for a request costs the same whatever its size.

        Returns:
            Whether a batch was sealed, or there is one after there was none.
        """
        batch = self._open.get(partition)
        news = False
        full = self._batch_size if hurried else self._largest_batch
        if batch is not None and batch.builder.size + size > full:
            self._seal(batch)
            batch, news = None, True
        target = Batch[D](partition, now) if batch is None else batch
        target.builder.append(timestamp, key, value, headers)
        if batch is None:
            news = news or not self._open
            self._open[partition] = target
        target.deliveries.append((delivery, timestamp))
        target.reserved += size
        if target.builder.size >= full:
            self._seal(target)
            news = True
        return news

    def seal_due(self, now: int) -> int | None:
        """Seal what has waited long enough; return when to do it again."""
        while self._open:
            oldest = next(iter(self._open.values()))
            due = oldest.created + self._linger_ms
            if due > now:
                return due
            self._seal(oldest)
        return None

    def seal_all(self) -> None:
        """Let no batch wait for more records."""
        for batch in list(self._open.values()):
            self._seal(batch)

    def add_sealed(self, batch: Batch[D]) -> None:
        """Add a batch that is complete, behind what its partition was given before."""
        before = self._open.get(batch.partition)
        if before is not None:
            self._seal(before)
        self.sealed.append(batch)

    def _seal(self, batch: Batch[D]) -> None:
        del self._open[batch.partition]
        self.sealed.append(batch)


class Accumulator(Generic[D]):
    """The batches that are full or have waited long enough, until their fate is known.

    Args:
        max_in_flight: Batches of one partition that may be in flight.
        delivery_timeout_ms: How old a batch may become before it is given up.
    """

    def __init__(self, *, max_in_flight: int = 5, delivery_timeout_ms: int = 120_000) -> None:
        self._max_in_flight = max_in_flight
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[TopicPartition, _Queue[D]] = {}
        self._waiting: dict[TopicPartition, _Queue[D]] = {}
        self._undone: dict[Batch[D], None] = {}
        self.released_bytes = 0
        self.identity: Identity | None = None

    def add(self, batch: Batch[D]) -> None:
        """Take in a sealed batch; those of one partition in the order they were sealed."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = _Queue()
        batch.number = queue.next_number
        queue.next_number += 1
        queue.waiting.append(batch)
        self._waiting[batch.partition] = queue
        self._undone[batch] = None

    @property
    def has_waiting(self) -> bool:
        """Whether batches wait to be taken; may be asked from any thread."""
        return bool(self._waiting)

    def undone(self) -> list[Batch[D]]:
        """Return all batches whose fate is not known."""
        return list(self._undone)

    # --------------------------------------------------------------------------- batches out

    def take(
        self,
        now: int,
        leader_of: Callable[[TopicPartition], int | None],
        room_at: Callable[[int], int],
        max_request_bytes: int,
    ) -> dict[int, list[Batch[D]]]:
        """Take what shall be sent now: for each broker one request, one batch per partition.

        Args:
            now: The time.
            leader_of: The node id of a partition's leader, None when there is none.
            room_at: How many requests a broker can take now.
            max_request_bytes: Bytes of one request, before compression.
        """
        requests: dict[int, list[Batch[D]]] = {}
        sizes: dict[int, int] = {}
        for partition, queue in list(self._waiting.items()):
            if not self._is_ready(queue, now):
                continue
            node = leader_of(partition)
            if node is None or room_at(node) <= 0:
                continue
            batch = queue.waiting[0]
            size = sizes.get(node, 0) + batch.size
            if size > max_request_bytes and node in requests:
                continue
            sizes[node] = size
            requests.setdefault(node, []).append(batch)
            self._launch(queue, batch)
        return requests

    def _is_ready(self, queue: _Queue[D], now: int) -> bool:
        batch = queue.waiting[0]
        if now < batch.not_before:
            return False
        if batch.numbering is not None:
            return not queue.in_flight
        # The first batch goes alone: a broker that has not seen us takes any sequence number first,
        # so a second batch that overtakes a refused first one would shut it out for ever.
        allowed = self._max_in_flight if queue.is_known or self.identity is None else 1
        return len(queue.in_flight) < allowed and not queue.is_settling()

    def _launch(self, queue: _Queue[D], batch: Batch[D]) -> None:
        batch.attempts += 1
        queue.number(batch, self.identity)
        del queue.waiting[0]
        if not queue.waiting:
            del self._waiting[batch.partition]
        queue.in_flight.append(batch)

    def next_due(self, now: int) -> int | None:
        """Return when the next batch becomes ready or too old; None when nothing waits."""
        times: list[int] = []
        for queue in self._waiting.values():
            batch = queue.waiting[0]
            times.append(batch.not_before if batch.not_before > now else self.deadline(batch))
        return min(times, default=None)

    def deadline(self, batch: Batch[D]) -> int:
        """Return when a batch is too old."""
        return batch.created + self._delivery_timeout_ms

    # ------------------------------------------------------------------------------- outcome

    def done(self, batch: Batch[D]) -> None:
        """Forget a batch that was delivered."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        queue.is_known = True
        if queue.gap is not None and batch.number > queue.gap:
            queue.gap = None  # what was given up had been written
        self._forget(batch)

    def gave_up(self, batch: Batch[D]) -> None:
        """Forget a batch in flight that has failed; those behind it may have to be renumbered."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        queue.gap = max(batch.number, -1 if queue.gap is None else queue.gap)
        self._forget(batch)
        self._close_gap(queue)

    def again(self, batch: Batch[D], not_before: int) -> None:
        """Put a batch in flight back, to be sent again."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        batch.not_before = not_before
        numbering = batch.numbering
        if numbering is not None and numbering.producer_id >= 0 and numbering.epoch != queue.epoch:
            batch.numbering = None  # it came after a gap, so it was not written
        insort(queue.waiting, batch, key=_by_number)
        self._waiting[batch.partition] = queue

    def is_early(self, batch: Batch[D]) -> bool:
        """Whether an earlier batch of the partition is undecided."""
        return not self._queues[batch.partition].is_first_undecided(batch)

    def renumber(self, batch: Batch[D]) -> bool:
        """Number a batch in flight and all behind it anew, if one before it was given up.

        Returns:
            False when none was, or no epoch is left.
        """
        queue = self._queues[batch.partition]
        if queue.gap is None or queue.epoch is None or queue.epoch >= MAX_EPOCH:
            return False
        self.again(batch, 0)
        self._next_epoch(queue)
        return True

    def _next_epoch(self, queue: _Queue[D]) -> None:
        assert queue.epoch is not None
        queue.epoch += 1
        queue.next_sequence = 0
        queue.gap = None
        for each in queue.waiting:
            each.numbering = None

    def _close_gap(self, queue: _Queue[D]) -> None:
        """Begin a new epoch at once when no numbered batch is left whose fate depends on it."""
        if queue.epoch is None or queue.epoch >= MAX_EPOCH:
            return
        if not queue.in_flight and all(each.numbering is None for each in queue.waiting):
            self._next_epoch(queue)

    def expired(self, now: int) -> list[Batch[D]]:
        """Remove and return the waiting batches that are too old."""
        late = [
            batch
            for queue in self._waiting.values()
            for batch in queue.waiting
            if self.deadline(batch) <= now
        ]
        self._remove(late)
        return late

    def abandon(self) -> list[Batch[D]]:
        """Remove and return all waiting batches."""
        waiting = list(self._all_waiting())
        self._remove(waiting)
        return waiting

    def _all_waiting(self) -> Iterator[Batch[D]]:
        for queue in self._waiting.values():
            yield from queue.waiting

    def _remove(self, batches: Iterable[Batch[D]]) -> None:
        for batch in batches:
            queue = self._queues[batch.partition]
            queue.waiting.remove(batch)
            if not queue.waiting:
                del self._waiting[batch.partition]
            self._forget(batch)
            if batch.numbering is not None:
                queue.gap = max(batch.number, -1 if queue.gap is None else queue.gap)
                self._close_gap(queue)

    def _forget(self, batch: Batch[D]) -> None:
        batch.is_done = True
        self.released_bytes += batch.reserved
        del self._undone[batch]
