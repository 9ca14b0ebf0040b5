"""Producers and groups under random faults: acknowledged records are written once, and read.

Each seed is a history: records are sent, members join, poll, commit and leave, while the broker
refuses, delays, loses and cuts off answers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kohort import Consumer, Producer
from kohort.broker import EmbeddedBroker
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.errors import KohortError
from kohort.testing import KafkaHarness
from tests.broker.drawn_faults import drawn_fault
from tests.broker.processes import eventually

TOPIC, PARTITIONS = "t", 4
PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 100},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 100,
    },
    "consumer": {"group.protocol": "consumer"},
}
# Actions of a step; repeated ones are more likely.
STEPS = ("send", "send", *["poll"] * 4, "commit", "open", "open", "close", "fault", "fault")


class History:
    """One history.

    Args:
        broker: The broker.
        protocol: The group's protocol.
        chance: Decides what happens.
    """

    def __init__(self, broker: EmbeddedBroker, protocol: str, chance: Random) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.futures: list[DeliveryFuture] = []
        self._broker = broker
        self._chance = chance
        self._settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": chance.random() < 0.5,
            "request.timeout.ms": 3_000,
            **PROTOCOLS[protocol],
        }
        self._members: list[Consumer | None] = [None] * chance.randint(1, 3)
        self._producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            request_timeout_ms=3_000,
            retry_backoff_ms=20,
        )

    def step(self) -> None:
        """Run one step; its errors are raised, and change nothing."""
        action, at = self._chance.choice(STEPS), self._chance.randrange(len(self._members))
        member = self._members[at]
        if action == "send":
            for _ in range(self._chance.randint(1, 20)):
                value, number = b"%d" % len(self.futures), self._chance.randrange(PARTITIONS)
                self.futures.append(self._producer.send(TOPIC, value, partition=number))
        elif action == "fault":
            self._broker.faults.add(drawn_fault(self._chance))
        elif action == "open" and member is None:
            self._members[at] = self._opened()
        elif member is not None and action == "poll":
            self._poll(member)
        elif member is not None and action == "commit":
            member.commit()
        elif member is not None and action == "close":
            self._members[at] = None
            member.close()

    def _opened(self) -> Consumer:
        member = Consumer.from_config(self._settings)
        member.subscribe([TOPIC])
        return member

    def _poll(self, member: Consumer) -> None:
        found = member.poll(self._chance.choice((0, 20, 100)), self._chance.choice((1, 5, 500)))
        for records in found.values():
            self.seen.update((record.partition, record.offset) for record in records)

    def end(self) -> set[tuple[int, int]]:
        """Let all records be read, close everything; return the places of acknowledged records."""
        self._producer.close(60)
        self._broker.faults.clear()
        places = [future.result(1) for future in self.futures if future.exception(1) is None]
        acknowledged = {(place.partition, place.offset) for place in places}
        assert len(acknowledged) == len(places)
        if not any(self._members):
            self._members[0] = self._opened()
        eventually(lambda: self._has_read(acknowledged), "all records that were acknowledged")
        for member in self._members:
            if member is not None:
                member.close()
        return acknowledged

    def _has_read(self, wanted: set[tuple[int, int]]) -> bool:
        for member in self._members:
            if member is not None:
                try:
                    self._poll(member)
                except KohortError:  # from an earlier fault
                    continue
        return wanted <= self.seen.keys()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_acknowledged_is_there_once_and_read(
    tmp_path: Path, protocol: str, seed: int
) -> None:
    chance = Random(f"{protocol} {seed}")
    with EmbeddedBroker(tmp_path, group_consumer_heartbeat_interval_ms=100) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        history = History(broker, protocol, chance)
        for _ in range(chance.randint(10, 50)):
            try:
                history.step()
            except KohortError:  # a fault reached the application
                continue
        acknowledged = history.end()
        records = KafkaHarness(broker.bootstrap_servers).records(TOPIC)
    values = Counter(record.value for record in records)
    assert set(values.values()) <= {1}
    assert len(values) <= len(history.futures)
    assert {(record.partition, record.offset) for record in records} >= acknowledged
