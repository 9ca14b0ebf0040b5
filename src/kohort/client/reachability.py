"""Which brokers can be reached, and what is told when that changes."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from kohort.client.config import ClientConfig
from kohort.client.troubles import Troubles
from kohort.errors import BrokerUnavailableError, RemoteProtocolError

_ANY: Final = "any broker"


class Reachability:
    """Keeps and tells why brokers cannot be reached.

    A broker that restarts is the only one of many clusters: while none can be reached, that is told
    and not what is the matter with each.

    Args:
        config: Settings.
        troubles: Where it is told.

    Attributes:
        unreachable: Why no broker could be reached the last time; None when one could.
    """

    def __init__(self, config: ClientConfig, troubles: Troubles) -> None:
        self.unreachable: BrokerUnavailableError | None = None
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

    def silent(self, address: str, request: str) -> None:
        """Note that a broker let a request go unanswered."""
        text = (
            f"{address} has the connection open but did not answer {request} in time; connecting"
            " to it anew"
        )
        self._troubles.note(address, request, text)

    def garbled(self, address: str, error: RemoteProtocolError) -> None:
        """Note that a broker sent something that is no answer to what it was asked."""
        text = f"{error}; connecting to it anew, and asking again"
        self._troubles.note(address, str(error), text)

    def answered(self, address: str) -> None:
        """Note that a broker answered a request."""
        self._troubles.over(address, f"{address} answers again")
