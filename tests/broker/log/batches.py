"""Record batches for tests of the log."""

from __future__ import annotations

from kohort.wire.records import Record, encode_batch


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch as a producer sends it: (producer id, epoch, first sequence) or none."""
    records = [Record(i, timestamp, key, value) for i, value in enumerate(values)]
    producer_id, epoch, sequence = producer
    return encode_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def keyed(pairs: list[tuple[bytes, bytes | None]], timestamp: int = 1_000) -> bytes:
    """Return a batch of keyed records."""
    return encode_batch([Record(i, timestamp, k, v) for i, (k, v) in enumerate(pairs)])
