"""Record batches decoded slowly and plainly, by the format's description; what speed is held to."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kohort.wire.records import Record

NO_END = 2**63 - 1


class MalformedError(Exception):
    """The bytes are not what the format says."""


class Reader:
    """Takes fields off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise MalformedError(f"{size} of {self.remaining} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        value = 0
        for shift in range(0, bits, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise MalformedError("varint does not end")
        if value >= 1 << bits:
            raise MalformedError("varint too large")
        return (value >> 1) ^ -(value & 1)

    def nullable(self) -> bytes | None:
        size = self.varint(32)
        return None if size < 0 else self.take(size)


class Row(NamedTuple):
    """A record with what its batch says about it."""

    record: Record
    timestamp_type: int


def decode(batches: bytes, from_offset: int = 0, to_offset: int = NO_END) -> list[Row]:
    """Return the records of uncompressed batches that applications see."""
    rows: list[Row] = []
    at = 0
    while len(batches) - at >= 61:
        (length,) = struct.unpack_from(">i", batches, at + 8)
        if at + 12 + length > len(batches):
            break
        rows += decode_batch(batches[at : at + 12 + length])
        at += 12 + length
    return [row for row in rows if from_offset <= row.record.offset < to_offset]


def decode_batch(batch: bytes) -> list[Row]:
    fields = struct.unpack_from(">qiibIhiqqqhii", batch)
    base_offset, attributes, last_delta = fields[0], fields[5], fields[6]
    base_timestamp, max_timestamp, count = fields[7], fields[8], fields[12]
    if attributes & 0x20 or count == 0:
        return []
    append_time = max_timestamp if attributes & 0x08 else None
    reader = Reader(batch[61:])
    rows = []
    for _ in range(count):
        fields_of_record = Reader(reader.take(reader.varint(32)))
        record = decode_record(fields_of_record, base_offset, last_delta, base_timestamp)
        if append_time is not None:
            record = record._replace(timestamp=append_time)
        rows.append(Row(record, attributes >> 3 & 1))
    if reader.remaining:
        raise MalformedError("bytes after the last record")
    return rows


def decode_record(reader: Reader, base_offset: int, last_delta: int, base_timestamp: int) -> Record:
    reader.take(1)
    timestamp = base_timestamp + reader.varint(64)
    if not -(2**63) <= timestamp < 2**63:
        raise MalformedError("timestamp beyond 64 bits")
    offset_delta = reader.varint(32)
    if not 0 <= offset_delta <= last_delta:
        raise MalformedError("offset outside of the batch")
    key, value = reader.nullable(), reader.nullable()
    headers = []
    count = reader.varint(32)
    if not 0 <= count <= reader.remaining:
        raise MalformedError("header count")
    for _ in range(count):
        name = reader.take(reader.varint(32))
        headers.append((name.decode("utf-8", "replace"), reader.nullable()))
    if reader.remaining:
        raise MalformedError("bytes after the headers")
    return Record(base_offset + offset_delta, timestamp, key, value, tuple(headers))
