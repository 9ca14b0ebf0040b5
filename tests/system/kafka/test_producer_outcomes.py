"""What becomes of each record when a topic is small, missing, deleted, recreated or grows.

On both brokers; every record is counted: its future is done once, with a result or an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kohort.broker import EmbeddedBroker
from kohort.client.producer.api import Producer, RecordMetadata
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.errors import ErrorCode, KafkaError, KohortError, RequestTimedOutError
from kohort.wire.codec import frame as frames
from kohort.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.broker.processes import eventually
from tests.client.cutting_proxy import CuttingProxy
from tests.client.producer_scenarios import read_all, unique_name
from tests.real_kafka.foreign import TIMEOUT_S, new_topic


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(params=["embedded", "real_kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    address = request.getfixturevalue(request.param).bootstrap_servers
    assert isinstance(address, str)
    return address


class Outcomes:
    """Counts how often the future of each record was completed."""

    def __init__(self) -> None:
        self.futures: list[DeliveryFuture] = []
        self._calls: list[int] = []

    def add(self, future: DeliveryFuture) -> None:
        number = len(self.futures)
        self.futures.append(future)
        self._calls.append(0)

        def called(_: object) -> None:
            self._calls[number] += 1

        future.add_done_callback(called)

    def settled(self) -> list[RecordMetadata | BaseException]:
        """Wait for all of them."""
        found = [each.exception(60) or each.result(0) for each in self.futures]
        assert self._calls == [1] * len(self.futures)
        return found


def went(found: Sequence[RecordMetadata | BaseException]) -> list[RecordMetadata]:
    """Those that were delivered; the others failed with an error of ours."""
    assert all(isinstance(each, (RecordMetadata, KohortError)) for each in found)
    return [each for each in found if isinstance(each, RecordMetadata)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_that_is_too_large_is_divided(servers: str, codec: str) -> None:
    topic = new_topic(servers, max_message_bytes="2000")
    values = [b"%04d" % number * 25 for number in range(500)]
    outcomes = Outcomes()
    with Producer(bootstrap_servers=servers, compression_type=codec, linger_ms=50) as producer:
        for value in values:
            outcomes.add(producer.send(topic, value))
        producer.flush(60)
    assert [each.offset for each in went(outcomes.settled())] == list(range(500))
    assert [value for _, value in read_all(servers, topic)] == values


def test_one_record_that_is_too_large_fails_alone(servers: str) -> None:
    topic = new_topic(servers, max_message_bytes="2000")
    outcomes = Outcomes()
    with Producer(bootstrap_servers=servers, linger_ms=50) as producer:
        for number in range(100):
            outcomes.add(producer.send(topic, bytes(5000) if number == 40 else b"%d" % number))
        producer.flush(60)
    found = outcomes.settled()
    assert re.match(rf"MESSAGE_TOO_LARGE: {topic}-0", str(found[40]))
    assert [each.offset for each in went(found)] == list(range(99))
    values = [b"%d" % number for number in range(100) if number != 40]
    assert [value for _, value in read_all(servers, topic)] == values


def test_a_missing_topic_is_named(servers: str) -> None:
    with Producer(bootstrap_servers=servers, max_block_ms=500) as producer:
        with pytest.raises(ValueError, match="is not a topic's name"):
            producer.send("no such name!", b"v")
        topic = new_topic(servers)
        with pytest.raises(KafkaError, match=f"UNKNOWN_TOPIC_OR_PARTITION: {topic} has 1 part"):
            producer.send(topic, b"v", partition=1)
        assert producer.send(topic, b"v").result(30).offset == 0


def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def test_a_topic_that_grows_takes_records_in_its_new_partitions(servers: str) -> None:
    topic = new_topic(servers)
    outcomes = Outcomes()
    admin = admin_of(servers)
    with Producer(bootstrap_servers=servers, metadata_max_age_ms=100) as producer:
        outcomes.add(producer.send(topic, b"v"))
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
        outcomes.add(producer.send(topic, b"v", partition=2))
    assert [each.partition for each in went(outcomes.settled())] == [0, 2]


def test_keys_find_the_partitions_that_a_topic_grows_by(servers: str) -> None:
    topic = new_topic(servers)
    used: set[int] = set()
    admin = admin_of(servers)
    with Producer(bootstrap_servers=servers, metadata_max_age_ms=100, linger_ms=0) as producer:

        def use_more() -> bool:
            keys = (b"%d" % number for number in range(10))
            futures = [producer.send(topic, b"v", key=key) for key in keys]
            used.update(future.result(30).partition for future in futures)
            return used == {0, 1, 2}

        assert not use_more()
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
        eventually(use_more, "records in all partitions")


def test_a_deleted_topic_fails_each_record_with_its_cause(tmp_path: Path) -> None:
    outcomes = Outcomes()
    with (
        EmbeddedBroker(tmp_path, auto_create_topics=False) as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=500, max_block_ms=500
        ) as producer,
    ):
        broker.create_topic("t", 1)
        producer.send("t", b"v").result(30)
        admin = admin_of(broker.bootstrap_servers)
        admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
        for number in range(100):
            outcomes.add(producer.send("t", b"%d" % number))
        found = outcomes.settled()
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: there is no topic t;"):
            producer.send("t", b"too late")
    assert went(found) == []
    for each in found:
        assert isinstance(each, RequestTimedOutError)
        assert isinstance(each.__cause__, KafkaError)
        assert each.__cause__.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert str(each.__cause__) in str(each)


class FullDisk(CuttingProxy):
    """A broker that cannot write."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)

    def answer_itself(self, frame: bytes) -> bytes | None:
        received = frames.decode_request(memoryview(frame))
        if not isinstance(received.message, ProduceRequest):
            return None
        answers = tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=each.index,
                        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                        base_offset=-1,
                        error_message="no space left on device",
                    )
                    for each in topic.partition_data
                ),
            )
            for topic in received.message.topic_data
        )
        response = ProduceResponse(responses=answers)
        return bytes(frames.encode_response(response, received.version, received.correlation_id))


