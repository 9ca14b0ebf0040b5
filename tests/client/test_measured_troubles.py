"""Lagging consumers, and clients throttled by a broker, show it in their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.broker import EmbeddedBroker, Fault
from kohort.client.prometheus import registry_of
from kohort.errors import ConfigError
from tests.broker.processes import eventually
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

# At this many bytes per second, a few values of SIZE exceed the quota of Kafka's 11 seconds.
QUOTA, SIZE = 2_000, 20_000
PAUSE_MS = 150
# Much of it is left when the next record is sent; otherwise a record does not wait in the queue.
LONG_PAUSE_MS, SOME_OF_IT_MS = 2_000, 200


def test_a_consumer_that_lags_shows_it(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 1)
    name = f"{topic}-0.records-lag"

    def lag(consumer: Consumer) -> float:
        consumer.poll(50, max_records=1)
        return consumer.metrics()["consumer-fetch-manager-metrics"].get(name, -1)

    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        producer.send(topic, b"value").result(60)
        eventually(lambda: lag(consumer) == 0, "it has read all")
        for _ in range(500):
            producer.send(topic, b"value")
        producer.flush()
        eventually(lambda: lag(consumer) > 400, "it lags")
        measured = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert measured["records-lag-max"] >= measured[name] > 400
        eventually(lambda: bool(consumer.poll(50)) and lag(consumer) == 0, "it has caught up")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        yield broker


def test_a_client_that_the_embedded_broker_slows_down_shows_it(broker: EmbeddedBroker) -> None:
    broker.create_topic("orders")
    servers = broker.bootstrap_servers
    slow = Fault(action="throttle", client_id="slow", delay_ms=PAUSE_MS, times=0)
    with (
        broker.faults.injected(slow) as injected,
        Producer(bootstrap_servers=servers, client_id="slow") as producer,
        Producer(bootstrap_servers=servers) as other,
        Consumer(
            bootstrap_servers=servers, client_id="slow", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send("orders", b"one").result(60)
        other.send("orders", b"two").result(60)
        consumer.assign([TopicPartition("orders", 0)])
        eventually(lambda: bool(consumer.poll(50)), "records")
        produced = producer.metrics()["producer-metrics"]
        assert produced["produce-throttle-time-avg"] == PAUSE_MS
        assert produced["produce-throttle-time-max"] == PAUSE_MS
        fetched = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert fetched["fetch-throttle-time-max"] == PAUSE_MS
        assert other.metrics()["producer-metrics"]["produce-throttle-time-max"] == 0
    assert injected.hits >= 3


def test_a_pause_of_a_producer_is_time_in_its_queue(broker: EmbeddedBroker) -> None:
    """As in Java, which takes no batch from its queue for a broker that asked for a pause."""
    broker.create_topic("orders")
    slow = Fault(action="throttle", api="Produce", delay_ms=LONG_PAUSE_MS, times=0)
    with (
        broker.faults.injected(slow),
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for value in (b"one", b"two"):
            producer.send("orders", value).result(60)
        measured = producer.metrics()["producer-metrics"]
        assert measured["record-queue-time-max"] > SOME_OF_IT_MS


def test_a_pause_that_no_answer_can_ask_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="a throttle needs delay_ms"):
        Fault(action="throttle", api="Produce").check()
    with pytest.raises(ConfigError, match="responses of SaslHandshake cannot ask for a pause"):
        Fault(action="throttle", api="SaslHandshake", delay_ms=1).check()


@contextmanager
def quota(kafka: RealKafka, client_id: str) -> Iterator[None]:
    """Limit a client to a few bytes per second."""
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, "--alter")
    kafka.run_tool(*tool, *entity, "--add-config", f"producer_byte_rate={QUOTA}")
    try:
        yield
    finally:
        kafka.run_tool(*tool, *entity, "--delete-config", "producer_byte_rate")


def test_a_producer_with_a_quota_shows_it(real_kafka: RealKafka) -> None:
    servers = real_kafka.bootstrap_servers
    topic = foreign.new_topic(servers, 1)
    with (
        quota(real_kafka, "limited"),
        Producer(bootstrap_servers=servers, client_id="limited") as producer,
        Producer(bootstrap_servers=servers, client_id="free") as free,
    ):

        def pause_ms(of: Producer) -> float:
            of.send(topic, b"x" * SIZE).result(100)
            return of.metrics()["producer-metrics"]["produce-throttle-time-max"]

        eventually(lambda: pause_ms(producer) > 0, "it is slowed down")
        assert pause_ms(free) == 0


def test_an_admin_client_is_measured(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 1)
    with AdminClient(bootstrap_servers=bootstrap, client_id="ops") as admin:
        admin.describe_topics([topic])
        before = admin.metrics()["admin-client-metrics"]
        assert before["connection-count"] >= 1
        assert before["incoming-byte-total"] > len(topic)
        admin.list_groups()
        after = admin.metrics()["admin-client-metrics"]
        assert after["request-total"] > before["request-total"]
        assert after["response-total"] > before["response-total"]
        found = {family.name: family for family in registry_of(admin).collect()}
        (sample,) = found["kafka_admin_client_request"].samples
        assert sample.labels == {"client_id": "ops"}
        assert sample.value >= after["request-total"]
