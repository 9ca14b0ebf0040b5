"""SASL at the broker: who may log in, by which mechanism, and what is said to one who may not.

A connection has a `Gate`: until it is authenticated, nothing but the requests of the exchange is
answered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kohort.broker.authorization.acls import ANONYMOUS
from kohort.broker.faults import LastAnswer
from kohort.broker.net.credentials import SCRAM_HASHES, Credentials
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.wire.codec import frame
from kohort.wire.codec.schema import Buffer
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from kohort.broker.net.connection import Answer
    from kohort.broker.net.newcomers import SparingLog
    from kohort.broker.net.security import Security

# Serves a request of a client at a host, and of a principal.
ServeUser: TypeAlias = "Callable[[memoryview, str, str], Answer | Awaitable[Answer]]"

_Response: TypeAlias = SaslHandshakeResponse | SaslAuthenticateResponse | ApiVersionsResponse

_NONCE_BYTES = 24
_OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
# Messages of SCRAM, as Apache Kafka takes them: "y," (RFC 5802) is refused there, too.
_NAME = "(?:[^=,\\0]|=2C|=3D)+"
_MORE = "(?P<extensions>(?:,[A-Za-z]+=[^,\\0]+)*)"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_FIRST = re.compile(
    f"n,(?:a=(?P<authorized>{_NAME}))?,"
    rf"(?P<bare>(?:m=[^,\0]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE}){_MORE})"
)
_LAST = re.compile(
    f"(?P<without>c=[A-Za-z0-9+/=]*,r=(?P<nonce>{_PRINTABLE})){_MORE},p=(?P<proof>[A-Za-z0-9+/=]*)"
)


class RefusedError(Exception):
    """Why a login is refused; the text is for the client."""


# ------------------------------------------------------------------------------------- mechanisms


class Plain:
    """PLAIN (RFC 4616): the password itself."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.claimed = ""
        self.user: str | None = None

    def answer(self, data: bytes) -> bytes:
        """Take the one message.

        Raises:
            RefusedError: The password is wrong.
        """
        parts = data.split(b"\0")
        if len(parts) != 3:
            raise RefusedError("Invalid SASL/PLAIN response: expected 3 tokens")
        try:
            authorized, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise RefusedError("Invalid SASL/PLAIN response: not UTF-8") from None
        self.claimed = user
        if not self._credentials.check(user, password):
            raise RefusedError("Authentication failed: Invalid username or password")
        if authorized not in ("", user):
            raise RefusedError(_OTHER_USER)
        self.user = user
        return b""


class Scram:
    """SCRAM (RFC 5802, RFC 7677): proofs of a password."""

    def __init__(self, credentials: Credentials, mechanism: str) -> None:
        self._credentials = credentials
        self._mechanism, self._algorithm = mechanism, SCRAM_HASHES[mechanism]
        self._steps = self._exchange()
        next(self._steps)
        self.claimed = ""
        self.user: str | None = None

    def answer(self, data: bytes) -> bytes:
        """Take the next message.

        Raises:
            RefusedError: The proof is wrong, or the message is not of this exchange.
        """
        try:
            return self._steps.send(data.decode())
        except (StopIteration, UnicodeDecodeError, binascii.Error):
            raise self._wrong() from None

    def _wrong(self) -> RefusedError:
        return RefusedError(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )

    def _exchange(self) -> Generator[bytes, str, None]:
        found = _FIRST.fullmatch((yield b""))
        if found is None:
            raise self._wrong()
        bare, name, nonce = found["bare"], found["name"], found["nonce"]
        self.claimed = user = name.replace("=2C", ",").replace("=3D", "=")
        if found["authorized"] not in (None, user):
            raise RefusedError(_OTHER_USER)
        if "tokenauth=true" in found["extensions"].lower().split(","):
            raise self._wrong()  # there are no delegation tokens
        known, is_user = self._credentials.scram(user, self._mechanism)
        nonce += base64.urlsafe_b64encode(os.urandom(_NONCE_BYTES)).decode()
        challenge = f"r={nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}"
        last = _LAST.fullmatch((yield challenge.encode()))
        if last is None:
            raise self._wrong()
        signed = f"{bare},{challenge},{last['without']}".encode()
        is_proven = self._proves(known.stored_key, signed, last["proof"])
        if last["nonce"] != nonce or not (is_proven and is_user):
            raise self._wrong()
        self.user = user
        signature = hmac.digest(known.server_key, signed, self._algorithm)
        yield b"v=" + base64.b64encode(signature)

    def _proves(self, stored: bytes, signed: bytes, proof: str) -> bool:
        signature = hmac.digest(stored, signed, self._algorithm)
        given = base64.b64decode(proof, validate=True)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        digest = hashlib.new(self._algorithm, key).digest()
        return hmac.compare_digest(digest, stored) and len(given) == len(signature)


