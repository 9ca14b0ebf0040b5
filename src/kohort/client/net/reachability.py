"""Which brokers can be reached, and what to report when that changes."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.client.config.definitions import ClientConfig
from kohort.client.net.incidents import Troubles
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    KohortError,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from kohort.client.net.transport import BrokerConnection

_ANY: Final = "any broker"


class Reachability:
    """Keeps and tells why brokers cannot be reached.

    A broker that restarts is the only one of many clusters: while none can be reached, that is
    reported, and not the problem of each.

    Args:
        config: Settings.
        troubles: Where it is reported.

    Attributes:
        unreachable: Why no broker could be reached the last time; None when one could.
        refused: Why the client and the brokers do not accept each other.
        on_refused: Called once when that is so.
    """

    def __init__(self, config: ClientConfig, troubles: Troubles) -> None:
        self.unreachable: BrokerUnavailableError | None = None
        self.refused: AuthenticationError | None = None
        self.on_refused: Callable[[], None] | None = None
        self._config = config
        self._troubles = troubles
        self._failing: dict[int, str] = {}

    def none_reached(self, causes: str) -> None:
        """Note that no broker answers."""
        self.unreachable = BrokerUnavailableError(causes)
        longest = max(self._config.retry_backoff_max_ms, self._config.reconnect_backoff_max_ms)
        text = f"no broker can be reached: {causes}; trying again at least every {longest} ms"
        self._troubles.note(_ANY, causes, text)

    def reached(self, nodes: Container[int]) -> None:
        """Note that some broker answered; tell of those that cannot be reached all the same.

        Args:
            nodes: Node ids of the brokers that there are.
        """
        self.unreachable = None
        self._troubles.over(_ANY, "brokers can be reached again")
        longest = self._config.reconnect_backoff_max_ms
        for node_id, cause in tuple(self._failing.items()):
            if node_id not in nodes:
                del self._failing[node_id]
                continue
            text = (
                f"broker {node_id} cannot be reached at the address that it advertises: {cause};"
                f" what it leads or coordinates waits, trying again at least every {longest} ms"
            )
            self._troubles.note(node_id, cause, text)

    def node_failed(self, node_id: int, cause: str) -> None:
        """Note that a connection to a broker could not be opened."""
        self._failing[node_id] = cause

    def node_reached(self, node_id: int) -> None:
        """Note that a connection to a broker is open."""
        self._failing.pop(node_id, None)
        self._troubles.over(node_id, f"broker {node_id} can be reached again")

    def refuse(self, error: AuthenticationError) -> None:
        """Note that the client and a broker do not accept each other."""
        if self.refused is not None:
            return
        self.refused = error
        text = f"{error.name}: {error.message}; the client does not connect again"
        self._troubles.note(_ANY, text, text)
        if self.on_refused is not None:
            self.on_refused()

    def watch(self, connection: BrokerConnection) -> None:
        """Have noted what a connection does not answer, and what it does."""
        connection.on_silence = partial(self.silent, connection.address)
        connection.on_garbled = self.garbled
        connection.on_first_answer = partial(self.answered, connection.address)

    def silent(self, address: str, request: str) -> None:
        """Note that a broker let a request go unanswered."""
        text = (
            f"{address} has the connection open but did not answer {request} in time; connecting"
            " to it again"
        )
        self._troubles.note(address, request, text)

    def garbled(self, address: str, error: RemoteProtocolError) -> None:
        """Note that a broker sent something that is no answer to what it was asked."""
        text = f"{error}; connecting to it again, and asking again"
        self._troubles.note(address, str(error), text)

    def answered(self, address: str) -> None:
        """Note that a broker answered a request."""
        self._troubles.over(address, f"{address} answers again")


def plain(error: KohortError) -> str:
    """Return an error's text without the name of its code."""
    return str(error).removeprefix(f"{ErrorCode.NETWORK_EXCEPTION.name}: ")
