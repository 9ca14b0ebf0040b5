"""Removes records from a record batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kohort.wire.records import Record
from kohort.wire.records._crc32c import crc32c
from kohort.wire.records.compression import compress, decompress
from kohort.wire.records.header import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    Compression,
    TimestampType,
)

# The header fields that change, each with its position.
_LENGTH = struct.Struct(">i"), 8
_CRC = struct.Struct(">I"), 17
_ATTRIBUTES = struct.Struct(">h"), 21
_MAX_TIMESTAMP = struct.Struct(">q"), 35
_RECORD_COUNT = struct.Struct(">i"), 57

_COMPRESSION_MASK = 0x07


def without(
    header: BatchHeader, batch: memoryview, records: Sequence[Record], stay: Sequence[bool]
) -> bytes:
    """Return the batch with only the records to keep; without any it is a bare header.

    The records are copied unchanged, as base offset and base timestamp stay the same. So do the
    last offset and the sequence numbers.
    """
    payload = decompress(header.compression, batch[HEADER_SIZE:]) if any(stay) else memoryview(b"")
    pieces = zip(_pieces(payload), stay, strict=False)
    body = b"".join(piece for piece, stays in pieces if stays)
    attributes = header.attributes
    if body:
        body = compress(header.compression, body)
    else:
        attributes = (attributes & ~_COMPRESSION_MASK) | Compression.NONE
    kept = [record for record, stays in zip(records, stay, strict=True) if stays]
    out = bytearray(batch[:HEADER_SIZE])
    out += body
    _put(out, _LENGTH, len(out) - LENGTH_END)
    _put(out, _ATTRIBUTES, attributes)
    if kept and header.timestamp_type is TimestampType.CREATE_TIME:
        _put(out, _MAX_TIMESTAMP, max(record.timestamp for record in kept))
    _put(out, _RECORD_COUNT, len(kept))
    _put(out, _CRC, crc32c(memoryview(out)[CRC_START:]))
    return bytes(out)


def _put(out: bytearray, field: tuple[struct.Struct, int], value: int) -> None:
    layout, at = field
    layout.pack_into(out, at, value)


def _pieces(payload: memoryview) -> Iterator[memoryview]:
    """Split valid, decompressed records by their lengths."""
    at = 0
    while at < len(payload):
        start, length, shift = at, 0, 0
        while True:
            byte = payload[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length >> 1  # zigzag encoded, and never negative
        yield payload[start:at]
