"""Listeners that misbehave: the group continues, and commits stay correct."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, Consumer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.cooperative_scenarios import cooperative, is_at_rest
from tests.client.group_scenarios import Notes, is_shared, partitions_of, poll_until
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        yield broker


class Calls(RebalanceListener):
    """Calls its consumer, and keeps the outcome."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.errors: list[Exception] = []
        self._call = call

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        try:
            self._call()
        except LocalProtocolError as error:
            self.errors.append(error)
        return None


REFUSED: list[Callable[[Consumer], object]] = [
    lambda consumer: consumer.poll(10_000),
    lambda consumer: consumer.poll_arrow(10_000),
    lambda consumer: consumer.poll_membership(10_000),
    lambda consumer: consumer.unsubscribe(),
    lambda consumer: consumer.close(),
]
ALLOWED: list[Callable[[Consumer], object]] = [
    lambda consumer: consumer.subscribe(["another"]),
    lambda consumer: consumer.enforce_rebalance("from inside"),
    lambda consumer: consumer.commit({}),
    lambda consumer: consumer.metrics(),
    lambda consumer: consumer.wakeup(),
]


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_calls_that_would_wait_for_the_listener_are_refused(
    broker: EmbeddedBroker, index: int
) -> None:
    topic = foreign.new_topic(broker.bootstrap_servers)
    foreign.produce(broker.bootstrap_servers, topic, [b"1"])
    with blocking(broker) as consumer:
        calls = Calls(lambda: REFUSED[index](consumer))
        consumer.subscribe([topic], listener=calls)
        while not consumer.poll(100):
            pass
        assert "inside a listener" in str(calls.errors[0])


@pytest.mark.parametrize("index", range(len(ALLOWED)))
def test_other_calls_are_not(broker: EmbeddedBroker, index: int) -> None:
    topic = foreign.new_topic(broker.bootstrap_servers)
    called = threading.Event()
    with blocking(broker) as consumer:

        def call() -> None:
            if not called.is_set():
                called.set()
                ALLOWED[index](consumer)

        calls = Calls(call)
        consumer.subscribe([topic], listener=calls)
        while not called.is_set():
            consumer.poll(100)
        assert not calls.errors


def blocking(broker: EmbeddedBroker) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=uuid.uuid4().hex,
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
        partition_assignment_strategy="cooperative-sticky",
    )


class Closes(RebalanceListener):
    """A coroutine that closes the consumer that calls it."""

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._call = call

    async def _close(self) -> None:
        await self._call()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        return self._close()


@pytest.mark.parametrize("name", ["close", "unsubscribe", "poll", "poll_membership"])
@on_a_loop
async def test_a_coroutine_is_refused_them_as_well(tmp_path: Path, name: str) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        topic = foreign.new_topic(broker.bootstrap_servers)
        consumer = cooperative(broker.bootstrap_servers, "g")
        consumer.subscribe([topic], listener=Closes(getattr(consumer, name)))
        with pytest.raises(LocalProtocolError, match=f"{name} was called inside a listener"):
            await poll_until(lambda: False, consumer)
        await consumer.close()


class CommitsWhatItGivesUp(Notes):
    """Commits on behalf of the member at the last moment."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        super().__init__()
        self._consumer = consumer

    async def _commit(self, partitions: frozenset[TopicPartition]) -> None:
        await self._consumer.commit({each: OffsetAndMetadata(5) for each in partitions})

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        super().on_partitions_revoked(partitions)
        return self._commit(partitions)


@on_a_loop
async def test_l11_a_listener_commits_what_moves_and_the_next_owner_begins_there(
    tmp_path: Path,
) -> None:
    """After SyncGroup, when the group is stable again and the member still owns the partitions."""
    with EmbeddedBroker(tmp_path) as broker:
        address, group = broker.bootstrap_servers, uuid.uuid4().hex
        topic = foreign.new_topic(address, 2)
        for partition in range(2):
            foreign.produce(address, topic, [b"%d" % n for n in range(8)], partition)
        first = cooperative(address, group, enable_auto_commit=False)
        commits = CommitsWhatItGivesUp(first)
        first.subscribe([topic], listener=commits)
        await poll_until(lambda: len(first.assignment()) == 2, first)
        second = cooperative(address, group, enable_auto_commit=False)
        second.subscribe([topic])
        seen: list[bytes] = []
        while not is_shared([first, second], topic, 2) or len(seen) < 3:
            await first.poll(20)
            for records in (await second.poll(20)).values():
                seen += [record.value for record in records]
        assert seen == [b"5", b"6", b"7"]
        await first.close()
        await second.close()


class Blocks(Notes):
    """Does not give up partitions before a gate is open."""

    def __init__(self, gate: asyncio.Future[object]) -> None:
        super().__init__()
        self._gate = gate

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        super().on_partitions_revoked(partitions)
        return self._gate


@on_a_loop
async def test_a_listener_that_does_not_return_does_not_hold_the_others_for_ever(
    tmp_path: Path,
) -> None:
    """After max.poll.interval.ms the member leaves; its partitions count as lost (L7)."""
    with EmbeddedBroker(tmp_path) as broker:
        address, group = broker.bootstrap_servers, uuid.uuid4().hex
        topic = foreign.new_topic(address, 4)
        gate: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        blocks = Blocks(gate)
        stuck = cooperative(address, group, max_poll_interval_ms=1_500)
        other = cooperative(address, group)
        stuck.subscribe([topic], listener=blocks)
        await poll_until(lambda: len(stuck.assignment()) == 4, stuck)
        other.subscribe([topic])
        await poll_until(lambda: len(blocks.told) > 1, stuck, other)
        await poll_until(lambda: other.assignment() == partitions_of(topic, 4), other)
        gate.set_result(None)
        await poll_until(lambda: is_shared([stuck, other], topic, 4), stuck, other)
        await poll_until(lambda: is_at_rest([stuck, other]), stuck, other)
        assert "lost" in [what for what, _ in blocks.told]
        await stuck.close()
        await other.close()
