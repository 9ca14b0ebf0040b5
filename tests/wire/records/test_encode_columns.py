"""Batches made of Arrow columns are those made of the same records, and others read them."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.client.producer.partitioner import partition_for_key
from kohort.wire.records import (
    Compression,
    Record,
    RecordBatchBuilder,
    decode_records,
    iter_batches,
)
from kohort.wire.records._columns import Columns, Kind, Outcome
from kohort.wire.records._encode_columns import EncodedRows, Groups
from kohort.wire.records.arrow import Fetched, decode_to_arrow
from kohort.wire.records.columns import Headers, Source, check_schema, open_columns
from kohort.wire.records.compression import compress
from tests.wire.records.foreign import READERS, read_by
from tests.wire.records.strategies import CODECS
from tests.wire.records.tables import NOW, TEXT_TYPES, tables

LIMIT = 1 << 20

Table = tuple[pa.RecordBatch, list[Record]]


def encode_one(batch: pa.RecordBatch) -> EncodedRows:
    groups = grouped(batch, 1)
    encoded = groups.encode(0, LIMIT)
    assert groups.pending() == []
    return encoded


def grouped(batch: pa.RecordBatch, partitions: int, sticky: int = LIMIT) -> Groups:
    columns = open_columns(batch, NOW)
    assert columns.check(LIMIT, partitions) is None
    return Groups(columns, 0, batch.num_rows, partitions, 0, sticky)


def built(
    records: list[Record], producer_id: int, producer_epoch: int, base_sequence: int
) -> bytes:
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )


@given(tables(), st.integers(-1, 2**40), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1))
def test_the_bytes_are_those_of_the_builder(
    table: Table, producer_id: int, epoch: int, sequence: int
) -> None:
    batch, records = table
    encoded = encode_one(batch)
    assert bytes(
        encoded.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    ) == built(records, producer_id, epoch, sequence)
    assert encoded.rows.to_pylist() == list(range(len(records)))


@pytest.mark.parametrize("reader", READERS)
@given(table=tables(), codec=CODECS)
def test_others_read_them(reader: type, table: Table, codec: Compression) -> None:
    batch, records = table
    encoded = encode_one(batch)
    if codec is not Compression.NONE:
        encoded = encoded.compressed(int(codec), compress(codec, encoded.records()))
    assert encoded.codec == codec
    assert read_by(reader, bytes(encoded.build())) == records


@given(tables())
def test_the_columns_come_back(table: Table) -> None:
    batch, records = table
    data = bytes(encode_one(batch).build())
    back = decode_to_arrow([Fetched("t", 0, data)]).batch
    assert back.column("key").to_pylist() == [each.key for each in records]
    assert back.column("value").to_pylist() == [each.value for each in records]
    again = bytes(encode_one(back).build())
    assert decode_records(again) == decode_records(data)


@given(tables(), st.integers(1, 300), st.integers(1, 5))
def test_all_rows_are_in_some_batch_in_order(table: Table, limit: int, partitions: int) -> None:
    batch, records = table
    groups = grouped(batch, partitions, limit)
    taken = []
    last: dict[int, int] = {}
    while pending := groups.pending():
        for partition in pending:
            need = groups.need(partition, limit)
            encoded = groups.encode(partition, limit)
            data = encoded.build()
            assert len(data) <= need
            assert encoded.size <= limit or encoded.count == 1
            rows = encoded.rows.to_pylist()
            assert rows == sorted(rows)
            assert rows[0] > last.get(partition, -1)
            last[partition] = rows[-1]
            for row, record in zip(rows, decode_records(data), strict=True):
                assert record[1:] == records[row][1:]
                if record.key is not None:
                    assert partition == partition_for_key(record.key, partitions)
            taken += rows
    assert sorted(taken) == list(range(len(records)))
    assert groups.rows_left().to_pylist() == []


def test_rows_without_a_key_fill_one_partition_after_the_other() -> None:
    batch = pa.record_batch({"value": [b"v" * 100] * 1000})
    groups = grouped(batch, 3, 11_100)
    assert groups.pending() == [0, 1, 2]
    assert groups.encode(0, LIMIT).rows.to_pylist() == [
        *range(100), *range(300, 400), *range(600, 700), *range(900, 1000)
    ]  # fmt: skip
    assert groups.encode(1, 11_100).rows.to_pylist()[:2] == [100, 101]


@given(st.lists(st.none() | st.text(max_size=20), min_size=1), st.sampled_from(TEXT_TYPES))
def test_text_is_sent_as_utf8(texts: list[str | None], kind: pa.DataType) -> None:
    batch = pa.record_batch({"key": pa.array(texts, kind), "value": pa.array(texts, kind)})
    wanted = [None if each is None else each.encode() for each in texts]
    records = decode_records(encode_one(batch).build())
    assert [each.key for each in records] == wanted
    assert [each.value for each in records] == wanted


def test_types_that_are_read_as_bytes() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([b"ab", None, b"cd"], pa.binary(2)),
            "value": pa.array(["x", "y", None]).dictionary_encode(),
            "headers": pa.nulls(3),
            "partition": pa.array([0, None, 0], pa.int64()),
        }
    )
    records = decode_records(encode_one(batch.slice(1)).build())
    assert [(each.key, each.value) for each in records] == [(None, b"y"), (b"cd", None)]


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1 / 1000), ("ms", 1), ("us", 1000), ("ns", 10**6)]
)
def test_units_of_time(unit: str, factor: float) -> None:
    times = pa.array([int(5000 * factor), None, int(7000 * factor)], pa.int64())
    batch = pa.record_batch(
        {"value": ["a"] * 3, "timestamp": times.cast(pa.timestamp(unit, "UTC"))}
    )
    assert [each.timestamp for each in decode_records(encode_one(batch).build())] == [
        5000,
        NOW,
        7000,
    ]


def test_fractions_of_a_millisecond_are_cut_off_towards_the_past() -> None:
    times = pa.array([1999, 1000, 999, 0], pa.timestamp("us"))
    batch = pa.record_batch({"value": ["a"] * 4, "timestamp": times})
    assert [each.timestamp for each in decode_records(encode_one(batch).build())] == [1, 1, 0, 0]


@given(st.sampled_from(["s", "ms", "us", "ns"]), st.integers(-(2**63), 2**63 - 1))
@example("us", -1_000)
@example("us", -1_001)
@example("us", -1_999)
@example("us", -1)
@example("ns", -1_000_000)
@example("ns", -1_000_001)
@example("ms", -1)
@example("s", -1)
def test_what_the_check_takes_is_encoded_as_it_is(unit: str, time: int) -> None:
    """Of negative times, -1 ms alone: Kafka's sign for none, as `poll_arrow` gives it."""
    per_second = {"s": 1, "ms": 1_000, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([0, time], pa.timestamp(unit))
    batch = pa.record_batch({"value": ["a", "b"], "timestamp": times})
    milliseconds = Fraction(time * 1_000, per_second)
    if milliseconds == -1 or 0 <= milliseconds < 2**63:
        found = [each.timestamp for each in decode_records(encode_one(batch).build())]
        assert found == [0, floor(milliseconds)]
    else:
        assert refused(batch) == (Outcome.BAD_TIMESTAMP, 1, 0)


def test_a_batch_that_somebody_still_holds_is_not_numbered_anew() -> None:
    encoded = encode_one(pa.record_batch({"value": ["a", "b"]}))
    first = encoded.build(producer_id=1, producer_epoch=0, base_sequence=0)
    before = bytes(first)
    second = encoded.build(producer_id=1, producer_epoch=1, base_sequence=7)
    assert bytes(first) == before
    header = next(iter_batches(bytes(second)))[0]
    assert (header.producer_epoch, header.base_sequence) == (1, 7)
    assert decode_records(second) == decode_records(before)


def test_the_partition_column_decides() -> None:
    batch = pa.record_batch(
        {
            "key": ["a"] * 4,
            "value": ["0", "1", "2", "3"],
            "partition": pa.array([2, 0, None, 2], pa.int32()),
        }
    )
    groups = grouped(batch, 3)
    by_key = partition_for_key(b"a", 3)
    expected: dict[int, list[int]] = {2: [0, 3], 0: [1]}
    expected[by_key] = sorted([*expected.get(by_key, []), 2])
    found = {each: groups.encode(each, LIMIT).rows.to_pylist() for each in groups.pending()}
    assert found == expected


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["value", "colour", "x"], "unknown columns 'colour', 'x': records have key, value"),
        (["key"], "no column 'value'"),
        (["value", "value"], "more than once: value"),
    ],
)
def test_columns_that_records_do_not_have(names: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_schema(pa.schema([(name, pa.binary()) for name in names]))


def test_what_poll_arrow_gives_beside_them_is_ignored() -> None:
    check_schema(decode_to_arrow([]).batch.schema)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("key", pa.array([1])),
        ("value", pa.array([1.5])),
        ("value", pa.array([["a"]])),
        ("partition", pa.array(["0"])),
        ("partition", pa.array([0.0])),
        ("timestamp", pa.array([0], pa.int64())),
        ("timestamp", pa.array(["1970-01-01"])),
        ("headers", pa.array(["a"])),
        ("headers", pa.array([["a"]])),
        ("headers", pa.array([[{"name": "a", "value": b""}]])),
        ("headers", pa.array([[{"key": "a", "value": b"", "more": 1}]])),
        ("headers", pa.array([[{"key": 1, "value": b""}]])),
    ],
)
def test_types_that_do_not_fit(name: str, array: pa.Array) -> None:
    batch = pa.record_batch({"value": [b""], name: array})
    with pytest.raises(TypeError, match=f"the column '{name}"):
        open_columns(batch, NOW)


