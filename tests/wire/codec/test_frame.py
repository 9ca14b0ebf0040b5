"""Frames: headers as kio writes and reads them, lengths, and frames that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.serial import entity_reader

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire import apis
from kohort.wire.codec import coding, frame
from kohort.wire.codec.limits import DEFAULT_LIMITS
from kohort.wire.codec.schema import Message
from kohort.wire.messages.api_versions import ApiVersionsResponse
from kohort.wire.messages.membership import HeartbeatRequest, HeartbeatResponse
from tests.tiers import examples
from tests.wire.kio_adapter import case_name, kio_bytes, kio_class, kio_value, to_kio
from tests.wire.values import messages

REQUESTS = [
    (request, v) for request, _ in apis.pairs() for v in (request.min_version, request.max_version)
]
RESPONSES = [
    (answer, v) for _, answer in apis.pairs() for v in (answer.min_version, answer.max_version)
]

few = examples(3, 10)
int32 = st.integers(-(2**31), 2**31 - 1)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=case_name)
@few
@given(data=st.data(), correlation_id=int32, client_id=st.none() | st.text(max_size=300))
def test_a_request_is_kios_header_and_message(
    cls: type[Message],
    version: int,
    data: st.DataObject,
    correlation_id: int,
    client_id: str | None,
) -> None:
    message = data.draw(messages(cls, version))
    written = frame.encode_request(message, version, correlation_id, client_id)
    payload = to_kio(message, version, kio_class(cls, version))
    header = payload.__header_schema__(
        request_api_key=cls.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    body = kio_bytes(header) + kio_bytes(payload)
    assert bytes(written) == len(body).to_bytes(4, "big") + body
    read = frame.decode_request(memoryview(written)[4:])
    assert read == frame.ReceivedRequest(version, correlation_id, client_id, message)


@pytest.mark.parametrize(("cls", "version"), RESPONSES, ids=case_name)
@few
@given(data=st.data(), correlation_id=int32)
def test_a_response_is_kios_header_and_message(
    cls: type[Message], version: int, data: st.DataObject, correlation_id: int
) -> None:
    message = data.draw(messages(cls, version))
    written = frame.encode_response(message, version, correlation_id)
    payload = to_kio(message, version, kio_class(cls, version))
    body = kio_bytes(payload.__header_schema__(correlation_id=correlation_id)) + kio_bytes(payload)
    assert bytes(written) == len(body).to_bytes(4, "big") + body
    view = memoryview(written)[4:]
    assert frame.correlation_id_of(view) == correlation_id
    assert frame.decode_response(cls, version, view) == message


def test_kio_reads_both_request_headers() -> None:
    for version, header in ((3, RequestHeaderV1), (4, RequestHeaderV2)):
        data = bytes(frame.encode_request(HEARTBEAT, version, 7, "client"))[4:]
        read, size = entity_reader(header)(data, 0)
        expected = {"correlation_id": 7, "client_id": "client"}
        assert {name: getattr(read, name) for name in expected} == expected
        kio_value(kio_class(HeartbeatRequest, version), data[size:])


def test_unknown_tagged_fields_of_headers_are_passed_over() -> None:
    head = b"\0\x0c\0\4\0\0\0\7\0\1c" + b"\1\x63\2ab"
    read = frame.decode_request(memoryview(head + coding.encode(HEARTBEAT, 4)))
    assert read.message == HEARTBEAT
    answer = HeartbeatResponse(error_code=27)
    tagged = b"\0\0\0\7" + b"\1\x63\2ab" + coding.encode(answer, 4)
    assert frame.decode_response(HeartbeatResponse, 4, memoryview(tagged)) == answer


def test_the_api_versions_response_has_the_first_header_in_every_version() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=())
    for version in range(5):
        written = frame.encode_response(answer, version, 7)
        assert written[4:8] == b"\0\0\0\7"
        assert written[8:] == coding.encode(answer, version)


def test_lengths_beyond_the_limit_are_refused() -> None:
    limit = DEFAULT_LIMITS.max_frame_bytes
    assert frame.frame_length(limit.to_bytes(4, "big"), limit) == limit
    for head in ((limit + 1).to_bytes(4, "big"), b"\xff\xff\xff\xff", b"\x80\0\0\0"):
        with pytest.raises(RemoteProtocolError, match="frame of"):
            frame.frame_length(head, limit)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x0c\0\4\0\0\0", b"\0\x0c\0\4\0\0\0\7"])
def test_frames_too_short_for_a_header_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frame.decode_request(memoryview(data))
    with pytest.raises(RemoteProtocolError):
        frame.decode_response(HeartbeatResponse, 4, memoryview(data[:3]))
    with pytest.raises(RemoteProtocolError):
        frame.correlation_id_of(memoryview(data[:3]))


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_versions_and_apis_that_are_not_known_are_refused(version: int) -> None:
    head = version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\1c"
    for key in (b"\0\x0c", b"\x7f\xff", b"\xff\xff"):
        with pytest.raises(RemoteProtocolError):
            frame.decode_request(memoryview(key + head))
    assert frame.peek_request(memoryview(b"\0\x0c" + head)) == (12, version, 7)


@pytest.mark.parametrize("correlation_id", [2**31, -(2**31) - 1])
def test_a_correlation_id_that_does_not_fit_is_our_error(correlation_id: int) -> None:
    with pytest.raises(LocalProtocolError):
        frame.encode_request(HEARTBEAT, 4, correlation_id, None)
    with pytest.raises(LocalProtocolError):
        frame.encode_response(HeartbeatResponse(error_code=0), 4, correlation_id)
