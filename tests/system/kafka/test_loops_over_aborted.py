"""Loops over a consumer that reads committed transactions only (KIP-98), ended and begun again.

Nothing is handed out of a transaction that was aborted, nor of the marker at the end of one. A loop
that ends behind them, by a time-out or by `wakeup`, must neither go back before them nor lose what
has been fetched since.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort.client import Consumer
from kohort.types import TopicPartition
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

DEADLINE_S = 60
PROTOCOLS = ("classic", "consumer")
# Never set: a look every so often.
PAUSE = threading.Event()


class Transactions:
    """Writes transactions into one partition."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = foreign.new_topic(bootstrap)
        self._written = 0
        settings = {"bootstrap.servers": bootstrap, "transactional.id": self.topic, "linger.ms": 0}
        self._producer = Producer(settings)
        self._producer.init_transactions(foreign.TIMEOUT_S)

    def write(self, count: int, *, commits: bool) -> list[bytes]:
        """Write one, and return its values if they can be read."""
        values = [b"%d" % number for number in range(self._written, self._written + count)]
        self._written += count
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self.topic, value, partition=0)
        assert self._producer.flush(foreign.TIMEOUT_S) == 0
        if commits:
            self._producer.commit_transaction(foreign.TIMEOUT_S)
            return values
        self._producer.abort_transaction(foreign.TIMEOUT_S)
        return []


@contextmanager
def loop(kafka: RealKafka, topic: str, protocol: str, group: str) -> Iterator[Consumer]:
    chosen: dict[str, Any] = {"group_protocol": protocol, "isolation_level": "read_committed"}
    with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        **chosen,
    ) as consumer:
        yield consumer


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        PAUSE.wait(0.02)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_end_of_a_loop_goes_not_back(real_kafka: RealKafka, protocol: str) -> None:
    """A group that has read to the end has no lag."""
    transactions = Transactions(real_kafka.bootstrap_servers)
    topic, group = transactions.topic, uuid.uuid4().hex
    values = transactions.write(10, commits=True)
    transactions.write(10, commits=False)
    transactions.write(10, commits=False)
    place, end = TopicPartition(topic, 0), 33
    with loop(real_kafka, topic, protocol, group) as consumer:

        def wake_at_the_end() -> None:
            until(lambda: foreign.committed(real_kafka.bootstrap_servers, group, topic) == end)
            consumer.wakeup()

        waker = threading.Thread(target=wake_at_the_end)
        waker.start()
        assert [record.value for record in consumer] == values
        waker.join()
        assert consumer.position(place) == end
    assert foreign.committed(real_kafka.bootstrap_servers, group, topic) == end


def has_read(seen: list[bytes | None], count: int) -> bool:
    return len(seen) >= count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_loops_that_are_woken_lose_nothing(real_kafka: RealKafka, protocol: str) -> None:
    transactions = Transactions(real_kafka.bootstrap_servers)
    seen: list[bytes | None] = []
    expected: list[bytes] = []
    is_over = threading.Event()
    with loop(real_kafka, transactions.topic, protocol, uuid.uuid4().hex) as consumer:

        def read() -> None:
            while not is_over.is_set():
                seen.extend(record.value for record in consumer)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(40):
                transactions.write(5, commits=False)
                expected += transactions.write(3, commits=True)
                until(partial(has_read, seen, len(expected) - 3))
                for _ in range(number % 4):
                    consumer.wakeup()
            until(partial(has_read, seen, len(expected)))
        finally:
            is_over.set()
            consumer.wakeup()
            reader.join(DEADLINE_S)
    assert seen == expected
