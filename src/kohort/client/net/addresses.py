"""The addresses of a host. Its name may come from a broker, so it may be anything."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kohort.client.net.worded import in_words
from kohort.errors import BrokerUnavailableError

# As `socket.getaddrinfo` has it: family, kind, protocol, canonical name, and where to connect to.
Address = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def literal(host: str, port: int) -> Sequence[Address]:
    """Return the address that a host's name is in itself, nothing for another name; no look-up.

    Args:
        host: A name, or an address of IPv4 or IPv6.
        port: The port to go with it.
    """
    try:
        return _look_up(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()


def look_up(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host; the resolver may take its time.

    Args:
        host: A name.
        port: The port to go with each address.

    Raises:
        BrokerUnavailableError: There is none, or no host can have such a name.
    """
    try:
        return _look_up(host, port, 0)
    except OSError as error:
        cause = error.strerror or in_words(error)
    except UnicodeError:
        cause = "not the name of a host"
    raise BrokerUnavailableError(f"{host}:{port}: {cause}")


def _look_up(host: str, port: int, flags: int) -> Sequence[Address]:
    # To import Python's codec for international names takes longer than to connect.
    name = host.encode() if host.isascii() else host
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
