"""What we encode others decode, and the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.records import (
    Compression,
    Record,
    RecordBatchBuilder,
    TimestampType,
    decode_records,
    encode_batch,
    parse_header,
)
from tests.wire.records.foreign import BUILDERS, READERS, read_by
from tests.wire.records.strategies import CODECS, record_lists


@pytest.mark.parametrize("reader", READERS)
@given(records=record_lists(), codec=CODECS)
def test_others_read_what_we_write(reader: type, records: list[Record], codec: Compression) -> None:
    assert read_by(reader, encode_batch(records, codec=codec)) == records


@pytest.mark.parametrize("builder", BUILDERS)
@given(records=record_lists(gaps=False), codec=CODECS, transactional=st.booleans())
def test_we_read_what_others_write(
    builder: type, records: list[Record], codec: Compression, transactional: bool
) -> None:
    foreign = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(transactional),
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for r in records:
        foreign.append(r.offset, r.timestamp, r.key, r.value, list(r.headers))
    batch = bytes(foreign.build())
    assert decode_records(batch) == records
    if codec is Compression.NONE:  # compressors differ; every other byte is fixed by the format
        ours = encode_batch(
            records,
            producer_id=5,
            producer_epoch=1,
            base_sequence=3,
            leader_epoch=parse_header(batch).partition_leader_epoch,
            is_transactional=transactional,
        )
        assert ours == batch


@given(record_lists(), CODECS)
def test_round_trip(records: list[Record], codec: Compression) -> None:
    assert decode_records(encode_batch(records, codec=codec)) == records


@given(record_lists(), CODECS)
def test_append_time_is_the_largest_timestamp(records: list[Record], codec: Compression) -> None:
    batch = encode_batch(records, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    newest = max(r.timestamp for r in records)
    assert decode_records(batch) == [r._replace(timestamp=newest) for r in records]


@pytest.mark.parametrize("codec", Compression)
def test_many_records_and_a_large_one(codec: Compression) -> None:
    records = [Record(i, 10**12 + i, b"%d" % i, bytes(i % 50)) for i in range(20_000)]
    records.append(Record(20_000, 0, None, bytes(range(256)) * 20_000, (("h" * 300, b"x" * 9000),)))
    batch = encode_batch(records, codec=codec)
    assert decode_records(batch) == records
    assert read_by(READERS[0], batch) == records


def test_builder_counts_offsets_and_bytes() -> None:
    builder = RecordBatchBuilder()
    builder.append(5, b"k", memoryview(b"value"), [("h", bytearray(b"x"))])
    builder.append(3, None, None)
    assert (builder.count, builder.last_offset) == (2, 1)
    assert (builder.base_timestamp, builder.max_timestamp) == (5, 5)
    batch = builder.build()
    assert len(batch) == 61 + builder.size
    assert decode_records(batch) == [
        Record(0, 5, b"k", b"value", (("h", b"x"),)),
        Record(1, 3, None, None),
    ]


def test_a_batch_has_a_record() -> None:
    with pytest.raises(LocalProtocolError, match="at least one"):
        encode_batch([])


def test_far_timestamps() -> None:
    records = [Record(0, -(2**62), None, b""), Record(1, 2**62 - 1, None, b"")]
    assert decode_records(encode_batch(records)) == records
    with pytest.raises(LocalProtocolError, match="too far"):
        encode_batch([Record(0, -(2**63), None, None), Record(1, 1, None, None)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0, "text", None), "serialize them first"),
        ((0, None, 5), "serialize them first"),
        ((0, None, None, [(b"name", b"")]), "is not str"),
        ((0, None, None, [("\ud800", b"")]), "is not str"),
        ((0, None, None, (), 2), "cannot follow"),
        ((0, None, None, (), 3 + 2**31), "cannot follow"),
        ((0, None, None, (), -1), "cannot follow"),
    ],
)
def test_what_no_record_has(arguments: tuple[object, ...], says: str) -> None:
    builder = RecordBatchBuilder()
    builder.append(0, b"k", b"v", offset=3)
    size = builder.size
    with pytest.raises(LocalProtocolError, match=says):
        builder.append(*arguments)  # type: ignore[arg-type]  # the wrong types are the point
    assert (builder.size, builder.count) == (size, 1)


def test_a_batch_must_be_whole_alone_and_sound() -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v")])
    with pytest.raises(RemoteProtocolError, match="in a buffer of"):
        decode_records(batch + b"x")
    with pytest.raises(RemoteProtocolError, match="in a buffer of"):
        decode_records(batch[:-1])
    with pytest.raises(RemoteProtocolError, match="wrong CRC"):
        decode_records(batch[:-1] + b"x")
    assert decode_records(batch[:20] + b"x" + batch[21:], check_crc=False)
