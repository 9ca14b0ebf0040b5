"""`send_arrow` on the embedded broker, and without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Producer
from kohort.client.config.definitions import Partitioner
from kohort.client.producer.arrow.delivery import NOT_ADDED, ArrowDeliveryError
from kohort.errors import LocalProtocolError, RequestTimedOutError
from tests.client import arrow_scenarios as scenarios
from tests.client.loops import on_a_loop
from tests.client.producer_scenarios import CODECS
from tests.real_kafka.foreign import new_topic


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_arrives(bootstrap: str, codec: str) -> None:
    scenarios.every_column_arrives(bootstrap, codec)


def test_nulls_and_empty_values_stay_what_they_are(bootstrap: str) -> None:
    scenarios.nulls_and_empty_values_stay_what_they_are(bootstrap)


def test_what_was_polled_can_be_sent(bootstrap: str) -> None:
    scenarios.what_was_polled_can_be_sent(bootstrap)


def test_the_order_of_send_and_send_arrow_is_kept(bootstrap: str) -> None:
    scenarios.the_order_of_send_and_send_arrow_is_kept(bootstrap)


def test_lost_answers_make_no_duplicates(bootstrap: str) -> None:
    scenarios.lost_answers_make_no_duplicates(bootstrap)


def test_what_a_broker_refuses_is_told_from_the_rest(bootstrap: str) -> None:
    scenarios.what_a_broker_refuses_is_told_from_the_rest(bootstrap)


def test_batches_too_large_for_the_topic_are_divided(bootstrap: str) -> None:
    scenarios.batches_too_large_for_the_topic_are_divided(bootstrap)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_are_divided_until_they_fit(bootstrap: str, codec: str) -> None:
    scenarios.batches_are_divided_until_they_fit(bootstrap, codec)


def test_headers_alone_make_a_batch_too_large(bootstrap: str) -> None:
    scenarios.headers_alone_make_a_batch_too_large(bootstrap)


def test_times_before_1970_are_refused_before_anything_is_sent(bootstrap: str) -> None:
    scenarios.times_before_1970_are_refused_before_anything_is_sent(bootstrap)


def test_times_beyond_microseconds_are_read(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.times_beyond_microseconds_are_read(bootstrap, caplog)


def second_to_last_letter(_topic: str, key: bytes | None, partitions: int) -> int | None:
    return None if key is None else key[-2] % partitions


@pytest.mark.parametrize(
    "partitioner",
    ["murmur2", "consistent_random", second_to_last_letter],
    ids=["murmur2", "librdkafka", "own"],
)
def test_partitions_are_those_of_send(bootstrap: str, partitioner: str | Partitioner) -> None:
    scenarios.partitions_are_those_of_send(bootstrap, partitioner)


def test_a_partitioner_that_returns_nonsense(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    table = pa.record_batch({"value": ["v"]})
    for returned, error in ((2, ValueError), (-1, ValueError), ("0", TypeError), (True, TypeError)):
        with (
            Producer(
                bootstrap_servers=bootstrap, partitioner=lambda *_, it=returned: it
            ) as producer,
            pytest.raises(error, match="the partitioner returned"),
        ):
            producer.send_arrow(topic, table)


def test_nothing_is_sent_of_a_table_with_a_bad_row(bootstrap: str) -> None:
    scenarios.nothing_is_sent_of_a_table_with_a_bad_row(bootstrap)


def test_threads_share_a_small_memory(bootstrap: str) -> None:
    scenarios.threads_share_a_small_memory(bootstrap)


def test_each_acks_delivers(bootstrap: str) -> None:
    scenarios.each_acks_delivers(bootstrap)


@on_a_loop
async def test_a_loop_sends_tables(bootstrap: str) -> None:
    await scenarios.a_loop_sends_tables(bootstrap)


def test_rows_that_find_no_memory_are_named(tmp_path: Path) -> None:
    table = pa.record_batch({"value": [b"v" * 100] * 5_000})
    with EmbeddedBroker(tmp_path) as broker:
        topic = new_topic(broker.bootstrap_servers)
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            buffer_memory=100_000,
            max_request_size=20_000,
            max_block_ms=2_000,
            delivery_timeout_ms=4_000,
            request_timeout_ms=3_000,
            linger_ms=0,
        )
        assert producer.send_arrow(topic, table.slice(0, 1)).result(30).rows == 1
    future = producer.send_arrow(topic, table)
    error = future.exception(60)
    assert isinstance(error, ArrowDeliveryError)
    assert error.rows.to_pylist() == list(range(5_000))
    assert error.delivered.rows == 0
    assert set(error.failures) == {0, NOT_ADDED}
    assert sum(each.rows for each in error.failures.values()) == 5_000
    assert isinstance(error.failures[NOT_ADDED].error, RequestTimedOutError)
    assert "not sent" in str(error)
    assert "buffer.memory of 100000 bytes was full" in str(error)
    producer.close(1)
    with pytest.raises(LocalProtocolError, match="closed"):
        producer.send_arrow(topic, table)


def test_a_topic_that_cannot_be(bootstrap: str) -> None:
    with (
        Producer(bootstrap_servers=bootstrap, max_block_ms=300) as producer,
        pytest.raises(ValueError, match="not a topic's name"),
    ):
        producer.send_arrow("not a topic", pa.record_batch({"value": ["v"]}))


def test_a_future_that_was_cancelled(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(topic, pa.record_batch({"value": ["v"] * 10})).cancel()
        assert producer.send(topic, b"after").result(30).offset == 10


@pytest.mark.parametrize("topic", [None, 5, b"topic"])
def test_a_topic_that_is_no_text(bootstrap: str, topic: object) -> None:
    table = pa.record_batch({"value": ["v"]})
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(TypeError, match="the topic is a"):
            producer.send_arrow(topic, table)  # type: ignore[arg-type]  # that is the point
        assert producer.send_arrow(new_topic(bootstrap), table).result(30).rows == 1


def test_callbacks_may_send_and_raise(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(bootstrap)
    table = pa.record_batch({"value": ["v"]})
    with Producer(bootstrap_servers=bootstrap) as producer:

        def leave(_: object) -> None:
            producer.send(topic, b"from a callback")
            raise SystemExit

        producer.send_arrow(topic, table).add_done_callback(leave)
        producer.flush(30)
        assert producer.send(topic, b"after").result(30).offset == 2
    raised = [each for each in caplog.records if "callback" in each.getMessage()]
    assert len(raised) == 1
