"""Record batches for tests of the log."""

from __future__ import annotations

from pathlib import Path

from kohort.broker.log.config import LogConfig
from kohort.broker.log.files import FileCache
from kohort.broker.log.partition_log import PartitionLog
from kohort.wire.records import Compression, Record, decode_records, encode_batch, iter_batches


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Compression = Compression.NONE,
) -> bytes:
    """Return a producer's batch; `producer` is its id, its epoch and the first sequence number."""
    records = [Record(i, timestamp, key, value) for i, value in enumerate(values)]
    producer_id, epoch, sequence = producer
    return encode_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def keyed(
    pairs: list[tuple[bytes, bytes | None]],
    timestamp: int = 1_000,
    codec: Compression = Compression.NONE,
) -> bytes:
    """Return a batch of keyed records."""
    records = [Record(i, timestamp + i, k, v) for i, (k, v) in enumerate(pairs)]
    return encode_batch(records, codec=codec)


def opened(path: Path, config: LogConfig | None = None) -> PartitionLog:
    """Open a log with so few descriptors that files are constantly closed and reopened."""
    return PartitionLog(path, config or LogConfig(), FileCache(4))


def records_of(log: PartitionLog, max_bytes: int = 150) -> list[Record]:
    """Read the log as a consumer does, from its start to its end."""
    found: list[Record] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, max_bytes)
        wanted = at
        whole = 0
        for header, one in iter_batches(data):
            found += [record for record in decode_records(one) if record.offset >= wanted]
            at = header.next_offset
            whole += len(one)
        assert whole == len(data), "only whole batches are served"
        if at == wanted:
            break
    return found


def state_of(log: PartitionLog) -> dict[bytes, bytes]:
    """Rebuild the state from a log of keyed records."""
    state: dict[bytes, bytes] = {}
    for record in records_of(log):
        assert record.key is not None
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state
