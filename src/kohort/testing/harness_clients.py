"""The clients of a harness, and its waits for results."""

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
"""Timeout of a harness's calls, in seconds."""

NAME = "kohort-harness"
"""The client id of all its clients; faults do not affect them (`kohort.broker.faults.HARNESS`)."""

# Time for the last check of a wait: if cut short, it would report only that.
_SHORTEST_LOOK_MS = 1_000


class HarnessError(KohortError):
    """An operation of a test failed or timed out, or is not supported here."""


class HarnessClients:
    """Creates clients of one Kafka, and waits for results.

    Args:
        bootstrap_servers: Its address.
        settings: Settings of its clients, including their credentials.

    Attributes:
        bootstrap_servers: The address for clients.
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
        """Cancel the wait of a call in another thread, and all later waits."""
        self._given_up.set()

    def reach(self, timeout_s: float) -> None:
        """Check that a broker answers.

        Args:
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: No broker answers.
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
        """Check until there is a result; a check ends at most a second after the wait.

        Args:
            look: Returns the result, or nothing.
            what: The awaited condition, for messages.
            last: Describes the last state.
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: There was no result in time.
            KafkaError: The brokers refuse the request.
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
        """Call a function until it returns a result; transient errors are retried."""
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
    """Turn timeouts of the brokers into `HarnessError`.

    Raises:
        HarnessError: The brokers did not answer in time.
    """
    try:
        yield
    except (RequestTimedOutError, BrokerUnavailableError) as error:
        raise HarnessError(f"not within {DEADLINE_S:g} s: {error}") from error


def left_ms(end: float) -> int:
    """Return the timeout, in milliseconds, of a check within a wait with this deadline."""
    return max(_SHORTEST_LOOK_MS, int((end - time.monotonic()) * 1000))
