"""How a connection proves who it is, between ApiVersions and the first request of its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Protocol, TypeAlias

from msgspec import Struct

from kohort.errors import AuthenticationError
from kohort.wire.codec.schema import Message, Request


class CredentialsError(AuthenticationError):
    """The client has nothing to log in with: no broker has refused it, and none would accept it."""


class Work(Struct, frozen=True):
    """Something that takes long, or that does I/O: the shell does it, beside the event loop.

    Attributes:
        run: Does it, in any thread; what it returns goes back into the exchange. If that is to be
            awaited, the shell awaits it.
        on_loop: Does the same for a shell on an event loop; None: `run` is short enough for a
            thread that others wait for as well.
        what: What has not happened until it is done, for people.
    """

    run: Callable[[], object]
    on_loop: Callable[[], Awaitable[object]] | None = None
    what: str = "the password was not hashed"

    def __repr__(self) -> str:
        """Show no captured value, which may be a secret."""
        return "Work()"


Step: TypeAlias = Request[Message] | Work

# What it returns is how long the session lasts, in milliseconds; 0 or None is for ever (KIP-368).
Exchange: TypeAlias = Generator[Step, object, "int | None"]


class Authenticator(Protocol):
    """One way to authenticate.

    An exchange yields requests and work, and is sent the response or the result of each; when it
    returns, the connection is ready. It raises `KafkaError` when the broker refuses.
    """

    def exchange(self, host: str) -> Exchange:
        """Begin the exchange of one connection to a broker's host."""


class NoAuthentication:
    """The broker accepts every client, or knows it by its certificate."""

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002  # the same for every host
        """Begin an exchange of nothing."""
        yield from ()
        return None
