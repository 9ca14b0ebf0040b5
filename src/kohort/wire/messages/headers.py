"""The headers in front of every request and response."""

from __future__ import annotations

from kohort.wire.codec.schema import Int16, Int32, Message, NullableString, message


# Version 2 adds tagged fields to version 1, but the client id keeps its classic encoding, which
# annotations cannot express. `kohort.wire.codec.frame` adds and skips those fields.
@message(versions=(1, 1))
class RequestHeader(Message, frozen=True, kw_only=True):
    """Version 1 of the request header."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: NullableString


@message(versions=(0, 1), flexible_since=1)
class ResponseHeader(Message, frozen=True, kw_only=True):
    """The header of a response: the correlation id of its request."""

    correlation_id: Int32
