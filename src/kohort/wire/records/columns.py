"""Arrow columns to send: valid names and types, and access to their buffers."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from kohort.wire.records._columns import Columns, Kind, Outcome

KNOWN = ("key", "value", "headers", "partition", "timestamp")
"""The columns that are sent."""

IGNORED = ("topic", "offset", "timestampType")
"""The other columns of `poll_arrow`: the origin of a record."""

_UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_BYTES = "binary, string, large_binary, large_string, binary_view, string_view or fixed_size_binary"
_HEADERS = "list<struct<key: string, value: binary>>"


class Source(NamedTuple):
    """The buffers of one array.

    Attributes:
        kind: How its elements are stored.
        offset: Number of elements before the first.
        length: Number of elements.
        width: Size of an element in bytes, if all have the same size.
        buffers: The validity buffer, then those of the kind.
    """

    kind: int
    offset: int
    length: int
    width: int
    buffers: list[pa.Buffer | None]


class Headers(NamedTuple):
    """The arrays of a headers column: lists of structures of two arrays."""

    lists: Source
    elements: Source
    names: Source | None
    contents: Source | None


def check_schema(schema: pa.Schema) -> None:
    """Check that the columns of a table are those of records.

    Raises:
        ValueError: A column is unknown or repeated, or there is no column of values.
    """
    names = list(schema.names)
    unknown = [name for name in names if name not in KNOWN and name not in IGNORED]
    if unknown:
        raise ValueError(
            f"unknown columns {', '.join(map(repr, unknown))}: records have {', '.join(KNOWN)};"
            f" {', '.join(IGNORED)} are allowed and ignored"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"columns that are there more than once: {', '.join(twice)}")
    if "value" not in names:
        raise ValueError(
            "there is no column 'value'; for records without values add a column of nulls"
        )


def open_columns(batch: pa.RecordBatch, now_ms: int) -> Columns:
    """Return the columns of one batch of rows, ready to be checked.

    Args:
        batch: The rows; `check_schema` accepts its schema.
        now_ms: Milliseconds since the epoch, for rows without a timestamp.

    Raises:
        TypeError: A column has an unsupported type.
        ValueError: An array is malformed.
    """
    batch.validate()
    found = {name: batch.column(name) for name in KNOWN if name in batch.schema.names}
    timestamps = _plain(found.get("timestamp"))
    unit = "ms"
    if timestamps is not None:
        if not types.is_timestamp(timestamps.type):
            raise _wrong("timestamp", timestamps.type, "timestamp[s, ms, us or ns]")
        unit = timestamps.type.unit
    return Columns(
        batch.num_rows,
        _strings("key", found.get("key")),
        _strings("value", found.get("value")),
        _headers(found.get("headers")),
        _partitions(found.get("partition")),
        None if timestamps is None else _source(Kind.FIXED, timestamps, 8),
        *_UNITS[unit],
        now_ms,
    )


def complaint(outcome: int, number: int) -> str:
    """Return the error of a row that `Columns.check` rejected."""
    texts = {
        Outcome.BAD_KEY: "the key's offsets are not inside of its buffer",
        Outcome.BAD_VALUE: "the value's offsets are not inside of its buffer",
        Outcome.BAD_HEADERS: "the headers' offsets are not inside of their arrays",
        Outcome.NULL_HEADER: "a header is null or has no name",
        Outcome.BAD_HEADER_NAME: "a header's name is not UTF-8",
        Outcome.BAD_TIMESTAMP: (
            "the timestamp is before 1970 or beyond 64 bits (-1 ms, for none, may be)"
        ),
        Outcome.BAD_PARTITION: f"there is no partition {number}",
        Outcome.TOO_LARGE: f"a record of {number} bytes",
    }
    return texts[Outcome(outcome)]


def _plain(array: pa.Array | None) -> pa.Array | None:
    """Return an array without dictionary or extension type, and None if all elements are null."""
    if array is None or types.is_null(array.type):
        return None
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if types.is_dictionary(array.type):
        array.validate(full=True)
        return array.dictionary_decode()
    return array


def _source(kind: int, array: pa.Array, width: int = 0) -> Source:
    return Source(kind, array.offset, len(array), width, array.buffers())


def _strings(what: str, given: pa.Array | None) -> Source | None:
    array = _plain(given)
    if array is None:
        return None
    kind = array.type
    if types.is_binary(kind) or types.is_string(kind):
        return _source(Kind.SHORT, array)
    if types.is_large_binary(kind) or types.is_large_string(kind):
        return _source(Kind.LONG, array)
    if types.is_binary_view(kind) or types.is_string_view(kind):
        return _source(Kind.VIEW, array)
    if types.is_fixed_size_binary(kind):
        return _source(Kind.FIXED, array, kind.byte_width)
    raise _wrong(what, kind, _BYTES)


def _partitions(given: pa.Array | None) -> Source | None:
    array = _plain(given)
    if array is None:
        return None
    if not types.is_integer(array.type):
        raise _wrong("partition", array.type, "int32")
    if not types.is_int32(array.type):
        array = array.cast(pa.int32())
    return _source(Kind.FIXED, array, 4)


def _headers(given: pa.Array | None) -> Headers | None:
    array = _plain(given)
    if array is None:
        return None
    kind = array.type
    if types.is_map(kind) or types.is_list(kind):
        lists = Kind.SHORT
    elif types.is_large_list(kind):
        lists = Kind.LONG
    else:
        raise _wrong("headers", kind, _HEADERS)
    # A map is a list of structures of its keys and values, under any names.
    elements = pa.ListArray.values.__get__(array) if types.is_map(kind) else array.values
    if not types.is_struct(elements.type) or elements.type.num_fields != 2:
        raise _wrong("headers", kind, _HEADERS)
    at = (0, 1) if types.is_map(kind) else _places(kind, elements.type)
    children = [elements.field(index) for index in at]
    names, contents = (
        _strings(f"headers.{part}", child)
        for part, child in zip(("key", "value"), children, strict=True)
    )
    return Headers(
        Source(lists, array.offset, len(array), 0, array.buffers()[:2]),
        Source(Kind.FIXED, elements.offset, len(elements), 0, elements.buffers()[:1]),
        names,
        contents,
    )


def _places(kind: pa.DataType, element: pa.StructType) -> tuple[int, int]:
    """Return the indexes of a header's name and value."""
    places = element.get_field_index("key"), element.get_field_index("value")
    if min(places) < 0:
        raise _wrong("headers", kind, _HEADERS)
    return places


def _wrong(what: str, kind: pa.DataType, wanted: str) -> TypeError:
    return TypeError(f"the column {what!r} is of type {kind}, not {wanted}: cast it first")
