"""Errors of group members as faults in a file, which any language can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from kohort import Consumer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker, Fault
from kohort.errors import KafkaError
from kohort.testing import KafkaHarness
from tests.broker.processes import eventually


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        tmp_path, group_consumer_heartbeat_interval_ms=50, group_min_session_timeout_ms=500
    ) as broker:
        broker.create_topic("orders", 2)
        yield broker


class Heard(RebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> None:
        self.words += ["assigned"] * bool(partitions)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        self.words += ["revoked"] * bool(partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> None:
        self.words += ["lost"] * bool(partitions)


def member(
    broker: EmbeddedBroker, protocol: Literal["classic", "consumer"], instance: str | None = None
) -> Consumer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "client.id": "service",
        "group.instance.id": instance,
        "group.protocol": protocol,
    }
    if protocol == "classic":  # with KIP-848 the broker sets the interval
        settings |= {"heartbeat.interval.ms": "100", "session.timeout.ms": "1000"}
    return Consumer.from_config({k: v for k, v in settings.items() if v is not None})


def polls_until(consumer: Consumer, condition: Callable[[], bool], what: str) -> None:
    def done() -> bool:
        consumer.poll(50)
        return condition()

    eventually(done, what)


@pytest.mark.parametrize(
    ("protocol", "api"), [("classic", "Heartbeat"), ("consumer", "ConsumerGroupHeartbeat")]
)
def test_a_session_that_ends_takes_partitions_and_the_member_comes_back(
    broker: EmbeddedBroker, protocol: Literal["classic", "consumer"], api: str
) -> None:
    heard = Heard()
    with member(broker, protocol) as consumer:
        consumer.subscribe(["orders"], listener=heard)
        polls_until(consumer, lambda: "assigned" in heard.words, "partitions")
        broker.faults.add(Fault(action="error", api=api, error="UNKNOWN_MEMBER_ID", group="g"))
        polls_until(
            consumer,
            lambda: heard.words == ["assigned", "lost", "assigned"],
            f"lost and back: {heard.words}",
        )
    assert heard.words[-1] == "revoked"


def test_a_static_member_that_is_fenced_cannot_go_on(broker: EmbeddedBroker) -> None:
    heard = Heard()
    with member(broker, "classic", "service-1") as consumer:
        consumer.subscribe(["orders"], listener=heard)
        polls_until(consumer, lambda: "assigned" in heard.words, "partitions")
        broker.faults.add(
            Fault(action="error", api="Heartbeat", error="FENCED_INSTANCE_ID", group="g", times=0)
        )
        with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
            polls_until(consumer, lambda: False, "the end")
    assert "lost" in heard.words


def test_a_member_that_is_cut_off_is_removed_when_its_session_ends(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, group_min_session_timeout_ms=500) as broker:
        broker.create_topic("orders")
        kafka = KafkaHarness(broker.bootstrap_servers, broker)
        heard = Heard()
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            client_id="service",
            session_timeout_ms=1_000,
            heartbeat_interval_ms=100,
            request_timeout_ms=500,
        ) as consumer:
            consumer.subscribe(["orders"], listener=heard)
            polls_until(consumer, lambda: "assigned" in heard.words, "partitions")
            with broker.faults.injected(Fault(action="silence", client_id="service", times=0)):
                polls_until(consumer, lambda: not kafka.owners("g"), "its removal")
            polls_until(consumer, lambda: "lost" in heard.words, "that it knows")