def refused(batch: pa.RecordBatch, max_bytes: int = LIMIT, partitions: int = 3) -> object:
    return open_columns(batch, NOW).check(max_bytes, partitions)


def test_rows_that_do_not_fit() -> None:
    values = ["a", "b", "c"]
    at = pa.array([0, -2, 0], pa.timestamp("ms"))
    far = pa.array([0, 0, 2**62], pa.timestamp("s"))
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    nameless = pa.array([None, [(None, b"")], None], headers)
    absent = pa.array([None, None, [None]], headers)
    assert refused(pa.record_batch({"value": values, "timestamp": at})) == (
        Outcome.BAD_TIMESTAMP,
        1,
        0,
    )
    assert refused(pa.record_batch({"value": values, "timestamp": far})) == (
        Outcome.BAD_TIMESTAMP,
        2,
        0,
    )
    assert refused(pa.record_batch({"value": values, "partition": [0, 2, 3]})) == (
        Outcome.BAD_PARTITION,
        2,
        3,
    )
    assert refused(pa.record_batch({"value": values, "partition": [0, -1, 0]})) == (
        Outcome.BAD_PARTITION,
        1,
        -1,
    )
    assert refused(pa.record_batch({"value": values, "headers": nameless})) == (
        Outcome.NULL_HEADER,
        1,
        0,
    )
    assert refused(pa.record_batch({"value": values, "headers": absent})) == (
        Outcome.NULL_HEADER,
        2,
        0,
    )
    assert refused(pa.record_batch({"value": ["a", "b" * 100]}), 120) == (Outcome.TOO_LARGE, 1, 136)


