"""The check of a producer's records agrees with the reference decoder about every byte."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.records import Record, decode_records, encode_batch
from kohort.wire.records._check import flaw, refused
from kohort.wire.records.header import HEADER_SIZE

values = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), values), max_size=3)
records = st.lists(st.tuples(values, values, headers), min_size=1, max_size=8)
Drawn = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def batch_of(drawn: Drawn) -> bytes:
    made = [Record(i, 1_000 + i, key, value, tuple(h)) for i, (key, value, h) in enumerate(drawn)]
    return encode_batch(made)


@given(records)
def test_sound_records_have_no_flaw(drawn: Drawn) -> None:
    content = batch_of(drawn)[HEADER_SIZE:]
    assert flaw(content, len(drawn)) is None


@given(records, st.integers(0, 9), st.integers(0, 9))
def test_what_a_topic_does_not_take_is_named(drawn: Drawn, latest: int, most: int) -> None:
    """The record at index n is n ms later than the first."""
    content = batch_of(drawn)[HEADER_SIZE:]
    keyless = [index for index, (key, _, _) in enumerate(drawn) if key is None]
    late = list(range(latest + 1, len(drawn)))
    for keyed, expected in ((False, late), (True, sorted({*keyless, *late}))):
        found = refused(content, len(drawn), keyed, latest, most)
        assert found == (len(expected), expected[:most])


@given(records, st.integers(1, 2**31 - 1))
def test_any_other_count_is_a_flaw(drawn: Drawn, count: int) -> None:
    content = batch_of(drawn)[HEADER_SIZE:]
    assert (flaw(content, count) is None) == (count == len(drawn))


def test_whatever_is_taken_can_be_read() -> None:
    """Bytes changed at random: what has no flaw decodes, to as many records at these offsets."""
    chance = random.Random(30)
    drawn: Drawn = [(b"k", b"v" * 20, [("h", b"x")]), (None, None, []), (b"", b"", [("", None)])]
    whole = batch_of(drawn)
    taken = 0
    for _ in range(20_000):
        changed = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(HEADER_SIZE, len(changed))] = chance.randrange(256)
        if flaw(changed[HEADER_SIZE:], len(drawn)) is not None:
            continue
        changed_name = changed[whole.index(b"h") :][:1]
        if changed_name >= b"\x80":
            continue  # Kafka stores any bytes as a header's name; we read only texts
        found = decode_records(bytes(changed), check_crc=False)
        taken += 1
        assert [record.offset for record in found] == [0, 1, 2]
    assert taken > 1_000


@pytest.mark.parametrize("content", [b"", b"\x02", b"\xff" * 40, b"\0" * 40, b"\x80" * 12])
def test_garbage_is_a_flaw(content: bytes) -> None:
    assert flaw(content, 1)
