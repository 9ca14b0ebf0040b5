from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire.records import (
    Compression,
    Record,
    TimestampType,
    decode_records,
    encode_batch,
    iter_batches,
    parse_header,
    verify_crc,
    with_base_offset,
)
from kohort.wire.records._crc32c import _portable_crc32c, crc32c
from tests.wire.records.strategies import record_lists, with_crc

RECORDS = [Record(i, 1000 + i, b"key", b"value") for i in range(3)]
BATCH = encode_batch(RECORDS, producer_id=7, producer_epoch=2, base_sequence=5, leader_epoch=9)


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_crc_is_that_of_another_implementation(data: bytes, cut: int, start: int) -> None:
    whole = data * 50
    assert crc32c(whole) == _portable_crc32c(whole) == google_crc32c.value(whole)
    tail = memoryview(whole)[cut:]
    assert crc32c(tail, start) == _portable_crc32c(tail, start)
    assert crc32c(tail, start) == google_crc32c.extend(start, bytes(tail))


def test_crc_of_every_length_around_its_run() -> None:
    data = bytes(i * 7 & 255 for i in range(3 * 1024 * 2 + 9))
    for size in (*range(70), 1023, 1024, 3071, 3072, 3073, len(data) - 1, len(data)):
        assert crc32c(data[:size]) == google_crc32c.value(data[:size])


def test_header_has_every_field() -> None:
    header = parse_header(BATCH)
    assert header.base_offset == 0
    assert header.size_in_bytes == len(BATCH)
    assert header.partition_leader_epoch == 9
    assert header.magic == 2
    assert header.last_offset == 2
    assert header.next_offset == 3
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    assert header.record_count == 3
    assert header.compression is Compression.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon


def test_flags() -> None:
    batch = encode_batch(
        RECORDS,
        codec=Compression.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        is_transactional=True,
        is_control=True,
    )
    header = parse_header(batch)
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert header.is_control


def test_header_may_stand_anywhere() -> None:
    assert parse_header(b"abc" + BATCH, 3) == parse_header(BATCH)
    assert parse_header(BATCH[:61]) == parse_header(BATCH)


@pytest.mark.parametrize(
    ("at", "layout", "value", "says"),
    [
        (16, ">b", 0, "old format v0"),
        (16, ">b", 1, "old format v1"),
        (16, ">b", 3, "magic 3"),
        (8, ">i", 48, "length 48"),
        (8, ">i", -1, "length -1"),
        (0, ">q", -1, "base offset -1"),
        (0, ">q", 2**63 - 2, "beyond an int64"),
        (23, ">i", -1, "last offset delta -1"),
        (21, ">h", 5, "unknown compression 5"),
        (57, ">i", -1, "counts -1 records"),
        (57, ">i", 4, "counts 4 records in 3 offsets"),
        (57, ">i", 2**31 - 1, "the limit is"),
    ],
)
def test_a_value_that_no_batch_has(at: int, layout: str, value: int, says: str) -> None:
    batch = bytearray(BATCH)
    struct.pack_into(layout, batch, at, value)
    with pytest.raises(RemoteProtocolError, match=says):
        parse_header(batch)
    with pytest.raises(RemoteProtocolError, match=says):
        list(iter_batches(batch))


def test_short_message_of_an_old_format_is_refused() -> None:
    old = struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(12)
    with pytest.raises(RemoteProtocolError, match="old format v1"):
        list(iter_batches(old))
    with pytest.raises(RemoteProtocolError, match="old format v1"):
        parse_header(old)


def test_a_cut_batch_is_left_out_wherever_it_is_cut() -> None:
    for size in range(len(BATCH)):
        found = [bytes(batch) for _, batch in iter_batches(BATCH + BATCH[:size])]
        assert found == [BATCH]


def test_every_flipped_bit_that_the_crc_covers_is_seen() -> None:
    assert verify_crc(BATCH)
    for at in range(17, len(BATCH)):
        for bit in range(8):
            flipped = bytearray(BATCH)
            flipped[at] ^= 1 << bit
            assert not verify_crc(flipped)


@given(record_lists(), st.integers(0, 2**50), st.integers(0, 2**31 - 1))
def test_moved_batch_has_the_same_records_elsewhere(
    records: list[Record], offset: int, epoch: int
) -> None:
    batch = encode_batch(records)
    moved = with_base_offset(batch, offset, epoch)
    by = offset - records[0].offset
    assert decode_records(moved) == [r._replace(offset=r.offset + by) for r in records]
    assert parse_header(moved).partition_leader_epoch == epoch
    assert moved[17:] == batch[17:]


@given(record_lists(), st.integers(0, 2**45))
def test_append_time_replaces_every_timestamp(records: list[Record], now: int) -> None:
    moved = with_base_offset(encode_batch(records), records[0].offset, 0, now)
    assert verify_crc(moved)
    assert moved == with_crc(moved)
    assert parse_header(moved).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert decode_records(moved) == [r._replace(timestamp=now) for r in records]
