"""Records waiting for delivery: batches per partition, in order, within a memory limit.

No I/O, clock or locks. Times are milliseconds of the caller's clock. Records are added to
`OpenBatches`, which threads share; sealed batches move to the `Accumulator`, which only the loop
uses.

An idempotent producer (KIP-98) keeps its order as follows. A batch gets its sequence number when it
is first taken. A batch that must be sent again goes back to the head of its partition, and from
then on one batch at a time is in flight until no resent batch is left. A batch that the broker
reports as out of order while an earlier one is undecided is merely early. If the first undecided
batch is out of order, an earlier one never arrived: if a batch was given up, nothing after it can
have been written, so the rest is renumbered under the next epoch; if not, the broker has lost
acknowledged records. A batch that is too large for the broker is split (KIP-126): its parts take
its place in the order and share its sequence numbers, so later batches keep theirs. Batches for a
recreated topic wait until all batches sent to the old topic are decided (KIP-516): the broker
refuses those, and otherwise they would be resent behind later batches.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate
from uuid import UUID

from kohort.client.measures import ProduceMeasures
from kohort.client.producer.batch import UNNUMBERED, Batch, Identity, Numbering
from kohort.errors import KohortError
from kohort.types import TopicPartition

_MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF


def _by_number(batch: Batch) -> int:
    return batch.number


class _Queue:
    """The batches of one partition: waiting ones, in order, and those in flight."""

    __slots__ = (
        "epoch",
        "gap",
        "in_flight",
        "is_known",
        "next_number",
        "next_sequence",
        "topic_id",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: list[Batch] = []
        self.in_flight: list[Batch] = []
        self.next_number = 0
        self.next_sequence = 0
        self.epoch: int | None = None
        self.topic_id: UUID | None = None
        self.is_known = False  # whether the broker tracks our sequence numbers here
        self.gap: int | None = None  # number of the last batch given up

    def number(self, batch: Batch, identity: Identity | None) -> None:
        """Assign sequence numbers to a batch, unless it has some."""
        if batch.numbering is not None:
            return
        if identity is None:
            batch.numbering = UNNUMBERED
            return
        if self.epoch is None:
            self.epoch = identity.epoch
        batch.numbering = Numbering(identity.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.builder.count) & _MAX_SEQUENCE

    def place_of(self, batch: Batch, first: int) -> Numbering | None:
        """Return the numbering of a batch's records from `first` on; None to assign a new one."""
        numbering = batch.numbering
        if numbering is None or numbering.producer_id < 0:
            return numbering
        if numbering.epoch != self.epoch:
            return None
        sequence = (numbering.sequence + first) & _MAX_SEQUENCE
        return Numbering(numbering.producer_id, numbering.epoch, sequence)

    def is_settling(self) -> bool:
        """Whether batches of an earlier epoch are still in flight."""
        return any(
            each.numbering is not None
            and each.numbering.producer_id >= 0
            and each.numbering.epoch != self.epoch
            for each in self.in_flight
        )

    def is_for(self, topic_id: UUID | None) -> bool:
        """Whether batches may go to a topic now: none is in flight to its predecessor."""
        if topic_id == self.topic_id:
            return True
        if self.in_flight:
            return False
        self.topic_id = topic_id
        self.is_known = False
        return True

    def is_first_undecided(self, batch: Batch) -> bool:
        return all(each.number >= batch.number for each in (*self.in_flight, *self.waiting))


