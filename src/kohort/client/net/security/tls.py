"""TLS between a socket and the protocol of a connection.

asyncio's own TLS hides the transport below it. A request without an answer (acks=0) counts as sent
once the operating system has it, and only that transport knows this. So TLS is a layer of bytes
here: `ssl.SSLObject` between two buffers, without I/O.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, cast

from kohort.errors import (
    BrokerUnavailableError,
    KohortError,
    RemoteProtocolError,
    TlsError,
)

# Sixteen TLS records; memory is committed as bytes arrive.
_RECEIVED_AT_ONCE = 262_144

_OWN_CERTIFICATE = (
    "the broker requires a trusted client certificate: set ssl.keystore.location, or"
    " ssl.certificate.location and ssl.key.location"
)
# The broker's final alerts, by OpenSSL's names; after other alerts a retry may succeed.
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _OWN_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _OWN_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not trust the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate is revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the broker does not support the client's certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority of the client's certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "the broker refuses the client's certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "there is no TLS version that both sides have enabled",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the broker requires stronger ciphers",
    "TLSV1_UNRECOGNIZED_NAME": "the broker does not recognise this host name",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker has no cipher or certificate in common with the"
    f" client; or {_OWN_CERTIFICATE}",
}
_OURS = {
    "UNSUPPORTED_PROTOCOL": "there is no TLS version that both sides have enabled",
    "NO_PROTOCOLS_AVAILABLE": "there is no TLS version that both sides have enabled",
    "DH_KEY_TOO_SMALL": "the broker's key exchange is too weak",
}
_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
# Error codes of X509_verify_cert.
_NOT_YET_VALID, _EXPIRED, _NAME, _ADDRESS = 9, 10, 62, 64
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})

CUT_IN_HANDSHAKE = (
    "closed the connection during the TLS handshake (a listener without TLS does this, or a broker"
    " that is starting or stopping)"
)


class Tls:
    """The TLS of connections.

    Args:
        context: Certificates, keys, versions.
        renewed: Returns a new context to use from now on, None if there is none.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        renewed: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._context = context
        self._renewed = renewed

    @property
    def context(self) -> ssl.SSLContext:
        """Certificates, keys and versions for a new connection."""
        self._context = self._renewed() or self._context
        return self._context

    def over(self, inner: DecryptedProtocol, host: str) -> TlsProtocol:
        """Return the protocol for a socket; `inner` receives the decrypted bytes."""
        return TlsProtocol(self.context, host, inner)


def explained(error: ssl.SSLError, address: str) -> KohortError:
    """Return the error of failed TLS with a server; retrying may help unless it is a `TlsError`.

    Args:
        error: The error of OpenSSL.
        address: `host:port`.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"{address}: {_distrusted(error)}")
    reason = error.reason or ""
    known = _ALERTS.get(reason) or _OURS.get(reason)
    if known is not None:
        return TlsError(f"{address}: {known} (OpenSSL: {reason})")
    if reason in _NOT_TLS:
        return RemoteProtocolError(
            f"{address}: the port does not speak TLS (OpenSSL: {reason}): check host and port; for"
            " a listener without TLS set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if "ALERT" in reason or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return BrokerUnavailableError(f"{address}: TLS ended: {reason or 'end of the stream'}")
    return RemoteProtocolError(f"{address}: the received bytes violate TLS (OpenSSL: {reason})")


def no_tls_there(address: str) -> TlsError:
    """Return the error for a listener that turned out to speak Kafka's protocol without TLS."""
    return TlsError(
        f"{address}: the listener has no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT,"
        " or use a listener with TLS"
    )


def tls_there(address: str) -> TlsError:
    """Return the error for a listener that turned out to use TLS, where none is configured."""
    return TlsError(
        f"{address}: the listener has TLS: set security.protocol to SSL or SASL_SSL, or use a"
        " listener without TLS"
    )


def asking_context() -> ssl.SSLContext:
    """Return a context to check whether a server uses TLS; no data may be sent with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_from_tls(error: ssl.SSLError) -> bool:
    """Whether a server's answer to `asking_context` is TLS, even if it is a refusal."""
    return "ALERT" in (error.reason or "")


