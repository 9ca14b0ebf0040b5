"""The clients of a harness, and how it waits for what they see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

from kohort import AdminClient, Consumer, Producer
from kohort.errors import BrokerUnavailableError, KafkaError, KohortError, RequestTimedOutError

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
        settings: Of its clients, with which they log in.

    Attributes:
        bootstrap_servers: Where clients connect to.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, object]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._settings = {
            **_dotted(settings),
            "bootstrap.servers": bootstrap_servers,
            "client.id": NAME,
        }
        self._given_up = Event()

    def give_up(self) -> None:
        """Have a call of it in another thread, and each later one, wait no longer."""
        self._given_up.set()

    def reach(self, timeout_s: float) -> None:
        """See whether a broker answers.

        Args:
            timeout_s: How long to try, in seconds.

        Raises:
            HarnessError: None does.
        """
        try:
            with self._admin_for(int(timeout_s * 1000)) as admin:
                admin.describe_cluster()
        except KohortError as error:
            where = f"no Kafka answers at {self.bootstrap_servers}"
            raise HarnessError(f"{where} within {timeout_s:g} s: {error}") from error

    @contextmanager
    def _admin(self) -> Iterator[AdminClient]:
        with in_time(), self._admin_for(int(DEADLINE_S * 1000)) as admin:
            yield admin

    def _admin_for(self, limit_ms: int) -> AdminClient:
        return AdminClient.from_config({**self._settings, "default.api.timeout.ms": limit_ms})

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        limit_ms = int(DEADLINE_S * 1000)
        with (
            in_time(),
            Producer.from_config(
                {**self._settings, "max.block.ms": limit_ms, "delivery.timeout.ms": limit_ms}
            ) as producer,
        ):
            yield producer

    @contextmanager
    def _reader(self) -> Iterator[Consumer]:
        with (
            in_time(),
            Consumer.from_config(
                {
                    **self._settings,
                    "isolation.level": "read_committed",
                    "default.api.timeout.ms": int(DEADLINE_S * 1000),
                }
            ) as consumer,
        ):
            yield consumer

    def _member(self, group: str, topics: Iterable[str], **settings: str | int) -> Consumer:
        member = Consumer.from_config(
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                **_dotted(settings),
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
            with self._admin_for(left_ms(end)) as admin:
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


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def in_time() -> Iterator[None]:
    """Have what the brokers did not answer in time raise the error of a harness.

    Raises:
        HarnessError: They did not.
    """
    try:
        yield
    except (RequestTimedOutError, BrokerUnavailableError) as error:
        raise HarnessError(f"not within {DEADLINE_S:g} s: {error}") from error


def left_ms(end: float) -> int:
    """Return how many milliseconds a look may take that begins now, in a wait that ends then."""
    return max(_SHORTEST_LOOK_MS, int((end - time.monotonic()) * 1000))
