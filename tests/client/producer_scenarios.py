"""Scenarios of a producer for any broker: the embedded one and a real Kafka."""

from __future__ import annotations

import re
import threading
import uuid

from confluent_kafka import Consumer, Message, TopicPartition

from kohort.client.producer.api import Producer
from kohort.client.producer.partitioner import partition_for_key
from kohort.errors import KafkaError
from tests.client.cutting_proxy import CuttingProxy
from tests.real_kafka.foreign import new_topic

# Key and value of a record.
Pair = tuple[bytes | None, bytes | None]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_messages(bootstrap: str, topic: str, partition: int = 0) -> list[Message]:
    """All records of a partition, as librdkafka reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "check.crcs": True})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Message] = []
        while len(found) < end:
            got = consumer.consume(end - len(found), timeout=30)
            assert got, f"{len(found)} of {end} records"
            assert not any(each.error() for each in got)
            found += got
        return found
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, partition: int = 0) -> list[Pair]:
    """Keys and values of a partition."""
    return [(each.key(), each.value()) for each in read_messages(bootstrap, topic, partition)]


def a_foreign_client_reads_each_codec(bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap)
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        sent = [(b"k%d" % n, b"value %d " % n * 20) for n in range(500)]
        futures = [producer.send(topic, value, key=key, partition=0) for key, value in sent]
        producer.flush(30)
        assert [future.result(0).offset for future in futures] == list(range(500))
    assert read_all(bootstrap, topic) == sent


def keys_decide_the_partition(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=5)
    with Producer(bootstrap_servers=bootstrap) as producer:
        keys = [b"key-%d" % n for n in range(50)]
        futures = [producer.send(topic, b"", key=key) for key in keys]
        went = [future.result(30).partition for future in futures]
    assert went == [partition_for_key(key, 5) for key in keys]


def headers_and_timestamps_arrive(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    headers = [("name", b"content"), ("name", b"again")]
    with Producer(bootstrap_servers=bootstrap) as producer:
        future = producer.send(topic, b"v", headers=headers, timestamp_ms=1_357_000_000_000)
        assert future.result(30).timestamp == 1_357_000_000_000
    (record,) = read_messages(bootstrap, topic)
    assert record.timestamp()[1] == 1_357_000_000_000
    assert record.headers() == headers


def lost_answers_make_no_duplicates(bootstrap: str) -> None:
    """Every third answer is lost while five requests are in flight."""
    topic = new_topic(bootstrap)
    with (
        CuttingProxy(bootstrap, lambda number: number % 3 == 0) as proxy,
        Producer(
            bootstrap_servers=proxy.bootstrap_servers,
            batch_size=200,
            linger_ms=0,
            retry_backoff_ms=10,
            reconnect_backoff_ms=1,
        ) as producer,
    ):
        values = [b"%05d" % number for number in range(400)]
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(60)
        assert proxy.lost > 0
        assert [future.result(0).offset for future in futures] == list(range(400))
    assert [value for _, value in read_all(bootstrap, topic)] == values


def a_refused_record_is_told_from_its_batch(bootstrap: str) -> None:
    topic = new_topic(bootstrap, cleanup_policy="compact")
    with Producer(bootstrap_servers=bootstrap, linger_ms=10_000) as producer:
        futures = [producer.send(topic, b"v", key=key) for key in (b"k", None, b"k", None)]
        producer.flush(30)
    errors = [future.exception(30) for future in futures]
    assert all(isinstance(error, KafkaError) for error in errors)
    for error, text in zip(errors, ("another record", "key", "another record", "key"), strict=True):
        assert re.search(rf"INVALID_RECORD: {topic}-0: .*{text}", str(error))


def threads_share_a_producer(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    with Producer(bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=1_000) as producer:

        def work(name: int) -> None:
            for number in range(300):
                producer.send(topic, b"%d %d" % (name, number), partition=name)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for name in range(2):
        values = [value for _, value in read_all(bootstrap, topic, name)]
        assert values == [b"%d %d" % (name, number) for number in range(300)]


def each_acks_delivers(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    offsets = []
    for acks in (0, 1, "all"):
        once = acks == "all"
        with Producer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=once) as producer:
            offsets.append(producer.send(topic, str(acks).encode()).result(30).offset)
            producer.flush(30)
        # without an answer, only a later record shows that this one is written
    assert offsets[0] == -1
    assert offsets[1] < offsets[2]


def unique_name() -> str:
    """Return an unused topic name."""
    return f"topic-{uuid.uuid4().hex[:12]}"
