"""Whatever the bytes are: a value, or RemoteProtocolError, in memory bounded by their number."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire.codec import coding, frame
from kohort.wire.codec.schema import Message, Request, String, message
from kohort.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    subscribed_topics,
)
from kohort.wire.group_log import decode_record
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.messages.fetch import FetchRequest, FetchResponse
from kohort.wire.messages.groups import ListGroupsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offsets import OffsetCommitRequest
from kohort.wire.messages.topics import CreateTopicsRequest
from tests.tiers import examples
from tests.wire.kio_adapter import DRAWN, MODULES, PAIRED, case_name
from tests.wire.reference import uvarint
from tests.wire.values import any_messages

few = examples(2, 5)
each_case = pytest.mark.parametrize(("cls", "version"), DRAWN, ids=case_name)
each_newest = pytest.mark.parametrize("cls", [*PAIRED, *MODULES], ids=case_name)

# Numbers that a hostile peer puts where a length or a count is.
HOSTILE = [
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -(2**31)),
    struct.pack(">i", -2),
    struct.pack(">h", 2**15 - 1),
    struct.pack(">h", -2),
    uvarint(2**32 - 1),
    uvarint(2**31),
    uvarint(2**20),
    b"\xff" * 9,
    b"\x80" * 5 + b"\x01",
]


def is_read_or_refused(cls: type[Message], version: int, data: bytes) -> bool:
    """Whether the bytes are a message; any exception but the one is an error of ours."""
    try:
        value = coding.decode(cls, version, data)
    except RemoteProtocolError:
        return False
    assert isinstance(value, cls)
    return True


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes cut short, with some flipped, or with others put in or over them."""
    at = draw(st.integers(0, len(data)))
    other = draw(st.sampled_from(HOSTILE) | st.binary(min_size=1, max_size=8))
    return draw(
        st.sampled_from(
            [
                data[:at],
                data[:at] + other + data[at:],
                data[:at] + other + data[at + len(other) :],
                data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 1]) + data[at + 1 :],
                data[at:],
                data + other,
            ]
        )
    )


@each_case
@few
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    good = bytes(coding.encode(data.draw(any_messages(cls, version)), version))
    for _ in range(4):
        is_read_or_refused(cls, version, data.draw(mutations(good)))
    is_read_or_refused(cls, version, data.draw(st.binary(max_size=200)))


@each_case
@settings(max_examples=1, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_message_cut_short_is_refused_or_means_what_it_says(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    good = bytes(coding.encode(data.draw(any_messages(cls, version)), version))
    for end in range(min(len(good), 300)):
        if is_read_or_refused(cls, version, good[:end]):
            value = coding.decode(cls, version, good[:end])
            assert coding.decode(cls, version, coding.encode(value, version)) == value


@given(head=st.sampled_from([b"", b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\0\x63"]), data=st.binary())
def test_bytes_inside_messages_are_read_or_refused(head: bytes, data: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode_subscription(head + data)
    with suppress(RemoteProtocolError):
        decode_assignment(head + data)
    with suppress(RemoteProtocolError):
        decode_record(head + data[:9], b"\0\3" + data[9:])
    assert len(subscribed_topics(head + data) or ()) <= len(data)


@settings(max_examples=300)
@given(
    key=st.integers(-1, 70),
    version=st.integers(-1, 20),
    rest=st.binary(max_size=60),
)
def test_frames_are_read_or_refused(key: int, version: int, rest: bytes) -> None:
    data = memoryview(struct.pack(">hhi", key, version, 7) + rest)
    with suppress(RemoteProtocolError):
        frame.decode_request(data)
    with suppress(RemoteProtocolError):
        frame.decode_response(ApiVersionsResponse, 3, data)


# What one byte from the wire may cost while it is read. The worst are arrays of structures whose
# smallest form has two bytes: 48 for the object, 8 for a pointer in a list, 8 in the tuple of it.
BYTES_PER_BYTE = 40

TOPIC = b"\1" + b"\0" * 6 + b"\1\1\0"
TOPIC_ID = b"\0" * 16 + b"\1\0"
COMMIT = b"\1\0\0\0\0\1\0"

BOMBS: list[tuple[type[Message], int, Callable[[int], bytes]]] = [
    (MetadataRequest, 1, lambda size: array(size // 2, b"\0\0")),
    (MetadataRequest, 9, lambda size: compact(size // 2, b"\1\0") + b"\0" * 4),
    (CreateTopicsRequest, 5, lambda size: compact(size // 10, TOPIC) + b"\0" * 6),
    (OffsetCommitRequest, 8, lambda size: COMMIT + compact(size // 3, b"\1\1\0") + b"\0"),
    (FetchRequest, 13, lambda size: b"\0" * 25 + compact(size // 18, TOPIC_ID) + b"\1\1\0"),
    (FetchResponse, 12, lambda size: b"\0" * 10 + compact(size // 3, b"\1\1\0") + b"\0"),
    (ListGroupsRequest, 4, lambda size: compact(size, b"\1") + b"\0"),
]
BOMB_NAMES = [f"{cls.__name__}-v{version}" for cls, version, _ in BOMBS]


def array(count: int, element: bytes) -> bytes:
    return struct.pack(">i", count) + element * count


def compact(count: int, element: bytes) -> bytes:
    return uvarint(count + 1) + element * count


@contextmanager
def traced() -> Iterator[None]:
    """Count what is allocated inside."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def stays_below(limit: int, cls: type[Message], version: int, data: bytes) -> bool:
    """Whether reading takes less memory; to be called inside `traced`.

    What else runs in this process, a thread of another test, may allocate meanwhile: once, where
    reading takes what it takes each time.
    """
    return any(peak_bytes(cls, version, data) < limit for _ in range(3))


def peak_bytes(cls: type[Message], version: int, data: bytes) -> int:
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    is_read_or_refused(cls, version, data)
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize(("cls", "version", "bomb"), BOMBS, ids=BOMB_NAMES)
@pytest.mark.parametrize("size", [1000, 90_000])
def test_many_small_elements_cost_bounded_memory(
    cls: type[Message], version: int, bomb: Callable[[int], bytes], size: int
) -> None:
    data = bomb(size)
    assert is_read_or_refused(cls, version, data)
    with traced():
        assert stays_below(len(data) * BYTES_PER_BYTE + 10_000, cls, version, data)


@each_newest
def test_a_hostile_count_anywhere_costs_nothing(cls: type[Message]) -> None:
    for version in {cls.min_version, cls.max_version}:
        is_read_or_refused(cls, version, b"")  # compiles the decoder
        with traced():
            for at in range(24):
                for hostile in HOSTILE:
                    data = b"\0" * at + hostile + b"\0" * 40
                    assert stays_below(20_000, cls, version, data)


def test_a_request_has_a_bounded_number_of_elements() -> None:
    """Each costs time and memory; what a broker answers with may be longer than any question."""
    for each, is_read in ((99_999, True), (100_000, False)):
        names = struct.pack(">i", each) + b"\0\0" * each
        data = struct.pack(">i", 1) + b"\0\1g" + names
        assert is_read_or_refused(TwoArrays, 0, data) is is_read
    many = tuple(ApiVersion(api_key=1, min_version=0, max_version=0) for _ in range(100_001))
    answer = ApiVersionsResponse(error_code=0, api_keys=many)
    assert coding.decode(ApiVersionsResponse, 0, coding.encode(answer, 0)) == answer


@message(versions=(0, 0), api_key=-2)
class TwoArrays(Request[ApiVersionsResponse], frozen=True, kw_only=True):
    """A request with two arrays."""

    groups: tuple[String, ...]
    names: tuple[String, ...]
