"""SASL on one connection: the exchange of requests, sessions, and refused logins.

Each connection has a `Gate`: until the client has authenticated, the broker answers only the
requests of the exchange.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from kohort.broker.authorization.acls import ANONYMOUS
from kohort.broker.faults import LastAnswer
from kohort.broker.net.credentials import Credentials
from kohort.broker.net.sasl_mechanisms import MECHANISMS, Bearer, Plain, RefusedError, Scram
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
    from kohort.broker.net.security import Security
    from kohort.broker.net.unauthenticated import RateLimitedLog

# Serves a request; the arguments are the frame, the client's host and its principal.
ServeUser: TypeAlias = "Callable[[memoryview, str, str], Answer | Awaitable[Answer]]"

_Response: TypeAlias = SaslHandshakeResponse | SaslAuthenticateResponse | ApiVersionsResponse


class Gate:
    """Passes the requests of a connection on once its client has authenticated.

    Args:
        security: The listener's settings.
        credentials: The users.
        serve: Serves the requests of an authenticated client.
        log: Logs failed logins.
        clock: Returns seconds of a monotonic clock.

    Attributes:
        when_in: Called after the client has authenticated.
    """

    def __init__(
        self,
        security: Security,
        credentials: Credentials,
        serve: ServeUser,
        log: RateLimitedLog,
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
            RemoteProtocolError: The client has not authenticated yet, or its session has expired.
        """
        key, version, correlation_id = frame.peek_request(data)
        is_sasl = key in (SaslHandshakeRequest.api_key, SaslAuthenticateRequest.api_key)
        if not is_sasl and not self._is_too_early(key):
            return self._serve(data, host, self._principal)
        if version < 1 and key == SaslHandshakeRequest.api_key:
            raise RemoteProtocolError("SaslHandshake version 0 is not supported")
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
        """Log a failed login; text from the client is quoted and truncated."""
        code = ErrorCode(answer.error_code).name
        why = getattr(answer, "error_message", None) or code
        exchange = self._exchange
        user = "" if exchange is None or not exchange.claimed else f" as {exchange.claimed[:100]!r}"
        by = "" if self._mechanism is None else f" by {self._mechanism[:100]!r}"
        self._log.warning("a login of %s%s%s failed: %s", host, user, by, why)

    @property
    def _is_in(self) -> bool:
        """Whether the client has authenticated and is not re-authenticating."""
        return self._user is not None and self._exchange is None

    def _is_too_early(self, key: int) -> bool:
        """Whether this is ApiVersions during an exchange; raise if the request is not allowed."""
        is_versions = key == ApiVersionsRequest.api_key
        if self._user is None and not is_versions:
            raise RemoteProtocolError(f"request {key} of a client that has not authenticated")
        self._check_time()
        if self._exchange is not None and not (is_versions and self._user is None):
            raise RemoteProtocolError(
                f"request {key} while {self._user} re-authenticates (KIP-368)"
            )
        return self._exchange is not None

    def _check_time(self) -> None:
        if self._until is not None and self._clock() > self._until:
            raise RemoteProtocolError(f"the session of {self._user} has expired (KIP-368)")

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
            return _refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake must come first")
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
        """Return the session lifetime, at most that of its token; 0 if it is unlimited."""
        session_ms = self._security.session_ms
        if session_ms and isinstance(exchange, Bearer) and exchange.expires is not None:
            return max(min(session_ms, int((exchange.expires - time.time()) * 1000)), 1)
        return session_ms


def _refused(code: ErrorCode, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
