"""Producers of a partition (KIP-98): sequence numbers of their batches, and transactions.

The last five batches of each producer are kept, as that many may be in flight and be repeated: a
repeated batch is answered with its original offset.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from msgspec import Struct, field

from kohort.errors import ErrorCode, KafkaError
from kohort.wire.codec.schema import Buffer
from kohort.wire.records.header import BatchHeader
from kohort.wire.records.marker import committed_by

_REMEMBERED_BATCHES = 5
# Kafka's producer.id.expiration.ms: a producer expires after a day without a batch.
_EXPIRATION_MS = 24 * 3600 * 1000
_ABORTED = "aborted"  # a key of a snapshot; the keys of its producers are numbers
_SEQUENCES = 0x80000000  # sequence numbers wrap to 0 after the largest int32


class WrittenBatch(Struct, frozen=True):
    """A batch of an idempotent producer in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class AbortedBatches(Struct, frozen=True):
    """An aborted transaction in one partition.

    Attributes:
        producer_id: Its producer.
        first_offset: Offset of its first record.
        last_offset: Offset of its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


class NewestBatch(Struct, frozen=True):
    """The progress of a producer.

    Attributes:
        producer_id: Its id.
        epoch: Its epoch.
        last: The last batch that it wrote with this epoch, or None.
        open_since: Offset of the first record of its open transaction, or None.
    """

    producer_id: int
    epoch: int
    last: WrittenBatch | None
    open_since: int | None


class _Producer(Struct):
    epoch: int
    idle_since_ms: int | None = None
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerStates:
    """All producers of one partition, derived from the batches in its log.

    Attributes:
        aborted: Aborted transactions, ordered by the offsets of their markers.
    """

    def __init__(self) -> None:
        """Start without producers."""
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}  # by producer, first offset of its open transaction
        self.aborted: list[AbortedBatches] = []

    @property
    def first_open(self) -> int | None:
        """Offset of the first record of an open transaction."""
        return min(self._open.values(), default=None)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction of this epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and producer_id in self._open

    def has_batches(self, producer_id: int) -> bool:
        """Whether batches of a producer's current epoch are known."""
        known = self._producers.get(producer_id)
        return known is not None and bool(known.batches)

    def aborted_within(self, start: int, end: int) -> list[AbortedBatches]:
        """Return the aborted transactions with records from `start` to before `end`."""
        first = bisect_left(self.aborted, start, key=attrgetter("last_offset"))
        return [each for each in self.aborted[first:] if each.first_offset < end]

    def forget_aborted(self, before: int) -> None:
        """Remove the aborted transactions that ended before an offset."""
        del self.aborted[: bisect_left(self.aborted, before, key=attrgetter("last_offset"))]

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Check whether a batch may be appended.

        Returns:
            The batch in the log if this is a repetition of it, else None.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH if the producer has a later epoch,
                OUT_OF_ORDER_SEQUENCE_NUMBER if a batch before this one is missing,
                INVALID_TXN_STATE if the batch is not part of the producer's open transaction.
        """
        if header.producer_id < 0:
            return None
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "idempotent batch without epoch or sequence")
        known = self._producers.get(header.producer_id)
        if known is None:
            # Its batches were deleted with old segments, so there is nothing to compare with: any
            # sequence number is accepted, as in Kafka since 2.4.
            return None
        if header.producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known.epoch}, not "
                f"{header.producer_epoch}",
            )
        if header.producer_id in self._open and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction without this batch",
            )
        if header.producer_epoch > known.epoch:
            self._check_sequence(header, 0)
            return None
        return self._check_same_epoch(header, known)

    def _check_same_epoch(self, header: BatchHeader, known: _Producer) -> WrittenBatch | None:
        sequences = (header.base_sequence, _last_sequence(header))
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == sequences:
                return batch
        last = known.batches[-1].last_sequence if known.batches else -1
        self._check_sequence(header, (last + 1) % _SEQUENCES)
        return None

    def _check_sequence(self, header: BatchHeader, expected: int) -> None:
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, but "
                f"{expected} comes next",
            )

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Check that the epoch of a marker is not outdated.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH.
        """
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {known.epoch}, not {epoch}",
            )

    def apply(self, header: BatchHeader, batch: Buffer) -> None:
        """Apply a batch in the log, with the offsets that it has there."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.idle_since_ms = None
        if header.is_control:
            self._end(header, batch)
            return
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)
        if header.base_sequence >= 0:  # offsets that a coordinator writes have no sequence
            known.batches.append(
                WrittenBatch(
                    first_sequence=header.base_sequence,
                    last_sequence=_last_sequence(header),
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                    timestamp=header.max_timestamp,
                )
            )

    def _end(self, header: BatchHeader, batch: Buffer) -> None:
        open_since = self._open.pop(header.producer_id, None)
        if open_since is not None and committed_by(batch) is False:
            ended = AbortedBatches(header.producer_id, open_since, header.last_offset)
            self.aborted.append(ended)

    def expire(self, now_ms: int) -> None:
        """Remove producers that wrote nothing for a day; called periodically.

        This uses the broker's clock, not the timestamps of records, which may be years old for an
        active producer.
        """
        for producer_id, known in tuple(self._producers.items()):
            if known.idle_since_ms is None or producer_id in self._open:
                known.idle_since_ms = now_ms
            elif now_ms - known.idle_since_ms >= _EXPIRATION_MS:
                del self._producers[producer_id]

    def needs(self, header: BatchHeader) -> bool:
        """Whether the batch is its producer's last; it can restore a lost snapshot."""
        known = self._producers.get(header.producer_id)
        if known is None or not known.batches:
            return False
        return known.batches[-1].last_offset == header.last_offset

    def newest(self) -> Iterator[NewestBatch]:
        """Yield the progress of each producer."""
        for producer_id, known in self._producers.items():
            last = known.batches[-1] if known.batches else None
            yield NewestBatch(producer_id, known.epoch, last, self._open.get(producer_id))

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    def to_json(self) -> bytes:
        """Return the content of a snapshot file."""
        producers = {
            str(producer_id): [
                known.epoch,
                [_as_list(batch) for batch in known.batches],
                self._open.get(producer_id),
            ]
            for producer_id, known in self._producers.items()
        }
        aborted = [[each.producer_id, each.first_offset, each.last_offset] for each in self.aborted]
        return json.dumps({**producers, _ABORTED: aborted}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ProducerStates:
        """Read a snapshot.

        Raises:
            ValueError: It is damaged; rebuild the state from the log instead.
        """
        states = cls()
        try:
            producers: dict[str, Any] = dict(json.loads(data))
            states.aborted = [AbortedBatches(*each) for each in producers.pop(_ABORTED, ())]
            for producer_id, (epoch, batches, *rest) in producers.items():
                known = states._producers[int(producer_id)] = _Producer(int(epoch))
                known.batches.extend(WrittenBatch(*batch) for batch in batches)
                for open_since in rest:  # earlier versions had no transactions
                    if open_since is not None:
                        states._open[int(producer_id)] = int(open_since)
        except (TypeError, AttributeError, UnicodeDecodeError) as error:
            raise ValueError(f"damaged producer snapshot: {error}") from error
        return states


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def _as_list(batch: WrittenBatch) -> list[int]:
    return [
        batch.first_sequence,
        batch.last_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.timestamp,
    ]
