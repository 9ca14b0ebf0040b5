"""The header of a record batch, format v2, and operations that need only the header.

A broker stores and serves batches without decoding their records: it checks header and CRC, sets
the offsets and passes the bytes on. The format is defined by KIP-98 and in "Record Batch" in
Kafka's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from kohort.errors import RemoteProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.codec.schema import Buffer
from kohort.wire.records._crc32c import crc32c

HEADER_SIZE = 61
"""Size of a batch header in bytes."""

LENGTH_END = 12
"""`batch_length` counts from here: the base offset and the length itself are not included."""

CRC_START = 21
"""The CRC covers the bytes from here, so setting offset and leader epoch does not change it."""

MIN_RECORD_SIZE = 7
"""Size of a record without key, value and headers: six one-byte varints and the attributes."""

MAX_INT32 = 0x7FFFFFFF

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qiib")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40


class Compression(IntEnum):
    """The compression of a batch's records, by its number in the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Whose clock the timestamps of a batch are from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(Struct, frozen=True):
    """The header fields, by Kafka's names.

    Attributes:
        base_offset: Offset of the first record that the batch was written with.
        batch_length: Bytes of the batch after this field.
        partition_leader_epoch: Set by the broker; -1 in a batch from a producer.
        magic: Format version, 2.
        crc: CRC-32C of everything from the attributes on.
        attributes: Compression, timestamp type and flags, as bits.
        last_offset_delta: Last offset minus base offset; kept when compaction removes records.
        base_timestamp: Milliseconds since the epoch that the records' deltas count from.
        max_timestamp: Largest timestamp; the append time when that is the timestamp type.
        producer_id: Id of an idempotent producer (KIP-98), else -1.
        producer_epoch: Epoch of that producer, else -1.
        base_sequence: Sequence number of the first record, else -1.
        record_count: Number of records in the batch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        """Return the size of the whole batch in bytes."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Last offset of the batch, even if compaction removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Return the compression of the records."""
        return Compression(self.attributes & _COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return whether the timestamps are the producer's or the broker's."""
        if self.attributes & _LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch is part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return whether the records are transaction markers, which applications do not get."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Return whether `base_timestamp` is compaction's delete horizon (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON)


def parse_header(data: Buffer, offset: int = 0, *, limits: Limits = DEFAULT_LIMITS) -> BatchHeader:
    """Decode the header of the batch that starts at `offset` of `data`.

    Only the header need be present; the records may be missing.

    Raises:
        RemoteProtocolError: It is not a v2 batch, or a field has an invalid value.
    """
    if len(data) - offset < HEADER_SIZE:
        _check_magic(data, offset)
        raise RemoteProtocolError(
            f"record batch header of {len(data) - offset} bytes; its size is {HEADER_SIZE}"
        )
    header = BatchHeader(*_HEADER.unpack_from(data, offset))
    _check(header, limits)
    return header


def iter_batches(
    data: Buffer, *, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each whole batch of `data` with its header.

    A broker truncates fetched data at a byte count, so an incomplete last batch is silently left
    out. The CRC is not checked: see `verify_crc`.

    Raises:
        RemoteProtocolError: As for `parse_header`.
    """
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_SIZE:
        header = parse_header(view, at, limits=limits)
        end = at + header.size_in_bytes
        if end > len(view):
            return
        yield header, view[at:end]
        at = end
    if len(view) - at > _MAGIC_AT:
        _check_magic(view, at)


def verify_crc(batch: Buffer) -> bool:
    """Return whether the CRC of one whole batch matches its bytes."""
    expected: int = _CRC.unpack_from(batch, _CRC_AT)[0]
    return crc32c(memoryview(batch)[CRC_START:]) == expected


def with_base_offset(
    batch: Buffer, base_offset: int, leader_epoch: int, log_append_time: int | None = None
) -> bytes:
    """Return the batch as a broker stores it.

    Args:
        batch: One whole batch, as a producer sent it.
        base_offset: Offset of its first record.
        leader_epoch: Leader epoch of the partition.
        log_append_time: Milliseconds since the epoch if the topic has
            `message.timestamp.type=LogAppendTime`, else None. The CRC covers the timestamps, so
            only this requires computing it again.
    """
    out = bytearray(batch)
    _OFFSET.pack_into(out, 0, base_offset)
    _EPOCH.pack_into(out, LENGTH_END, leader_epoch)
    if log_append_time is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(out, _ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(out, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
        _MAX_TIMESTAMP.pack_into(out, _MAX_TIMESTAMP_AT, log_append_time)
        _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[CRC_START:]))
    return bytes(out)


def _check_magic(data: Buffer, offset: int) -> None:
    """Raise an error for a batch of an old format, whose header may be shorter."""
    if len(data) - offset > _MAGIC_AT:
        magic: int = _PREFIX.unpack_from(data, offset)[3]
        if magic != 2:
            raise RemoteProtocolError(_magic_message(magic))


def _magic_message(magic: int) -> str:
    if magic in (0, 1):
        return (
            f"messages in the old format v{magic} (before Kafka 0.11); only record batches v2 are"
            " supported. Rewrite the topic with a current producer"
        )
    return f"record batch has magic {magic}; only 2 is supported"


def _check(header: BatchHeader, limits: Limits) -> None:
    if header.magic != 2:
        raise RemoteProtocolError(_magic_message(header.magic))
    if header.batch_length < HEADER_SIZE - LENGTH_END:
        raise RemoteProtocolError(f"record batch length {header.batch_length} is below the header")
    if header.base_offset < 0:
        raise RemoteProtocolError(f"record batch has base offset {header.base_offset}")
    if header.last_offset_delta < 0:
        raise RemoteProtocolError(f"record batch has last offset delta {header.last_offset_delta}")
    if header.base_offset > 0x7FFFFFFFFFFFFFFE - header.last_offset_delta:
        raise RemoteProtocolError(f"record batch at {header.base_offset} ends beyond an int64")
    if header.attributes & _COMPRESSION_MASK > Compression.ZSTD:
        raise RemoteProtocolError(
            f"record batch has unknown compression {header.attributes & _COMPRESSION_MASK}"
        )
    if not 0 <= header.record_count <= limits.max_records_per_batch:
        raise RemoteProtocolError(
            f"record batch counts {header.record_count} records; the limit is"
            f" {limits.max_records_per_batch}"
        )
    if header.record_count > header.last_offset_delta + 1:
        raise RemoteProtocolError(
            f"record batch counts {header.record_count} records in"
            f" {header.last_offset_delta + 1} offsets"
        )
