"""How a connection proves who it is, between ApiVersions and the first request of its user."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeAlias

from kohort.wire.schema import Message, Request

Exchange: TypeAlias = Generator[Request[Message], Message, None]


class Authenticator(Protocol):
    """One way to authenticate.

    An exchange yields requests and is sent the response of each; when it returns, the connection
    is ready. It raises `KafkaError` when the broker refuses.
    """

    def exchange(self) -> Exchange:
        """Begin the exchange of one connection."""


class NoAuthentication:
    """The broker takes everybody (security protocol PLAINTEXT)."""

    def exchange(self) -> Exchange:
        """Begin an exchange of nothing."""
        yield from ()
