"""Frames: a length, a header, a message.

On a connection, each request and response is one frame: an int32 length, then a header whose
version follows from that of the message, then the message.
"""

from __future__ import annotations

import struct
from typing import Self, TypeVar

from msgspec import Struct

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.apis import request_class
from kohort.wire.codec import coding
from kohort.wire.codec.schema import Buffer, Message
from kohort.wire.messages.api_versions import ApiVersionsResponse
from kohort.wire.messages.headers import RequestHeader, ResponseHeader
from kohort.wire.strangers import protocol_of

R = TypeVar("R", bound=Message)

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
# Below this size, copying is cheaper than sending another piece.
_LARGE_BYTES = 16 * 1024
_MAX_LENGTH = 0x7FFFFFFF
# The number of bytes needed to recognise another protocol.
_FIRST_BYTES = 64


class ReceivedRequest(Struct, frozen=True):
    """A request as received from a connection.

    Attributes:
        version: Version of the request, and so of its response.
        correlation_id: Number that the response repeats.
        client_id: Client id; may be None.
        message: The request.
    """

    version: int
    correlation_id: int
    client_id: str | None
    message: Message


class ForeignProtocolError(RemoteProtocolError):
    """The peer speaks another protocol than Kafka's.

    Attributes:
        protocol: Name of the protocol, for people.
    """

    def __init__(self, protocol: str) -> None:
        super().__init__(f"the peer speaks {protocol}, not Kafka's protocol")
        self.protocol = protocol


def frame_length(data: bytes | bytearray | memoryview, limit: int) -> int:
    """Return the length of the frame that starts here.

    Args:
        data: The received part of the frame, at least the four bytes of its length.
        limit: Longest frame, in bytes.

    Raises:
        ForeignProtocolError: The bytes are the start of another protocol.
        RemoteProtocolError: The length is negative or exceeds `limit` bytes.
    """
    length: int = _LENGTH.unpack_from(data)[0]
    if not 0 <= length <= limit:
        protocol = protocol_of(bytes(data[:_FIRST_BYTES]))
        if protocol is not None:
            raise ForeignProtocolError(protocol)
        raise RemoteProtocolError(f"frame of {length} bytes; the limit is {limit}")
    return length


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return the whole frame of a request, including its length."""
    out = bytearray(_LENGTH.size)
    header = RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    coding.encode_into(out, header, 1)
    if message.is_flexible(version):
        out.append(0)  # header version 2: no tagged fields
    coding.encode_into(out, message, version)
    return _with_length(out)


def encode_response(message: Message, version: int, correlation_id: int) -> bytearray:
    """Return the whole frame of a response, including its length."""
    out = bytearray(_LENGTH.size)
    header = ResponseHeader(correlation_id=correlation_id)
    coding.encode_into(out, header, _response_header_version(type(message), version))
    coding.encode_into(out, message, version)
    return _with_length(out)


def encode_response_pieces(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """Return the frame of a response as pieces to send in order.

    Large values, such as a fetch's records, are separate pieces and not copied.
    """
    out = _Pieces()
    header = ResponseHeader(correlation_id=correlation_id)
    coding.encode_into(out, header, _response_header_version(type(message), version))
    coding.encode_into(out, message, version)
    pieces = [*out.closed, out]
    length = sum(len(piece) for piece in pieces)
    if length > _MAX_LENGTH:
        raise LocalProtocolError(f"a message of {length} bytes is too large for a frame")
    return [_LENGTH.pack(length) + pieces[0], *pieces[1:]]


class _Pieces(bytearray):
    """Collects encoded bytes, and keeps large values as separate pieces instead of copying them."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[Buffer] = []

    def __iadd__(self, value: Buffer) -> Self:  # type: ignore[misc, override]  # only encoders add
        if len(value) < _LARGE_BYTES:
            self.extend(value)
        else:
            self.closed += (bytes(self), value)
            self.clear()
        return self


def _with_length(frame: bytearray) -> bytearray:
    try:
        _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    except struct.error:
        raise LocalProtocolError(
            f"a message of {len(frame)} bytes is too large for a frame"
        ) from None
    return frame


def peek_request(frame: memoryview) -> tuple[int, int, int]:
    """Return API key, version and correlation id of a request frame (without its length)."""
    if len(frame) < _HEAD.size:
        raise RemoteProtocolError("frame is too short for a request header")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    return key, version, correlation_id


def decode_request(frame: memoryview) -> ReceivedRequest:
    """Decode a request from a frame (without its length).

    Bytes after the message are ignored, as in Kafka: librdkafka sends three extra bytes when it
    asks for the metadata of all topics.

    Raises:
        RemoteProtocolError: The API or version is unknown, or the bytes are not such a request.
    """
    key, version, _ = peek_request(frame)
    cls = request_class(key)
    header, at = coding.decode_from(RequestHeader, 1, frame, 0)
    if cls.is_flexible(version):
        at = coding.skip_tags(frame, at)
    message, _ = coding.decode_from(cls, version, frame, at)
    return ReceivedRequest(version, header.correlation_id, header.client_id, message)


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id of a response frame (without its length)."""
    if len(frame) < 4:
        raise RemoteProtocolError("frame is too short for a response header")
    correlation_id: int = _LENGTH.unpack_from(frame)[0]
    return correlation_id


def decode_response(cls: type[R], version: int, frame: memoryview) -> R:
    """Decode a response from a frame (without its length)."""
    header_version = _response_header_version(cls, version)
    _, at = coding.decode_from(ResponseHeader, header_version, frame, 0)
    return coding.decode_rest(cls, version, frame, at)


def _response_header_version(cls: type[Message], version: int) -> int:
    # Peers exchange ApiVersions before they know each other's versions: its header never changes.
    if cls is ApiVersionsResponse:
        return 0
    return 1 if cls.is_flexible(version) else 0
