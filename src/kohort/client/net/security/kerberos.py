"""GSSAPI: Kerberos tickets (RFC 4752) from the package `gssapi`, loaded when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, cast

from kohort.client.blocking.executor import SerialCall
from kohort.client.net.security.auth import Exchange, Work
from kohort.client.net.security.sasl import authenticate, handshake
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    KohortError,
)
from kohort.extras import needed_by

if TYPE_CHECKING:
    from kohort.client.config.security import SecurityConfig

GSSAPI: Final = "GSSAPI"
# Numbers of clients with a key: each has its own tickets, and none of an earlier client.
_NUMBERS: Final = count()
# The only layer that Kafka supports: authentication, without signing or encryption by Kerberos.
_AUTH_ONLY: Final = 1
_PROOF: Final = bytes([_AUTH_ONLY, 0, 0, 0])

_EXPIRED: Final = "the ticket has expired: run kinit again, or set keyTab and principal"
_NO_KEY: Final = "cannot be read, or has no key of the principal"
# Error numbers of MIT krb5: their meaning, and what to do.
_UNREACHABLE: Final = frozenset({-1765328228, -1765328230, -1765328164})
_MINOR: Final[Mapping[int, str]] = {
    -1765328377: "the KDC does not know the broker's service: compare sasl.kerberos.service.name,"
    " and the host in bootstrap.servers and advertised.listeners, with the broker's principal",
    -1765328378: "the KDC does not know the client's principal",
    -1765328360: "the KDC refuses the key of the client's principal: its key tab is old or wrong",
    -1765328347: "the clocks of this machine and of the KDC or the broker differ too much",
    -1765328352: _EXPIRED,
}
_NO_TICKET: Final = (
    "there is no ticket: run kinit, or set useKeyTab=true, keyTab and principal of Krb5LoginModule"
    " in sasl.jaas.config"
)


class Context(Protocol):
    """The used part of `gssapi.SecurityContext`."""

    complete: bool

    def step(self, token: bytes | None = None) -> bytes | None:
        """Process a token from the other side, and return the next token for it."""

    def wrap(self, message: bytes, encrypt: bool) -> object:
        """Sign a message."""

    def unwrap(self, message: bytes) -> object:
        """Verify a message that the other side has signed."""


class Kerberos:
    """GSSAPI with the tickets of one client.

    Args:
        config: Settings, checked.

    Raises:
        MissingExtraError: The package `gssapi` is not installed.
    """

    def __init__(self, config: SecurityConfig) -> None:
        with needed_by(f"sasl.mechanism={GSSAPI}"):
            import gssapi
        self._gssapi = gssapi
        self._service = config.kerberos_service()
        entry = config.jaas()
        options = {} if entry is None else entry.options
        self._principal = options.get("principal")
        self._keytab = ""
        self._store: dict[bytes | str, bytes | str] = {}
        if options.get("useKeyTab", "").lower() == "true":
            # Tickets from a key are private to this client, and are gone when the process ends.
            self._keytab = options["keyTab"]
            self._store = {
                "client_keytab": self._keytab,
                "ccache": f"MEMORY:kohort-{next(_NUMBERS)}",
            }
        elif "ticketCache" in options:
            self._store = {"ccache": options["ticketCache"]}
        self._at: dict[str, AtHost] = {}

    def exchange(self, host: str) -> Exchange:
        """Start the exchange of one connection; the host is part of the broker's principal."""
        return self._service_at(host).exchange()

    def _service_at(self, host: str) -> AtHost:
        name = host.rstrip(".")
        found = self._at.get(name)
        if found is None:
            shown = f"{self._service}/{name}"
            found = self._at[name] = AtHost(lambda: self._context(name), shown, self._keytab)
        return found

    def _context(self, host: str) -> Context:
        gssapi = self._gssapi
        name = self._principal and gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        mine = gssapi.Credentials(name=name or None, usage="initiate", store=self._store or None)
        there = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        mech = gssapi.MechType.kerberos
        made = gssapi.SecurityContext(
            name=there, creds=mine, flags=flags, mech=mech, usage="initiate"
        )
        return cast("Context", made)


class AtHost:
    """GSSAPI at one broker.

    Args:
        begin: Makes a security context of the client and that broker.
        service: The broker's principal, for messages.
        keytab: Path of the client's key tab; empty if it has a ticket.
    """

    def __init__(self, begin: Callable[[], Context], service: str, keytab: str = "") -> None:
        self._begin = begin
        self._service = service
        self._keytab = keytab
        # A silent KDC must not block the threads that look up hosts.
        first = SerialCall(self._first, "kohort-kerberos")
        self._work = Work(self._first, first, "Kerberos gave no ticket")

    def _first(self) -> tuple[Context, bytes]:
        """Get a ticket for the broker from the KDC, and make the first token."""
        try:
            context = self._begin()
            return context, bytes(context.step() or b"")
        except Exception as error:
            raise explained(error, self._service, self._keytab) from error

    def exchange(self) -> Exchange:
        """Start the exchange of one connection."""
        context, token = cast("tuple[Context, bytes]", (yield self._work))
        yield from handshake(GSSAPI)
        what = f"{GSSAPI} at {self._service}"
        while True:
            answer = yield from authenticate(token, what)
            received = bytes(answer.auth_bytes)
            if context.complete:
                break
            token = self._told(lambda: context.step(received)) or b""  # noqa: B023  # called at once
        layers = self._told(lambda: _message(context.unwrap(received)))
        if not layers or len(layers) < 4 or not layers[0] & _AUTH_ONLY:
            raise AuthenticationError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"{what}: the broker requires messages to be signed or encrypted by Kerberos, which"
                " Kafka does not support: leave the qop of the broker's SASL at auth",
            )
        proof = self._told(lambda: _message(context.wrap(_PROOF, False)))
        answer = yield from authenticate(proof or b"", what)
        return answer.session_lifetime_ms

    def _told(self, do: Callable[[], bytes | None]) -> bytes | None:
        try:
            return do()
        except Exception as error:
            raise explained(error, self._service, self._keytab) from error


def _message(result: object) -> bytes:
    return bytes(getattr(result, "message", b""))


def explained(error: Exception, service: str, keytab: str = "") -> KohortError:
    """Return the error for a failure of GSSAPI; its type shows whether retrying can help.

    Args:
        error: The exception of the package.
        service: The broker's principal.
        keytab: Path of the client's key tab; empty if it has a ticket.
    """
    if isinstance(error, KohortError):
        return error
    minor = getattr(error, "min_code", 0) or 0
    minor -= (1 << 32) if minor >= 1 << 31 else 0
    if minor in _UNREACHABLE:
        why = f"{GSSAPI} at {service}: no KDC can be reached: check krb5.conf ({error})"
        return BrokerUnavailableError(why)
    known = _MINOR.get(minor)
    if known is None and type(error).__name__ == "ExpiredCredentialsError":
        known = _EXPIRED
    if known is None and type(error).__name__ == "MissingCredentialsError":
        known = f"the key tab {keytab} {_NO_KEY}" if keytab else _NO_TICKET
    return AuthenticationError(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"{GSSAPI} at {service}: {known + ' ' if known else ''}({error})",
    )
