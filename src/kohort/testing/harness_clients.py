"""The clients of a harness, and how it waits for what they see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import TypeVar

from kohort import AdminClient, Consumer
from kohort.errors import KafkaError, KohortError

T = TypeVar("T")

DEADLINE_S = 60.0
"""How long the calls of a harness wait for what they are about."""

NAME = "kohort-harness"
"""The id of all its clients; faults leave them alone (`kohort.broker.faults.HARNESS`)."""

# The last look of a wait has so long: cut short, it would only say that it was.
_SHORTEST_LOOK_MS = 1_000


class HarnessError(KohortError):
    """What a test asked for did not come about, or cannot here."""


class HarnessClients:
    """Makes clients of one Kafka, and waits for what they see.

    Args:
        bootstrap_servers: Where it is.

    Attributes:
        bootstrap_servers: Where clients connect to.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._given_up = Event()

    def give_up(self) -> None:
        """Have a call of it in another thread, and each later one, wait no longer."""
        self._given_up.set()

    def _admin(self, limit_ms: int = int(DEADLINE_S * 1000)) -> AdminClient:
        return AdminClient(
            bootstrap_servers=self.bootstrap_servers,
            client_id=NAME,
            default_api_timeout_ms=limit_ms,
        )

    def _reader(self) -> Consumer:
        return Consumer(
            bootstrap_servers=self.bootstrap_servers,
            client_id=NAME,
            isolation_level="read_committed",
        )

    def _member(self, group: str, topics: Iterable[str], **settings: str | int) -> Consumer:
        member = Consumer.from_config(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": NAME,
                "group.id": group,
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        member.subscribe(topics)
        return member

    def _seen(
        self,
        look: Callable[[AdminClient], T | None],
        what: str,
        last: Callable[[], str] = str,
        timeout_s: float = DEADLINE_S,
    ) -> T:
        """Look until there is something; a look ends with the wait, or within a second of that.

        Args:
            look: Returns what was found, or nothing.
            what: What is waited for.
            last: Returns what was seen last.
            timeout_s: How long to wait, in seconds.

        Raises:
            HarnessError: It did not come in time.
            KafkaError: The brokers refuse to show it.
        """
        end = time.monotonic() + timeout_s

        def once() -> T | None:
            with self._admin(left_ms(end)) as admin:
                return look(admin)

        return self._until(once, what, last, timeout_s)

    def _until(
        self,
        found: Callable[[], T | None],
        what: str,
        last: Callable[[], str] = str,
        timeout_s: float = DEADLINE_S,
    ) -> T:
        """Call a function until it returns something; an error that may pass is waited out."""
        end = time.monotonic() + timeout_s
        while True:
            failure = None
            try:
                if value := found():
                    return value
            except KafkaError as error:
                if not error.retriable:
                    raise
                failure = error
            if time.monotonic() > end:
                failed = f"the last look failed: {failure}" if failure else ""
                said = "; ".join(filter(None, (what, last(), failed)))
                raise HarnessError(f"not within {timeout_s:g} s: {said}") from failure
            if self._given_up.wait(0.01):
                raise HarnessError(f"given up before: {what}")


def left_ms(end: float) -> int:
    """Return how many milliseconds a look may take that begins now, in a wait that ends then."""
    return max(_SHORTEST_LOOK_MS, int((end - time.monotonic()) * 1000))
