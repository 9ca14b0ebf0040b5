"""Authentication of a connection, between ApiVersions and the first request of its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Protocol, TypeAlias

from msgspec import Struct

from kohort.errors import AuthenticationError
from kohort.wire.codec.schema import Message, Request


class CredentialsError(AuthenticationError):
    """The client has no credentials: no broker has refused it yet, but none would accept it."""


class Work(Struct, frozen=True):
    """Slow work or I/O that the shell does outside the event loop.

    Attributes:
        run: Does the work, in any thread; its result goes back into the exchange. If that is an
            awaitable, the shell awaits it.
        on_loop: Does the same for a shell on an event loop; None if `run` is short enough for a
            shared thread.
        what: The step that is missing until the work is done, for messages.
    """

    run: Callable[[], object]
    on_loop: Callable[[], Awaitable[object]] | None = None
    what: str = "the password was not hashed"

    def __repr__(self) -> str:
        """Return a text without captured values, which may be secrets."""
        return "Work()"


Step: TypeAlias = Request[Message] | Work

# Returns the length of the session in milliseconds; 0 or None for no limit (KIP-368).
Exchange: TypeAlias = Generator[Step, object, "int | None"]


class Authenticator(Protocol):
    """A way to authenticate.

    An exchange yields requests and work, and receives the response or result of each; when it
    returns, the connection is ready. It raises `KafkaError` if the broker refuses.
    """

    def exchange(self, host: str) -> Exchange:
        """Start the exchange of one connection to a broker's host."""


class NoAuthentication:
    """No authentication: the broker accepts every client, or identifies it by its certificate."""

    def exchange(self, host: str) -> Exchange:  # noqa: ARG002  # the same for every host
        """Start an empty exchange."""
        yield from ()
        return None
