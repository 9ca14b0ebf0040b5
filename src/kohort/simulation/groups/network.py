"""Connections and their faults: messages are ordered within each, but not between them.

As with TCP, messages arrive in order, and all messages after a lost one are lost too. A request may
still reach the coordinator after the client has given it up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import log
from typing import Protocol

from msgspec import Struct

from kohort.simulation.engine import Engine, Process, Stream
from kohort.simulation.runs.scenario import Weather
from kohort.wire.codec.schema import Message

Done = Callable[[Message | None], None]


class Sender(Process, Protocol):
    """A client's end of a connection.

    Attributes:
        name: Its name.
        up_blocked_until: Until when nothing that it sends arrives.
        down_blocked_until: Until when nothing sent to it arrives.
    """

    name: str
    up_blocked_until: int
    down_blocked_until: int


class Receiver(Process, Protocol):
    """A node's end of a connection."""

    def receive(self, connection: Connection, pending: Pending) -> None:
        """Handle a request."""


class Pending(Struct):
    """An unanswered request.

    Attributes:
        due: When the client gives it up.
        done: Called with the answer, or None if there will be none.
        request: The request.
        version: Its version.
        is_copy: Whether the same request was sent before.
    """

    due: int
    done: Done
    request: Message
    version: int
    is_copy: bool = False


class Connection:
    """One connection of a client to a node."""

    __slots__ = (
        "_delay",
        "check_at",
        "client",
        "down",
        "down_at",
        "is_open",
        "lingers",
        "node",
        "silent",
        "up",
        "up_at",
        "waiting",
    )

    def __init__(self, client: Sender, node: Receiver, delay: Stream) -> None:
        self.client = client
        self.node = node
        self.is_open = True
        # Whether requests in flight still arrive when the client is gone.
        self.lingers = True
        self.silent = False
        self.up: deque[Pending] = deque()
        self.down: deque[tuple[Pending, Message]] = deque()
        self.up_at = 0
        self.down_at = 0
        self.waiting: dict[int, Pending] = {}
        self.check_at = 0
        self._delay = delay

    def delay_ms(self, weather: Weather) -> int:
        """Return the delay of one message, drawn from the connection's random numbers."""
        number = self._delay.uniform()
        if number < weather.tail:
            return int(-log(1.0 - number / weather.tail) * weather.tail_ms)
        number = (number - weather.tail) / (1.0 - weather.tail)
        return 1 + int(-log(1.0 - number) * weather.delay_ms)


class Network:
    """Carries requests and answers."""

    def __init__(self, engine: Engine, weather: Weather, seed: int) -> None:
        """Make a network.

        Args:
            engine: The clock.
            weather: Its delays and losses.
            seed: Seed of the run.
        """
        self.weather = weather
        self._engine = engine
        self._seed = seed
        self._losses: dict[str, Stream] = {}

    def connect(self, client: Sender, node: Receiver, name: str) -> Connection:
        """Return a new connection; it opens with its first message."""
        return Connection(client, node, Stream(self._seed, "delay", name))

    def send(self, connection: Connection, key: int, pending: Pending) -> None:
        """Send a request.

        Args:
            connection: The connection.
            key: Number of the request.
            pending: The request, and the callback for its end.
        """
        connection.waiting[key] = pending
        self._watch(connection, pending.due)
        if connection.silent or self._is_lost(connection):
            connection.silent = True
            return
        if not connection.node.alive:
            delay = connection.delay_ms(self.weather)
            self._engine.after(delay, connection.client, self.close, connection)
            return
        connection.up.append(pending)
        arrives = max(connection.up_at, self._engine.now + connection.delay_ms(self.weather))
        connection.up_at = arrives
        self._engine.at(arrives, connection.node, self._arrive, connection)

    def _is_lost(self, connection: Connection) -> bool:
        if not self.weather.loss:
            return False
        name = connection.client.name
        if name not in self._losses:
            self._losses[name] = Stream(self._seed, "loss", name)
        return self._losses[name].happens(self.weather.loss)

    def _arrive(self, connection: Connection) -> None:
        if not connection.up:
            return
        blocked = connection.client.up_blocked_until
        if blocked > self._engine.now:
            self._engine.at(blocked, connection.node, self._arrive, connection)
            return
        connection.node.receive(connection, connection.up.popleft())

    def answer(self, connection: Connection, pending: Pending, response: Message) -> None:
        """Send an answer, if the connection is still open."""
        if connection.silent or not connection.is_open:
            return
        connection.down.append((pending, response))
        arrives = max(connection.down_at, self._engine.now + connection.delay_ms(self.weather))
        connection.down_at = arrives
        self._engine.at(arrives, connection.client, self._return, connection)

    def _return(self, connection: Connection) -> None:
        if not connection.down:
            return
        blocked = connection.client.down_blocked_until
        if blocked > self._engine.now:
            self._engine.at(blocked, connection.client, self._return, connection)
            return
        pending, response = connection.down.popleft()
        for key, each in connection.waiting.items():
            if each is pending:
                del connection.waiting[key]
                break
        else:
            return
        pending.done(response)

    # ------------------------------------------------------------------------------ how it ends

    def close(self, connection: Connection) -> None:
        """End a connection; its waiting requests get no answer."""
        if not connection.is_open:
            return
        connection.is_open = False
        connection.down.clear()
        if not connection.lingers:
            connection.up.clear()
        waiting = list(connection.waiting.values())
        connection.waiting.clear()
        for pending in waiting:
            pending.done(None)

    def _watch(self, connection: Connection, due: int) -> None:
        """Check the connection again when its first request is overdue."""
        if connection.check_at <= self._engine.now or due < connection.check_at:
            connection.check_at = due
            self._engine.at(due, connection.client, self._check, connection)

    def _check(self, connection: Connection) -> None:
        if not connection.waiting or not connection.is_open:
            return
        due = min(pending.due for pending in connection.waiting.values())
        if due <= self._engine.now:
            self.close(connection)
        else:
            self._watch(connection, due)
