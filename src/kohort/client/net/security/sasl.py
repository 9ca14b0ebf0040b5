"""SASL over Kafka's requests (KIP-43, KIP-152): the exchange of each mechanism.

    SaslHandshake -> SaslAuthenticate, once or more often -> authenticated

An exchange does no I/O: it yields requests, and work for the shell, such as getting a token.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import msgspec

from kohort.client.blocking.executor import SerialCall
from kohort.client.config.security import Token
from kohort.client.net.security.auth import CredentialsError, Exchange, Step, Work
from kohort.client.net.security.scram import Salting, Scram
from kohort.errors import (
    AuthenticationError,
    ErrorCode,
    KafkaError,
    RemoteProtocolError,
    told_by_server,
)
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

Asking = Generator[Step, object, SaslAuthenticateResponse]
_NONCE_BYTES = 24


class Plain:
    """PLAIN: user and password (RFC 4616).

    Args:
        username: User name.
        password: Password.
    """

    def __init__(self, username: str, password: str) -> None:
        self._user = username
        self._message = f"\0{username}\0{password}".encode()

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002  # the same for every host
        """Start the exchange of one connection."""
        yield from handshake("PLAIN")
        answer = yield from authenticate(self._message, f"PLAIN as user {self._user!r}")
        return answer.session_lifetime_ms


class ScramAuthenticator:
    """SCRAM: both sides prove that they know the password without sending it.

    Args:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        username: User name, or id of a delegation token.
        password: Password, or HMAC of the token.
        is_token: Whether it is a delegation token (KIP-48).
        nonce: Makes a nonce.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._mechanism = mechanism
        self._user = username
        self._password = password
        self._is_token = is_token
        self._nonce = nonce
        # A client has several connections to each broker, all with the same salt.
        self._hashed: tuple[Salting, bytes] | None = None

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002  # the same for every host
        """Start the exchange of one connection."""
        what = f"{self._mechanism} as user {self._user!r}"
        scram = Scram(self._mechanism, self._user, self._nonce(), is_token=self._is_token)
        yield from handshake(self._mechanism)
        answer = yield from authenticate(scram.first(), what)
        with _believed():
            salting = scram.challenged(bytes(answer.auth_bytes))
        if self._hashed is None or self._hashed[0] != salting:
            hashed = yield Work(lambda: salting.hashed(self._password))
            self._hashed = salting, cast("bytes", hashed)
        answer = yield from authenticate(scram.proof(self._hashed[1]), what)
        with _believed():
            scram.verify(bytes(answer.auth_bytes))
        return answer.session_lifetime_ms


class OAuthBearer:
    """OAUTHBEARER: a token that the broker checks (RFC 7628, KIP-255).

    Args:
        token: Returns a currently valid token, or an awaitable.
        extensions: Extensions for the broker (KIP-342).
        name: Name of the mechanism in the settings, for messages.
        source: The source of tokens, for messages.
    """

    def __init__(
        self,
        token: Callable[[], Token],
        extensions: Mapping[str, str],
        name: str = "OAUTHBEARER",
        source: str = "sasl_oauth_token_provider",
    ) -> None:
        self._name = name
        # A provider that hangs must not block the threads that look up hosts.
        self._work = Work(token, SerialCall(token, "kohort-token"), f"{source} gave no token")
        self._extensions = "".join(f"\x01{name}={value}" for name, value in extensions.items())

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002  # the same for every host
        """Start the exchange of one connection."""
        token = _legal_token((yield self._work))
        yield from handshake("OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {token}{self._extensions}\x01\x01".encode()
        answer = yield from authenticate(message, self._name)
        if answer.auth_bytes:
            # RFC 7628: the server sends the reason, the client answers, and only then the server
            # refuses.
            why = _refusal(bytes(answer.auth_bytes))
            yield from authenticate(b"\x01", f"{self._name} ({why})")
            raise AuthenticationError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"{self._name}: the token is refused: {why}",
            )
        return answer.session_lifetime_ms


@contextmanager
def _believed() -> Iterator[None]:
    """Make errors in SCRAM final: a server that breaks its rules may be probing for secrets."""
    try:
        yield
    except RemoteProtocolError as error:
        raise AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None


def handshake(mechanism: str) -> Generator[Step, object, None]:
    """Agree on a mechanism.

    Raises:
        AuthenticationError: The listener does not support it.
    """
    request = cast("Request[Message]", SaslHandshakeRequest(mechanism=mechanism))
    answer = cast("SaslHandshakeResponse", (yield request))
    if not answer.error_code:
        return
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(sorted(answer.mechanisms)[:20]) or "none"
        why = f"{mechanism} is not enabled at this listener; enabled are: {told_by_server(enabled)}"
        raise AuthenticationError(answer.error_code, why)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            answer.error_code,
            "the listener has no SASL: set security.protocol to SSL or PLAINTEXT, or use a listener"
            " with SASL",
        )
    raise _refused(answer.error_code, f"SASL with {mechanism}")


def authenticate(data: bytes, what: str) -> Asking:
    """Send the bytes of a mechanism, and return the broker's answer.

    Args:
        data: The bytes.
        what: The mechanism and the user, for messages.

    Raises:
        AuthenticationError: The broker refuses them.
    """
    request = cast("Request[Message]", SaslAuthenticateRequest(auth_bytes=data))
    answer = cast("SaslAuthenticateResponse", (yield request))
    if answer.error_code:
        why = told_by_server(answer.error_message)
        raise _refused(answer.error_code, f"{what}: {why}" if why else what)
    return answer


def _refused(code: int, text: str) -> KafkaError:
    error = KafkaError(code, text)
    return error if error.retriable else AuthenticationError(code, text)


def _legal_token(token: object) -> str:
    is_text = isinstance(token, str) and token.isascii() and token.isprintable() and token.strip()
    if not is_text:
        raise CredentialsError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "the token of OAUTHBEARER is not a str of printable ASCII characters, but a"
            f" {type(token).__name__}",
        )
    return cast("str", token)


def _refusal(challenge: bytes) -> str:
    """Return why a token is refused, from the server's JSON."""
    try:
        found = msgspec.json.decode(challenge, type=dict[str, object])
    except msgspec.MsgspecError:
        raise RemoteProtocolError("OAUTHBEARER: the refusal is not a JSON object") from None
    return repr(found.get("status"))[:200]
