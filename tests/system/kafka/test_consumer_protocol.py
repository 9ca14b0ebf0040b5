"""Groups of the consumer protocol (KIP-848) on a real Kafka: our members, alone and with others."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort.client import AsyncConsumer, Consumer, RebalanceListener
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.errors import CommitFailedError, ErrorCode, KafkaError, LocalProtocolError
from kohort.group.events import GroupEvent, MemberStateChanged
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from tests.client.group_scenarios import (
    PROTOCOL,
    THE_SAME,
    CommitsAsItLeaves,
    Notes,
    Scenario,
    SlowToLetGo,
    is_shared,
    partitions_of,
    poll_until,
)
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("play", THE_SAME)
@on_a_loop
async def test_what_is_the_same_as_in_the_classic_protocol(
    real_kafka: RealKafka, play: Scenario
) -> None:
    """L30-L38: joining, reconciling and leaving, as an application sees them."""
    PROTOCOL.set("consumer")
    await play(real_kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def hasty_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A Kafka that gives a member up after a second and a half of silence."""
    settings = {
        "group.consumer.session.timeout.ms": "1500",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "0",
    }
    with RealKafka(tmp_path_factory.mktemp("hasty-kafka"), settings) as kafka:
        yield kafka


def member(kafka: RealKafka, group: str, **settings: object) -> AsyncConsumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
    }
    return AsyncConsumer(**(defaults | settings))


@asynccontextmanager
async def sharing(
    kafka: RealKafka, listener: RebalanceListener, **settings: object
) -> AsyncIterator[tuple[str, AsyncConsumer, AsyncConsumer]]:
    """A member that has all four partitions of a topic, and one that is about to join."""
    topic, group = foreign.new_topic(kafka.bootstrap_servers, 4), uuid.uuid4().hex
    first, second = member(kafka, group, **settings), member(kafka, group)
    try:
        first.subscribe([topic], listener=listener)
        await poll_until(lambda: len(first.assignment()) == 4, first)
        second.subscribe([topic])
        yield topic, first, second
    finally:
        await second.close()
        await first.close()


@on_a_loop
async def test_l32_only_what_moves_is_revoked(hasty_kafka: RealKafka) -> None:
    notes = Notes()
    async with sharing(hasty_kafka, notes) as (topic, first, second):
        await poll_until(lambda: is_shared([first, second], topic, 4), first, second)
        moved = second.assignment()
        await second.close()
        await poll_until(lambda: len(first.assignment()) == 4, first)
        # the first answer may come before there is an assignment (KIP-1263)
        assert [each for each in notes.told if each[1]] == [
            ("assigned", partitions_of(topic, 4)),
            ("revoked", moved),
            ("assigned", moved),
        ]


@on_a_loop
async def test_l32_a_listener_commits_what_it_gives_up(hasty_kafka: RealKafka) -> None:
    topic, group = foreign.new_topic(hasty_kafka.bootstrap_servers, 2), uuid.uuid4().hex
    first = member(hasty_kafka, group, enable_auto_commit=False)
    second = member(hasty_kafka, group, enable_auto_commit=False)
    first.subscribe([topic], listener=CommitsAsItLeaves(first, topic))
    await poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    await poll_until(lambda: is_shared([first, second], topic, 2), first, second)
    (moved,) = second.assignment()
    bootstrap = hasty_kafka.bootstrap_servers
    assert foreign.committed(bootstrap, group, topic, moved.partition) == 7
    await second.close()
    await first.close()


@on_a_loop
async def test_l38_auto_commit_stores_only_what_the_application_was_given(
    hasty_kafka: RealKafka,
) -> None:
    """KAFKA-18641: what was fetched, and even what was returned by the last poll, is not done."""
    bootstrap, group = hasty_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, [b"%d" % number for number in range(50)])
    first = member(hasty_kafka, group, max_poll_records=7, auto_commit_interval_ms=10)
    first.subscribe([topic])
    seen: list[bytes] = []
    await poll_until(lambda: len(seen) == 14, first, seen=seen)
    assert first._core.auto_commit is not None
    await first._core.auto_commit.commit(first.assignment())
    assert foreign.committed(bootstrap, group, topic) == 7
    await first.close()
    assert foreign.committed(bootstrap, group, topic) == 14