class Accumulator:
    """Batches that are full or have waited long enough, kept until their outcome is known.

    Args:
        max_in_flight: How many batches of one partition may be in flight.
        delivery_timeout_ms: Age at which a batch is given up, in milliseconds.
        renumbers: Whether batches behind a gap may be renumbered. Not in a transaction: the
            coordinator assigns the epoch, and the transaction is aborted anyway.

    Attributes:
        measures: Counts the batches that are sent.
    """

    def __init__(
        self,
        *,
        max_in_flight: int = 5,
        delivery_timeout_ms: int = 120_000,
        renumbers: bool = True,
    ) -> None:
        self._renumbers = renumbers
        self._max_in_flight = max_in_flight
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[TopicPartition, _Queue] = {}
        self._waiting: dict[TopicPartition, _Queue] = {}  # least recently taken from first
        self._pauses_end = 0  # earliest end of a pause; 0 without one
        self._undone: dict[Batch, None] = {}
        self.released_bytes = 0
        self.measures = ProduceMeasures()
        self.identity: Identity | None = None

    def add(self, batch: Batch) -> None:
        """Add a sealed batch; batches of one partition come in the order they were sealed."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = _Queue()
        batch.number = queue.next_number
        queue.next_number += 1
        queue.waiting.append(batch)
        self._waiting[batch.partition] = queue
        self._undone[batch] = None

    def renew(self, identity: Identity) -> None:
        """Continue with a new producer id or epoch, between two transactions.

        Args:
            identity: The producer's identity; if it is new, all sequence numbers start at 0.
        """
        assert not self._undone, "a transaction ended before its batches"
        if identity != self.identity:
            self.identity = identity
            self._queues.clear()

    @property
    def has_waiting(self) -> bool:
        """Whether batches wait to be taken; safe to read from any thread."""
        return bool(self._waiting)

    def undone(self) -> list[Batch]:
        """Return all batches without a known outcome."""
        return list(self._undone)

    # --------------------------------------------------------------------------- batches out

    def take(
        self,
        now: int,
        leader_of: Callable[[TopicPartition], int | None],
        room_at: Callable[[int], int],
        max_request_bytes: int,
        topic_id_of: Callable[[str], UUID | None] = lambda _: None,
        paused_until: Callable[[int], int] = lambda _: 0,
    ) -> dict[int, list[Batch]]:
        """Take the batches to send now: one request per broker, one batch per partition.

        Args:
            now: The current time.
            leader_of: Returns the node id of a partition's leader, None when there is none.
            room_at: Returns how many more requests a broker can take.
            max_request_bytes: Maximum size of a request in bytes, before compression.
            topic_id_of: Returns the id of a topic, None when it is not known.
            paused_until: Returns when the pause that a broker asked for (KIP-219) ends.
        """
        self._pauses_end = 0
        requests: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for partition, queue in list(self._waiting.items()):
            if not self._is_ready(queue, now):
                continue
            node = leader_of(partition)
            if node is None or room_at(node) <= 0:
                continue
            if not queue.is_for(topic_id_of(partition.topic)):
                continue
            if (end := paused_until(node)) > now:
                self._pauses_end = min(self._pauses_end or end, end)
                continue
            batch = queue.waiting[0]
            size = sizes.get(node, 0) + batch.builder.size
            if size > max_request_bytes and node in requests:
                continue
            sizes[node] = size
            requests.setdefault(node, []).append(batch)
            self._launch(queue, batch)
            self.measures.taken(batch, now)
        return requests

    def _is_ready(self, queue: _Queue, now: int) -> bool:
        batch = queue.waiting[0]
        if now < batch.not_before:
            return False
        if batch.numbering is not None:
            return not queue.in_flight
        # The first batch goes alone: a broker without state of us accepts any first sequence
        # number, so a second batch that overtakes a refused first one would block that one for
        # ever.
        allowed = self._max_in_flight if queue.is_known or self.identity is None else 1
        return len(queue.in_flight) < allowed and not queue.is_settling()

    def _launch(self, queue: _Queue, batch: Batch) -> None:
        batch.attempts += 1
        batch.topic_id = queue.topic_id
        queue.number(batch, self.identity)
        del queue.waiting[0]
        del self._waiting[batch.partition]
        if queue.waiting:  # other partitions come first next time: a request may not hold all
            self._waiting[batch.partition] = queue
        queue.in_flight.append(batch)

    def next_due(self, now: int) -> int | None:
        """Return when the next batch becomes ready or expires; None when nothing waits."""
        times = [self._pauses_end] if self._pauses_end > now else []
        for queue in self._waiting.values():
            batch = queue.waiting[0]
            times.append(batch.not_before if batch.not_before > now else self.deadline(batch))
        return min(times, default=None)

    def deadline(self, batch: Batch) -> int:
        """Return when a batch expires."""
        return batch.created + self._delivery_timeout_ms

    # ------------------------------------------------------------------------------- outcome

    def done(self, batch: Batch) -> None:
        """Remove a delivered batch."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        queue.is_known = True
        if queue.gap is not None and batch.number > queue.gap:
            queue.gap = None  # the batch given up was written after all
        self._forget(batch)

    def gave_up(self, batch: Batch) -> None:
        """Remove a failed batch from flight; later batches may have to be renumbered."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        queue.gap = max(batch.number, -1 if queue.gap is None else queue.gap)
        self._forget(batch)
        self._close_gap(queue)

    def again(self, batch: Batch, not_before: int) -> None:
        """Put a batch in flight back into the queue, to be sent again."""
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        batch.not_before = not_before
        numbering = batch.numbering
        if numbering is not None and numbering.producer_id >= 0 and numbering.epoch != queue.epoch:
            batch.numbering = None  # it came after a gap, so it was not written
        insort(queue.waiting, batch, key=_by_number)
        self._waiting[batch.partition] = queue

    def divide(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Replace a batch in flight with its parts, to be sent one by one.

        Args:
            batch: The batch.
            parts: At least two batches, with the same records in the same order.
        """
        queue = self._queues[batch.partition]
        queue.in_flight.remove(batch)
        for each in (*queue.in_flight, *queue.waiting):
            if each.number > batch.number:
                each.number += len(parts) - 1
        queue.next_number += len(parts) - 1
        if queue.gap is not None and queue.gap > batch.number:
            queue.gap += len(parts) - 1
        firsts = [0, *accumulate(part.builder.count for part in parts)][:-1]
        left = batch.reserved
        for index, (first, part) in enumerate(zip(firsts, parts, strict=True)):
            part.number = batch.number + index
            part.numbering = queue.place_of(batch, first)
            part.reserved = left // (len(parts) - index)
            left -= part.reserved
            insort(queue.waiting, part, key=_by_number)
            self._undone[part] = None
        self._waiting[batch.partition] = queue
        batch.fate.divide([(first, part.fate) for first, part in zip(firsts, parts, strict=True)])
        batch.is_done = True
        del self._undone[batch]

    def is_in_flight(self, batch: Batch) -> bool:
        """Whether a batch was taken and is still undecided."""
        queue = self._queues.get(batch.partition)  # None when its transaction has ended
        return queue is not None and batch in queue.in_flight

    def is_early(self, batch: Batch) -> bool:
        """Whether an earlier batch of the partition is undecided."""
        return not self._queues[batch.partition].is_first_undecided(batch)

    def trouble_before(self, batch: Batch) -> KohortError | None:
        """Return why an earlier, undecided batch of the partition was not written."""
        queue = self._queues[batch.partition]
        earlier = (
            each for each in (*queue.in_flight, *queue.waiting) if each.number < batch.number
        )
        return next((each.trouble for each in earlier if each.trouble is not None), None)

    def renumber(self, batch: Batch) -> bool:
        """Renumber a batch in flight and all later ones, if an earlier one was given up.

        Returns:
            False when none was given up, or no epoch is left.
        """
        queue = self._queues[batch.partition]
        if queue.gap is None or not self._may_renumber(queue):
            return False
        self.again(batch, 0)
        self._next_epoch(queue)
        return True

    def _may_renumber(self, queue: _Queue) -> bool:
        return self._renumbers and queue.epoch is not None and queue.epoch < MAX_EPOCH

    def _next_epoch(self, queue: _Queue) -> None:
        assert queue.epoch is not None
        queue.epoch += 1
        queue.next_sequence = 0
        queue.gap = None
        for each in queue.waiting:
            each.numbering = None

    def _close_gap(self, queue: _Queue) -> None:
        """Start a new epoch at once when no undecided batch has a number of the old one."""
        if not self._may_renumber(queue):
            return
        if not queue.in_flight and all(each.numbering is None for each in queue.waiting):
            self._next_epoch(queue)

    def expired(self, now: int) -> list[Batch]:
        """Remove and return the waiting batches that have expired."""
        late = [
            batch
            for queue in self._waiting.values()
            for batch in queue.waiting
            if self.deadline(batch) <= now
        ]
        self._remove(late)
        return late

    def denied(self, topics: Container[str]) -> list[Batch]:
        """Remove and return the waiting batches of topics that the user may not write to."""
        denied = [batch for batch in self._all_waiting() if batch.partition.topic in topics]
        self._remove(denied)
        return denied

    def abandon(self) -> list[Batch]:
        """Remove and return all waiting batches."""
        waiting = list(self._all_waiting())
        self._remove(waiting)
        return waiting

    def _all_waiting(self) -> Iterator[Batch]:
        for queue in self._waiting.values():
            yield from queue.waiting

    def _remove(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            queue = self._queues[batch.partition]
            queue.waiting.remove(batch)
            if not queue.waiting:
                del self._waiting[batch.partition]
            self._forget(batch)
            if batch.numbering is not None:
                queue.gap = max(batch.number, -1 if queue.gap is None else queue.gap)
                self._close_gap(queue)

    def _forget(self, batch: Batch) -> None:
        batch.is_done = True
        self.released_bytes += batch.reserved
        del self._undone[batch]
