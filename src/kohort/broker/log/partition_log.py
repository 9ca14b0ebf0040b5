"""The log of one partition: a sequence of segments, appended at the end, read from anywhere.

Beside the segments, the directory of a partition contains
<offset>.producers  the state of idempotent producers before an offset
clean-shutdown      the last segment, its size and the end offset, all synced; removed before the
                    log is written again
log-start-offset    the first readable offset, if records before it were deleted
swap                the segments that compaction is replacing
<segment>.cut-at-N  the bytes cut off a damaged segment
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from msgspec import Struct

from kohort.broker.log.config import LogConfig
from kohort.broker.log.files import FileCache, replace_file, sync_directory
from kohort.broker.log.missing import left_by_segments, tell_missing
from kohort.broker.log.producer_state import ProducerStates
from kohort.broker.log.recovery import open_closed, read_mark, recover
from kohort.broker.log.segment import Segment
from kohort.broker.log.timestamps import are_older, first_since, newest
from kohort.broker.log.validation import check_time, only_batch
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.codec.schema import Buffer
from kohort.wire.records.header import BatchHeader, parse_header, with_base_offset
from kohort.wire.records.marker import Marker, encode_marker

logger = logging.getLogger(__name__)

__all__ = ["CLEANED_SUFFIX", "LEADER_EPOCH", "Appended", "LogConfig", "PartitionLog"]

LEADER_EPOCH = 0
"""The only broker leads each partition from its creation on."""

CLEANED_SUFFIX = ".cleaned"
"""Suffix of files that compaction is writing."""

_SEGMENT_NAME = re.compile(r"\d{20}\.log")
_SNAPSHOT = ".producers"
_CLEAN_FILE = "clean-shutdown"
_START_FILE = "log-start-offset"
_SWAP_FILE = "swap"


class Appended(Struct, frozen=True):
    """The result of an append.

    Attributes:
        base_offset: Offset of the batch's first record; for a duplicate, that of the first append.
        next_offset: The log's end offset.
        append_time: Timestamp of the records in milliseconds since the epoch, -1 if it is their
            own.
        duplicate: Whether the log had the batch already, so that it was not appended again.
    """

    base_offset: int
    next_offset: int
    append_time: int
    duplicate: bool


class PartitionLog:
    """The log of a partition. Not thread-safe; the broker has one thread.

    Attributes:
        directory: Directory of the partition.
        config: Its settings; may be replaced at any time.
        cut_bytes: Bytes that opening cut off the end: torn by a crash, or damaged.
        producers: State of the producers, including their transactions in this partition.
        files: The cache of descriptors.
        log_start_offset: First readable offset.
        compacted_to: Offset below which compaction has seen every record.
        uncleanable: Whether compaction has found damage, and skips the log.
    """

    def __init__(self, directory: Path, config: LogConfig, files: FileCache) -> None:
        """Open the log in `directory`, which is created if it is missing.

        Raises:
            OSError: A file cannot be read or written.
        """
        self.directory = directory
        self.config = config
        self.cut_bytes = 0
        self.compacted_to = 0
        self.uncleanable = False
        self._told: set[str] = set()
        self.files = files
        directory.mkdir(parents=True, exist_ok=True)
        self._finish_swap()
        self._segments = self._find_segments()
        self._marked_clean = (directory / _CLEAN_FILE).exists()
        self._unflushed = False
        for segment, following in pairwise(self._segments):
            segment.load()
            if segment.damaged:
                segment.next_offset = following.base_offset
        self.producers = self._open_last()
        self.log_start_offset = max(self._stored_start(), self._segments[0].base_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record; also the high watermark, as there are no replicas."""
        return self._segments[-1].next_offset

    @property
    def last_stable_offset(self) -> int:
        """Offset before which every transaction has ended; committed reads stop there."""
        first_open = self.producers.first_open
        if first_open is None:
            return self.log_end_offset
        return max(first_open, self.log_start_offset)

    @property
    def size(self) -> int:
        """Total size of the segments in bytes."""
        return sum(segment.size for segment in self._segments)

    @property
    def is_flushed(self) -> bool:
        """Whether everything that was appended is synced to the disk."""
        return not self._unflushed

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last one is open for appends."""
        return tuple(self._segments)

    # ------------------------------------------------------------------------------- opening

    def _find_segments(self) -> list[Segment]:
        for leftover in self.directory.glob(f"*{CLEANED_SUFFIX}"):
            leftover.unlink()
        names = (path.name for path in self.directory.glob("*.log"))
        bases = sorted(int(name[:20]) for name in names if _SEGMENT_NAME.fullmatch(name))
        segments = [Segment(self.directory, base, self.files) for base in bases or [0]]
        segments[-1].create()
        return segments

    def _open_last(self) -> ProducerStates:
        """Open the last segment: at once after a clean shutdown, else batch by batch."""
        last, mark = self._segments[-1], read_mark(self.directory / _CLEAN_FILE)
        if mark is not None and mark[0] == last.base_offset:
            is_whole, self.cut_bytes = open_closed(last, *mark[1:])
            if not is_whole:
                self._drop_snapshots()
                self._forget_mark()
            return self._producers_at(last.next_offset)
        producers = self._producers_at(last.base_offset)
        self.cut_bytes = recover(last, LEADER_EPOCH, producers.apply)
        self._unflushed = last.size > 0
        self._tell_missing(mark)
        self._drop_snapshots()
        return producers

    def _tell_missing(self, mark: list[int] | None) -> None:
        bases = {segment.base_offset for segment in self._segments}
        known = left_by_segments(self.directory, bases, self.files)
        if not self.cut_bytes:  # else the damage to the last segment is logged
            known |= {path.name: offset for offset, path in self._snapshots()}
            known[_START_FILE] = self._stored_start()
            known[_CLEAN_FILE] = mark[2] if mark is not None and len(mark) > 2 else 0
        tell_missing(self.directory, self.log_end_offset, known)

    def _drop_snapshots(self) -> None:
        """Remove snapshots of producers that refer to batches that were cut off."""
        for offset, path in self._snapshots():
            if offset > self.log_end_offset:
                path.unlink()

    def _producers_at(self, end: int) -> ProducerStates:
        """Return the producers' state at an offset, from a snapshot and the batches after it."""
        producers, start = ProducerStates(), 0
        for offset, path in self._snapshots():
            if offset <= end:
                with suppress(OSError, ValueError):
                    producers, start = ProducerStates.from_json(path.read_bytes()), offset
        for segment in self._segments:
            if start < segment.next_offset and segment.base_offset < end:
                for header, batch in segment.batches():
                    if header.base_offset >= start:
                        producers.apply(header, batch)
        return producers

    def _snapshots(self) -> list[tuple[int, Path]]:
        paths = self.directory.glob(f"*{_SNAPSHOT}")
        return sorted((int(path.stem), path) for path in paths if path.stem.isdigit())

    def _stored_start(self) -> int:
        try:
            return int((self.directory / _START_FILE).read_text())
        except (OSError, ValueError):
            return 0

    # ------------------------------------------------------------------------------- writing

    def append(self, records: Buffer, now_ms: int, *, by_coordinator: bool = False) -> Appended:
        """Append the single batch in `records`, as a producer sent it.

        Args:
            records: One record batch; its offsets count from 0.
            now_ms: Milliseconds since the epoch.
            by_coordinator: Whether the group coordinator writes the batch on behalf of a producer,
                whose sequence numbers count only its own batches.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, a
                sequence error of an idempotent producer, or KAFKA_STORAGE_ERROR if the write
                failed. In every case the log is unchanged.
        """
        header, batch = only_batch(records, self.config)
        known = None if by_coordinator else self.producers.check(header)
        if known is not None:
            stamp = known.timestamp if self.config.log_append_time else -1
            return Appended(known.base_offset, self.log_end_offset, stamp, duplicate=True)
        append_time = now_ms if self.config.log_append_time else None
        if append_time is None:
            check_time(header, batch, self.config, now_ms)
        base_offset = self.log_end_offset
        stored = with_base_offset(batch, base_offset, LEADER_EPOCH, append_time)
        with self.files.storage.writing(self.directory):
            self._write(stored)
        stamp = -1 if append_time is None else append_time
        return Appended(base_offset, self.log_end_offset, stamp, duplicate=False)

    def append_marker(self, marker: Marker, now_ms: int) -> None:
        """Append a marker, which ends a producer's transaction.

        Args:
            marker: The marker.
            now_ms: Milliseconds since the epoch.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH if the producer has written with a later epoch, or
                KAFKA_STORAGE_ERROR; the log is unchanged.
        """
        self.producers.check_marker(marker.producer_id, marker.producer_epoch)
        batch = memoryview(encode_marker(marker, now_ms))
        with self.files.storage.writing(self.directory):
            self._write(with_base_offset(batch, self.log_end_offset, LEADER_EPOCH, None))

    def _write(self, stored: bytes) -> None:
        header = parse_header(stored)
        last = self._segments[-1]
        if not last.has_room(len(stored), header.last_offset, self.config.segment_bytes):
            last = self.roll()
        self._forget_mark()
        last.append(stored, header)
        self._unflushed = True
        self.producers.apply(header, stored)

    def _forget_mark(self) -> None:
        if self._marked_clean:
            (self.directory / _CLEAN_FILE).unlink()
            sync_directory(self.directory)
            self._marked_clean = False

    def roll(self) -> Segment:
        """Close the last segment, sync it to the disk, and start a new one.

        Raises:
            OSError: It failed; the log continues in its last segment.
        """
        finished = self._segments[-1]
        if finished.size == 0:
            return finished
        self._forget_mark()
        finished.flush()
        fresh = Segment(self.directory, finished.next_offset, self.files)
        fresh.create()
        self._write_snapshot()
        self._segments.append(fresh)
        return fresh

    def _write_snapshot(self) -> None:
        """Write a snapshot of the producers, and keep only it and that of the last segment."""
        target = self.directory / f"{self.log_end_offset:020d}{_SNAPSHOT}"
        replace_file(target, self.producers.to_json())
        base = self._segments[-1].base_offset
        for offset, path in self._snapshots():
            if offset not in (base, self.log_end_offset):
                path.unlink()

    def flush(self) -> None:
        """Write everything that was appended to the disk (fsync).

        Raises:
            OSError: A write failed.
        """
        if self._unflushed:
            self._segments[-1].flush()
            self._unflushed = False

    # ------------------------------------------------------------------------------- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        before: int | None = None,
    ) -> bytes | memoryview:
        """Return whole batches of one segment, starting with the one that contains `offset`.

        Args:
            offset: Where to begin; the result is empty at the end of the log.
            max_bytes: Maximum number of bytes to return.
            at_least_one: Whether to return the first batch even if it is larger than that.
            before: Return only batches that end before this offset; None: no limit.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE if the log is damaged, or
                KAFKA_STORAGE_ERROR.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )
        if offset == self.log_end_offset:
            return b""
        with self._reading():
            for segment in self._segments[self._segment_number(offset) :]:
                found = segment.read(offset, max_bytes, at_least_one, before)
                if found is not None:
                    return found
        return b""

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Log damage that a reader meets, once."""
        with self.files.storage.reading(self.directory):
            try:
                yield
            except KafkaError as error:
                if error.code == ErrorCode.CORRUPT_MESSAGE and str(error) not in self._told:
                    self._told.add(str(error))
                    logger.error("%s: readers get %s", self.directory, error)
                raise

    def _segment_number(self, offset: int) -> int:
        number = bisect_right(self._segments, offset, key=attrgetter("base_offset"))
        return max(number - 1, 0)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after `timestamp`, or None.

        Raises:
            KafkaError: CORRUPT_MESSAGE if a batch cannot be read, or
                KAFKA_STORAGE_ERROR.
        """
        with self._reading():
            return first_since(self._segments, timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the largest timestamp (KIP-734)."""
        with self._reading():
            return newest(self._segments, self.log_start_offset)

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch, oldest first, to rebuild state from the log.

        Raises:
            KafkaError: CORRUPT_MESSAGE: the log is damaged.
        """
        for segment in self._segments:
            yield from segment.all_batches()

    # ------------------------------------------------------------------------------- removing

    def delete_records(self, before: int) -> None:
        """Make `before` the first readable offset; whole segments below it are removed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if it is beyond the end, or KAFKA_STORAGE_ERROR.
        """
        if before > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{before} > {self.log_end_offset}")
        if before <= self.log_start_offset:
            return
        with self.files.storage.writing(self.directory):
            replace_file(self.directory / _START_FILE, str(before).encode())
            self.log_start_offset = before
            while len(self._segments) > 1 and self._segments[1].base_offset <= before:
                self._remove_oldest()

    def apply_retention(self, now_ms: int) -> int:
        """Remove segments beyond the retention limits; return the number removed.

        If all of the last segment is too old it is removed as well, but the offsets continue. This
        also removes the state of producers that were silent for a day.

        Raises:
            OSError: A file could not be removed; the next call retries.
        """
        self.producers.expire(now_ms)
        removed = 0
        while self.config.delete and self._is_expendable(self._segments[0], now_ms):
            if len(self._segments) == 1:
                self.roll()
            self._remove_oldest()
            removed += 1
        return removed

    def _is_expendable(self, segment: Segment, now_ms: int) -> bool:
        config = self.config
        if segment.size == 0:
            return segment is not self._segments[-1]
        if 0 <= config.retention_bytes <= self.size - segment.size:
            return True
        limit = now_ms - config.retention_ms
        if config.retention_ms < 0 or segment.max_timestamp < 0 or segment.damaged:
            return config.retention_ms >= 0 and segment.modified_ms < limit
        return are_older(segment, limit, self.log_start_offset)

    def _remove_oldest(self) -> None:
        segment = self._segments.pop(0)
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        self.producers.forget_aborted(self.log_start_offset)
        segment.remove()

    # ------------------------------------------------------------------------------- compaction

    def replace_segments(self, old: Sequence[Segment], cleaned: Segment) -> None:
        """Replace adjacent segments by one cleaned segment, named as the first of them.

        The change takes effect with the rename. The list of files to remove is on disk before it,
        and they are removed oldest first, so a value never outlives the tombstone after it.

        Raises:
            OSError: It failed, perhaps halfway: opening the log completes it.
        """
        first, *others = old
        if others:
            plan = {"cleaned": cleaned.path.name, "remove": [each.base_offset for each in others]}
            replace_file(self.directory / _SWAP_FILE, json.dumps(plan).encode())
        try:
            cleaned.take_the_place_of(first)
        except OSError:
            first.reindex()
            raise
        at = self._segments.index(first)
        self._segments[at : at + len(old)] = [cleaned]
        sync_directory(self.directory)
        if others:
            self._finish_swap()

    def _finish_swap(self) -> None:
        """Remove the segments that a cleaned one has replaced, if the rename took place."""
        path = self.directory / _SWAP_FILE
        if not path.exists():
            return
        plan = json.loads(path.read_text())
        if not (self.directory / plan["cleaned"]).exists():
            for base in plan["remove"]:
                Segment(self.directory, base, self.files).remove()
            sync_directory(self.directory)
        path.unlink()

    # ------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Flush, mark the log as cleanly closed, and close the files.

        Raises:
            OSError: A write failed; the files are closed anyway.
        """
        try:
            self.flush()
            self._mark_clean()
        finally:
            self.abandon()

    def _mark_clean(self) -> None:
        last = self._segments[-1]
        if self._marked_clean or last.size == 0:
            return
        self._write_snapshot()
        mark = f"{last.base_offset} {last.size} {last.next_offset}\n"
        replace_file(self.directory / _CLEAN_FILE, mark.encode())
        self._marked_clean = True

    def abandon(self) -> None:
        """Close the files without flushing, as after a crash."""
        for segment in self._segments:
            segment.release()
