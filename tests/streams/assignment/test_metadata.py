"""User data: what goes in comes out, bytes of an enemy do no harm, and all of it is small."""

from __future__ import annotations

import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.streams.assignment.metadata import (
    BODY_BYTES_MAX,
    TASKS_MAX,
    VERSION,
    Claim,
    Instructions,
    Lags,
    decode_claim,
    decode_instructions,
    encode_claim,
    encode_instructions,
)
from kohort.streams.assignment.tasks import Task
from tests.streams.full_size import MEGABYTE, MEMBERS, planned, subscriptions

TASKS = st.builds(Task, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)) | st.builds(
    Task, st.integers(0, 3), st.integers(0, 40)
)
SETS = st.frozensets(TASKS, max_size=30)
LAGS: st.SearchStrategy[Lags] = st.dictionaries(
    TASKS, st.none() | st.integers(0, 2**62), max_size=20
).map(lambda found: Map(found))
CLAIMS = st.builds(
    Claim,
    generation=st.integers(-1, 2**31 - 1),
    learning=LAGS,
    standbys=LAGS,
    dormant=LAGS,
    revoked=SETS,
    leaving_ms=st.none() | st.integers(0, 2**62),
    client_tags=st.dictionaries(st.text(max_size=20), st.text(max_size=30), max_size=5).map(
        lambda found: Map(found)
    ),
)
INSTRUCTIONS = st.builds(
    Instructions,
    learning=SETS,
    standbys=SETS,
    being_learned=SETS,
    acceptable_recovery_lag=st.integers(0, 2**62),
    is_partial=st.booleans(),
    is_draft=st.booleans(),
)


@given(CLAIMS)
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert decode_claim(encode_claim(claim)) == claim


@given(INSTRUCTIONS)
def test_instructions_are_read_as_they_were_written(instructions: Instructions) -> None:
    assert decode_instructions(encode_instructions(instructions)) == instructions


def read(data: bytes) -> None:
    for decode in (decode_claim, decode_instructions):
        with suppress(RemoteProtocolError):
            decode(data)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.booleans(), st.booleans())
def test_any_bytes_give_a_value_or_an_error(body: bytes, compressed: bool, framed: bool) -> None:
    if framed:
        body = bytes((VERSION, compressed)) + (zlib.compress(body) if compressed else body)
    read(body)


@settings(max_examples=500)
@given(
    CLAIMS.map(encode_claim) | INSTRUCTIONS.map(encode_instructions),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
    st.integers(0, 10**6),
)
def test_mutated_bytes_give_a_value_or_an_error(
    data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    read(bytes(changed))
    read(bytes(changed[: cut % len(changed)]))


def framed(body: bytes, *, version: int = VERSION, compressed: bool = False) -> bytes:
    return bytes((version, compressed)) + (zlib.compress(body) if compressed else body)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no user data"),
        (b"\x00\x00\x00", "no user data"),
        (framed(b"", version=VERSION)[:1], "no user data"),
        (b"\x01\x02\x00", "no user data"),
        (framed(b"\x00\x00"), "ends within a number"),
        (framed(b"\x80" * 9 + b"\x01"), "a number is too long"),
        (framed(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "at most"),
        (framed(b"\x00\x00\x05" + b"\x00" * 20), "bytes too many|at most"),
        (framed(b"\x00\x00\x00\x7f\x00\x00"), "127 in user data, at most 1"),
        (framed(b"\x00\x00\x01\x01\xff\x00" + b"\x00" * 9), "not UTF-8"),
        (framed(b"\x00\x00\x01\x15" + b"k" * 21 + b"\x00" * 9), "21 characters, at most 20"),
        (framed(encode_claim(Claim())[2:] + b"\x00"), "1 bytes too many"),
        (framed(b"x")[:1] + b"\x01garbage", "cannot be decompressed"),
        (framed(b"x" * 99, compressed=True)[:-2], "is truncated"),
        (framed(b"x" * 99, compressed=True) + b"x", "bytes after its end"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        decode_claim(data)


def test_a_newer_version_is_read_as_its_known_part() -> None:
    claim = Claim(generation=7, revoked=frozenset({Task(0, 3)}))
    data = framed(encode_claim(claim)[2:] + b"more", version=VERSION + 1)
    assert decode_claim(data) == claim


def test_a_count_is_checked_before_anything_is_made_of_it() -> None:
    """A few bytes that promise 100,000 tasks, and a bomb, cost no more than their limits."""
    bomb = framed(b"\x00" * 50 * MEGABYTE, compressed=True)
    tracemalloc.start()
    for data in (framed(b"\x00\x00\x00\x01\x00\xa0\x8d\x06"), bomb):
        with pytest.raises(RemoteProtocolError):
            decode_claim(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * BODY_BYTES_MAX


def test_the_limit_of_tasks_is_one_for_all_sub_topologies() -> None:
    part = b"\x00" + bytes((0xE0, 0xD4, 0x03)) + b"\x00" * 60_000
    body = b"\x00\x00\x00" + b"\x02" + part + part + b"\x00" * 6
    with pytest.raises(RemoteProtocolError, match="60000 in user data, at most 40000"):
        decode_claim(framed(body, compressed=True))


@pytest.mark.parametrize(
    "claim",
    [
        Claim(revoked=frozenset(Task(0, n) for n in range(TASKS_MAX + 1))),
        Claim(revoked=frozenset({Task(0, 2**31)})),
        Claim(learning=Map({Task(0, 0): -2})),
        Claim(client_tags=Map({"k" * 21: "v"})),
        Claim(client_tags=Map({str(n): "v" for n in range(6)})),
        Claim(dormant=Map({Task(0, n): 2**62 for n in range(TASKS_MAX)})),
    ],
    ids=["tasks", "partition", "lag", "key", "tags", "bytes"],
)
def test_what_nobody_would_read_is_not_written(claim: Claim) -> None:
    with pytest.raises(LocalProtocolError):
        encode_claim(claim)


def test_1000_instances_with_10000_tasks_stay_under_a_megabyte() -> None:
    """Rule 19: what is carried by JoinGroup and by SyncGroup, both together.

    The last byte counts: subscriptions and assignments with topics and owned partitions, as they
    are sent. `tests/system/streams/test_full_size.py` sends them.
    """
    joined = subscriptions()
    given = planned([f"instance-{n:04}-3f6b8c1e" for n in range(MEMBERS)], joined)
    sizes = sum(map(len, joined)), sum(map(len, given.values()))
    assert sum(sizes) < MEGABYTE, sizes
