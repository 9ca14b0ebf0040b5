"""Fetch sessions (KIP-227) with Apache Kafka: what is left out of a request or answer is the same.

Each step asks for other partitions from other offsets, in the client's session and without any. The
records must be the same, whatever was asked before.
"""

from __future__ import annotations

import random
import uuid

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client.consumer.fetch_session import Fetch, FetchSession
from kohort.client.consumer.partitions import Asked, PartitionState
from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.real_kafka.broker import RealKafka

PARTITIONS, RECORDS = 6, 3
VERSION = 17

METADATA = ClusterMetadata()

Wanted = dict[TopicPartition, Asked]
Found = dict[int, bytes]


class Reader:
    """Fetches from one topic, in a session and without one."""

    def __init__(self, peer: Peer, seed: int) -> None:
        self.peer = peer
        self.random = random.Random(seed)
        self.topic = uuid.uuid4().hex
        peer.create(self.topic, PARTITIONS)
        for number in range(PARTITIONS):
            for _ in range(RECORDS):
                self.produce(number)
        named = (MetadataRequestTopic(name=self.topic),)
        answer = peer.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), 12)
        self.topic_id = answer.topics[0].topic_id
        self.session = FetchSession()
        self.states: dict[int, PartitionState] = {}
        self.wanted: Wanted = {}
        self.incremental = 0
        self.named = 0

    def produce(self, number: int) -> None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        while error != ErrorCode.NONE:
            answer = self.peer.produce(TopicPartition(self.topic, number), batch(b"v"))
            error = ErrorCode(answer.error_code)

    def change(self) -> None:
        """Want other partitions, some from other offsets; some were lost and are new ones."""
        chosen = self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS))
        wanted: Wanted = {}
        for number in chosen:
            key = TopicPartition(self.topic, number)
            if number not in self.states or self.random.random() < 0.03:
                self.states[number] = PartitionState(key)
            before = self.wanted.get(key)
            state = self.states[number]
            if before is not None and before.state is state and self.random.random() < 0.5:
                wanted[key] = before
            else:
                wanted[key] = self.asked(state)
        self.wanted = wanted

    def asked(self, state: PartitionState) -> Asked:
        entry = FetchPartition(
            partition=state.partition.partition,
            fetch_offset=self.random.randint(0, RECORDS),
            partition_max_bytes=1 << 20,
        )
        return Asked(state, state.incarnation, METADATA, 1, self.topic_id, entry)

    def in_session(self) -> Found:
        while True:
            fetch = self.session.ask(self.wanted)
            response = self.ask(fetch)
            if response.error_code == ErrorCode.NONE:
                break
            assert self.session.failed(KafkaError(response.error_code, "fetch"))
        self.incremental += fetch.epoch > 0
        self.named += sum(len(topic.partitions) for topic in fetch.topics)
        self.session.answered(response)
        return found(response)

    def without(self) -> Found:
        return found(self.ask(Fetch(0, -1, FetchSession().ask(self.wanted).topics, ())))

    def ask(self, fetch: Fetch) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=fetch.topics,
            forgotten_topics_data=fetch.forgotten,
        )
        return self.peer.ask(request, VERSION)


def found(response: FetchResponse) -> Found:
    assert response.error_code == ErrorCode.NONE
    parts = [part for topic in response.responses for part in topic.partitions]
    assert {part.error_code for part in parts} <= {ErrorCode.NONE}
    return {part.partition_index: bytes(part.records) for part in parts if part.records}


@pytest.mark.parametrize("seed", range(5))
def test_a_session_brings_what_full_requests_bring(real_kafka: RealKafka, seed: int) -> None:
    with Peer(real_kafka.bootstrap_servers) as peer:
        reader = Reader(peer, seed)
        for _ in range(60):
            reader.change()
            assert reader.in_session() == reader.without()
            if reader.random.random() < 0.2:
                reader.produce(reader.random.randrange(PARTITIONS))
        assert reader.incremental > 20


def test_a_session_that_was_lost_is_begun_anew_at_once(real_kafka: RealKafka) -> None:
    """Somebody closes it, or counts on in it; the same bytes come after one more request."""
    with Peer(real_kafka.bootstrap_servers) as peer:
        reader = Reader(peer, 0)
        reader.change()
        expected = reader.in_session()
        number = reader.session.ask(reader.wanted).session_id
        for epoch in (-1, 1, 2):
            reader.ask(Fetch(number, epoch, (), ()))
            assert reader.in_session() == expected
            number = reader.session.ask(reader.wanted).session_id


def test_what_is_unchanged_is_not_named_again(real_kafka: RealKafka) -> None:
    with Peer(real_kafka.bootstrap_servers) as peer:
        reader = Reader(peer, 1)
        reader.change()
        reader.in_session()
        named = reader.named
        reader.in_session()
        assert (reader.named, reader.incremental) == (named, 1)


def test_our_broker_keeps_none_and_is_told_all_each_time() -> None:
    with EmbeddedBroker() as broker, Peer(broker.bootstrap_servers) as peer:
        reader = Reader(peer, 2)
        for _ in range(20):
            reader.change()
            assert reader.in_session() == reader.without()
        assert reader.incremental == 0
