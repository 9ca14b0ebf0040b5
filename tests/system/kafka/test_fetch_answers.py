"""How much one Fetch brings: the same on both brokers."""

from __future__ import annotations

import itertools
import uuid
from functools import partial

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.records.header import iter_batches
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka

PARTITIONS, BATCHES = 3, 2
BATCH = batch(b"x" * 10_000)
ONE = len(BATCH)
LIMITS = (0, 1, ONE - 1, ONE, ONE + 1, 2 * ONE - 1, 2 * ONE, 3 * ONE + 5, 1 << 20)
# Kafka fills what is left of these with a part of the next batch; we send whole ones.
PARTITION_LIMITS = (0, 1, ONE - 1, ONE, 2 * ONE, 1 << 20)
BOTH = tuple(itertools.product(LIMITS, PARTITION_LIMITS))


def whole_batches(bootstrap: str) -> list[list[int]]:
    """Of each partition, for each pair of limits: of the answer and of a partition."""
    name = uuid.uuid4().hex
    with Peer(bootstrap) as peer:
        peer.create(name, PARTITIONS)
        for number, _ in itertools.product(range(PARTITIONS), range(BATCHES)):
            takes_it = partial(takes, peer, TopicPartition(name, number))
            eventually(takes_it, "the partition takes records")
        return [fetched(peer, name, *limits) for limits in BOTH]


def takes(peer: Peer, place: TopicPartition) -> bool:
    return peer.produce(place, BATCH).error_code == ErrorCode.NONE


def fetched(peer: Peer, name: str, max_bytes: int, partition_max_bytes: int) -> list[int]:
    wanted = tuple(
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=partition_max_bytes)
        for each in range(PARTITIONS)
    )
    topic = FetchTopic(topic=name, partitions=wanted)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=(topic,))
    found = peer.ask(request, 12).responses[0].partitions
    sizes = {each.partition_index: len(each.records or b"") for each in found}
    assert sum(sizes.values()) <= max(max_bytes, ONE)
    return [len(list(iter_batches(each.records or b""))) for each in found]


def test_both_brokers_bring_the_same(real_kafka: RealKafka) -> None:
    """KIP-74: the first batch comes whatever the limits say, and nothing beyond them after it."""
    with EmbeddedBroker() as broker:
        ours = whole_batches(broker.bootstrap_servers)
    theirs = whole_batches(real_kafka.bootstrap_servers)
    pairs = zip(BOTH, ours, theirs, strict=True)
    assert [each for each in pairs if each[1] != each[2]] == []
    assert {sum(each) for each in ours} == {1, 2, 3, 6}
