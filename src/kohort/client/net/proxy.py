"""Handshakes with a proxy before it forwards bytes: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT.

A dialogue does no I/O: it yields bytes to send, or the number of bytes to receive, which are sent
to it. It never reads too many bytes: those that follow come from the broker.
"""

from __future__ import annotations

import base64
from collections.abc import Generator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from kohort.client.net.security.auth import CredentialsError
from kohort.errors import BrokerUnavailableError, ConfigError, ErrorCode

Dialogue: TypeAlias = Generator["bytes | int", bytes, None]

_KEY: Final = "proxy.url"
_LIKE: Final = "it must be like socks5://host:1080 or http://user:password@host:3128"
_LONGEST_TEXT = 255  # the limit of SOCKS5
_LONGEST_ANSWER = 64 * 1024
_NO_PASSWORD, _PASSWORD = 0, 2
# RFC 1928, section 6.
_REFUSALS = {
    1: "it has failed",
    2: "its rules do not allow that",
    3: "the network is unreachable",
    4: "the host is unreachable, or its name is not known there",
    5: "the connection was refused",
    6: "the connection took too long",
    7: "it does not know how to connect",
    8: "it does not support that kind of address",
}


class Proxy:
    """A proxy through which a client reaches the brokers; it looks up their names.

    Args:
        url: `socks5://user:password@host:port`, or with `http://`; user and password may be left
            out; special characters in them are escaped as in any URL (%40).

    Attributes:
        host: The proxy's host.
        port: Its port.

    Raises:
        ConfigError: The URL cannot be used.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ConfigError(f"{_KEY} is not a URL: {_LIKE}") from None
        scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
        if scheme not in ("socks5", "http"):
            raise ConfigError(f"{_KEY} can be socks5:// or http://: {_LIKE}")
        if not host or port is None or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ConfigError(f"{_KEY} must have a host and port, and no more: {_LIKE}")
        self.host, self.port = host, port
        self._scheme = scheme
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        if bool(self._user) != bool(self._password):
            raise ConfigError(f"{_KEY} has a user or a password without the other: {_LIKE}")
        self._check_user()

    def _check_user(self) -> None:
        longest = max(len(self._user.encode()), len(self._password.encode()))
        if self._scheme == "socks5" and longest > _LONGEST_TEXT:
            raise ConfigError(f"{_KEY}: SOCKS5 takes a user and a password of up to 255 bytes")
        if self._scheme == "http" and ":" in self._user:
            raise ConfigError(f"{_KEY}: HTTP takes no user with a colon")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {self._scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        """Return a text without user and password."""
        return f"<{self}>"

    def dialogue(self, host: str, port: int) -> Dialogue:
        """Start the handshake that asks the proxy for a connection.

        Args:
            host: The broker's host; the proxy looks it up.
            port: Its port.

        Raises:
            AuthenticationError: The proxy refuses the user or password, or requires them.
            BrokerUnavailableError: The proxy does not connect.
        """
        if self._scheme == "http":
            yield from self._http(host, port)
        else:
            yield from self._socks(host, port)

    def closed(self, host: str, port: int) -> BrokerUnavailableError:
        """Return the error for a proxy that closes its connection during the dialogue."""
        return self._failed(host, port, "it closed the connection")

    def _failed(self, host: str, port: int, why: str) -> BrokerUnavailableError:
        return BrokerUnavailableError(f"{self} does not connect to {host}:{port}: {why}")

    def _refused(self) -> CredentialsError:
        why = f"refuses the user {self._user!r}, or the password" if self._user else "wants a user"
        return CredentialsError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{self} {why}: correct {_KEY}, {_LIKE}"
        )

    # ------------------------------------------------------------------------------ SOCKS5

    def _socks(self, host: str, port: int) -> Dialogue:
        # The number of methods, then the methods; password login is offered if a user is
        # configured.
        yield b"\5\2\0\2" if self._user else b"\5\1\0"
        version, method = yield 2
        if version != 5:
            raise self._failed(host, port, "it does not speak SOCKS5: check proxy.url")
        if method == _PASSWORD and self._user:
            user, password = self._user.encode(), self._password.encode()
            yield b"\1" + bytes([len(user)]) + user + bytes([len(password)]) + password
            _, status = yield 2
            if status:
                raise self._refused()
        elif method != _NO_PASSWORD:
            raise self._refused()
        yield b"\5\1\0" + self._socks_address(host, port) + port.to_bytes(2, "big")
        version, refusal, _, kind = yield 4
        if version != 5 or refusal:
            why = _REFUSALS.get(refusal, f"it answers {refusal}") if version == 5 else "no SOCKS5"
            raise self._failed(host, port, why)
        length = {1: 4, 4: 16}.get(kind) or (yield 1)[0]
        yield length + 2

    def _socks_address(self, host: str, port: int) -> bytes:
        address = _literal(host)
        if address is None:
            name = self._encoded(host, port)
            return b"\3" + bytes([len(name)]) + name
        return (b"\1" if address.version == 4 else b"\4") + address.packed

    def _encoded(self, host: str, port: int) -> bytes:
        """Return an encoded host name; it may come from a broker, so it is untrusted input."""
        try:
            name = host.encode() if host.isascii() else host.encode("idna")
        except UnicodeError:
            name = b""
        if not name or len(name) > _LONGEST_TEXT or not all(33 <= each < 127 for each in name):
            raise self._failed(host, port, "not a valid host name")
        return name

    # -------------------------------------------------------------------------------- HTTP

    def _http(self, host: str, port: int) -> Dialogue:
        address = _literal(host)
        is_v6 = address is not None and address.version == 6
        name = f"[{address}]" if is_v6 else self._encoded(host, port).decode()
        lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}"]
        if self._user:
            pair = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {pair}")
        yield "\r\n".join([*lines, "\r\n"]).encode()
        answer = b""
        while not answer.endswith((b"\r\n\r\n", b"\n\n")):
            answer += yield 1
            if len(answer) > _LONGEST_ANSWER or not b"HTTP/1.".startswith(answer[:7]):
                raise self._failed(host, port, "it does not speak HTTP: check proxy.url")
        status = answer.partition(b"\n")[0].decode("latin-1").split(maxsplit=2)[1:]
        code = status[0] if status else ""
        if code == "407":
            raise self._refused()
        if len(code) != 3 or not code.startswith("2"):
            raise self._failed(host, port, f"HTTP {' '.join(status).strip()!r:.100}")


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address if `host` is an IP literal, else None."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def answered(dialogue: Dialogue, received: bytes) -> bytes | int | None:
    """Continue a dialogue; return its next request, None once the broker's bytes follow."""
    try:
        return dialogue.send(received)
    except StopIteration:
        return None
