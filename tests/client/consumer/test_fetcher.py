"""When a fetch is sent, and how its answer is used; the test plays the broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TypeVar, cast

from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.consumer.fetcher import Fetcher
from kohort.client.consumer.partitions import Partitions, PartitionState
from kohort.client.net.cluster import Cluster, Purpose
from kohort.client.net.connection import Answered, Connection
from kohort.client.net.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from kohort.client.net.security.auth import NoAuthentication
from kohort.client.net.transport import BrokerConnection, Ended
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kohort.wire.records.encode import encode_batch
from kohort.wire.records.record import Record

R = TypeVar("R", bound=Message)

OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = uuid.UUID(int=1)
METADATA = ClusterMetadata(
    nodes={1: Node(1, "localhost", 1, None)},
    topics={
        "t": TopicMetadata(
            "t", TOPIC_ID, {n: PartitionMetadata(n, 1, 0, (1,), (1,)) for n in range(2)}
        )
    },
    topic_names={TOPIC_ID: "t"},
)


class Broker(BrokerConnection):
    """A fake connection: it keeps requests, and the test answers."""

    def __init__(self) -> None:
        super().__init__(Connection(client_id="", authenticator=NoAuthentication()), "localhost:1")
        self.asked: list[tuple[FetchRequest, Callable[[Ended], None]]] = []

    def ask(
        self,
        request: Request[R],
        timeout_ms: int,
        told: Callable[[Ended], None],
        *,
        at_most: int | None = None,
    ) -> None:
        self.asked.append((cast("FetchRequest", request), told))

    def wanted(self) -> dict[int, int]:
        """Partitions and offsets of the oldest request."""
        request, _ = self.asked[0]
        return {each.partition: each.fetch_offset for each in request.topics[0].partitions}

    def answer(self, **found: int) -> None:
        """Answer the oldest request: these numbers of records in `t0`, `t1`, none elsewhere."""
        request, told = self.asked.pop(0)
        offsets = {each.partition: each.fetch_offset for each in request.topics[0].partitions}
        data = tuple(
            PartitionData(
                partition_index=number,
                error_code=0,
                aborted_transactions=None,
                high_watermark=100,
                records=batch(offset, found.get(f"t{number}", 0)),
            )
            for number, offset in offsets.items()
        )
        topic = FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=data)
        told(Answered(0, FetchResponse(responses=(topic,)), 12))


def batch(offset: int, count: int) -> bytes | None:
    records = [Record(offset + n, 0, None, b"value", ()) for n in range(count)]
    return encode_batch(records) if records else None


class Fixed(Cluster):
    """A cluster of one broker, with a connection for each purpose."""

    def __init__(self, config: ConsumerConfig) -> None:
        super().__init__(config)
        self.metadata = METADATA
        self.to = {purpose: Broker() for purpose in (Purpose.FETCH, Purpose.CONTROL)}

    def opened(self, node_id: int, purpose: Purpose) -> BrokerConnection:
        return self.to[purpose]


class World:
    """A fetcher that waits for records of `OLD`."""

    def __init__(self) -> None:
        config = make(ConsumerConfig, {"group_id": "g"})
        self.partitions = Partitions()
        cluster = Fixed(config)
        self.fetcher = Fetcher(cluster, config, self.partitions, lambda: None)
        self.fetcher.is_on = True
        self.poll, self.look = cluster.to[Purpose.FETCH], cluster.to[Purpose.CONTROL]
        self.read_from(OLD, 5)

    def read_from(self, partition: TopicPartition, offset: int) -> PartitionState:
        """Add a partition, or seek in it."""
        self.partitions.add([partition])
        self.partitions[partition].seek(offset)
        self.fetcher.pump()
        return self.partitions[partition]

    def take(self, partition: TopicPartition) -> list[int]:
        """Give the application the fetched chunks of a partition; return their first offsets."""
        chunks = self.partitions[partition].chunks
        found = [chunk.position for chunk in chunks]
        chunks.clear()
        self.fetcher.pump()
        return found


def test_what_is_new_is_looked_at_beside_a_long_poll() -> None:
    async def run() -> None:
        world = World()
        assert world.poll.wanted() == {0: 5}
        state = world.read_from(NEW, 7)
        assert world.look.wanted() == {1: 7}
        request, _ = world.look.asked[0]
        assert (request.max_wait_ms, request.session_id, request.session_epoch) == (0, 0, -1)
        world.look.answer(t1=3)
        assert (world.take(NEW), state.fetch_offset) == ([7], 10)
        world.poll.answer()
        assert world.poll.wanted() == {0: 5, 1: 10}
        assert world.fetcher.broken is None

    asyncio.run(run())


def test_a_look_that_finds_nothing_is_not_repeated() -> None:
    async def run() -> None:
        world = World()
        world.read_from(NEW, 7)
        world.look.answer()
        world.fetcher.pump()
        assert world.look.asked == []
        world.read_from(NEW, 3)
        assert world.look.wanted() == {1: 3}

    asyncio.run(run())


def test_what_two_fetches_bring_is_taken_once() -> None:
    """The long poll ended, and asked for a partition that the extra fetch was still reading."""

    async def run() -> None:
        world = World()
        world.read_from(NEW, 7)
        world.poll.answer()
        assert world.poll.wanted() == {0: 5, 1: 7}
        world.look.answer(t1=3)
        world.poll.answer(t0=1, t1=2)
        assert (world.take(NEW), world.take(OLD)) == ([7], [5])
        assert world.poll.wanted() == {0: 6, 1: 10}
        assert world.fetcher.broken is None

    asyncio.run(run())


def test_a_look_takes_nothing_after_a_seek() -> None:
    async def run() -> None:
        world = World()
        world.read_from(NEW, 7)
        world.read_from(NEW, 2)
        world.look.answer(t1=3)
        assert world.take(NEW) == []
        world.look.answer(t1=3)
        assert world.take(NEW) == [2]

    asyncio.run(run())