def test_a_header_name_that_is_not_utf8() -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    batch = pa.record_batch({"value": ["a"], "headers": pa.array([[(b"\xff", b"")]], kind)})
    assert refused(batch) == (Outcome.BAD_HEADER_NAME, 0, 0)


# ---------------------------------------------------------------------- arrays built by hand


def source(kind: Kind, length: int, buffers: list[bytes | None], offset: int = 0) -> Source:
    given = [None if each is None else pa.py_buffer(each) for each in buffers]
    return Source(kind, offset, length, 8 if kind is Kind.FIXED else 0, given)


def ends(*numbers: int, kind: str = "<i4") -> bytes:
    return np.array(numbers, kind).tobytes()


def view(size: int, buffer: int, start: int) -> bytes:
    return ends(size) + b"abcd" + ends(buffer, start)


FAR = ends(0, 2**62, kind="<i8")
AROUND = ends(-(2**63), 2**63 - 1, 1, kind="<i8")
# Straight to the kernel: pyarrow refuses some of these when they are made, others never.
HOSTILE = {
    "offsets beyond the data": source(Kind.SHORT, 2, [None, ends(0, 1, 1000), b"abc"]),
    "offsets without data": source(Kind.SHORT, 2, [None, ends(0, 1, 2), None]),
    "offsets that fall": source(Kind.SHORT, 3, [None, ends(0, 3, 1, 2), b"abc"]),
    "negative offsets": source(Kind.SHORT, 2, [None, ends(-5, 1, 2), b"abc"]),
    "a negative end": source(Kind.SHORT, 2, [None, ends(0, -1, 2), b"abc"]),
    "too few offsets": source(Kind.SHORT, 100, [None, ends(0, 1), b"abc"]),
    "no offsets": source(Kind.SHORT, 1, [None, None, b"abc"]),
    "an offset beyond the array": source(Kind.SHORT, 2, [None, ends(0, 1, 2), b"abc"], 50),
    "an offset before the array": source(Kind.SHORT, 2, [None, ends(0, 1, 2), b"abc"], -1),
    "an offset near 64 bits": source(Kind.SHORT, 2, [None, ends(0, 1, 2), b"abc"], 2**63 - 2),
    "too little validity": source(Kind.SHORT, 9, [b"\xff", ends(*range(10)), b"abcdefghi"]),
    "long offsets beyond": source(Kind.LONG, 1, [None, FAR, b"abc"]),
    "long offsets around": source(Kind.LONG, 2, [None, AROUND, b"abc"]),
    "a view of no buffer": source(Kind.VIEW, 1, [None, view(20, 3, 0), b"abc"]),
    "a view beyond its buffer": source(Kind.VIEW, 1, [None, view(20, 0, 1), b"a" * 20]),
    "a view before its buffer": source(Kind.VIEW, 1, [None, view(20, 0, -1), b"a" * 20]),
    "a view of negative size": source(Kind.VIEW, 1, [None, view(-1, 0, 0), b"a" * 20]),
    "a view of a negative buffer": source(Kind.VIEW, 1, [None, view(20, -1, 0), b"a" * 20]),
    "too few views": source(Kind.VIEW, 3, [None, view(20, 0, 0), b"a" * 20]),
    "too few fixed sizes": source(Kind.FIXED, 3, [None, b"a" * 20]),
}


