"""Decodes fetched record batches into Arrow columns, those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from kohort.errors import LocalProtocolError
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.codec.schema import Buffer
from kohort.wire.records._decode import ColumnDecoder

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""The columns without `headers`, in Spark's order, names and types."""

SCHEMA_WITH_HEADERS = SCHEMA.append(
    pa.field(
        "headers",
        pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    )
)
"""All columns; `headers` is null for a record that has none."""

NO_END = 2**63 - 1
DEFAULT_MAX_BYTES = 256 * 1024 * 1024


class Fetched(NamedTuple):
    """The record batches of one partition.

    Attributes:
        topic: Its topic.
        partition: Its number.
        records: Record batches as fetched; an incomplete last one is ignored.
        from_offset: First offset to decode, which may be inside a batch.
        to_offset: Offset to stop before.
    """

    topic: str
    partition: int
    records: Buffer
    from_offset: int = 0
    to_offset: int = NO_END


class Clipped(NamedTuple):
    """Records of one batch whose timestamps do not fit into microseconds.

    Attributes:
        topic: Topic of the records.
        partition: Partition of the records.
        offset: Offset of the first of them.
        rows: Number of records.
    """

    topic: str
    partition: int
    offset: int
    rows: int


class Decoded(NamedTuple):
    """The result of decoding.

    Attributes:
        batch: The rows, in the order of the fetched batches.
        next_offsets: For each `Fetched`, the offset to continue at. It is past control records and
            past offsets that compaction removed, so it may exceed the last row's by more than one.
        clipped: Rows with the nearest timestamp that fits instead of the record's own, which is
            outside of the years -290308 to 294247.
    """

    batch: pa.RecordBatch
    next_offsets: list[int]
    clipped: list[Clipped]


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some of the columns, in the given order.

    Args:
        columns: Names of columns of `SCHEMA_WITH_HEADERS`.

    Raises:
        KeyError: There is no column with a name.
        LocalProtocolError: A name is repeated.
    """
    if len(set(columns)) < len(columns):
        raise LocalProtocolError(f"a column is named twice: {', '.join(columns)}")
    return pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in columns])


def decode_to_arrow(
    fetched: Sequence[Fetched],
    *,
    include_headers: bool = True,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    max_bytes: int = DEFAULT_MAX_BYTES,
    limits: Limits = DEFAULT_LIMITS,
) -> Decoded:
    """Decode record batches of any number of partitions into one RecordBatch.

    Transaction markers are left out. Batches of aborted transactions are not detected here.

    Args:
        fetched: The batches, by partition.
        include_headers: Whether to include the headers column.
        columns: The columns to decode, in the desired order; the data of others is neither copied
            nor kept. None for all, with headers if `include_headers` says so.
        check_crc: Whether to check each batch's CRC; not needed if it was checked before.
        max_bytes: The approximate maximum size of the result. At least one batch is decoded; the
            rest is left for a second call with `from_offset` set to the returned `next_offsets`. At
            most 2 GiB, the range of Arrow's 32-bit offsets.
        limits: Bounds on each batch.

    Raises:
        RemoteProtocolError: The bytes are not record batches, a CRC does not match, or a limit is
            exceeded; the message names the partition and the offset.
    """
    if columns is None:
        schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    else:
        schema = schema_of(columns)
    decoder = ColumnDecoder(schema.names, check_crc, max_bytes, limits)
    decoder.expect(fetched)
    next_offsets = [decoder.add(*part) for part in fetched]
    batch = decoder.finish(schema)
    return Decoded(batch, next_offsets, [Clipped(*each) for each in decoder.clipped])