@pytest.mark.parametrize("way_out", ["returns", "unsubscribes", "closes"])
@on_a_loop
async def test_l31_l33_heartbeats_go_on_while_the_application_is_called(
    hasty_kafka: RealKafka, way_out: str
) -> None:
    """A listener that takes two session timeouts, and every way out of its call."""
    slow, facts = SlowToLetGo(), list[GroupEvent]()
    async with sharing(hasty_kafka, slow, event_listener=facts.append) as (_, first, second):
        await poll_until(slow.asked.is_set, first, second)
        leaving: asyncio.Task[None] | None = None
        if way_out == "unsubscribes":
            await first.unsubscribe()
        elif way_out == "closes":
            leaving = asyncio.create_task(first.close())
        both_timeouts = asyncio.get_running_loop().time() + 3.0
        polled = [second] if way_out == "closes" else [first, second]
        await poll_until(lambda: asyncio.get_running_loop().time() > both_timeouts, *polled)
        assert second.assignment() == frozenset()
        slow.done.set_result(None)
        left = 2 if way_out == "returns" else 4
        await poll_until(lambda: len(second.assignment()) == left, *polled)
        if leaving is not None:
            await leaving
    states = [fact.after for fact in facts if isinstance(fact, MemberStateChanged)]
    assert "FENCED" not in states
    assert "STALE" not in states


@on_a_loop
async def test_l35_a_member_that_is_removed_loses_and_joins_again(hasty_kafka: RealKafka) -> None:
    """Removed by an administrator, as after a partition of the network: it hears of it late."""
    notes = Notes()
    async with sharing(hasty_kafka, notes) as (topic, first, second):
        await poll_until(lambda: is_shared([first, second], topic, 4), first, second)
        owned, epoch = first.assignment(), first.generation_id
        await heartbeat(hasty_kafka, first, epoch=-1)
        await poll_until(lambda: ("lost", owned) in notes.told, first, second)
        await poll_until(lambda: is_shared([first, second], topic, 4), first, second)
        assert first.generation_id > epoch


async def heartbeat(
    kafka: RealKafka, consumer: AsyncConsumer, epoch: int, version: int = 1, member_id: str = ""
) -> int:
    """Send a heartbeat in a member's name; return the error code."""
    group = consumer.group_metadata().group_id
    cluster = Cluster(ClientConfig(bootstrap_servers=kafka.bootstrap_servers))
    try:
        coordinator = Coordinator(cluster, group)
        await coordinator.find()
        assert coordinator._node_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id or consumer.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=1_000 if epoch == 0 else -1,
            subscribed_topic_names=("none",) if epoch == 0 else None,
            topic_partitions=() if epoch == 0 else None,
        )
        answer = await cluster.send(coordinator._node_id, request, at_most=version)
        return answer.error_code
    finally:
        await cluster.close()


@on_a_loop
async def test_k8_version_0_takes_the_id_that_the_client_made(hasty_kafka: RealKafka) -> None:
    async with sharing(hasty_kafka, Notes()) as (_, first, _):
        own_id = str(uuid.uuid4())
        assert await heartbeat(hasty_kafka, first, 0, version=0, member_id=own_id) == 0
        assert await heartbeat(hasty_kafka, first, -1, version=0, member_id=own_id) == 0


@on_a_loop
async def test_l37_a_commit_of_an_epoch_that_never_was_fails(hasty_kafka: RealKafka) -> None:
    async with sharing(hasty_kafka, Notes(), enable_auto_commit=False) as (topic, first, second):
        await poll_until(lambda: is_shared([first, second], topic, 4), first, second)
        await heartbeat(hasty_kafka, first, epoch=-1)
        with pytest.raises(CommitFailedError):
            await first.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})