def complaint_of(
    rows: int, value: Source | None, headers: Headers | None = None, **numbers: Source
) -> object:
    """Return what the kernel has against columns, None when it takes them."""
    times, partitions = numbers.get("times"), numbers.get("partitions")
    try:
        return Columns(rows, None, value, headers, partitions, times, 1, 1, NOW).check(LIMIT, 3)
    except ValueError as error:
        return error


@pytest.mark.parametrize("what", HOSTILE)
def test_arrays_built_by_hand_are_refused(what: str) -> None:
    array = HOSTILE[what]
    assert complaint_of(array.length, array) is not None
    assert complaint_of(array.length + 1, array) is not None


def test_numbers_built_by_hand_are_refused() -> None:
    short = source(Kind.FIXED, 3, [None, bytes(11)])
    assert complaint_of(3, None, partitions=short) is not None
    assert complaint_of(3, None, times=short) is not None
    none = source(Kind.FIXED, 3, [None, None])
    assert complaint_of(3, None, partitions=none) is not None
    assert complaint_of(3, None, times=none) is not None


NAMES = source(Kind.SHORT, 1, [None, ends(0, 1), b"a"])


@pytest.mark.parametrize(
    ("lists", "names"),
    [
        (ends(0, 5), NAMES),
        (ends(-1, 1), NAMES),
        (ends(1, 0), NAMES),
        (ends(0), NAMES),
        (ends(0, 1), source(Kind.SHORT, 1, [None, ends(0, 100), b"a"])),
        (ends(0, 1), source(Kind.SHORT, 0, [None, ends(0), b"a"])),
        (ends(0, 1), source(Kind.SHORT, 2, [None, ends(0, 1, 1), b"a"])),
    ],
)
def test_headers_built_by_hand_are_refused(lists: bytes, names: Source) -> None:
    elements = source(Kind.FIXED, 1, [None])
    good = Headers(source(Kind.SHORT, 1, [None, ends(0, 1)]), elements, NAMES, NAMES)
    assert complaint_of(1, NAMES, good) is None
    bad = Headers(source(Kind.SHORT, 1, [None, lists]), elements, names, NAMES)
    assert complaint_of(1, NAMES, bad) is not None


def test_a_table_that_changes_while_it_is_sent_is_noticed() -> None:
    offsets = np.array([0, 10, 20, 30], "<i4")
    array = pa.Array.from_buffers(
        pa.binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"a" * 30)]
    )
    groups = grouped(pa.record_batch({"value": array}), 1)
    offsets[2] = 1 << 30
    with pytest.raises(ValueError, match="was changed"):
        groups.encode(0, LIMIT)


def test_rows_that_grow_while_they_are_sent_do_not_overflow() -> None:
    offsets = np.array([0, 1, 2, 3], "<i4")
    array = pa.Array.from_buffers(
        pa.binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"a" * 3_000)]
    )
    groups = grouped(pa.record_batch({"value": array}), 1)
    offsets[1:] = [1000, 2000, 3000]
    taken = 0
    while groups.pending():
        taken += groups.encode(0, LIMIT).count
    assert taken == 3
