"""Encodes and decodes record batches, from and to objects."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.codec.schema import Buffer
from kohort.wire.records._objects import RecordReader, RecordWriter
from kohort.wire.records.compression import compress, decompress
from kohort.wire.records.header import (
    HEADER_SIZE,
    MIN_RECORD_SIZE,
    Compression,
    TimestampType,
    parse_header,
    verify_crc,
)
from kohort.wire.records.record import Record

_AFTER_CRC = struct.Struct(">hiqqqhii")

_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class RecordBatchBuilder(RecordWriter):
    """Collects records into one batch: call `append` for each, then `build`.

    `append(timestamp, key, value, headers=(), offset=None)` takes milliseconds since the epoch;
    without an offset, records are numbered from 0. `size` is the number of bytes of the records so
    far, uncompressed and without the batch header of 61 bytes.
    """

    def build(
        self,
        codec: Compression = Compression.NONE,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        leader_epoch: int = -1,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytes:
        """Return the batch of the appended records, of which there must be at least one.

        Args:
            codec: How to compress the records.
            producer_id: Id of an idempotent producer (KIP-98), else -1.
            producer_epoch: Epoch of that producer.
            base_sequence: Sequence number of the first record.
            leader_epoch: -1 from a producer; a broker's own batches have its epoch.
            timestamp_type: With LOG_APPEND_TIME all records have the largest timestamp.
            is_transactional: Whether the batch belongs to a transaction.
            is_control: Whether the records are transaction markers.
        """
        if self.count == 0:
            raise LocalProtocolError("a batch has at least one record")
        attributes = int(codec)
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= _LOG_APPEND_TIME
        if is_transactional:
            attributes |= _TRANSACTIONAL
        if is_control:
            attributes |= _CONTROL
        head = _AFTER_CRC.pack(
            attributes,
            self.last_offset - self.base_offset,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        packed = None if codec is Compression.NONE else compress(codec, self.records())
        return self.assemble(leader_epoch, head, packed)


def encode_batch(
    records: Iterable[Record],
    *,
    codec: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Encode `records` as one batch, with their offsets; see `RecordBatchBuilder.build`."""
    builder = RecordBatchBuilder()
    for offset, timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers, offset)
    return builder.build(
        codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        timestamp_type=timestamp_type,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def decode_records(
    batch: Buffer, *, check_crc: bool = True, limits: Limits = DEFAULT_LIMITS
) -> list[Record]:
    """Decode the records of one whole batch, which may be a control batch.

    Raises:
        RemoteProtocolError: The bytes are not a whole batch, the CRC does not match, or a limit is
            exceeded.
    """
    header = parse_header(batch, limits=limits)
    if header.size_in_bytes != len(batch):
        raise RemoteProtocolError(
            f"record batch of {header.size_in_bytes} bytes in a buffer of {len(batch)}"
        )
    if check_crc and not verify_crc(batch):
        raise RemoteProtocolError(f"record batch at offset {header.base_offset} has a wrong CRC")
    if header.record_count == 0:
        return []  # compaction leaves an empty batch to keep its producer's state
    records = decompress(header.compression, memoryview(batch)[HEADER_SIZE:], limits)
    if header.record_count * MIN_RECORD_SIZE > len(records):
        raise RemoteProtocolError(
            f"record batch counts {header.record_count} records in {len(records)} bytes"
        )
    append_time = None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = header.max_timestamp
    reader = RecordReader(header, append_time, limits.max_headers_per_record)
    return reader.read(records, header.record_count)
