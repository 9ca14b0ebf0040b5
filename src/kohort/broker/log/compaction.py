"""Compaction keeps only the newest record of each key, as Kafka's log cleaner does.

Only closed segments are rewritten, oldest first; several that became small are merged. A batch
keeps its base offset, last offset and sequence numbers whatever is removed from it, and the last
batch of each idempotent producer stays, if only as a header. This leaves gaps between offsets.

Aborted records are removed, and do not count for their keys. The marker of a transaction stays as
long as any record that it commits; without it, that transaction would seem open. Compaction ends at
the last stable offset.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from kohort.broker.log.cleaning import without
from kohort.broker.log.partition_log import CLEANED_SUFFIX, PartitionLog
from kohort.broker.log.producer_state import AbortedBatches, ProducerStates
from kohort.broker.log.segment import Segment
from kohort.errors import KafkaError, RemoteProtocolError
from kohort.wire.records import Record, decode_records
from kohort.wire.records.header import BatchHeader, parse_header

logger = logging.getLogger(__name__)

# Memory for the keys of one pass; the other keys wait for the next pass. An entry takes about 150
# bytes plus its key.
_KEYS_BYTES = 32 * 1024 * 1024
_BYTES_PER_KEY = 150
_MAX_INT32 = 0x7FFFFFFF


def needs_compaction(log: PartitionLog) -> bool:
    """Whether enough of a compacted log is dirty (`min.cleanable.dirty.ratio`)."""
    closed = log.segments[:-1]
    if not log.config.compact or not closed or log.uncleanable:
        return False
    dirty = sum(each.size for each in closed if each.next_offset > log.compacted_to)
    total = sum(each.size for each in closed)
    return dirty > 0 and dirty >= log.config.min_cleanable_dirty_ratio * total


def compact_due(logs: Iterable[PartitionLog], now_ms: int) -> Iterator[None]:
    """Compact the logs that need it, in small steps; see `compact`."""
    for log in logs:
        if not needs_compaction(log):
            continue
        try:
            yield from compact(log, now_ms)
        except KafkaError as error:
            # The records after the damage would not be copied, and so be lost.
            log.uncleanable = True
            logger.error("%s is not compacted until the broker restarts: %s", log.directory, error)


def compact(log: PartitionLog, now_ms: int) -> Iterator[None]:
    """Compact the closed segments of a log, one batch per step of the iterator.

    Readers see one group of segments after another replaced. The iterator can be abandoned safely;
    the next pass then starts from the beginning.

    Args:
        log: The log; it may change in any way between two steps.
        now_ms: Milliseconds since the epoch, to compute the age of tombstones.

    Raises:
        KafkaError: CORRUPT_MESSAGE: the log is damaged; it has not changed.
        OSError: The disk is full, for example; the log is intact.
    """
    closed = log.segments[:-1]
    keys = _Keys(log)
    yield from keys.learn(closed)
    if keys.end == log.compacted_to:
        return
    tombstones_before = now_ms - log.config.delete_retention_ms
    rewriting = _Rewriting(log, keys)
    for segment in closed:
        if segment.base_offset >= keys.end:
            break
        rewriting.make_room_for(segment)
        if segment not in log.segments or rewriting.gave_up:
            rewriting.give_up()
            return
        yield from rewriting.add(segment, segment.modified_ms > tombstones_before)
    rewriting.finish()
    if rewriting.gave_up:
        return
    # Set last: below this offset, tombstones are removed without checking for older records.
    log.compacted_to = keys.end


class _Keys:
    """The offset of the newest record of each key, in the dirty part of the log."""

    def __init__(self, log: PartitionLog) -> None:
        self.end = self._start = log.compacted_to
        self._stable = log.last_stable_offset
        self._aborted = _aborted(log.producers)
        self._newest: dict[bytes, int] = {}
        self._room = _KEYS_BYTES

    def learn(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Read the dirty part up to its end or the memory limit; `end` is where this stopped."""
        for segment in segments:
            if segment.next_offset <= self._start:
                continue
            for header, batch in segment.all_batches():
                if self._room <= 0 or header.base_offset >= self._stable:
                    return
                if header.last_offset >= self._start:
                    if not header.is_control and not self.is_aborted(header):
                        self._learn(_records(batch))
                    self.end = header.next_offset
                    yield

    def _learn(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.key is not None:
                if record.key not in self._newest:
                    self._room -= len(record.key) + _BYTES_PER_KEY
                self._newest[record.key] = record.offset

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        known = self._aborted[header.producer_id]
        return any(each.first_offset <= header.base_offset < each.last_offset for each in known)

    def keeps(self, record: Record, keep_tombstones: bool) -> bool:
        """Whether to keep a record."""
        if record.offset >= self.end:
            return True
        if record.key is None or self._newest.get(record.key, -1) > record.offset:
            return False
        return record.value is not None or keep_tombstones


class _Rewriting:
    """Copies what is kept of adjacent segments into one, until that is half full.

    Segments may be deleted meanwhile; it gives up then, and the next pass starts over.
    """

    def __init__(self, log: PartitionLog, keys: _Keys) -> None:
        self._log = log
        self._keys = keys
        self._group: list[Segment] = []
        self._cleaned: Segment | None = None
        self._unended: set[int] = set()  # producers with kept records of an open transaction
        self.gave_up = False

    def make_room_for(self, segment: Segment) -> None:
        """Finish the current segment if another one does not fit into it."""
        if self._cleaned is None:
            return
        half_full = 2 * self._cleaned.size > self._log.config.segment_bytes
        too_large = self._cleaned.size + segment.size > _MAX_INT32
        too_wide = segment.next_offset - self._cleaned.base_offset > _MAX_INT32
        if half_full or too_large or too_wide:
            self.finish()

    def add(self, segment: Segment, keep_tombstones: bool) -> Iterator[None]:
        """Copy what is kept of a segment, one batch per step."""
        if self._cleaned is None:
            self._cleaned = _new_segment(self._log, segment.base_offset)
        self._group.append(segment)
        for header, batch in segment.all_batches():
            if header.is_control:
                stays = self._keeps_marker(header, keep_tombstones)
                kept: bytes | memoryview | None = batch if stays else None
            else:
                kept = _kept(header, batch, self._keys, self._log.producers, keep_tombstones)
                if kept is not None and header.is_transactional:
                    self._unended.add(header.producer_id)
            if kept is not None:
                self._cleaned.append(kept, parse_header(kept))
            yield
            if segment not in self._log.segments:
                break

    def _keeps_marker(self, header: BatchHeader, keep_tombstones: bool) -> bool:
        """Whether to keep a marker: it ends kept records, or readers may not have seen it yet."""
        ends = header.producer_id in self._unended
        self._unended.discard(header.producer_id)
        return ends or keep_tombstones or header.base_offset >= self._keys.end

    def finish(self) -> None:
        """Replace the segments; keep the time of the last write, as tombstones age from there."""
        if self._cleaned is None:
            return
        if any(segment not in self._log.segments for segment in self._group):
            self.give_up()
            return
        newest_ns = max(each.modified_ms for each in self._group) * 1_000_000
        self._cleaned.flush()
        os.utime(self._cleaned.path, ns=(newest_ns, newest_ns))
        self._log.replace_segments(self._group, self._cleaned)
        self._group, self._cleaned = [], None

    def give_up(self) -> None:
        """Leave the segments unchanged."""
        if self._cleaned is not None:
            self._cleaned.remove()
        self._group, self._cleaned = [], None
        self.gave_up = True


def _aborted(producers: ProducerStates) -> dict[int, list[AbortedBatches]]:
    by_producer: dict[int, list[AbortedBatches]] = {}
    for each in producers.aborted:
        by_producer.setdefault(each.producer_id, []).append(each)
    return by_producer


def _new_segment(log: PartitionLog, base_offset: int) -> Segment:
    """Create a segment beside the log; an abandoned pass may have left one."""
    Segment(log.directory, base_offset, log.files, CLEANED_SUFFIX).remove()
    segment = Segment(log.directory, base_offset, log.files, CLEANED_SUFFIX)
    segment.create()
    return segment


def _kept(
    header: BatchHeader,
    batch: memoryview,
    keys: _Keys,
    producers: ProducerStates,
    keep_tombstones: bool,
) -> bytes | memoryview | None:
    """Return what is kept of a batch, or None."""
    if header.base_offset >= keys.end:
        return batch
    records = _records(batch)
    if not records and header.record_count:
        return batch  # unreadable, so it is kept
    gone = keys.is_aborted(header)
    stay = [not gone and keys.keeps(record, keep_tombstones) for record in records]
    if records and all(stay):
        return batch
    if any(stay) or producers.needs(header):
        return without(header, batch, records, stay)
    return None


def _records(batch: memoryview) -> Sequence[Record]:
    """Return the records; none of an unreadable batch from before the topic was compacted."""
    try:
        return decode_records(batch)
    except RemoteProtocolError:
        return ()
