"""Ranges on a real Kafka: its batches, its markers, its retention."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kohort.errors import KafkaError
from kohort.spark.source.fetch.ranges import RangeLostError, RangeReader, close_idle_connections
from tests.client import range_scenarios as scenarios
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import delete_before, new_topic


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
    delete_before(real_kafka.bootstrap_servers, topic, 700)
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


def test_a_range_is_read_by_the_id_of_its_topic(real_kafka: RealKafka) -> None:
    scenarios.a_range_is_read_by_the_id_of_its_topic(real_kafka.bootstrap_servers)


def test_another_topic_of_the_name_is_never_read(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.another_topic_of_the_name_is_never_read(real_kafka.bootstrap_servers, caplog)


def test_a_deleted_topic_is_lost(real_kafka: RealKafka, caplog: pytest.LogCaptureFixture) -> None:
    scenarios.a_deleted_topic_is_lost(real_kafka.bootstrap_servers, caplog)


def test_what_is_beyond_the_end_is_passed_over_if_wished(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.what_is_beyond_the_end_is_passed_over_if_wished(real_kafka.bootstrap_servers, caplog)


def test_columns_are_those_asked_for(real_kafka: RealKafka) -> None:
    scenarios.columns_are_those_asked_for(real_kafka.bootstrap_servers)


def test_a_topic_is_found_with_one_question(real_kafka: RealKafka) -> None:
    scenarios.a_topic_is_found_with_one_question(real_kafka.bootstrap_servers)


def test_retention_is_passed_over_if_wished(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = scenarios.filled_topic(bootstrap)
    delete_before(bootstrap, topic, 700)
    going_on = RangeReader(bootstrap, fail_on_data_loss=False)
    table = pa.Table.from_batches(going_on.read(topic, 0, 650, 750))
    scenarios.check(table, 700, 750)
    assert not list(going_on.read(topic, 0, 10, 20))
    told = [each.message for each in caplog.records]
    assert len(told) == 2
    assert f"50 records of {topic}-0 (offsets 650 to 699) are lost" in told[0]
    assert "the log holds 700 to 2000" in told[0]
    assert f"10 records of {topic}-0 (offsets 10 to 19) are lost" in told[1]


def transaction(bootstrap: str, topic: str, values: list[bytes]) -> Producer:
    """An open transaction whose records are in the topic."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"t-{uuid.uuid4().hex}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for each in values:
        producer.produce(topic, each, partition=0)
    assert producer.flush(30) == 0
    return producer


def test_a_range_of_nothing_but_aborted_records_ends(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = new_topic(bootstrap)
    transaction(bootstrap, topic, [b"kept"]).commit_transaction(30)
    transaction(bootstrap, topic, [b"%d" % number for number in range(50)]).abort_transaction(30)
    committed = RangeReader(bootstrap, {"isolation.level": "read_committed"})
    for start, end in [(0, 53), (2, 53), (20, 30), (52, 53), (1, 2)]:
        values = [
            value for batch in committed.read(topic, 0, start, end) for value in batch["value"]
        ]
        assert [each.as_py() for each in values] == ([b"kept"] if start == 0 else [])


def test_an_open_transaction_is_named(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = new_topic(bootstrap)
    opened = transaction(bootstrap, topic, [b"open"])
    with pytest.raises(KafkaError, match=r"a transaction is open since offset 0.*find-hanging"):
        scenarios.read(
            bootstrap, topic, 0, 1, isolation_level="read_committed", default_api_timeout_ms="700"
        )
    opened.commit_transaction(30)
    table = scenarios.read(bootstrap, topic, 0, 1, isolation_level="read_committed")
    assert table["value"].to_pylist() == [b"open"]


def test_transactions_that_are_read_uncommitted_are_told_of_once(
    real_kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic, other = new_topic(bootstrap), new_topic(bootstrap)
    for each in (topic, other):
        transaction(bootstrap, each, [b"aborted"]).abort_transaction(30)
        committed = RangeReader(bootstrap, {"isolation.level": "read_committed"})
        assert not list(committed.read(each, 0, 0, 2))
    assert not caplog.records
    for each in (topic, topic, other):
        scenarios.read(bootstrap, each, 0, 2)
    told = [each.message for each in caplog.records]
    assert [text.partition(" is written with")[0] for text in told] == [
        f"topic {topic}",
        f"topic {other}",
    ]
    assert all("kafka.isolation.level" in text for text in told)
