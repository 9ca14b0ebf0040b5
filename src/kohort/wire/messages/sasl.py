"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bytes,
    Int16,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    message,
    since,
)


@message(api_key=17, versions=(0, 1))
class SaslHandshakeRequest(Request["SaslHandshakeResponse"], frozen=True, kw_only=True):
    """Choose a SASL mechanism."""

    mechanism: String


@message(api_key=17, versions=(0, 1))
class SaslHandshakeResponse(Message, frozen=True, kw_only=True):
    """The mechanisms that a broker has enabled."""

    error_code: Int16
    mechanisms: tuple[String, ...]


@message(api_key=36, versions=(0, 2), flexible_since=2)
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], frozen=True, kw_only=True):
    """One message of a SASL exchange."""

    auth_bytes: Bytes


@message(api_key=36, versions=(0, 2), flexible_since=2)
class SaslAuthenticateResponse(Message, frozen=True, kw_only=True):
    """The answer of a SASL exchange."""

    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Annotated[Int64, since(1), IGNORABLE] = 0
