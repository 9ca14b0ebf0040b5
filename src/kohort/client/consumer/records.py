"""Convert fetched bytes to records: objects for `poll`, columns for `poll_arrow`."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer._consumer_records import consumer_records, records_from
from kohort.errors import RecordDeserializationError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import AbortedTransaction
from kohort.wire.records import Record, decode_records, iter_batches, parse_header
from kohort.wire.records.record import Headers

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.wire.records.arrow import Clipped

log = logging.getLogger("kohort.client")

_PREFIX = struct.Struct(">qi")
_DELTA = struct.Struct(">i")
_DELTA_AT = 23
_LENGTH_END = 12
_HEADER_SIZE = 61

_ABORT = b"\x00\x00\x00\x00"


class ConsumerRecord(NamedTuple):
    """One record.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        timestamp: Milliseconds since the epoch.
        timestamp_type: The clock of the timestamp: 0 for the producer's, 1 for the broker's.
        key: Its key, or the result of `key_deserializer`; None when there is none.
        value: Its value, or the result of `value_deserializer`; None deletes the key in a compacted
            topic.
        headers: Names and values; names may repeat.
        leader_epoch: Leader epoch in which it was written, -1 when not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int


class Chunk:
    """The records of one partition in one answer of a broker; consumed from the front.

    Args:
        records: Record batches; the last one may be incomplete.
        position: First offset wanted, which may be inside the first batch.
        next_offset: Offset after the last complete batch.
    """

    __slots__ = ("_at", "_decoded", "_header", "_size", "next_offset", "position", "records")

    def __init__(self, records: memoryview, position: int, next_offset: int) -> None:
        self.records = records
        self.position = position
        self.next_offset = next_offset
        self._decoded: list[Record] = []  # of the current batch
        self._at = 0  # index of the next record in it
        self._size = 0  # size of that batch, at the start of `records`
        self._header = (0, 0)  # its timestamp type and leader epoch

    @property
    def _has_decoded(self) -> bool:
        return self._at < len(self._decoded)

    @property
    def is_empty(self) -> bool:
        """Whether all records were consumed."""
        return self.position >= self.next_offset

    def take(
        self, partition: TopicPartition, count: int, config: ConsumerConfig
    ) -> list[ConsumerRecord]:
        """Return the next records, at most `count`; empty only when all were consumed.

        Good records before a bad one are returned first; the next call raises.

        Raises:
            RemoteProtocolError: The bytes are not record batches; the error names partition and
                offset.
            RecordDeserializationError: A deserializer raised.
        """
        taken: list[ConsumerRecord] = []
        try:
            while len(taken) < count and (self._has_decoded or self._next_batch(config.check_crcs)):
                self._take_decoded(partition, count - len(taken), config, taken)
        except RemoteProtocolError as error:
            if not taken:
                raise RemoteProtocolError(f"{_place(partition, self.position)}: {error}") from None
        except RecordDeserializationError:
            if not taken:
                raise
        self._skip_to_end()
        return taken

    def take_one(self, partition: TopicPartition, config: ConsumerConfig) -> ConsumerRecord | None:
        """Return the next record; None when all were consumed.

        Raises:
            RemoteProtocolError: See `take`.
            RecordDeserializationError: See `take`.
        """
        try:
            if not (self._has_decoded or self._next_batch(config.check_crcs)):
                self._skip_to_end()
                return None
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{_place(partition, self.position)}: {error}") from None
        offset, stamp, key, value, headers = self._decoded[self._at]
        record = ConsumerRecord(
            *partition, offset, stamp, self._header[0], key, value, headers, self._header[1]
        )
        if config.key_deserializer is not None or config.value_deserializer is not None:
            record = _deserialized(record, config)
        self._at += 1
        self.position = offset + 1
        self._skip_to_end()
        return record

    def mark(self) -> tuple[memoryview, int]:
        """Return the current place, for `rewind`."""
        return self.records, self.position

    def rewind(self, mark: tuple[memoryview, int]) -> None:
        """Go back to a place: records taken since then did not reach the application."""
        self.records, self.position = mark
        self._decoded, self._at, self._size = [], 0, 0

    def _take_decoded(
        self,
        partition: TopicPartition,
        count: int,
        config: ConsumerConfig,
        taken: list[ConsumerRecord],
    ) -> None:
        wanted = min(count, len(self._decoded) - self._at)
        made = consumer_records(
            ConsumerRecord, *partition, *self._header, self._decoded, self._at, wanted
        )
        if config.key_deserializer is None and config.value_deserializer is None:
            taken += made
            self._at += wanted
            self.position = made[-1].offset + 1
            return
        for record in made:
            taken.append(_deserialized(record, config))
            self._at += 1
            self.position = record.offset + 1

    def _skip_to_end(self) -> None:
        """After the last record, skip offsets that have no record."""
        if not self._has_decoded and self._size == len(self.records):
            self.position = self.next_offset

    def _next_batch(self, check_crcs: bool) -> bool:
        """Decode the next batch that has records from the position on."""
        self.records = self.records[self._size :]
        self._size = 0
        while self.records:
            header = parse_header(self.records)
            if header.next_offset > self.position and not header.is_control:
                records = decode_records(self.records[: header.size_in_bytes], check_crc=check_crcs)
                self._decoded, self._at = records_from(records, self.position), 0
            if self._has_decoded:
                self._header = int(header.timestamp_type), header.partition_leader_epoch
                self._size = header.size_in_bytes
                return True
            self.records = self.records[header.size_in_bytes :]
        return False

    def drop_read(self) -> None:
        """Release the batches before the position."""
        self._decoded, self._at, self._size = [], 0, 0
        unpack = _PREFIX.unpack_from
        while len(self.records) >= _HEADER_SIZE and self.position < self.next_offset:
            base, length = unpack(self.records)
            (delta,) = _DELTA.unpack_from(self.records, _DELTA_AT)
            if base + delta >= self.position:
                break
            self.records = self.records[_LENGTH_END + length :]

    def arrow_part(self, count: int | None) -> tuple[memoryview, int, int]:
        """Return bytes, first offset and end of the next records, at most `count` of them."""
        end = self.next_offset if count is None else min(self.next_offset, self.position + count)
        return self.records, self.position, end