def _distrusted(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the broker's certificate, or one in its chain, has expired"
    if code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet: compare the clocks"
    if code in (_NAME, _ADDRESS):
        return (
            f"the broker's certificate is for another host: {error.verify_message} Connect with a"
            " name in it, and let the broker advertise that name"
        )
    if code in _UNKNOWN_AUTHORITY:
        return (
            "no trusted authority has signed the broker's certificate"
            f" ({error.verify_message}): set ssl.ca.location, or ssl.truststore.location"
        )
    return f"the broker's certificate is not accepted: {error.verify_message}"


class DecryptedProtocol(Protocol):
    """The protocol of a connection, above TLS; as asyncio's `BufferedProtocol`."""

    address: str

    @property
    def is_open(self) -> bool:
        """Whether it takes what is decrypted."""

    def transport_is(self, transport: asyncio.Transport) -> None:
        """Set a transport to close that cannot be written to yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the handshake is over."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to decrypt to."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was decrypted."""

    def resume_writing(self) -> None:
        """Note that all written bytes are sent."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail unanswered requests."""

    def close(self, error: KohortError | None = None) -> None:
        """Close; unanswered requests fail."""


class TlsProtocol(asyncio.BufferedProtocol):
    """TLS as the transport of a connection, and as the protocol of the transport below.

    It has the transport methods that a `BrokerConnection` uses.

    Args:
        context: Certificates, keys, versions.
        host: Host name to check against the certificate, and to send to the server (SNI).
        inner: Receives the decrypted bytes.
    """

    def __init__(self, context: ssl.SSLContext, host: str, inner: DecryptedProtocol) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # A trailing dot is only for the resolver; certificates have none.
        name = host.rstrip(".") or None
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._received = memoryview(bytearray(_RECEIVED_AT_ONCE))
        self._below: asyncio.Transport | None = None
        self._is_secure = False

    # ----------------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        self._below = cast("asyncio.Transport", transport)
        self._below.set_write_buffer_limits(0)
        self._inner.transport_is(cast("asyncio.Transport", self))
        self._step(self._shake_hands)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        """Return the buffer to receive into."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt received bytes, and pass them on."""
        self._incoming.write(self._received[:nbytes])
        self._step(self._pass_on if self._is_secure else self._shake_hands)

    def eof_received(self) -> bool:
        """Let asyncio close the socket."""
        return False

    def resume_writing(self) -> None:
        """Report that all written bytes are sent."""
        if self._is_secure:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the connection has ended."""
        if not self._is_secure:
            self._inner.close(CutInHandshakeError(f"{self._inner.address} {CUT_IN_HANDSHAKE}"))
        self._inner.connection_lost(exc)

    # --------------------------------------------------------------------------- inside

    def _step(self, do: Callable[[], None]) -> None:
        """Run a step that OpenSSL may reject, and send its output."""
        try:
            with suppress(ssl.SSLWantReadError):
                do()
        except ssl.SSLError as error:
            self._flush()  # an alert tells the server the reason
            self._inner.close(explained(error, self._inner.address))
        else:
            self._flush()

    def _shake_hands(self) -> None:
        self._object.do_handshake()
        self._is_secure = True
        self._flush()
        self._inner.connection_made(cast("asyncio.Transport", self))
        self._pass_on()

    def _pass_on(self) -> None:
        """Decrypt as much as fits the protocol's buffer, then pass it on: a record is 16 KiB."""
        while self._inner.is_open:
            buffer = self._inner.get_buffer(-1)
            count, is_end, refused = self._decrypt(buffer)
            if count:
                self._inner.buffer_updated(count)
            if refused is not None:
                raise refused
            if is_end and self._below is not None:
                self._below.close()
            if is_end:
                return

    def _decrypt(self, buffer: memoryview) -> tuple[int, bool, ssl.SSLError | None]:
        """Fill a buffer; return the number of bytes, whether the stream ended, and the error."""
        count = 0
        try:
            while count < len(buffer):
                # It accepts a `memoryview`, although typeshed allows only `bytearray`.
                rest = cast("bytearray", buffer[count:])
                more = cast("int", self._object.read(len(rest), rest))
                if not more:
                    return count, True, None
                count += more
        except ssl.SSLError as error:
            return count, False, error
        return count, False, None

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    # ------------------------------------------------------- the transport of `BrokerConnection`

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        self.writelines((data,))

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send several, in order."""

        def encrypt() -> None:
            for part in parts:
                left = memoryview(part)
                while left:
                    left = left[self._object.write(left) :]

        self._step(encrypt)

    def write_eof(self) -> None:
        """Shut down writing, in TLS and in TCP."""
        with suppress(ssl.SSLError):  # it waits for the server's own shutdown
            self._object.unwrap()
        self._flush()
        if self._below is not None:
            self._below.write_eof()

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that the operating system has not accepted."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing: the limits of the transport below are set."""

    def is_closing(self) -> bool:
        """Whether writing is no longer possible."""
        return self._below is None or self._below.is_closing()

    def abort(self) -> None:
        """Close at once."""
        if self._below is not None:
            self._below.abort()


class CutInHandshakeError(BrokerUnavailableError):
    """The server closed the connection during the TLS handshake."""


class CutUngreetedError(BrokerUnavailableError):
    """The server closed a plaintext connection before it answered the first request."""
