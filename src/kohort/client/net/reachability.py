"""Which brokers can be reached, and what to report when that changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import CHANCE
from kohort.client.net.incidents import Incidents
from kohort.client.net.metadata import Node
from kohort.client.net.security.auth import CredentialsError
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    KohortError,
    RemoteProtocolError,
    TlsError,
)

if TYPE_CHECKING:
    from kohort.client.net.transport import BrokerConnection

_ANY: Final = "any broker"
_REFUSED: Final = "refused"

Place: TypeAlias = tuple[str, int]


class Reachability:
    """Tracks and reports why brokers cannot be reached.

    Many clusters have a single broker, which restarts at times: while no broker can be reached,
    this is reported once, instead of a problem for each broker.

    Args:
        config: Settings.
        incidents: Where problems are reported.

    Attributes:
        unreachable: Why no broker could be reached at the last attempt; None when one was.
        refused: Why the client and the cluster do not accept each other; this is final.
        on_refused: Called once when `refused` is set.
    """

    def __init__(self, config: ClientConfig, incidents: Incidents) -> None:
        self.unreachable: BrokerUnavailableError | None = None
        self.refused: AuthenticationError | None = None
        self.on_refused: Callable[[], None] | None = None
        self._config = config
        self._incidents = incidents
        self._failing: dict[int, str] = {}
        # The last result of each address; None where the client was accepted.
        self._said: dict[Place, KohortError | None] = {}

    def none_reached(self, causes: str) -> None:
        """Note that no broker answers."""
        self.unreachable = BrokerUnavailableError(causes)
        longest = max(self._config.retry_backoff_max_ms, self._config.reconnect_backoff_max_ms)
        text = f"no broker can be reached: {causes}; trying again at least every {longest} ms"
        self._incidents.note(_ANY, causes, text)

    def reached(self, nodes: Container[int]) -> None:
        """Note that a broker answered; report the brokers that still cannot be reached.

        Args:
            nodes: Node ids of the existing brokers.
        """
        self.unreachable = None
        if self.refused is not None:
            return
        self._incidents.over(_ANY, "brokers can be reached again")
        longest = self._config.reconnect_backoff_max_ms
        for node_id, cause in tuple(self._failing.items()):
            if node_id not in nodes:
                del self._failing[node_id]
                continue
            text = (
                f"broker {node_id} cannot be reached at the address that it advertises: {cause};"
                f" partitions and groups on it wait, trying again at least every {longest} ms"
            )
            self._incidents.note(node_id, cause, text)

    def node_failed(self, node_id: int, cause: str) -> None:
        """Note that a connection to a broker could not be opened."""
        self._failing[node_id] = cause

    def node_reached(self, node_id: int) -> None:
        """Note that a connection to a broker is open."""
        self._failing.pop(node_id, None)
        self._incidents.over(node_id, f"broker {node_id} can be reached again")

    def in_turn(self, addresses: list[Place]) -> list[Place]:
        """Return addresses in random order, with those that refused the client at the end.

        Args:
            addresses: Host and port of each.
        """
        return sorted(CHANCE.sample(addresses, len(addresses)), key=self._refuses)

    def _refuses(self, place: Place) -> bool:
        return isinstance(self._said.get(place), AuthenticationError)

    def accepted(self, place: Place) -> None:
        """Note that a broker and the client accept each other.

        Args:
            place: Its host and port.
        """
        self._said[place] = None
        self._incidents.over((_REFUSED, place), f"{place[0]}:{place[1]} accepts the client again")

    def failed(self, place: Place, error: KohortError, nodes: Iterable[Node]) -> None:
        """Note that a connection to a broker could not be opened.

        Args:
            place: Its host and port.
            error: The cause.
            nodes: The known brokers.

        Raises:
            AuthenticationError: All brokers that have answered refuse the client.
            BrokerUnavailableError: This broker refuses the client, but another may accept it.
        """
        if not isinstance(error, AuthenticationError):
            self._said.setdefault(place, error)  # it may have accepted the client before
        elif isinstance(error, CredentialsError):
            self._refuse(error)
            return
        else:
            self._said[place] = error
        refusals = self._final(nodes)
        if refusals:
            final = refusals[0] if len(refusals) == 1 else _of_all(refusals)
            self._refuse(final)
            if final is not error:
                raise final
        elif isinstance(error, AuthenticationError):
            text = f"{error}; continuing with the other brokers, and retrying this one later"
            self._incidents.note((_REFUSED, place), str(error), text)
            raise BrokerUnavailableError(str(error)) from error

    def _final(self, nodes: Iterable[Node]) -> list[AuthenticationError]:
        """Return the refusals of all brokers if none accepts the client, else nothing."""
        for places in ({(each.host, each.port) for each in nodes}, set(self._config.addresses())):
            if not places:
                continue
            if any(each not in self._said or self._said[each] is None for each in places):
                return []
            said = [self._said[each] for each in sorted(places)]
            refusals = [each for each in said if isinstance(each, AuthenticationError)]
            if refusals:
                return refusals
        return []

    def _refuse(self, error: AuthenticationError) -> None:
        if self.refused is not None:
            return
        self.refused = error
        self._incidents.say(f"{error.name}: {error.message}; the client does not reconnect")
        if self.on_refused is not None:
            self.on_refused()

    def watch(self, connection: BrokerConnection) -> None:
        """Note unanswered requests, garbled answers and the first answer of a connection."""
        connection.on_silence = partial(self.silent, connection.address)
        connection.on_garbled = self.garbled
        connection.on_first_answer = partial(self.answered, connection.address)

    def silent(self, address: str, request: str) -> None:
        """Note that a broker did not answer a request."""
        text = (
            f"{address} keeps the connection open but did not answer {request} in time; connecting"
            " to it again"
        )
        self._incidents.note(address, request, text)

    def garbled(self, address: str, error: RemoteProtocolError) -> None:
        """Note that a broker sent bytes that are not an answer to the request."""
        text = f"{error}; reconnecting and repeating the request"
        self._incidents.note(address, str(error), text)

    def answered(self, address: str) -> None:
        """Note that a broker answered a request."""
        self._incidents.over(address, f"{address} answers again")


def _of_all(refusals: list[AuthenticationError]) -> AuthenticationError:
    """Return one error for the refusals of several brokers, with the type of the first."""
    text = "; ".join(dict.fromkeys(each.message for each in refusals))
    first = refusals[0]
    made = TlsError(text) if isinstance(first, TlsError) else type(first)(first.code, text)
    made.__cause__ = first
    return made


def plain(error: KohortError) -> str:
    """Return an error's text without the name of its code."""
    return str(error).removeprefix(f"{ErrorCode.NETWORK_EXCEPTION.name}: ")
