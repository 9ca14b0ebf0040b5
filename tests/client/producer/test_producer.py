"""The producer on the embedded broker, and its errors when things cannot work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from kohort.broker import EmbeddedBroker
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer.aio import AsyncProducer
from kohort.client.producer.api import Producer
from kohort.client.producer.delivery import unsure
from kohort.errors import (
    BrokerUnavailableError,
    ConfigError,
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from tests.client import producer_scenarios as scenarios
from tests.client.loops import on_a_loop
from tests.real_kafka.foreign import new_topic


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where a connection is refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("codec", scenarios.CODECS)
def test_a_foreign_client_reads_each_codec(bootstrap: str, codec: str) -> None:
    scenarios.a_foreign_client_reads_each_codec(bootstrap, codec)


def test_keys_decide_the_partition(bootstrap: str) -> None:
    scenarios.keys_decide_the_partition(bootstrap)


def test_headers_and_timestamps_arrive(bootstrap: str) -> None:
    scenarios.headers_and_timestamps_arrive(bootstrap)


def test_lost_answers_make_no_duplicates(bootstrap: str) -> None:
    scenarios.lost_answers_make_no_duplicates(bootstrap)


def test_a_refused_record_is_told_from_its_batch(bootstrap: str) -> None:
    scenarios.a_refused_record_is_told_from_its_batch(bootstrap)


def test_threads_share_a_producer_and_its_memory(bootstrap: str) -> None:
    scenarios.threads_share_a_producer(bootstrap)


def test_each_acks_delivers(bootstrap: str) -> None:
    scenarios.each_acks_delivers(bootstrap)


@on_a_loop
async def test_the_asyncio_face(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = [await producer.send("t", b"%d" % n) for n in range(100)]
            assert [each.offset for each in await asyncio.gather(*sent)] == list(range(100))


def test_nobody_there_is_one_error_in_time(nobody: str) -> None:
    with Producer(bootstrap_servers=nobody, max_block_ms=300) as producer:
        with pytest.raises(BrokerUnavailableError, match=f"{nobody}.*refused") as raised:
            producer.send("t", b"v")
        assert raised.value.retriable


def test_a_broker_that_goes_away_fails_the_records_in_time(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=500)
        producer.send("t", b"v").exception(30)  # now it knows the topic, in any case
    future = producer.send("t", b"v")
    with pytest.raises(KafkaError, match="1 records for t-0 were not acknowledged in 500 ms"):
        future.result(30)
    producer.close()


def test_close_fails_what_it_could_not_send(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("t", b"v").result(30)
    future = producer.send("t", b"v")
    producer.close(timeout=0.05)
    assert isinstance(future.exception(10), KafkaError)
    with pytest.raises(LocalProtocolError, match="closed"):
        producer.send("t", b"v")


def test_what_cannot_be_sent_is_said_at_once(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(TypeError, match="value is a str, not bytes; set value_serializer"):
            producer.send(topic, "text")
        with pytest.raises(KafkaError, match=r"max\.request\.size"):
            producer.send(topic, bytes(2**20))
    with (
        Producer(bootstrap_servers=bootstrap, max_block_ms=200) as producer,
        pytest.raises(KafkaError, match="has 1 partitions, no 7"),
    ):
        producer.send(topic, b"v", partition=7)


def test_a_partition_is_waited_for_where_a_broker_does_not_know_it_yet(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka confirms a new partition before every broker's metadata has it."""
    topic = new_topic(bootstrap)
    refresh = Cluster.refresh
    stale: list[Deadline] = []

    async def late(cluster: Cluster, deadline: Deadline) -> None:
        await refresh(cluster, deadline)
        stale.append(deadline)
        if len(stale) == 1:
            async with AsyncAdminClient(bootstrap_servers=bootstrap) as admin:
                await admin.create_partitions({topic: 2})

    with Producer(bootstrap_servers=bootstrap) as producer:
        assert producer.send(topic, b"v").result(30).partition == 0
        monkeypatch.setattr(Cluster, "refresh", late)
        assert producer.send(topic, b"v", partition=1).result(30).partition == 1
    assert len(stale) > 1


def test_serializers_make_bytes(bootstrap: str) -> None:
    topic = new_topic(bootstrap)

    def text(value: object) -> bytes:
        return str(value).encode()

    with Producer(
        bootstrap_servers=bootstrap, key_serializer=text, value_serializer=text
    ) as producer:
        producer.send(topic, 12, key="k")
        producer.send(topic, None, key="gone")
    assert scenarios.read_all(bootstrap, topic) == [(b"k", b"12"), (b"gone", None)]


def test_kafkas_own_keys(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "group.id": "other"}
    with Producer.from_config(settings) as producer:
        assert producer.send(new_topic(bootstrap), b"v").result(30).offset == 0
    with pytest.raises(ConfigError, match="linger"):
        Producer.from_config({"bootstrap.servers": bootstrap, "lingr.ms": 5})


def test_numbers_and_bytes_of_numpy_are_sent(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        value, key = np.bytes_(b"value"), np.bytes_(b"key")
        zero, five = cast("int", np.int64(0)), cast("int", np.int64(5))
        sent = producer.send(topic, value, key, partition=zero, timestamp_ms=five)
        assert sent.result(30)[1:] == (0, 0, 5)
        for wrong in (True, 0.0, np.float64(0)):
            with pytest.raises(TypeError, match="not an integer"):
                producer.send(topic, b"v", partition=wrong)  # type: ignore[arg-type]  # NumPy numbers pass, too
    assert scenarios.read_all(bootstrap, topic) == [(b"key", b"value")]


def test_a_flush_that_takes_too_long_names_the_callers_own_figure(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("t", b"v").result(30)
    future = producer.send("t", b"v")
    with pytest.raises(RequestTimedOutError, match=r"1 records were not acknowledged in 0\.25 s"):
        producer.flush(0.25)
    producer.close(timeout=0)
    assert "in 0 s" in str(future.exception(0))


@pytest.mark.parametrize(
    "error",
    [
        RequestTimedOutError("no answer"),
        KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer"),
        RemoteProtocolError("no answer"),
        LocalProtocolError("no answer"),
    ],
)
def test_an_error_without_an_answer_says_that_records_may_be_written(error: KohortError) -> None:
    said = unsure(error)
    assert type(said) is type(error)
    assert str(said) == f"{error}; the records were sent and may have been written"
    assert said.__cause__ is error
