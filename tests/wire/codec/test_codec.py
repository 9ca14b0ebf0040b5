"""What the oracles cannot say: unknown tags, unknown error codes, limits, and our own mistakes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.codec import coding
from kohort.wire.codec.limits import DEFAULT_LIMITS
from kohort.wire.codec.schema import Message
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offsets import OffsetFetchRequest
from tests.tiers import examples
from tests.wire.kio_adapter import DRAWN, case_name
from tests.wire.reference import reference_bytes, uvarint
from tests.wire.values import any_messages

FLEXIBLE_CASES = [(cls, version) for cls, version in DRAWN if cls.is_flexible(version)]

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE_CASES, ids=case_name)
@examples(2, 5)
@given(data=st.data())
def test_unknown_tagged_fields_are_passed_over(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(any_messages(cls, version))
    assert coding.encode(value, version) == reference_bytes(value, version)
    numbers = st.integers(20, 2**31 - 1)
    unknown = data.draw(st.dictionaries(numbers, st.binary(max_size=200), min_size=1, max_size=4))
    assert coding.decode(cls, version, reference_bytes(value, version, unknown)) == value


@pytest.mark.parametrize("code", [-32768, -2, 134, 999, 32767])
def test_error_codes_that_nobody_knows_yet_are_read(code: int) -> None:
    response = HeartbeatResponse(error_code=code)
    for version in range(5):
        assert (
            coding.decode(HeartbeatResponse, version, coding.encode(response, version)) == response
        )


def test_fields_that_a_version_lacks_have_their_default_after_reading() -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        member_id="m",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"x"),),
        reason="because",
    )
    read = coding.decode(JoinGroupRequest, 0, coding.encode(request, 0))
    assert read.rebalance_timeout_ms == -1
    assert read.reason is None
    assert read.protocols == request.protocols


def test_a_field_that_may_not_be_left_out_is_refused_in_a_version_that_lacks_it() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    coding.encode(request, 3)
    with pytest.raises(LocalProtocolError, match=r"version 2 has no .*group_instance_id"):
        coding.encode(request, 2)
    leave = LeaveGroupRequest(group_id="g", member_id="m")
    coding.encode(leave, 2)
    with pytest.raises(LocalProtocolError, match="member_id"):
        coding.encode(leave, 3)
    quiet = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with pytest.raises(LocalProtocolError, match="allow_auto_topic_creation"):
        coding.encode(quiet, 3)


def test_null_is_refused_in_a_version_that_has_none() -> None:
    everything = OffsetFetchRequest(group_id="g", topics=None)
    coding.encode(everything, 2)
    with pytest.raises(LocalProtocolError):
        coding.encode(everything, 1)
    by_id = MetadataRequest(topics=(MetadataRequestTopic(name=None),))
    coding.encode(by_id, 10)
    with pytest.raises(LocalProtocolError):
        coding.encode(by_id, 9)


@pytest.mark.parametrize(
    "change",
    [
        {"generation_id": 2**31},
        {"generation_id": -(2**31) - 1},
        {"generation_id": "1"},
        {"generation_id": None},
        {"group_id": None},
        {"group_id": 7},
        {"group_id": b"bytes"},
        {"group_id": "\ud800"},
        {"group_id": "x" * 32768},
        {"group_id": "é" * 16384},
        {"group_instance_id": object()},
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_what_does_not_fit_its_field_is_our_error(change: dict[str, Any], version: int) -> None:
    fields: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m", **change}
    with pytest.raises(LocalProtocolError):
        coding.encode(HeartbeatRequest(**fields), version)


@pytest.mark.parametrize("protocols", [None, 5, (None,), ("range",), object()])
def test_what_is_no_array_of_structures_is_our_error(protocols: Any) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="m",
        protocol_type="consumer",
        protocols=protocols,
    )
    with pytest.raises(LocalProtocolError):
        coding.encode(request, 9)


@pytest.mark.parametrize("version", [0, 4])
def test_the_longest_string_is_read_and_written(version: int) -> None:
    request = HeartbeatRequest(group_id="x" * 32767, generation_id=1, member_id="é" * 16383)
    assert coding.decode(HeartbeatRequest, version, coding.encode(request, version)) == request


def test_a_longer_string_is_refused_on_reading() -> None:
    name = "x" * (DEFAULT_LIMITS.max_string_bytes + 1)
    frame = uvarint(len(name) + 1) + name.encode() + bytes(coding.encode(HEARTBEAT, 4))[2:]
    with pytest.raises(RemoteProtocolError, match="length or count 32768"):
        coding.decode(HeartbeatRequest, 4, frame)


def test_more_tagged_fields_than_the_limit_are_refused() -> None:
    limit = DEFAULT_LIMITS.max_tagged_fields
    assert coding.decode(HeartbeatRequest, 4, with_tags(limit)) == HEARTBEAT
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        coding.decode(HeartbeatRequest, 4, with_tags(limit + 1))


def with_tags(count: int) -> bytes:
    return reference_bytes(HEARTBEAT, 4, dict.fromkeys(range(1000, 1000 + count), b""))


def test_a_known_tagged_field_must_be_as_long_as_it_says() -> None:
    empty = FetchResponse(responses=())
    frame = bytes(coding.encode(empty, 16))
    # one tagged field, number 0, three bytes long: no endpoints, and two bytes more
    node_endpoints = bytes([1, 0, 3, 1, 0, 0])
    with pytest.raises(RemoteProtocolError, match="tagged field 0 ends"):
        coding.decode(FetchResponse, 16, frame[:-1] + node_endpoints)


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="1 bytes left over"):
        coding.decode(HeartbeatRequest, 4, coding.encode(HEARTBEAT, 4) + b"\0")


def test_versions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="versions 0 to 4, not 5"):
        coding.encode(HEARTBEAT, 5)
    with pytest.raises(RemoteProtocolError, match="versions 4 to 18, not 3"):
        coding.decode(FetchResponse, 3, b"")


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(coding.encode(fetched(b"records"), 17))
    read = coding.decode(FetchResponse, 17, frame)
    records = read.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"records"


def fetched(records: bytes) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=7,
        aborted_transactions=None,
        records=records,
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="", partitions=(partition,)),))
