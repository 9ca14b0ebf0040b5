"""Ranges on a real Kafka: its batches, its markers, its retention."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kohort.client.ranges import RangeLostError, close_idle_connections
from tests.client import range_scenarios as scenarios
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    yield
    close_idle_connections()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_any_range_is_read_exactly(real_kafka: RealKafka, codec: str) -> None:
    scenarios.any_range_is_read_exactly(real_kafka.bootstrap_servers, codec)


def test_headers_come_when_asked_for(real_kafka: RealKafka) -> None:
    scenarios.headers_come_when_asked_for(real_kafka.bootstrap_servers)


def test_offsets_beyond_the_end_are_lost(real_kafka: RealKafka) -> None:
    scenarios.offsets_beyond_the_end_are_lost(real_kafka.bootstrap_servers)


def test_an_end_that_never_comes_is_an_error_in_time(real_kafka: RealKafka) -> None:
    scenarios.an_end_that_never_comes_is_an_error_in_time(real_kafka.bootstrap_servers)


def test_a_topic_that_is_not_there_is_named(real_kafka: RealKafka) -> None:
    scenarios.a_topic_that_is_not_there_is_named(real_kafka.bootstrap_servers)


def test_deleted_records_are_an_error_that_names_them(real_kafka: RealKafka) -> None:
    topic = scenarios.filled_topic(real_kafka.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers})
    where = TopicPartition(topic, 0, 700)
    admin.delete_records([where])[where].result(30)
    with pytest.raises(RangeLostError, match=f"{topic}-0 offsets 0 to 2000.*from 0 on are gone"):
        scenarios.read(real_kafka.bootstrap_servers, topic, 0, scenarios.RECORDS)
    table = scenarios.read(real_kafka.bootstrap_servers, topic, 700, scenarios.RECORDS)
    scenarios.check(table, 700, scenarios.RECORDS)


def test_markers_are_passed_over_and_aborted_records_if_wished(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = new_topic(bootstrap)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"t-{uuid.uuid4().hex}"}
    )
    producer.init_transactions(30)
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)
        ends(30)
    everything = scenarios.read(bootstrap, topic, 0, 8)
    assert everything["offset"].to_pylist() == [0, 2, 4, 6]
    committed = scenarios.read(bootstrap, topic, 0, 8, isolation_level="read_committed")
    assert committed["value"].to_pylist() == [b"0", b"2"]