class Blocks(RebalanceListener):
    """Holds the application's thread when it is asked to give something up."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        self.asked.set()
        self.released.wait()


def test_l38_an_application_that_blocks_in_its_listener_stays_a_member(
    hasty_kafka: RealKafka,
) -> None:
    """The blocking consumer, reading columns; heartbeats go on in its other thread."""
    topic, group = foreign.new_topic(hasty_kafka.bootstrap_servers, 2), uuid.uuid4().hex
    foreign.produce(hasty_kafka.bootstrap_servers, topic, [b"1", b"2"])
    blocks, facts = Blocks(), list[GroupEvent]()

    async def join_and_wait() -> None:
        async with asyncio.timeout(60), member(hasty_kafka, group) as other:
            other.subscribe([topic])
            await poll_until(blocks.asked.is_set, other)
            end = asyncio.get_running_loop().time() + 3.0
            await poll_until(lambda: asyncio.get_running_loop().time() > end, other)
            assert other.assignment() == frozenset()
            blocks.released.set()
            await poll_until(lambda: len(other.assignment()) == 1, other)

    with Consumer(
        bootstrap_servers=hasty_kafka.bootstrap_servers,
        group_id=group,
        group_protocol="consumer",
        event_listener=facts.append,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([topic], listener=blocks)
        rows = 0
        while rows < 2:
            rows += consumer.poll_arrow(1_000).num_rows
        other = threading.Thread(target=lambda: asyncio.run(join_and_wait()))
        other.start()
        while other.is_alive():
            consumer.poll_arrow(50)
        while len(consumer.assignment()) < 2:
            consumer.poll_arrow(50)
    states = [fact.after for fact in facts if isinstance(fact, MemberStateChanged)]
    assert not {"FENCED", "STALE"} & set(states)


# ---------------------------------------------------------------------------- killed, and static

CHILD = """
import sys
from kohort.client import Consumer
bootstrap, group, topic, instance = sys.argv[1:]
consumer = Consumer(
    topic, bootstrap_servers=bootstrap, group_id=group, group_protocol="consumer",
    group_instance_id=instance or None,
)
while len(consumer.assignment()) < 2:
    consumer.poll(100)
