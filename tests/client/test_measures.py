"""Metrics of clients, by the names of Kafka's Java client, and their export to Prometheus."""

from __future__ import annotations

import asyncio
import math
import re
import uuid
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kohort import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kohort.client.measures import FetchMeasures, ProduceMeasures, Sensor
from kohort.client.prometheus import MetricsError, registry_of, serve_metrics
from kohort.errors import KohortError
from tests.broker.processes import eventually
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import KAFKA_LIBS

COUNT = 300
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "kohort-clients.json"


def filled(bootstrap: str) -> str:
    """Return a topic with records in one partition."""
    topic = foreign.new_topic(bootstrap, 1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
    return topic


def reader(bootstrap: str, topic: str) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=topic,
        group_id=topic,
        auto_offset_reset="earliest",
    )


def exported(port: int) -> dict[str, dict[str, float]]:
    """Return the exported values, by name and label values."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:  # http
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return found


# ------------------------------------------------------------------------------------- consumers


def test_each_record_that_is_handed_out_is_counted_once(bootstrap: str) -> None:
    topic = filled(bootstrap)
    place = TopicPartition(topic, 0)
    with reader(bootstrap, topic) as consumer:
        polled = 0
        while polled < 100:
            polled += sum(map(len, consumer.poll(1_000, max_records=100).values()))
        assert polled == 100
        for number, _ in enumerate(consumer, 1):
            if number == 50:
                break
        rows = consumer.poll_arrow(timeout_ms=10_000, max_records=60).num_rows
        measured = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert measured["records-consumed-total"] == 150 + rows
        assert measured[f"{topic}-0.records-lag"] == COUNT - consumer.position(place)
        assert measured["records-lag-max"] >= measured[f"{topic}-0.records-lag"]
        assert measured["fetch-total"] >= 1
        assert measured["fetch-size-max"] > COUNT
        network = consumer.metrics()["consumer-metrics"]
        assert network["incoming-byte-total"] >= measured["fetch-size-max"]
        assert network["connection-count"] >= 1
        assert network["response-total"] >= measured["fetch-total"]


def test_a_consumer_without_a_group_is_measured(bootstrap: str) -> None:
    topic = filled(bootstrap)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 10)
        eventually(lambda: bool(consumer.poll(100)), "records")
        measured = consumer.metrics()
        assert measured.keys() == {"consumer-metrics", "consumer-fetch-manager-metrics"}
        assert measured["consumer-fetch-manager-metrics"]["records-consumed-total"] == COUNT - 10


def test_a_lag_that_nobody_knows_is_none() -> None:
    measured = FetchMeasures(lambda: 0).values([], 1_000)
    assert math.isnan(measured["records-lag-max"])
    assert measured["records-consumed-rate"] == 0


def test_a_rate_of_sums_is_of_the_last_minute() -> None:
    sensor = Sensor()
    assert sensor.sum_rate(0) == 0
    sensor.record(60, 0)
    assert sensor.sum_rate(0) == 60 / 30
    sensor.record(60, 40_000)
    assert sensor.sum_rate(40_000) == 120 / 40
    assert sensor.sum_rate(200_000) == 0


# ------------------------------------------------------------------------------------- producers


def test_records_that_are_sent_are_counted_once(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        assert producer.metrics() == {}
        for number in range(COUNT):
            producer.send(topic, b"value", key=b"%d" % number)
        producer.flush()
        measured = producer.metrics()["producer-metrics"]
        assert measured["record-send-total"] == COUNT
        assert measured["record-error-total"] == measured["record-retry-total"] == 0
        assert 0 < measured["batch-size-avg"] <= measured["batch-size-max"]
        assert measured["outgoing-byte-total"] > measured["batch-size-max"]
        assert measured["buffer-available-bytes"] == measured["buffer-total-bytes"]
        assert measured["request-latency-max"] > 0


def test_records_that_are_refused_are_errors(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        topic = foreign.new_topic(bootstrap, 1, max_message_bytes="100")
        refused = producer.send(topic, b"x" * 1_000)
        with pytest.raises(KohortError, match="MESSAGE_TOO_LARGE"):
            refused.result(100)
        measured = producer.metrics()["producer-metrics"]
        assert (measured["record-send-total"], measured["record-error-total"]) == (1, 1)


# ------------------------------------------------------------------------------------ Prometheus


def test_prometheus_gets_the_values_of_blocking_clients(bootstrap: str) -> None:
    topic = filled(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer, reader(bootstrap, topic) as consumer:
        producer.send(topic, b"one more").result(100)
        eventually(lambda: bool(consumer.poll(100)), "records")
        server = serve_metrics(producer, consumer, port=0)
        try:
            found = exported(server.server_port)
            sent = {"kohort": 1.0}
            assert found["kafka_producer_record_send_total"] == sent
            lag = consumer.current_lag(TopicPartition(topic, 0))
            assert found["kafka_consumer_fetch_manager_records_lag"] == {f"{topic} 0 {topic}": lag}
            assert found["kafka_consumer_coordinator_assigned_partitions"] == {topic: 1.0}
            consumer.close()
            found = exported(server.server_port)
            assert not any(name.startswith("kafka_consumer") for name in found)
            assert found["kafka_producer_record_send_total"] == sent
        finally:
            server.shutdown()
            server.server_close()


@on_a_loop
async def test_prometheus_gets_the_values_of_async_clients(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 1)
    async with (
        AsyncProducer(bootstrap_servers=bootstrap, client_id="p") as producer,
        AsyncConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer,
    ):
        await (await producer.send(topic, b"value"))
        while not await consumer.poll(100):
            pass
        server = serve_metrics(producer, consumer, port=0)
        try:
            found = await asyncio.to_thread(exported, server.server_port)
            assert found["kafka_producer_record_send_total"] == {"p": 1.0}
            consumed = found["kafka_consumer_fetch_manager_records_consumed_total"]
            assert consumed == {"kohort": 1.0}
        finally:
            server.shutdown()
            server.server_close()


def test_two_of_one_name_are_refused(bootstrap: str) -> None:
    with (
        Consumer(bootstrap_servers=bootstrap, client_id="a") as one,
        Consumer(bootstrap_servers=bootstrap, client_id="a") as two,
        Producer(bootstrap_servers=bootstrap, client_id="a") as three,
    ):
        registry_of(one, three)
        with pytest.raises(MetricsError, match=r"2 consumers are named 'a'.*client_id of its own"):
            registry_of(one, two)


# ----------------------------------------------------------------------------------------- names


def test_the_names_are_those_of_kafkas_java_client() -> None:
    """They are in its classes, either unchanged or without its suffixes for rates and totals."""
    (jar,) = KAFKA_LIBS.glob("kafka-clients-*.jar")
    known = b""
    with zipfile.ZipFile(jar) as classes:
        for name in classes.namelist():
            wanted = ("MetricsRegistry", "SelectorMetrics", "RecordAccumulator", "BufferPool")
            if name.endswith(".class") and any(word in name for word in wanted):
                known += classes.read(name)
    ours = FetchMeasures(lambda: 0).values([], 0) | ProduceMeasures().values(0)
    ours |= dict.fromkeys(("buffer-total-bytes", "buffer-available-bytes", "connection-count"), 0.0)
    for name in ours:
        assert name.encode() in known, name


def test_the_dashboard_asks_for_what_there_is(bootstrap: str) -> None:
    topic = filled(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer, reader(bootstrap, topic) as consumer:
        producer.send(topic, b"value").result(100)
        eventually(lambda: bool(consumer.poll(100)), "records")
        consumer.commit()
        server = serve_metrics(producer, consumer, port=0)
        try:
            found = exported(server.server_port)
        finally:
            server.shutdown()
            server.server_close()
    asked = set(re.findall(r"kafka_\w+", DASHBOARD.read_text()))
    assert len(asked) > 10
    assert asked <= found.keys()


def test_a_topic_of_any_name_is_a_label(bootstrap: str) -> None:
    topic = f"a-b.c_d-{uuid.uuid4().hex}-7"
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"value").result(100)
    with reader(bootstrap, topic) as consumer:
        eventually(lambda: bool(consumer.poll(100)), "records")
        metrics = {family.name: family for family in registry_of(consumer).collect()}
        (sample,) = metrics["kafka_consumer_fetch_manager_records_lag"].samples
        assert sample.labels == {"client_id": topic, "topic": topic, "partition": "0"}
