"""The log of one partition: segments in a row, appended at the end, read from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kohort.broker.log.files import FileCache, replace_file, sync_directory
from kohort.broker.log.producer_state import ProducerStates
from kohort.broker.log.segment import Segment, segment_path
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.records import decode_records
from kohort.wire.records.header import (
    BatchHeader,
    iter_batches,
    parse_header,
    verify_crc,
    with_base_offset,
)
from kohort.wire.schema import Buffer

LEADER_EPOCH = 0
"""The one broker there is leads each partition from its creation on."""

CLEANED_SUFFIX = ".cleaned"
_START_FILE = "log-start-offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of a partition's log, by Kafka's names.

    Attributes:
        segment_bytes: A segment is closed when the next batch would make it larger.
        max_message_bytes: Largest batch that is taken.
        log_append_time: `message.timestamp.type=LogAppendTime`: the broker's clock counts.
        compact: `cleanup.policy` contains `compact`.
        retention_ms: Age at which a closed segment may go, -1 for never.
        retention_bytes: Size above which the oldest closed segments may go, -1 for never.
        delete_retention_ms: How long compaction keeps a tombstone, for readers to see it.
    """

    segment_bytes: int = 128 * 1024 * 1024
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    compact: bool = False
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    delete_retention_ms: int = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch went.

    Attributes:
        base_offset: Offset of its first record; of the first time when it is a duplicate.
        next_offset: Offset after the log's last record now.
        append_time: Milliseconds since the epoch that the records bear, -1 when they keep theirs.
        duplicate: Whether the batch stood in the log before and was not appended again.
    """

    base_offset: int
    next_offset: int
    append_time: int
    duplicate: bool


class PartitionLog:
    """One partition. Not safe for several threads; the broker has one."""

    def __init__(self, directory: Path, config: LogConfig, files: FileCache) -> None:
        """Open the log in `directory`, which is made if it is not there.

        What a crash left half-written at the end is cut off: `cut_bytes` says how much.
        """
        self.directory = directory
        self.config = config
        self.cut_bytes = 0
        self.producers = ProducerStates()
        self._files = files
        self._segments: list[Segment] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._open()
        self.log_start_offset = max(self._stored_start(), self._segments[0].base_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record; the high watermark too, for nobody replicates."""
        return self._segments[-1].next_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the one that grows."""
        return tuple(self._segments)

    # ------------------------------------------------------------------------------- opening

    def _open(self) -> None:
        for leftover in self.directory.glob(f"*{CLEANED_SUFFIX}"):
            leftover.unlink()
        bases = sorted(int(path.stem) for path in self.directory.glob("*.log"))
        for base in bases or [0]:
            self._segments.append(Segment(segment_path(self.directory, base), self._files))
        for segment in self._segments[:-1]:
            segment.load()
        self._drop_overlaps()
        self.cut_bytes = self._segments[-1].recover(LEADER_EPOCH)
        self._load_producers()

    def _drop_overlaps(self) -> None:
        """Remove segments whose content an interrupted compaction has put into an earlier one."""
        kept: list[Segment] = []
        for segment in self._segments:
            if kept and segment.base_offset < kept[-1].next_offset:
                segment.remove()
            else:
                kept.append(segment)
        self._segments = kept

    def _load_producers(self) -> None:
        """Fold the producers' state from the newest snapshot and the segments after it."""
        start = 0
        for number in range(len(self._segments) - 1, -1, -1):
            snapshot = self._snapshot_path(self._segments[number])
            try:
                self.producers = ProducerStates.from_json(snapshot.read_bytes())
            except (OSError, ValueError):
                continue
            start = number
            break
        for segment in self._segments[start:]:
            for located in segment.walk(0):
                self.producers.apply(located.header)

    def _snapshot_path(self, segment: Segment) -> Path:
        return segment.path.with_suffix(".producers")

    def _stored_start(self) -> int:
        try:
            return int((self.directory / _START_FILE).read_text())
        except (OSError, ValueError):
            return 0

    # ------------------------------------------------------------------------------- writing

    def append(self, records: Buffer, now_ms: int) -> Appended:
        """Append the one batch that `records` holds, as a producer sent it.

        Args:
            records: One record batch; its offsets count from 0.
            now_ms: Milliseconds since the epoch.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, a sequence error of an
                idempotent producer, or KAFKA_STORAGE_ERROR when it could not be written.
        """
        header, batch = self._only_batch(records)
        known = self.producers.check(header)
        if known is not None:
            stamp = known.timestamp if self.config.log_append_time else -1
            return Appended(known.base_offset, self.log_end_offset, stamp, duplicate=True)
        append_time = now_ms if self.config.log_append_time else None
        base_offset = self.log_end_offset
        stored = with_base_offset(batch, base_offset, LEADER_EPOCH, append_time)
        self._write(stored)
        stamp = -1 if append_time is None else append_time
        return Appended(base_offset, self.log_end_offset, stamp, duplicate=False)

    def _only_batch(self, records: Buffer) -> tuple[BatchHeader, memoryview]:
        if len(records) > self.config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(records)} bytes; max.message.bytes is {self.config.max_message_bytes}",
            )
        try:
            batches = list(iter_batches(records))
        except RemoteProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if len(batches) != 1 or batches[0][0].size_in_bytes != len(records):
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "a partition is sent one whole batch at once"
            )
        header, batch = batches[0]
        if not verify_crc(batch):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC does not fit the batch")
        if header.base_offset != 0 or header.record_count != header.last_offset_delta + 1:
            raise KafkaError(ErrorCode.INVALID_RECORD, "offsets of a new batch count from 0")
        if header.is_control:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        return header, batch

    def _write(self, stored: bytes) -> None:
        header = parse_header(stored)
        try:
            active = self._segments[-1]
            if not active.has_room(len(stored), header.last_offset, self.config.segment_bytes):
                active = self.roll()
            active.append(stored, header)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.producers.apply(header)

    def roll(self) -> Segment:
        """Close the last segment and start a new one; the closed one survives the machine."""
        finished = self._segments[-1]
        finished.flush()
        fresh = Segment(segment_path(self.directory, finished.next_offset), self._files)
        replace_file(self._snapshot_path(fresh), self.producers.to_json())
        self._segments.append(fresh)
        sync_directory(self.directory)
        return fresh

    def flush(self) -> None:
        """Make everything that was appended survive the machine (fsync)."""
        self._segments[-1].flush()

    # ------------------------------------------------------------------------------- reading

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches (the last may be cut) from the one that holds `offset` on.

        At least one batch comes back whole, however large, unless `offset` is the end.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )
        for segment in self._segments[self._segment_number(offset) :]:
            found = segment.read(offset, max_bytes)
            if found:
                return found
        return b""

    def _segment_number(self, offset: int) -> int:
        low, high = 0, len(self._segments)
        while low < high:
            middle = (low + high) // 2
            if self._segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after `timestamp`, None if none."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp:
                continue
            for batch in segment.find_timestamp(timestamp):
                for record in decode_records(batch):
                    if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                        return record.offset, record.timestamp
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the largest timestamp (KIP-734)."""
        newest = max((segment.max_timestamp for segment in self._segments), default=-1)
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch, oldest first; for loading state that is a fold of the log."""
        for segment in self._segments:
            yield from segment.batches()

    # ------------------------------------------------------------------------------- removing

    def delete_records(self, before: int) -> None:
        """Make `before` the first offset that can be read; whole segments below it are removed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE when it is beyond the end.
        """
        if before > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{before} > {self.log_end_offset}")
        if before <= self.log_start_offset:
            return
        replace_file(self.directory / _START_FILE, str(before).encode())
        self.log_start_offset = before
        while len(self._segments) > 1 and self._segments[1].base_offset <= before:
            self._remove_oldest()

    def apply_retention(self, now_ms: int) -> int:
        """Remove closed segments that are too old or too many; return how many went."""
        if self.config.compact:
            return 0
        before = len(self._segments)
        while len(self._segments) > 1 and self._is_expendable(self._segments[0], now_ms):
            self._remove_oldest()
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        return before - len(self._segments)

    def _is_expendable(self, segment: Segment, now_ms: int) -> bool:
        config = self.config
        too_old = 0 <= config.retention_ms < now_ms - segment.max_timestamp
        too_much = 0 <= config.retention_bytes <= self.size - segment.size
        return too_old or too_much

    def _remove_oldest(self) -> None:
        segment = self._segments.pop(0)
        self._snapshot_path(segment).unlink(missing_ok=True)
        segment.remove()

    def replace_segments(self, old: list[Segment], new: list[Path]) -> None:
        """Put cleaned files in the place of closed segments; used by compaction.

        The new files are named last first: whatever crash comes between, each record is in a
        segment that opening the log keeps (see `_drop_overlaps`).
        """
        for segment in old:
            for suffix in (".log", ".index", ".timeindex"):
                self._files.forget(segment.path.with_suffix(suffix))
        made: list[Segment] = []
        for path in reversed(new):
            target = path.with_suffix("")
            for suffix in (".index", ".timeindex"):
                target.with_suffix(suffix).unlink(missing_ok=True)
            path.rename(target)
            made.insert(0, Segment(target, self._files))
        sync_directory(self.directory)
        kept = {segment.path for segment in made}
        for segment in old:
            if segment.path not in kept:
                self._snapshot_path(segment).unlink(missing_ok=True)
                segment.remove()
        for segment in made:
            segment.load()
        self._segments[: len(old)] = made

    def close(self) -> None:
        """Flush, and close the files."""
        self.flush()
        for segment in self._segments:
            for suffix in (".log", ".index", ".timeindex"):
                self._files.forget(segment.path.with_suffix(suffix))
