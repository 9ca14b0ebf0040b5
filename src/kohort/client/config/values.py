"""Check values of settings, and convert them from strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.client.config.arguments import LONGEST_MS, as_int, shown, text, topic
from kohort.client.config.contradictions import dotted
from kohort.client.config.security import PROTOCOLS
from kohort.errors import ConfigError

# Settings that are a Java `long`: they are never sent, and 31 years are as good as no limit.
_LONG: tuple[str, ...] = ("linger_ms", "max_block_ms", "metadata_max_age_ms", "buffer_memory")
_LONG += ("reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms")
_LONG += ("retry_backoff_max_ms", "socket_connection_setup_timeout_ms", "connections_max_idle_ms")
_LONG += ("metadata_recovery_rebootstrap_trigger_ms",)


def integer(name: str, value: object) -> int:
    """Return a whole-number setting; strings are accepted, too.

    Raises:
        ConfigError: It is not a whole number, or too large.
    """
    try:
        number = int(value) if isinstance(value, str) else as_int(value)
    except ValueError:
        number = None
    if number is None:
        raise ConfigError(f"{dotted(name)} must be a whole number, not {shown(value)}")
    most = LONGEST_MS if name in _LONG else 2**31 - 1
    if number > most:
        raise ConfigError(f"{dotted(name)} is {shown(number)}; it can be {most} at most")
    return number


def text_of(key: str, value: object) -> str:
    """Return a string setting.

    Raises:
        ConfigError: It is not a string.
    """
    try:
        return text(value, key, may_be_empty=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def legal_id(key: str, value: str) -> None:
    """Check an id by the rule for topic names, which also applies to static members (KIP-345)."""
    try:
        topic(value, key, "an id of a static member")
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def strings(key: str, given: object) -> list[str]:
    """Split a comma-separated string; a sequence of strings is accepted, too."""
    if isinstance(given, str):
        return text_of(key, given).split(",")
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray, Mapping)):
        raise ConfigError(f"{key} must be a string or a sequence of strings, not {shown(given)}")
    return [text_of(key, each) for each in given]


def boolean(name: str, value: object) -> bool:
    """Return a boolean setting; strings are accepted, too.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ConfigError(f"{dotted(name)} must be true or false, not {shown(value)}")


def one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    """Check that a setting has one of several values.

    Raises:
        ConfigError: It has another value.
    """
    if value not in allowed:
        raise ConfigError(f"{key} is {shown(value)}; it can be {', '.join(allowed)}")


def address(server: str, used: str) -> tuple[str, int]:
    """Split `host:port`; the host may be IPv6 in brackets, and a protocol may precede it."""
    protocol, separator, place = server.rpartition("://")
    if separator and protocol.upper() != used.upper():
        raise ConfigError(
            f"bootstrap.servers: {shown(server)} does not match security.protocol={used}, which can"
            f" be {', '.join(PROTOCOLS)}"
        )
    host, separator, port = place.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= 65535
    if not separator or not is_port or not host:
        raise ConfigError(f"bootstrap.servers: {shown(server)} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
