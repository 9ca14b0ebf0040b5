"""Host addresses. The host name may come from a broker, so it is untrusted input."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kohort.client.net.worded import in_words
from kohort.errors import BrokerUnavailableError

# As `socket.getaddrinfo` returns it: family, type, protocol, canonical name, socket address.
Address = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def literal(host: str, port: int) -> Sequence[Address]:
    """Return the address if `host` is an IP literal, else nothing; never queries a resolver.

    Args:
        host: A host name, or an IPv4 or IPv6 address.
        port: The port to combine with the address.
    """
    try:
        return _look_up(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()


def look_up(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host; blocks while the resolver works.

    Args:
        host: A host name.
        port: The port to combine with each address.

    Raises:
        BrokerUnavailableError: The host has no address, or its name is not a valid host name.
    """
    try:
        return _look_up(host, port, 0)
    except OSError as error:
        cause = error.strerror or in_words(error)
    except UnicodeError:
        cause = "not a valid host name"
    raise BrokerUnavailableError(f"{host}:{port}: {cause}")


def _look_up(host: str, port: int, flags: int) -> Sequence[Address]:
    # Importing Python's codec for international names takes longer than connecting.
    name = host.encode() if host.isascii() else host
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
