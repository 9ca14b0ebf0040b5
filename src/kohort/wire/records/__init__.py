"""Record batches, format v2: the content of Kafka's log.

`header` is enough for a broker; `encode` converts between batches and objects, and `arrow`
(imported by name, because it loads pyarrow) decodes batches to columns.
"""

from __future__ import annotations

from kohort.wire.records.encode import RecordBatchBuilder, decode_records, encode_batch
from kohort.wire.records.header import (
    BatchHeader,
    Compression,
    TimestampType,
    iter_batches,
    parse_header,
    verify_crc,
    with_base_offset,
)
from kohort.wire.records.record import Record

__all__ = [
    "BatchHeader",
    "Compression",
    "Record",
    "RecordBatchBuilder",
    "TimestampType",
    "decode_records",
    "encode_batch",
    "iter_batches",
    "parse_header",
    "verify_crc",
    "with_base_offset",
]