def whole_chunk(records: memoryview, position: int) -> Chunk | None:
    """Make a chunk from fetched bytes; None when they contain no complete batch.

    Raises:
        RemoteProtocolError: The bytes are not record batches.
    """
    next_offset, end = _last_batch(records)
    return None if end == 0 else Chunk(records[:end], position, next_offset)


def _last_batch(records: memoryview) -> tuple[int, int]:
    """Return the offset after the last complete batch, and the end of its bytes."""
    at = last = 0
    size = len(records)
    unpack = _PREFIX.unpack_from
    while at + _HEADER_SIZE <= size:
        _, length = unpack(records, at)
        end = at + _LENGTH_END + length
        if end > size:
            break
        if length < _HEADER_SIZE - _LENGTH_END:
            raise RemoteProtocolError(f"record batch length {length} is below the header")
        last, at = at, end
    if at == 0:
        return 0, 0
    return parse_header(records, last).next_offset, at


def without_aborted(
    records: memoryview, aborted: Sequence[AbortedTransaction] | None
) -> memoryview:
    """Return the batches without those of aborted transactions (KIP-98, read_committed).

    Args:
        records: Complete record batches.
        aborted: The aborted transactions in this range.
    """
    if not aborted:
        return records
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    active: set[int] = set()
    kept: list[memoryview] = []
    for header, batch in iter_batches(records):
        while waiting and waiting[0].first_offset <= header.last_offset:
            active.add(waiting.pop(0).producer_id)
        if header.is_control:
            if decode_records(batch)[0].key == _ABORT:
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            continue
        kept.append(batch)
    return memoryview(b"".join(kept))


def decode_columns(
    parts: Sequence[tuple[TopicPartition, memoryview, int, int]],
    check_crc: bool,
    clipped_times: ClippedTimes,
) -> tuple[pa.RecordBatch, list[int]]:
    """Decode parts of several partitions into one RecordBatch; also return where each ended.

    Args:
        parts: Partition, bytes, first offset and end of each.
        check_crc: Whether to check the CRCs.
        clipped_times: Logs timestamps that do not fit.
    """
    from kohort.wire.records.arrow import Fetched, decode_to_arrow

    fetched = [
        Fetched(partition.topic, partition.partition, records, first, end)
        for partition, records, first, end in parts
    ]
    decoded = decode_to_arrow(fetched, check_crc=check_crc)
    clipped_times.note(decoded.clipped)
    return decoded.batch, decoded.next_offsets


def _deserialized(record: ConsumerRecord, config: ConsumerConfig) -> ConsumerRecord:
    key, value = record.key, record.value
    part = "key"
    try:
        if config.key_deserializer is not None and key is not None:
            key = config.key_deserializer(key)
        part = "value"
        if config.value_deserializer is not None and value is not None:
            value = config.value_deserializer(value)
    except Exception as error:
        raise RecordDeserializationError(
            part,
            TopicPartition(record.topic, record.partition),
            record.offset,
            record.key,
            record.value,
            f"{type(error).__name__}: {error}",
        ) from error
    return record._replace(key=key, value=value)


def _place(partition: TopicPartition, offset: int) -> str:
    return f"{partition.topic}-{partition.partition} at offset {offset}"


class ClippedTimes:
    """Logs once per partition that timestamps in its columns differ from those of its records."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()

    def note(self, clipped: Iterable[Clipped]) -> None:
        """Log partitions that have not been logged yet."""
        for topic, partition, offset, _ in clipped:
            if (topic, partition) in self._told:
                continue
            self._told.add((topic, partition))
            log.warning(
                "%s-%d: timestamps, the first at offset %d, are beyond what columns of microseconds"
                " can hold; the nearest one that fits stands in their place. A consumer's poll()"
                " gives them as they are; perhaps their producer does not count milliseconds. This"
                " is not logged again for this partition",
                topic,
                partition,
                offset,
            )