def test_a_full_disk_is_named(servers: str) -> None:
    topic = new_topic(servers)
    with (
        FullDisk(servers) as proxy,
        Producer(bootstrap_servers=proxy.bootstrap_servers, delivery_timeout_ms=800) as producer,
    ):
        future = producer.send(topic, b"v")
        said = f"KAFKA_STORAGE_ERROR: {topic}-0: no space left on device"
        with pytest.raises(RequestTimedOutError, match=said) as waited:
            producer.flush(0.4)
        assert isinstance(waited.value.__cause__, KafkaError)
        with pytest.raises(RequestTimedOutError, match=said) as raised:
            future.result(30)
        assert isinstance(raised.value.__cause__, KafkaError)
        assert raised.value.__cause__.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_made_anew_is_produced_to(servers: str) -> None:
    topic = new_topic(servers)
    admin = admin_of(servers)
    outcomes = Outcomes()
    with Producer(bootstrap_servers=servers, linger_ms=0, batch_size=50) as producer:
        for number in range(200):
            outcomes.add(producer.send(topic, b"%04d" % number, partition=0))
            if number == 100:
                admin.delete_topics([topic])[topic].result(TIMEOUT_S)
                remade(admin, topic)
        producer.flush(60)
        assert producer.send(topic, b"end", partition=0).result(60).offset >= 0
    delivered = len(went(outcomes.settled()))
    values = [value or b"" for _, value in read_all(servers, topic)]
    assert values[-1] == b"end"
    assert values[:-1] == sorted(set(values[:-1]))
    assert len(values) - 1 <= delivered <= 200


def remade(admin: AdminClient, topic: str) -> None:
    """Create a topic, unless the producer's question for it has done so."""
    made = admin.create_topics([NewTopic(topic, 1, 1)])[topic]
    error = made.exception(TIMEOUT_S)
    assert error is None or "already exists" in str(error)


def test_close_in_time_says_what_it_gave_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 2)
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=10_000)
        for partition in range(2):
            producer.send("t", b"v", partition=partition).add_callback(lambda _: None)
        producer.flush(30)
    outcomes = Outcomes()
    for number in range(30):
        outcomes.add(producer.send("t", b"v", partition=number % 3 // 2))
    with pytest.raises(RequestTimedOutError, match=r"30 records .* \(t-0: 20, t-1: 10\)"):
        producer.flush(0.05)
    with caplog.at_level(logging.WARNING, "kohort"):
        producer.close(timeout=0.05)
    assert went(outcomes.settled()) == []
    texts = [each.getMessage() for each in caplog.records if "is closed" in each.getMessage()]
    assert len(texts) == 1
    assert "30 records were not acknowledged in 0.05 s (t-0: 20, t-1: 10)" in texts[0]


def test_a_name_that_nobody_creates(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(tmp_path, auto_create_topics=False) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=300) as producer,
    ):
        name = unique_name()
        expected = f"UNKNOWN_TOPIC_OR_PARTITION: there is no topic {name}; create it"
        with pytest.raises(KafkaError, match=expected):
            producer.send(name, b"v")
        broker.create_topic(name, 1)
        assert producer.send(name, b"v").result(30).offset == 0
