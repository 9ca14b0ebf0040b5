"""Partitions of keys are Java's; records without a key stay together."""

from __future__ import annotations

from itertools import groupby

import pytest
from confluent_kafka import Producer as TheirProducer
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.partitioner import StickyPartitioner, murmur2, partition_for_key

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
