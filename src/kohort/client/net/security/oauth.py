"""Tokens for OAUTHBEARER: from a provider of the application, or a token endpoint (KIP-768)."""

from __future__ import annotations

import base64
import http.client
import math
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from kohort.client.config.security import SecurityConfig, Token, TokenProvider
from kohort.client.net.security.auth import CredentialsError
from kohort.client.net.security.tls_context import trust_location
from kohort.errors import (
    BrokerUnavailableError,
    ConfigError,
    ErrorCode,
    KohortError,
)

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_LARGEST_ANSWER = 1024 * 1024
# Fraction of a token's lifetime after which a new one is requested, as in Java's clients.
_LIFE_USED = 0.8
# HTTP codes for a timeout and too many requests; retrying does not help with other 4xx codes.
_PASSING: Final = (408, 429)
_URL = "sasl.oauthbearer.token.endpoint.url"


class TokenAnswer(msgspec.Struct, frozen=True):
    """The answer of a token endpoint (RFC 6749, section 5.1).

    Attributes:
        access_token: The token.
        expires_in: Seconds for which it is valid; 0 if not given.
    """

    access_token: str
    expires_in: float = 0

    def __repr__(self) -> str:
        """Return a text without the token."""
        return f"TokenAnswer(expires_in={self.expires_in})"


def called(provider: TokenProvider) -> Callable[[], Token]:
    """Return a function that gets a token from an application's provider."""
    ask = cast("Callable[[], Token]", getattr(provider, "token", provider))

    def token() -> Token:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  # from the application's code
            failed = failed_provider(error)
            raise failed from failed.__cause__

    return token


def failed_provider(error: Exception) -> KohortError:
    """Return the error for an exception of an application's provider, which may contain secrets.

    Args:
        error: The exception from calling it, or from awaiting its result.
    """
    if isinstance(error, KohortError):
        return error
    failed: KohortError
    if isinstance(error, OSError):
        why = error.strerror or type(error).__name__
        failed = BrokerUnavailableError(f"sasl_oauth_token_provider could not get a token: {why}")
    else:
        failed = CredentialsError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"sasl_oauth_token_provider raised {type(error).__name__}, see the cause",
        )
    failed.__cause__ = error
    return failed


class TokenEndpoint:
    """Requests tokens with client credentials, and keeps each while it is valid.

    Redirects are not followed: they would send the secret to another server.

    Args:
        config: Settings, checked.
        timeout_s: Timeout of a request, in seconds.

    Raises:
        ConfigError: The URL is malformed, or would send the secret unencrypted.
    """

    def __init__(self, config: SecurityConfig, timeout_s: float) -> None:
        self._url = _checked(config.sasl_oauthbearer_token_endpoint_url or "")
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context()
        if config.https_ca_location is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trust_location(self._context, "https_ca_location", config.https_ca_location)
        self._client_id, self._client_secret, self._scope = config.oauth_client()
        self._lock = threading.Lock()
        self._token = ""
        self._used_at = 0.0

    def token(self) -> str:
        """Return a currently valid token.

        Raises:
            CredentialsError: The endpoint refuses the credentials, is not trusted, or does not
                answer like a token endpoint.
            BrokerUnavailableError: It cannot be reached, or has an internal error (retriable).
        """
        with self._lock:
            if time.monotonic() >= self._used_at:
                asked_at = time.monotonic()
                found = self._asked()
                self._token = found.access_token
                self._used_at = asked_at + found.expires_in * _LIFE_USED
            return self._token

    def _asked(self) -> TokenAnswer:
        try:
            status, body = self._posted()
        except ssl.SSLCertVerificationError as error:
            raise self._final(
                f"has a certificate that is not accepted: {error.verify_message}; set"
                " https.ca.location to the authority that has signed it, and compare the host"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise BrokerUnavailableError(f"{self.shown} gives no token: {why}") from None
        if status in (400, 401, 403):
            raise self._final(
                f"refuses the client id {self._client_id!r}: HTTP {status}{_why(body)}"
            )
        if status in _PASSING or status >= 500:
            raise BrokerUnavailableError(f"{self.shown} gives no token: HTTP {status}")
        if status != 200:
            moved = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise self._final(f"gives no token: HTTP {status}{moved}; correct {_URL}")
        try:
            # some endpoints put the number of seconds in quotes, which Java's clients accept
            found = msgspec.json.decode(body, type=TokenAnswer, strict=False)
        except msgspec.MsgspecError as error:
            raise self._final(
                f"answers with something other than a token: {error}; correct {_URL}"
            ) from None
        if not math.isfinite(found.expires_in):
            raise self._final("answers with an expires_in that is not a number of seconds")
        return found

    def _final(self, why: str) -> CredentialsError:
        return CredentialsError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.shown} {why}")

    def _posted(self) -> tuple[int, bytes]:
        host, port = self._url.hostname or "", self._url.port
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=self._context
            )
        form = {"grant_type": "client_credentials"}
        if self._scope:
            form["scope"] = self._scope
        # Not form-encoded first, although RFC 6749 asks for it: Java's clients do not by default.
        pair = f"{self._client_id}:{self._client_secret}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            connection.request("POST", path, urlencode(form), headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_LARGEST_ANSWER)
        finally:
            connection.close()

    @property
    def shown(self) -> str:
        """Name of the endpoint for messages; without the query, which may contain secrets."""
        url = self._url._replace(query="", fragment="")
        return f"the token endpoint {url.geturl()}"


def _checked(text: str) -> SplitResult:
    """Check the address, because a secret is sent to it."""
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        raise ConfigError(f"{_URL} is not a URL") from None
    if url.scheme not in ("https", "http") or not host:
        raise ConfigError(f"{_URL} must begin with https://")
    if url.username is not None or url.password is not None:
        raise ConfigError(f"{_URL} has a user in it; set sasl.oauthbearer.client.id")
    if url.scheme == "http" and host not in _LOOPBACK:
        raise ConfigError(
            f"{_URL} is not encrypted, and would send the client secret in plain text:"
            " it must begin with https://"
        )
    return url


class _Refusal(msgspec.Struct, frozen=True):
    error: str = ""


def _why(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        return ""
    return f", {found!r:.100}" if found else ""