class Bearer:
    """OAUTHBEARER (RFC 7628), with unsigned tokens."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._failed = ""
        self.claimed = ""
        self.user: str | None = None
        self.expires: float | None = None

    def answer(self, data: bytes) -> bytes:
        """Take the token, or after an error the client's empty message.

        Raises:
            RefusedError: The token is none, or has expired.
        """
        if self._failed:
            raise RefusedError(self._failed)
        found = re.search(rb"\x01auth=[Bb]earer ([A-Za-z0-9._~+/=-]+)\x01", data)
        claims = _claims(found.group(1).decode()) if found else None
        self.claimed = "" if claims is None else str(claims["sub"])
        if claims is None or not claims["exp"] > self._clock():
            self._failed = json.dumps({"status": "invalid_token"})
            return self._failed.encode()
        self.user, self.expires = str(claims["sub"]), float(claims["exp"])
        return b""


def _claims(token: str) -> dict[str, Any] | None:
    """Return the claims of an unsigned token, None if it is not one."""
    try:
        head, body, _ = token.split(".")
        header, claims = (json.loads(_decoded(part)) for part in (head, body))
        is_one = header["alg"] == "none" and isinstance(claims["exp"] + 0, int | float)
        return claims if is_one and claims["sub"] else None
    except (ValueError, KeyError, TypeError):
        return None


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


MECHANISMS: Mapping[str, Callable[[Credentials], Plain | Scram | Bearer]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": lambda credentials: Scram(credentials, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda credentials: Scram(credentials, "SCRAM-SHA-512"),
    "OAUTHBEARER": lambda _credentials: Bearer(),
}


# ------------------------------------------------------------------------------------ a connection


class Gate:
    """Lets the requests of one connection pass once its client has logged in.

    Args:
        security: What is demanded.
        credentials: The users.
        serve: What serves the requests then.
        log: Takes a line for each login that fails.
        clock: Seconds that never go back.

    Attributes:
        when_in: Called when the client has logged in.
    """

    def __init__(
        self,
        security: Security,
        credentials: Credentials,
        serve: ServeUser,
        log: SparingLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._security = security
        self._credentials = credentials
        self._serve = serve
        self._log = log
        self._clock = clock
        self.when_in: Callable[[], None] = lambda: None
        self._exchange: Plain | Scram | Bearer | None = None
        self._mechanism: str | None = None
        self._user: str | None = None
        self._principal = ANONYMOUS
        self._until: float | None = None

    def serve(self, data: memoryview, host: str) -> Answer | Awaitable[Answer]:
        """Answer a request.

        Raises:
            RemoteProtocolError: It is not allowed before the client has logged in, or its session
                is over.
        """
        key, version, correlation_id = frame.peek_request(data)
        is_sasl = key in (SaslHandshakeRequest.api_key, SaslAuthenticateRequest.api_key)
        if not is_sasl and not self._is_too_early(key):
            return self._serve(data, host, self._principal)
        if version < 1 and key == SaslHandshakeRequest.api_key:
            raise RemoteProtocolError("SaslHandshake 0, after which SASL has no requests")
        request = frame.decode_request(data).message
        if isinstance(request, SaslHandshakeRequest):
            answer: _Response = self._begin(request)
        elif isinstance(request, SaslAuthenticateRequest):
            answer = self._go_on(request)
        else:
            answer = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=())
        if answer.error_code:
            self._tell(host, answer)
        encoded: list[Buffer] = [frame.encode_response(answer, version, correlation_id)]
        stays = self._is_in and answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        return LastAnswer(encoded) if answer.error_code and not stays else encoded

    def _tell(self, host: str, answer: _Response) -> None:
        """Log a login that fails; what the client says is quoted, and cut."""
        code = ErrorCode(answer.error_code).name
        why = getattr(answer, "error_message", None) or code
        exchange = self._exchange
        user = "" if exchange is None or not exchange.claimed else f" as {exchange.claimed[:100]!r}"
        by = "" if self._mechanism is None else f" by {self._mechanism[:100]!r}"
        self._log.warning("a login of %s%s%s failed: %s", host, user, by, why)

    @property
    def _is_in(self) -> bool:
        """Whether the client has logged in and is not about to do so again."""
        return self._user is not None and self._exchange is None

    def _is_too_early(self, key: int) -> bool:
        """Whether this is ApiVersions within an exchange; raise if it must not come at all."""
        is_versions = key == ApiVersionsRequest.api_key
        if self._user is None and not is_versions:
            raise RemoteProtocolError(f"request {key} of a client that has not logged in")
        self._check_time()
        if self._exchange is not None and not (is_versions and self._user is None):
            raise RemoteProtocolError(f"request {key} while {self._user} logs in again (KIP-368)")
        return self._exchange is not None

    def _check_time(self) -> None:
        if self._until is not None and self._clock() > self._until:
            raise RemoteProtocolError(f"the session of {self._user} is over (KIP-368)")

    def _begin(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        if self._exchange is not None or (self._is_in and self._until is None):
            code = ErrorCode.ILLEGAL_SASL_STATE
            return SaslHandshakeResponse(error_code=code, mechanisms=())
        self._mechanism = request.mechanism
        enabled = self._security.mechanisms
        if request.mechanism not in enabled:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=code, mechanisms=enabled)
        self._exchange = MECHANISMS[request.mechanism](self._credentials)
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=enabled)

    def _go_on(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        exchange = self._exchange
        if self._is_in:
            self._check_time()
            text = "SaslAuthenticate request received after successful authentication"
            return _refused(ErrorCode.ILLEGAL_SASL_STATE, text)
        if exchange is None:
            return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
        try:
            answer = exchange.answer(bytes(request.auth_bytes))
        except RefusedError as error:
            return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        lasts_ms = 0
        if exchange.user is not None:
            if self._user not in (None, exchange.user):
                text = "Cannot change principals during re-authentication"
                return _refused(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
            self._user, self._exchange = exchange.user, None
            self._principal = f"User:{exchange.user}"
            lasts_ms = self._lasts_ms(exchange)
            self._until = self._clock() + lasts_ms / 1000 if lasts_ms else None
            self.when_in()
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            auth_bytes=answer,
            session_lifetime_ms=lasts_ms,
        )

    def _lasts_ms(self, exchange: Plain | Scram | Bearer) -> int:
        """Return how long the session lasts: no longer than its token, 0 without an end."""
        session_ms = self._security.session_ms
        if session_ms and isinstance(exchange, Bearer) and exchange.expires is not None:
            return max(min(session_ms, int((exchange.expires - time.time()) * 1000)), 1)
        return session_ms


def _refused(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