print("ready", flush=True)
while True:
    consumer.poll(1_000)
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def spawn(children: list[subprocess.Popen[str]], *arguments: str) -> subprocess.Popen[str]:
    """Start a member in a process of its own, and return when it has two partitions."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("instance", ["", "gate-7"])
@on_a_loop
async def test_k30_what_a_killed_member_had_goes_to_the_others(
    hasty_kafka: RealKafka, children: list[subprocess.Popen[str]], instance: str
) -> None:
    """Dynamic and static alike, when the session of the dead is over."""
    bootstrap, group = hasty_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap, 4)
    async with member(hasty_kafka, group) as survivor:
        survivor.subscribe([topic])
        spawning = asyncio.create_task(
            asyncio.to_thread(spawn, children, bootstrap, group, topic, instance)
        )
        await poll_until(spawning.done, survivor)
        await poll_until(lambda: len(survivor.assignment()) == 2, survivor)
        (await spawning).send_signal(signal.SIGKILL)
        await poll_until(lambda: len(survivor.assignment()) == 4, survivor)


@on_a_loop
async def test_l36_k32_an_instance_that_lives_keeps_its_place(hasty_kafka: RealKafka) -> None:
    """The newcomer is refused for good; what it subscribes to next makes it somebody new."""
    topic, group = foreign.new_topic(hasty_kafka.bootstrap_servers, 2), uuid.uuid4().hex
    first = member(hasty_kafka, group, group_instance_id="gate-7")
    second = member(hasty_kafka, group, group_instance_id="gate-7")
    first.subscribe([topic])
    await poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID") as raised:
        await poll_until(lambda: False, second)
    assert raised.value.fatal
    refused = second.member_id
    await first.close()
    second.subscribe([topic])
    await poll_until(lambda: len(second.assignment()) == 2, second)
    assert second.member_id != refused
    await second.close()


@pytest.mark.parametrize("operation", GroupMembershipOperation)
@pytest.mark.parametrize("instance", [None, "gate-7"])
@on_a_loop
async def test_l39_what_closing_means_for_the_group(
    hasty_kafka: RealKafka, operation: GroupMembershipOperation, instance: str | None
) -> None:
    """KIP-1092: without a good-bye the others wait for the end of the session."""
    topic, group = foreign.new_topic(hasty_kafka.bootstrap_servers, 2), uuid.uuid4().hex
    leaver = member(hasty_kafka, group, group_instance_id=instance)
    stayer = member(hasty_kafka, group)
    leaver.subscribe([topic])
    await poll_until(lambda: len(leaver.assignment()) == 2, leaver)
    stayer.subscribe([topic])
    await poll_until(lambda: is_shared([leaver, stayer], topic, 2), leaver, stayer)
    before = stayer.generation_id
    name = leaver.member_id
    await leaver.close(operation=operation)
    code = await heartbeat(hasty_kafka, stayer, 999, member_id=name)
    leaves = operation is GroupMembershipOperation.LEAVE_GROUP or (
        operation is GroupMembershipOperation.DEFAULT and instance is None
    )
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    assert (code == gone) is leaves
    await poll_until(lambda: len(stayer.assignment()) == 2, stayer)
    assert stayer.generation_id > before
    await stayer.close()


# ------------------------------------------------------------------------------------- patterns


@on_a_loop
async def test_k50_the_broker_resolves_a_pattern(hasty_kafka: RealKafka) -> None:
    prefix, group = f"p{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    bootstrap = hasty_kafka.bootstrap_servers
    one = foreign.create_topic(bootstrap, f"{prefix}-one", 1)
    two = foreign.create_topic(bootstrap, f"{prefix}-two", 2)
    foreign.create_topic(bootstrap, f"x{prefix}-three", 1)
    foreign.produce(bootstrap, two, [b"1"])
    async with member(hasty_kafka, group) as consumer:
        consumer.subscribe(pattern=f"{prefix}-")
        both, seen = partitions_of(one, 1) | partitions_of(two, 2), list[bytes]()
        await poll_until(lambda: consumer.assignment() == both and bool(seen), consumer, seen=seen)
        assert consumer.subscription() == {one, two}
        consumer.subscribe([one])
        await poll_until(lambda: consumer.assignment() == partitions_of(one, 1), consumer)
        consumer.subscribe(pattern=f"{prefix}-two")
        await poll_until(lambda: consumer.assignment() == partitions_of(two, 2), consumer)


@on_a_loop
async def test_l36_k50_a_bad_pattern_can_be_mended(hasty_kafka: RealKafka) -> None:
    topic = foreign.new_topic(hasty_kafka.bootstrap_servers)
    async with member(hasty_kafka, uuid.uuid4().hex) as consumer:
        consumer.subscribe(pattern="(unclosed")
        with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):
            await poll_until(lambda: False, consumer)
        consumer.subscribe(pattern=topic)
        await poll_until(lambda: consumer.assignment() == partitions_of(topic, 1), consumer)


@on_a_loop
async def test_l36_an_assignor_that_the_broker_lacks(hasty_kafka: RealKafka) -> None:
    topic = foreign.new_topic(hasty_kafka.bootstrap_servers)
    settings = {"group_remote_assignor": "nobody-has-this"}
    async with member(hasty_kafka, uuid.uuid4().hex, **settings) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(KafkaError, match="UNSUPPORTED_ASSIGNOR"):
            await poll_until(lambda: False, consumer)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@on_a_loop
async def test_l39_the_assignor_that_was_asked_for(hasty_kafka: RealKafka, assignor: str) -> None:
    topic = foreign.new_topic(hasty_kafka.bootstrap_servers, 4)
    group = uuid.uuid4().hex
    first = member(hasty_kafka, group, group_remote_assignor=assignor)
    second = member(hasty_kafka, group, group_remote_assignor=assignor)
    for each in (first, second):
        each.subscribe([topic])
    await poll_until(lambda: is_shared([first, second], topic, 4), first, second)
    with pytest.raises(LocalProtocolError, match="coordinator"):
        first.enforce_rebalance()
    await second.close()
    await first.close()


# ----------------------------------------------------------------------------------- with others


class Librdkafka:
    """A member of librdkafka's, polling in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.seen: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            record = self._consumer.poll(0.05)
            if record is not None and record.error() is None:
                self.seen.append(record.value() or b"")
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.mark.parametrize("ours_first", [True, False])
@on_a_loop
async def test_a_group_with_librdkafka(hasty_kafka: RealKafka, ours_first: bool) -> None:
    bootstrap, group = hasty_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap, 4)
    everything = {b"%d" % number for number in range(40)}
    ours, seen, other = member(hasty_kafka, group), list[bytes](), None
    try:
        if not ours_first:
            other = Librdkafka(bootstrap, group, topic)
        ours.subscribe([topic])
        await poll_until(lambda: len(ours.assignment()) >= 2, ours)
        other = stranger = other or Librdkafka(bootstrap, group, topic)
        await poll_until(lambda: len(ours.assignment()) == 2, ours)
        for number in range(4):
            some = [b"%d" % each for each in range(number, 40, 4)]
            await asyncio.to_thread(foreign.produce, bootstrap, topic, some, number)
        await poll_until(lambda: {*seen, *stranger.seen} == everything, ours, seen=seen)
        assert len(seen) + len(stranger.seen) == 40
        await asyncio.to_thread(stranger.stop)
        await poll_until(lambda: len(ours.assignment()) == 4, ours, seen=seen)
    finally:
        if other is not None:
            await asyncio.to_thread(other.stop)
        await ours.close()
    assert [foreign.committed(bootstrap, group, topic, number) for number in range(4)] == [10] * 4
