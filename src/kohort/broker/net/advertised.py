"""The advertised address, which clients on other machines must be able to reach."""

from __future__ import annotations

import ipaddress
import re
import socket

from kohort.errors import ConfigError

_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]\s/]*))(?::(?P<port>[^:]*))?")
_MAX_PORT = 65_535
# Addresses for documentation (RFC 5737, RFC 3849). Nothing is sent there: a connected datagram
# socket tells its source address.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def parse(text: str) -> tuple[str, int | None]:
    """Return host and port of `HOST[:PORT]`, with brackets around an IPv6 address.

    Args:
        text: The configured value.

    Returns:
        The host without brackets, and the port, or None without a port.

    Raises:
        ConfigError: The text is malformed, or no client can connect to the address.
    """
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"advertised={text!r} is not HOST[:PORT]; put an IPv6 address in brackets"
        )
    host, port = found["v6"] if found["v6"] is not None else found["host"], found["port"]
    if not host:
        raise ConfigError(f"advertised={text!r} has no host")
    if found["v6"] is not None and not _is_v6(host):
        raise ConfigError(f"advertised={text!r}: {host} is not an IPv6 address")
    if is_wildcard(host):
        raise ConfigError(
            f"advertised={text!r} is not an address that clients can connect to; use a name or "
            "address of this machine that other machines know"
        )
    if port is None:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ConfigError(f"advertised={text!r}: {port!r} is not a port")
    return host, int(port)


def is_wildcard(host: str) -> bool:
    """Whether a host means all addresses of this machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def own_name(wildcard: str) -> str:
    """Return how other machines reach this one: by its full name, or by its source address.

    Names without a dot are often known only to the machine itself, as in containers.

    Args:
        wildcard: The address listened on, all of IPv4 or of IPv6.

    Raises:
        ConfigError: Neither is known.
    """
    family = socket.AF_INET6 if ":" in wildcard else socket.AF_INET
    name = socket.getfqdn()
    if "." in name and not _is_address(name) and _is_ours(name, family):
        return name
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE[family], 9))
            address: str = probe.getsockname()[0]
    except OSError:
        address = ""
    if not address or ipaddress.ip_address(address).is_loopback:
        raise ConfigError(
            f"listening on {wildcard}, but no address of this machine is known to other machines:"
            " set advertised=HOST[:PORT] (--advertised)"
        )
    return address


def shown(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ours(name: str, family: socket.AddressFamily) -> bool:
    """Whether a name resolves to addresses of this machine, none of them loopback."""
    try:
        found = socket.getaddrinfo(name, 0, family, socket.SOCK_STREAM)
        for _, kind, protocol, _, address in found:
            if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
                return False
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except (OSError, UnicodeError):
        return False
    return bool(found)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_v6(host: str) -> bool:
    return _is_address(host) and ":" in host
