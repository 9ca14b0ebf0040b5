"""Idempotent producers of one partition (KIP-98): who wrote which sequence numbers where.

The last five batches of each producer are remembered, because that many may be in flight and come
again: a repeated batch is answered with the offset it got the first time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import field

from kohort.errors import ErrorCode, KafkaError
from kohort.values import dataclass
from kohort.wire.records.header import BatchHeader

_REMEMBERED_BATCHES = 5
# Kafka's producer.id.expiration.ms: a producer is forgotten after a day without a batch.
_EXPIRATION_MS = 24 * 3600 * 1000
_SEQUENCES = 0x80000000  # sequence numbers wrap to 0 after the largest int32


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch of an idempotent producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    idle_since_ms: int | None = None
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerStates:
    """All producers of one partition; a fold of the headers in its log."""

    def __init__(self) -> None:
        """Start without any producer."""
        self._producers: dict[int, _Producer] = {}

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Say whether a batch may be appended.

        Returns:
            The batch as it stands in the log when this is a repetition of it, else None.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH for an older epoch of the producer,
                OUT_OF_ORDER_SEQUENCE_NUMBER where a batch before this one is missing.
        """
        if header.producer_id < 0:
            return None
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "idempotent batch without epoch or sequence")
        known = self._producers.get(header.producer_id)
        if known is None:
            # Its batches were deleted with old segments: nothing to compare with, so any sequence
            # is taken, as Kafka does since 2.4.
            return None
        if header.producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known.epoch}, not "
                f"{header.producer_epoch}",
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
        if known.batches:
            self._check_sequence(header, (known.batches[-1].last_sequence + 1) % _SEQUENCES)
        return None

    def _check_sequence(self, header: BatchHeader, expected: int) -> None:
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} where "
                f"{expected} comes next",
            )

    def apply(self, header: BatchHeader) -> None:
        """Note a batch that is in the log, with the offsets it has there."""
        if header.producer_id < 0 or header.is_control:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.idle_since_ms = None
        known.batches.append(
            WrittenBatch(
                first_sequence=header.base_sequence,
                last_sequence=_last_sequence(header),
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                timestamp=header.max_timestamp,
            )
        )

    def expire(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for a day; called now and then.

        The broker's clock counts, not the records' timestamps: these may be of years ago while
        their producer is at work.
        """
        for producer_id, known in tuple(self._producers.items()):
            if known.idle_since_ms is None:
                known.idle_since_ms = now_ms
            elif now_ms - known.idle_since_ms >= _EXPIRATION_MS:
                del self._producers[producer_id]

    def needs(self, header: BatchHeader) -> bool:
        """Whether the batch is its producer's last, from which a lost snapshot is made again."""
        known = self._producers.get(header.producer_id)
        return known is not None and known.batches[-1].last_offset == header.last_offset

    def newest(self) -> Iterator[tuple[int, int, WrittenBatch]]:
        """Yield id, epoch and last batch of each producer."""
        for producer_id, known in self._producers.items():
            yield producer_id, known.epoch, known.batches[-1]

    def __len__(self) -> int:
        """Return how many producers are known."""
        return len(self._producers)

    def to_json(self) -> bytes:
        """Return the state for a snapshot file."""
        state = {
            str(producer_id): [known.epoch, [_as_list(batch) for batch in known.batches]]
            for producer_id, known in self._producers.items()
        }
        return json.dumps(state).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ProducerStates:
        """Read a snapshot.

        Raises:
            ValueError: It is damaged; the state has to be folded from the log instead.
        """
        states = cls()
        try:
            for producer_id, (epoch, batches) in json.loads(data).items():
                known = states._producers[int(producer_id)] = _Producer(int(epoch))
                known.batches.extend(WrittenBatch(*batch) for batch in batches)
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
