"""Publishes the flights in the order they flew, at a fixed number of days per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.demo.flights import Flight, in_order

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from kohort.client import Producer
    from kohort.client.producer.api import RecordMetadata


class Progress(Struct):
    """The progress of the replay; written by its thread, read by the panel's."""

    day: int = 0
    published: int = 0
    done: bool = False
    error: BaseException | None = None


class Replay:
    """A thread that publishes the flights at the pace of the calendar."""

    def __init__(
        self, table: pa.Table, producer: Callable[[], Producer], topic: str, days_per_second: float
    ) -> None:
        """Prepare the replay; nothing is sent before `start`.

        Args:
            table: The data set.
            producer: Creates the producer in the thread that uses it.
            topic: Topic to publish to.
            days_per_second: Pace of the calendar.
        """
        self.progress = Progress()
        self._table = table
        self._producer = producer
        self._topic = topic
        self._pace = days_per_second
        self._turn = threading.Condition()
        self._hold_day: int | None = None
        self._stopping = False
        self._next_page = 0.0
        self._thread = threading.Thread(target=self._run, name="demo-replay", daemon=True)

    def start(self) -> None:
        """Start publishing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing and wait for the thread."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def hold_at(self, day: int | None) -> None:
        """Stop at the end of `day` until the next call; None to continue to the end."""
        with self._turn:
            self._hold_day = day
            self._turn.notify_all()

    def _run(self) -> None:
        try:
            with self._producer() as producer:
                self._publish(producer)
        except BaseException as error:  # noqa: BLE001  # the demo shows it and ends
            self.progress.error = error
        finally:
            self.progress.done = True

    def _publish(self, producer: Producer) -> None:
        pending: list[Future[RecordMetadata]] = []
        for flight in in_order(self._table):
            if flight.day != self.progress.day:
                self._settle(pending)
                if not self._turn_page(flight.day):
                    return
            pending.append(self._send(producer, flight))
        producer.flush()
        for future in pending:
            future.result()
        self.progress.published += len(pending)

    def _turn_page(self, day: int) -> bool:
        """Wait until it is time for the next day; return False when asked to stop."""
        self._next_page = max(self._next_page + 1 / self._pace, time.monotonic())
        with self._turn:
            self._turn.wait_for(lambda: self._stopping, self._next_page - time.monotonic())
            self._turn.wait_for(lambda: self._stopping or not self._held(day))
            if self._stopping:
                return False
        self.progress.day = day
        return True

    def _held(self, day: int) -> bool:
        return self._hold_day is not None and day > self._hold_day

    def _send(self, producer: Producer, flight: Flight) -> Future[RecordMetadata]:
        return producer.send(self._topic, key=flight.key, value=flight.value)

    def _settle(self, pending: list[Future[RecordMetadata]]) -> None:
        """Count acknowledged flights, so that `published` is exact."""
        waiting = []
        for future in pending:
            # Each is checked once: if it completes later, the next check counts it.
            if future.done():
                future.result()
                self.progress.published += 1
            else:
                waiting.append(future)
        pending[:] = waiting
