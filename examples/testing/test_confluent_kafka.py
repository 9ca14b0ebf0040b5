"""A service written with confluent-kafka, tested with the fixtures of kohort.

pip install "kohort[broker]" confluent-kafka pytest
pytest examples/testing/test_confluent_kafka.py
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message

if TYPE_CHECKING:
    from kohort.testing import KafkaHarness


Ledger = dict[str, int]
"""The amounts of orders, by their ids."""


def book(servers: str, topic: str, group: str, ledger: Ledger, orders: int) -> None:
    """Add each order to a ledger by its id; commit each one after it is booked."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        while len(ledger) < orders:
            message: Message | None = consumer.poll(0.1)
            if message is None or message.error():
                continue
            order = json.loads(message.value() or b"")
            ledger[order["id"]] = order["amount"]  # booking an order twice has no further effect
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def order(number: int) -> bytes:
    """Return an order in the format of the topic."""
    return json.dumps({"id": f"order-{number}", "amount": number}).encode()


def test_each_order_is_booked(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str
) -> None:
    kohort_broker.produce(kohort_topic, *map(order, range(20)))
    ledger = Ledger()
    book(kohort_broker.bootstrap_servers, kohort_topic, kohort_group, ledger, 20)
    assert sum(ledger.values()) == sum(range(20))
    assert sum(kohort_broker.committed(kohort_group).values()) == 20


def test_a_coordinator_that_is_gone_for_a_moment_loses_no_order(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str
) -> None:
    kohort_broker.produce(kohort_topic, *map(order, range(20)))
    ledger = Ledger()
    with kohort_broker.fault(
        "error", api="OffsetCommit", error="NOT_COORDINATOR", group=kohort_group, nth=5, times=2
    ) as fault:
        book(kohort_broker.bootstrap_servers, kohort_topic, kohort_group, ledger, 20)
    assert fault.hits == 2
    assert sum(ledger.values()) == sum(range(20))
    assert sum(kohort_broker.committed(kohort_group).values()) == 20


class FullLedger(Ledger):
    """A ledger with a limited number of orders."""

    def __setitem__(self, order_id: str, amount: int) -> None:
        if len(self) == 7:
            raise OSError("the ledger is full")
        super().__setitem__(order_id, amount)


def test_an_order_that_could_not_be_booked_is_booked_after_a_restart(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str
) -> None:
    servers = kohort_broker.bootstrap_servers
    kohort_broker.produce(kohort_topic, *map(order, range(20)))
    full = FullLedger()
    with pytest.raises(OSError, match="full"):
        book(servers, kohort_topic, kohort_group, full, 20)
    kohort_broker.produce(kohort_topic, order(20))
    # so that a service that lost an order also ends
    more = Ledger()
    book(servers, kohort_topic, kohort_group, more, 13)
    assert {*full, *more} == {f"order-{number}" for number in range(20)}
