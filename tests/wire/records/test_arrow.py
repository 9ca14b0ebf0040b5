"""The kernel gives what the reference decoder and the objects give, in Spark's columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.codec.limits import Limits
from kohort.wire.records import (
    Compression,
    Record,
    TimestampType,
    decode_records,
    encode_batch,
    with_base_offset,
)
from kohort.wire.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS, Fetched, decode_to_arrow
from tests.wire.records import reference
from tests.wire.records.strategies import CODECS, batch_of, record_lists

MICROSECOND_TYPE = pa.timestamp("us", tz="UTC")
TYPES = st.sampled_from(TimestampType)


def table_rows(batch: pa.RecordBatch) -> list[tuple[str, int, int, Record]]:
    """Return topic, partition, timestamp type and record of each row."""
    batch.validate(full=True)
    # A datetime has no year 10000; the numbers have.
    timestamps = batch["timestamp"].cast(pa.int64()).to_pylist()
    columns = {name: batch[name].to_pylist() for name in batch.schema.names if name != "timestamp"}
    rows = []
    for i, timestamp in enumerate(timestamps):
        headers = columns["headers"][i] if "headers" in columns else None
        assert headers != [], "a record without headers has null"
        record = Record(
            columns["offset"][i],
            timestamp // 1000,
            columns["key"][i],
            columns["value"][i],
            tuple((h["key"], h["value"]) for h in headers or ()),
        )
        row = columns["topic"][i], columns["partition"][i], columns["timestampType"][i], record
        rows.append(row)
    return rows


def test_columns_are_those_of_spark() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    spark = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", MICROSECOND_TYPE),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", header))),
        ]
    )
    assert spark == SCHEMA_WITH_HEADERS
    data = encode_batch([Record(0, 0, b"k", b"v", (("h", b"x"),)), Record(1, 0, None, None)])
    for records in (data, b""):
        assert decode_to_arrow([Fetched("t", 0, records)]).batch.schema.equals(spark)
        plain = decode_to_arrow([Fetched("t", 0, records)], include_headers=False).batch
        assert plain.schema.equals(SCHEMA)


@given(st.lists(st.tuples(record_lists(), CODECS, TYPES), max_size=4))
def test_kernel_reference_and_objects_agree(
    batches: list[tuple[list[Record], Compression, TimestampType]],
) -> None:
    data, plain, offset = b"", b"", 0
    objects: list[Record] = []
    for records, codec, kind in batches:
        moved = [r._replace(offset=r.offset + offset) for r in records]
        offset = moved[-1].offset + 1
        batch = encode_batch(moved, codec=codec, timestamp_type=kind)
        data += batch
        plain += encode_batch(moved, timestamp_type=kind)
        objects += decode_records(batch)
    decoded = decode_to_arrow([Fetched("topic", 3, data)])
    rows = table_rows(decoded.batch)
    expected = reference.decode(plain)
    assert [row[3] for row in rows] == [row.record for row in expected] == objects
    assert [row[2] for row in rows] == [row.timestamp_type for row in expected]
    assert {row[:2] for row in rows} <= {("topic", 3)}
    without = decode_to_arrow([Fetched("topic", 3, data)], include_headers=False)
    assert without.next_offsets == decoded.next_offsets == [offset]
    assert without.batch == decoded.batch.drop_columns("headers")


@given(record_lists(), record_lists(), st.data())
def test_only_what_is_between_two_offsets(
    first: list[Record], second: list[Record], data: st.DataObject
) -> None:
    end = first[-1].offset + 1
    second = [r._replace(offset=r.offset - second[0].offset + end) for r in second]
    fetched = encode_batch(first) + encode_batch(second, codec=Compression.LZ4)
    known = [r.offset for r in first + second]
    near = st.sampled_from([o + d for o in known for d in (-1, 0, 1)])
    low, high = sorted((max(data.draw(near), 0), max(data.draw(near), 0)))
    decoded = decode_to_arrow([Fetched("t", 0, fetched, low, high)])
    expected = [r for r in first + second if low <= r.offset < high]
    assert [row[3] for row in table_rows(decoded.batch)] == expected
    after = min(high, known[-1] + 1)
    assert decoded.next_offsets == [max(low, after) if low < high else low]


def test_many_partitions_and_topics_in_one_batch() -> None:
    records = [Record(i, 1000 + i, b"k" * i, b"v" * (200 - i)) for i in range(200)]
    parts = [
        Fetched("topic-" + "x" * (p % 7), p, encode_batch(records[p : 2 * p + 1]))
        for p in range(60)
    ]
    decoded = decode_to_arrow([*parts, Fetched("", 9, encode_batch(records[:2]))])
    expected = [
        (part.topic, part.partition, 0, record)
        for part in parts
        for record in records[part.partition : 2 * part.partition + 1]
    ]
    expected += [("", 9, 0, record) for record in records[:2]]
    assert table_rows(decoded.batch) == expected
    assert decoded.next_offsets == [*(2 * p + 1 for p in range(60)), 2]


def test_columns_grow_past_what_was_expected() -> None:
    records = [Record(i, i, b"key", b"0" * 1000, (("h", b"1" * 50),) * 3) for i in range(3000)]
    data = b"".join(
        encode_batch(records[at : at + 500], codec=Compression.ZSTD) for at in range(0, 3000, 500)
    )
    decoded = decode_to_arrow([Fetched("a-topic-with-a-name", 1, data)])
    assert [row[3] for row in table_rows(decoded.batch)] == records


def test_headers_that_start_in_the_middle_of_a_batch() -> None:
    plain = [Record(i, 0, None if i % 3 else b"k", b"v" * i) for i in range(40)]
    headers = (("name", None), ("name", b""), ("ü€𝄞", b"value"))
    mixed = [
        r._replace(offset=40 + r.offset, headers=headers[: i % 4]) for i, r in enumerate(plain)
    ]
    data = (
        encode_batch(plain)
        + encode_batch(mixed)
        + encode_batch([r._replace(offset=80 + r.offset) for r in plain])
    )
    decoded = decode_to_arrow([Fetched("t", 0, data)])
    expected = [*plain, *mixed, *(r._replace(offset=80 + r.offset) for r in plain)]
    assert [row[3] for row in table_rows(decoded.batch)] == expected


BYTES_OF_UTF8 = st.sampled_from(
    list(b"a\x80\xbf\xc0\xc2\xe0\xe2\xed\xa0\xef\xf0\xf4\x90\xff\x82\xac")
)


@given(st.lists(st.lists(BYTES_OF_UTF8, min_size=1, max_size=9).map(bytes), max_size=5))
def test_names_that_are_not_utf8_are_read_as_java_and_python_do(names: list[bytes]) -> None:
    """Brokers take such names, so one of them must not stop a partition."""
    headers = [("ABCDE"[i] * len(name), b"value") for i, name in enumerate(names)]
    data = encode_batch([Record(0, 0, b"k", b"v", tuple(headers)), Record(1, 0, b"k", b"v", ())])
    head, body = data[:61], data[61:]  # what follows the header of a batch
    for (written, _), name in zip(headers, names, strict=True):
        size = bytes([2 * len(name)])  # as a variable-length number
        body = body.replace(size + written.encode(), size + name)
    data = head + body
    expected = tuple((name.decode("utf-8", "replace"), b"value") for name in names)
    first, _ = decode_records(data, check_crc=False)
    assert first.headers == expected
    decoded = decode_to_arrow([Fetched("t", 0, data)], check_crc=False)
    assert [row[3].headers for row in table_rows(decoded.batch)] == [expected, ()]
    without = decode_to_arrow([Fetched("t", 0, data)], check_crc=False, include_headers=False)
    assert without.batch.num_rows == 2


def test_control_batches_are_passed_over() -> None:
    marker = encode_batch(
        [Record(1, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, is_transactional=True
    )
    first = encode_batch([Record(0, 0, b"k", b"v")], is_transactional=True)
    decoded = decode_to_arrow([Fetched("t", 0, first + marker)])
    assert [row[3].offset for row in table_rows(decoded.batch)] == [0]
    assert decoded.next_offsets == [2]


def test_batch_emptied_by_compaction_moves_on() -> None:
    data = with_base_offset(batch_of(b"", 0, last_offset_delta=41), 100, 0)
    assert decode_records(data) == []
    assert decode_to_arrow([Fetched("t", 0, data, 100)]).next_offsets == [142]
    assert decode_to_arrow([Fetched("t", 0, data, 142)]).next_offsets == [142]


def test_cut_batch_is_left_for_the_next_fetch() -> None:
    batch = encode_batch([Record(i, i, b"key", b"value") for i in range(3)])
    second = with_base_offset(batch, 3, 0)
    for size in range(len(second)):
        decoded = decode_to_arrow([Fetched("t", 0, batch + second[:size])])
        assert (decoded.batch.num_rows, decoded.next_offsets) == (3, [3])


def test_what_does_not_fit_stays_for_a_second_call() -> None:
    records = [Record(i, i, b"k", bytes(90)) for i in range(1000)]
    data = b"".join(encode_batch(records[at : at + 10]) for at in range(0, 1000, 10))
    offsets, position = [], 0
    while position < 1000:
        decoded, (after,), _ = decode_to_arrow([Fetched("t", 0, data, position)], max_bytes=20_000)
        assert position < after
        assert decoded.nbytes < 30_000
        offsets += decoded["offset"].to_pylist()
        position = after
    assert offsets == list(range(1000))


def test_later_partitions_stay_where_they_were_when_there_is_no_room() -> None:
    data = encode_batch([Record(i, i, b"k", bytes(90)) for i in range(100)])
    parts = [Fetched("t", p, data, 50) for p in range(3)]
    decoded = decode_to_arrow(parts, max_bytes=1)
    assert decoded.batch.num_rows == 50
    assert decoded.next_offsets == [100, 50, 50]


def test_timestamps_at_both_ends() -> None:
    most = 2**63 // 1000
    records = [Record(0, -most, None, b""), Record(1, most, None, b""), Record(2, -1, None, b"")]
    decoded = decode_to_arrow([Fetched("t", 0, encode_batch(records))])
    assert [row[3] for row in table_rows(decoded.batch)] == records
    assert decoded.clipped == []


@pytest.mark.parametrize("beyond", [2**63 // 1000 + 1, -(2**63 // 1000) - 1, 2**63 - 1, -(2**63)])
def test_timestamps_beyond_microseconds_are_clipped_and_named(beyond: int) -> None:
    nearest = 2**63 // 1000 if beyond > 0 else -(2**63 // 1000)
    records = [Record(number, 0, None, b"") for number in range(3)]
    one = encode_batch([records[0], records[1]._replace(timestamp=beyond)])
    appended = with_base_offset(encode_batch(records), 100, 0, beyond)
    decoded = decode_to_arrow([Fetched("t", 3, one), Fetched("t", 4, appended, 101)])
    times = [row[3].timestamp for row in table_rows(decoded.batch)]
    assert times == [0, nearest, nearest, nearest]
    assert decoded.clipped == [("t", 3, 1, 1), ("t", 4, 101, 2)]


def test_crc_is_checked_unless_it_was() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"key", b"value")]))
    batch[-2] ^= 1
    with pytest.raises(RemoteProtocolError, match=r"offset 0 of flights-7: the CRC"):
        decode_to_arrow([Fetched("flights", 7, batch)])
    assert decode_to_arrow([Fetched("flights", 7, batch)], check_crc=False).batch.num_rows == 1


def test_any_buffer_will_do() -> None:
    batch = encode_batch([Record(0, 0, b"key", b"value", (("h", b"x"),))])
    expected = decode_to_arrow([Fetched("t", 0, batch)]).batch
    for data in (bytearray(batch), memoryview(b"x" + batch)[1:], memoryview(bytearray(batch))):
        assert decode_to_arrow([Fetched("t", 0, data)]).batch == expected


def test_rows_do_not_depend_on_the_fetched_bytes() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"key", b"value")]))
    decoded = decode_to_arrow([Fetched("t", 0, batch)]).batch
    batch[:] = bytes(len(batch))
    assert decoded["value"].to_pylist() == [b"value"]


def test_limits_of_one_batch() -> None:
    records = [Record(i, 0, None, b"", (("h", None),) * 3) for i in range(3)]
    part = [Fetched("t", 0, encode_batch(records))]
    assert decode_to_arrow(part, limits=Limits(max_headers_per_record=3)).batch.num_rows == 3
    with pytest.raises(RemoteProtocolError, match="headers"):
        decode_to_arrow(part, limits=Limits(max_headers_per_record=2))
    with pytest.raises(RemoteProtocolError, match="the limit is 2"):
        decode_to_arrow(part, limits=Limits(max_records_per_batch=2))


def test_topic_names_that_no_column_can_hold() -> None:
    data = encode_batch([Record(i, 0, None, None) for i in range(3000)])
    with pytest.raises(LocalProtocolError, match="topic name"):
        decode_to_arrow([Fetched("x" * 800_000, 0, data)])
