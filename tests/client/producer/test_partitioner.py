"""Keys have the same partitions as in Java; records without a key stay together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import Producer as TheirProducer
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker import EmbeddedBroker
from kohort.client.producer.api import Producer
from kohort.client.producer.partitioner import (
    StickyPartitioner,
    murmur2,
    partition_for_key,
    partitioner_named,
)
from kohort.errors import ConfigError
from tests.real_kafka.foreign import new_topic

# From the tests of Kafka's Java client (UtilsTest.testMurmur2), where numbers are signed.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_murmur2_is_javas(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_every_key_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
    assert partition_for_key(memoryview(key), partitions) == partition_for_key(key, partitions)


def test_a_librdkafka_with_javas_partitioner_agrees() -> None:
    bootstrap = {"test.mock.num.brokers": 1, "partitioner": "murmur2"}
    went: dict[bytes | None, int | None] = {}
    producer = TheirProducer(bootstrap)
    for number in range(64):
        producer.produce(
            "mock",
            b"v",
            key=b"key-%d" % number,
            on_delivery=lambda _, message: went.update({message.key(): message.partition()}),
        )
    assert producer.flush(30) == 0
    partitions = len(producer.list_topics("mock", timeout=30).topics["mock"].partitions)
    keys = [b"key-%d" % number for number in range(64)]
    assert went == {key: partition_for_key(key, partitions) for key in keys}


@given(st.integers(0, 2**32), st.integers(2, 20), st.integers(1, 500))
def test_records_without_a_key_fill_a_batch_then_move_on(
    seed: int, partitions: int, size: int
) -> None:
    sticky = StickyPartitioner(1000, seed)
    chosen = [sticky.choose(partitions, size) for _ in range(200)]
    assert set(chosen) <= set(range(partitions))
    runs = [len(list(run)) for _, run in groupby(chosen)]
    assert set(runs[:-1]) == {-(-1000 // size)} if len(runs) > 1 else True


def test_a_topic_that_shrinks_is_no_trouble() -> None:
    sticky = StickyPartitioner(10**9, 1)
    sticky.choose(100, 1)
    assert sticky.choose(1, 1) == 0


@given(st.integers(0, 2**64 - 1))
def test_no_partition_is_left_out(seed: int) -> None:
    sticky = StickyPartitioner(1, seed)
    assert {sticky.choose(4, 1) for _ in range(200)} == set(range(4))


KEYS = [b"user-%d" % number for number in range(200)]


def librdkafkas_choice() -> tuple[dict[bytes | None, int | None], int]:
    """The partitions that librdkafka's default partitioner chooses, and their number."""
    went: dict[bytes | None, int | None] = {}
    producer = TheirProducer({"test.mock.num.brokers": 1})
    for key in KEYS:
        producer.produce(
            "mock",
            b"v",
            key=key,
            on_delivery=lambda _, message: went.update({message.key(): message.partition()}),
        )
    assert producer.flush(30) == 0
    partitions = len(producer.list_topics("mock", timeout=30).topics["mock"].partitions)
    return went, partitions


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap_servers


def sent_to(bootstrap: str, partitions: int, **settings: Any) -> dict[bytes | None, int | None]:
    """The partitions that our producer chooses."""
    topic = new_topic(bootstrap, partitions)
    with Producer(bootstrap_servers=bootstrap, **settings) as producer:
        futures = {key: producer.send(topic, b"v", key=key) for key in KEYS}
        return {key: future.result(30).partition for key, future in futures.items()}


def test_librdkafkas_default_is_a_setting(bootstrap: str) -> None:
    went, partitions = librdkafkas_choice()
    assert sent_to(bootstrap, partitions, partitioner="consistent_random") == went
    assert sent_to(bootstrap, partitions) != went


@pytest.mark.parametrize("name", ["murmur2", "murmur2_random"])
def test_the_default_is_that_of_java_and_kafka_python(bootstrap: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from inside of kafka-python when it is imported
        from kafka.partitioner.default import murmur2 as their_murmur2
    theirs = {key: (their_murmur2(key) & 0x7FFFFFFF) % 7 for key in KEYS}
    assert sent_to(bootstrap, 7, partitioner=name) == theirs
    assert sent_to(bootstrap, 7) == theirs


def test_an_empty_key_is_none_to_librdkafka_alone() -> None:
    librdkafkas = partitioner_named("consistent_random")
    assert librdkafkas is not None
    assert librdkafkas("t", b"", 5) is None
    assert librdkafkas("t", None, 5) is None
    assert partitioner_named("murmur2") is None
    assert partition_for_key(b"", 5) == (275646681 & 0x7FFFFFFF) % 5


def test_a_partitioner_of_ones_own(bootstrap: str) -> None:
    asked: list[tuple[str, bytes | None, int]] = []

    def last(topic: str, key: bytes | None, partitions: int) -> int | None:
        asked.append((topic, key, partitions))
        return None if key is None else partitions - 1

    topic = new_topic(bootstrap, 3)
    with Producer(bootstrap_servers=bootstrap, partitioner=last) as producer:
        assert producer.send(topic, b"v", key=b"k").result(30).partition == 2
        assert producer.send(topic, b"v").result(30).partition in (0, 1, 2)
        assert producer.send(topic, b"v", key=b"k", partition=1).result(30).partition == 1
    assert asked == [(topic, b"k", 3), (topic, None, 3)]


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (3, ValueError, "the partitioner returned 3 of 3 partitions"),
        (-1, ValueError, "the partitioner returned -1 of 3 partitions"),
        (10**30, ValueError, "does not fit into 64 bits"),
        ("1", TypeError, "the partitioner's result is a str"),
        (True, TypeError, "the partitioner's result is a bool"),
    ],
)
def test_nonsense_of_a_partitioner_is_raised_at_once(
    bootstrap: str, answer: Any, error: type[Exception], said: str
) -> None:
    topic = new_topic(bootstrap, 3)
    with Producer(bootstrap_servers=bootstrap, partitioner=lambda *_: answer) as producer:
        with pytest.raises(error, match=said):
            producer.send(topic, b"v", key=b"k")
        assert producer.send(topic, b"v", partition=0).result(30).offset == 0


@pytest.mark.parametrize("given", ["random", 5, None])
def test_another_partitioner_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"partitioner is .*murmur2, murmur2_random, consistent"):
        Producer(partitioner=given)
