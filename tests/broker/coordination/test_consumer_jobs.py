"""A large target assignment is computed outside of the event loop: no other request waits (K11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from kohort.broker.config import BrokerConfig
from kohort.broker.coordination.coordinator import OFFSETS_TOPIC, GroupCoordinator, _records
from kohort.broker.coordination.jobs import EncodedAhead
from kohort.broker.net.server import Broker
from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.log_records import target_record
from kohort.group.coordinator.jobs import ChangedTarget, NewTarget
from kohort.group.coordinator.state import LogState
from kohort.types import TopicPartition
from kohort.wire.group_log import encode_record
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

LARGE = 9_000
DEADLINE_S = 30.0
Answer = ConsumerGroupHeartbeatResponse


@asynccontextmanager
async def running(folder: Path, **settings: object) -> AsyncIterator[Broker]:
    broker = Broker(folder, BrokerConfig.of(settings), lambda _fact: None)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def join(coordinator: GroupCoordinator, group_id: str, topic: str) -> object:
    """Return the response to a member's first heartbeat, or a future of it."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
    )
    number = coordinator.shard_of(group_id)
    return coordinator.request(number, request, 1, "c", "/127.0.0.1")


def test_k11_other_groups_are_served_while_a_large_target_is_made(tmp_path: Path) -> None:
    asyncio.run(others_are_served(tmp_path))


async def others_are_served(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        coordinator, data = broker.context.coordinator, broker.context.data
        data.create_topic("large", LARGE, {})
        data.create_topic("small", 2, {})
        waiting = join(coordinator, "large", "large")
        assert isinstance(waiting, Awaitable)
        small = join(coordinator, "small", "small")
        assert isinstance(small, Answer)
        assert small.assignment is not None
        answer = await asyncio.wait_for(waiting, DEADLINE_S)
        assert isinstance(answer, Answer)
        assert answer.assignment is not None
        (given,) = answer.assignment.topic_partitions
        assert len(given.partitions) == LARGE


def test_k11_the_log_gives_back_a_large_target(tmp_path: Path) -> None:
    """The records of the large target were encoded outside of the loop, all others in it."""
    asyncio.run(large_target_is_in_the_log(tmp_path))


async def large_target_is_in_the_log(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        coordinator, data = broker.context.coordinator, broker.context.data
        data.create_topic("large", LARGE, {})
        waiting = join(coordinator, "large", "large")
        assert isinstance(waiting, Awaitable)
        await asyncio.wait_for(waiting, DEADLINE_S)
        number = coordinator.shard_of("large")
        state = LogState()
        for record in _records(data.log(TopicPartition(OFFSETS_TOPIC, number))):
            state = state.apply(record)
        assert state == coordinator.shards[number].log
        assert len(state.consumer_groups["large"].target_of("m")) == 1


def test_k11_a_record_is_encoded_ahead_as_it_is_otherwise() -> None:
    member = ChangedTarget("m", None, target_record("g", "m", {UUID(int=7): frozenset({2, 0})}))
    other = target_record("g", "other", {})
    for ahead in (EncodedAhead(NewTarget((member,))), EncodedAhead()):
        for record in (member.record, other):
            assert ahead.pair(record) == encode_record(record.key, record.value)


def test_c73_who_waits_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    asyncio.run(stopped_while_one_waits(tmp_path))


async def stopped_while_one_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        coordinator = broker.context.coordinator
        broker.context.data.create_topic("large", LARGE, {})
        waiting = join(coordinator, "large", "large")
        assert isinstance(waiting, Awaitable)
        coordinator.stop()  # at once: the target may be there a moment later
        answer = await asyncio.wait_for(waiting, DEADLINE_S)
    assert isinstance(answer, Answer)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_the_coordinator_knows_the_rack_of_its_broker(tmp_path: Path) -> None:
    """KIP-881: every replica is on this broker."""
    assert asyncio.run(racks(tmp_path / "said", broker_rack="r1")) == (frozenset({"r1"}),) * 2
    assert asyncio.run(racks(tmp_path / "unsaid")) == ()


async def racks(folder: Path, **settings: object) -> tuple[frozenset[str], ...]:
    async with running(folder, **settings) as broker:
        coordinator = broker.context.coordinator
        broker.context.data.create_topic("small", 2, {})
        join(coordinator, "small", "small")
        session = coordinator.shards[coordinator.shard_of("small")].session
        return session.topics.by_name["small"].racks
