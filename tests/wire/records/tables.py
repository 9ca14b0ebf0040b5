"""Records as Arrow columns of every type that may be sent, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from kohort.wire.records import Record
from tests.wire.records.strategies import HEADERS, PAYLOADS

TIMESTAMPS = st.none() | st.integers(-1, 2**43) | st.integers(1_700_000_000_000, 1_700_000_100_000)
BYTES_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


def headers_types() -> list[pa.DataType]:
    """Return the types that a headers column may have."""
    element = pa.struct([("key", pa.string()), ("value", pa.binary())])
    viewed = pa.struct([("value", pa.binary_view()), ("key", pa.large_string())])
    return [
        pa.list_(element),
        pa.large_list(element),
        pa.list_(viewed),
        pa.map_(pa.string(), pa.binary()),
    ]


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Given: TypeAlias = tuple[int | None, bytes | None, bytes | None, Headers]


@st.composite
def rows(draw: st.DrawFn) -> list[Given]:
    """Return times (None for now), keys, values and headers."""
    row = st.tuples(TIMESTAMPS, PAYLOADS, PAYLOADS, st.just(()) | HEADERS)
    return draw(st.lists(row, min_size=1, max_size=12))


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[Record]]:
    """Return a table, often a slice of a larger one, and its records as Kafka numbers them."""
    given = draw(rows())
    start = draw(st.integers(0, len(given) - 1))
    kinds = st.sampled_from(BYTES_TYPES)
    batch = table_of(given, draw(kinds), draw(kinds), draw(st.sampled_from(headers_types()))).slice(
        start
    )
    records = [
        Record(at, NOW if row[0] is None else row[0], *row[1:])
        for at, row in enumerate(given[start:])
    ]
    return batch, records


NOW = 1_700_000_000_123


def table_of(
    given: Sequence[Given],
    key_type: pa.DataType,
    value_type: pa.DataType,
    headers_type: pa.DataType,
) -> pa.RecordBatch:
    """Return rows as columns."""
    times, keys, values, headers = zip(*given, strict=True)
    lists = [_headers(each, headers_type) for each in headers]
    return pa.record_batch(
        {
            "timestamp": pa.array(times, pa.timestamp("ms")),
            "key": pa.array(keys, key_type),
            "value": pa.array(values, value_type),
            "headers": pa.array(lists, headers_type),
        }
    )


def _headers(headers: Headers, kind: pa.DataType) -> list[object] | None:
    if pa.types.is_map(kind):
        return list(headers) or None
    return [{"key": name, "value": content} for name, content in headers] or None
