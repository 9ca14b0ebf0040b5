"""Compaction: of each key only the newest record is kept, as Kafka's log cleaner does.

Only closed segments are rewritten, so the end of the log and the producers' state, which is in the
snapshot beside the open segment, do not depend on what is left of them. Offsets stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kohort.broker.log.files import write_all
from kohort.broker.log.partition_log import CLEANED_SUFFIX, PartitionLog
from kohort.broker.log.segment import Segment
from kohort.wire.records import Record, decode_records, encode_batch
from kohort.wire.records.header import BatchHeader

_SEQUENCES = 0x80000000
# A step is what is done between two chances for the broker to do something else.
_RECORDS_PER_STEP = 2_000


def compact(log: PartitionLog, now_ms: int) -> Iterator[None]:
    """Compact the closed segments of a log, a little at each step of the iterator.

    Nothing changes for readers until the last step, which swaps files. Leaving the iterator early
    leaves the log as it was.

    Args:
        log: The log; it may be appended to between two steps.
        now_ms: Milliseconds since the epoch, for the age of tombstones.
    """
    closed = log.segments[:-1]
    if not closed:
        return
    newest: dict[bytes, int] = {}
    yield from _learn(log.segments, newest)
    writer = _Writer(log, closed[0])
    horizon = now_ms - log.config.delete_retention_ms
    for segment in closed:
        for header, batch in segment.batches():
            writer.add(header, batch, _kept(batch, newest, horizon))
            yield
    writer.close()
    if log.segments[: len(closed)] == closed:
        log.replace_segments(list(closed), writer.paths)


def _learn(segments: tuple[Segment, ...], newest: dict[bytes, int]) -> Iterator[None]:
    seen = 0
    for segment in segments:
        for _, batch in segment.batches():
            for record in decode_records(batch):
                if record.key is not None:
                    newest[record.key] = record.offset
                seen += 1
            if seen >= _RECORDS_PER_STEP:
                seen = 0
                yield


def _kept(batch: memoryview, newest: dict[bytes, int], horizon: int) -> list[Record] | None:
    """Return the records that stay; None when all of them do."""
    records = decode_records(batch)
    kept = [
        record
        for record in records
        if record.key is not None
        and newest.get(record.key, -1) <= record.offset
        and (record.value is not None or record.timestamp > horizon)
    ]
    return None if len(kept) == len(records) else kept


class _Writer:
    """Writes cleaned batches into files beside the segments they will replace."""

    def __init__(self, log: PartitionLog, first: Segment) -> None:
        self.paths: list[Path] = []
        self._directory = log.directory
        self._segment_bytes = log.config.segment_bytes
        # The first file takes the name, and so the place, of the oldest segment.
        self._name_offset: int | None = first.base_offset
        self._descriptor = -1
        self._written = 0

    def add(self, header: BatchHeader, batch: memoryview, kept: list[Record] | None) -> None:
        """Write what is left of a batch."""
        if kept is None:
            self._write(batch, header.base_offset)
        elif kept:
            self._write(memoryview(_rebuilt(header, kept)), kept[0].offset)

    def close(self) -> None:
        """Make the file that is being written survive the machine."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, batch: memoryview, base_offset: int) -> None:
        if self._descriptor < 0 or self._written + len(batch) > self._segment_bytes:
            self.close()
            name_offset = base_offset if self._name_offset is None else self._name_offset
            self._name_offset = None
            self.paths.append(self._directory / f"{name_offset:020d}.log{CLEANED_SUFFIX}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._descriptor = os.open(self.paths[-1], flags, 0o644)
            self._written = 0
        write_all(self._descriptor, batch)
        self._written += len(batch)


def _rebuilt(header: BatchHeader, kept: list[Record]) -> bytes:
    """Return the batch with only `kept` in it; it starts at the first of them."""
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + kept[0].offset - header.base_offset) % _SEQUENCES
    return encode_batch(
        kept,
        codec=header.compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=sequence,
        leader_epoch=header.partition_leader_epoch,
        timestamp_type=header.timestamp_type,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )
