"""The draft protocol's messages, byte for byte as its design lists the fields."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import RemoteProtocolError
from kohort.wire import apis
from kohort.wire.codec import coding, frame
from kohort.wire.codec.schema import Message
from kohort.wire.group_log import decode_record, encode_record
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
    TopicAndPartition,
)
from kohort.wire.messages.draft_records import DraftGroupKey, DraftGroupValue
from kohort.wire.messages.group_records import GroupRecord
from tests.wire.values import any_messages

MESSAGES = [cls for pair in apis.pairs(apis.PRIVATE) for cls in pair]
OURS = [cls for cls in MESSAGES if cls.__name__.startswith("Draft")]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def array(*items: bytes) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


EXAMPLES: list[tuple[Message, bytes]] = [
    (
        DraftJoinGroupRequest(
            group_id="g",
            consumer_host="hörst",
            session_timeout_ms=30_000,
            heartbeat_frequency=3,
            topics=("a", "b"),
            consumer_id="",
        ),
        text("g")
        + text("hörst")
        + struct.pack(">ih", 30_000, 3)
        + array(text("a"), text("b"))
        + text(""),
    ),
    (
        DraftJoinGroupResponse(
            error_code=0,
            group_id="g",
            group_generation_id=7,
            consumer_id="g-host-1",
            partitions_to_own=(TopicAndPartition(topic="a", partition=5),),
        ),
        struct.pack(">h", 0)
        + text("g")
        + struct.pack(">i", 7)
        + text("g-host-1")
        + array(text("a") + struct.pack(">i", 5)),
    ),
    (
        DraftHeartbeatRequest(group_id="g", group_generation_id=7, consumer_id="g-host-1"),
        text("g") + struct.pack(">i", 7) + text("g-host-1"),
    ),
    (DraftHeartbeatResponse(error_code=22), struct.pack(">h", 22)),
]


@pytest.mark.parametrize(("message", "data"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_the_bytes_are_those_of_the_design(message: Message, data: bytes) -> None:
    assert bytes(coding.encode(message, 0)) == data
    assert coding.decode(type(message), 0, data) == message


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_messages_are_read_as_written(cls: type[Message], data: st.DataObject) -> None:
    message: Any = data.draw(any_messages(cls, 0))
    assert coding.decode(cls, 0, coding.encode(message, 0)) == message


@pytest.mark.parametrize(("message", "data"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_what_is_cut_short_is_refused(message: Message, data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            coding.decode(type(message), 0, data[:end])


def test_a_hostile_count_is_refused() -> None:
    data = struct.pack(">h", 0) + text("g") + struct.pack(">i", 7) + text("") + b"\x7f\xff\xff\xff"
    with pytest.raises(RemoteProtocolError):
        coding.decode(DraftJoinGroupResponse, 0, data)


def test_the_version_and_the_correlation_id_are_in_the_header() -> None:
    beat = EXAMPLES[2][0]
    sent = frame.decode_request(memoryview(frame.encode_request(beat, 0, 99, "client"))[4:])
    assert sent.message == beat


def test_no_kafka_client_meets_the_keys() -> None:
    """Kafka counts its keys up from 0 and is below 100."""
    kafkas = {request.api_key for request, _ in apis.pairs()}
    keys = {request.api_key for request, _ in apis.pairs(apis.PRIVATE)}
    assert min(keys) > 30_000
    assert not keys & kafkas


@given(key=any_messages(DraftGroupKey, 30_001), value=st.none() | any_messages(DraftGroupValue, 0))
def test_draft_groups_are_read_as_written(
    key: DraftGroupKey, value: DraftGroupValue | None
) -> None:
    assert decode_record(*encode_record(key, value)) == GroupRecord(key, value)
