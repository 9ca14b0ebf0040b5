"""Large groups over TCP: the embedded broker on one core compared with a real Kafka.

The load comes from this process over a few connections, as raw requests: the coordinator is
measured, not a client. Scenarios, each on both brokers:

- members of one KIP-848 group join at once, with heartbeats at most every 100 ms, until each of the
  10,000 partitions has one owner and no partition remains to be revoked;
- the settled members send heartbeats as fast as they are answered, on one connection and on eight;
- commits of 100 partitions;
- classic members join and sync;
- a heartbeat of another group while the large one is being assigned.

And on embedded brokers only, one for each size: the CPU time of a heartbeat in a group of 5,000
members relative to one in a group of 100, alternating, because the machine's speed varies.

    python benchmarks/groups.py [--members N ...] [--without-kafka] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.line import Line  # noqa: E402  # found only after the line above
from kohort.errors import ErrorCode  # noqa: E402  # as above
from kohort.group.subscription import Subscription, encode_subscription  # noqa: E402  # as above
from kohort.wire.messages.consumer_group import (  # noqa: E402  # as above
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest  # noqa: E402  # as above
from kohort.wire.messages.membership import (  # noqa: E402  # as above
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kohort.wire.messages.offsets import (  # noqa: E402  # as above
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.broker.peer import Peer  # noqa: E402  # as above
from tests.broker.processes import BrokerProcess  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

TOPICS = tuple(f"scale-{number}" for number in range(10))
PARTITIONS_EACH = 1_000
PARTITIONS = len(TOPICS) * PARTITIONS_EACH
PAUSE_S = 0.1
CLASSIC_MEMBERS = 500
COMMIT_PARTITIONS = 100
STEADY_S = 3.0
CONNECTIONS = 8
# Targets of the embedded broker; Kafka's figures are printed next to them.
TARGETS = {1_000: 4.0, 5_000: 20.0}
HEARTBEATS_TARGET = 6_000
HEARTBEAT_P99_MS = 50.0
HEARTBEAT_GROWTH = 1.5
FEW, MANY = 100, 5_000
TURNS = 3
COMMITS_TARGET = 800
CLASSIC_TARGET_S = 3.0
WAIT_TARGET_MS = 100.0
KAFKA_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(slots=True)
class Member:
    """A minimal member of the consumer protocol."""

    group: str
    line: Line
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:22])
    epoch: int = 0
    owned: tuple[TopicPartitions, ...] = ()
    changed: bool = True

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Return a join request, the partitions if they changed, or otherwise a plain heartbeat."""
        joining = self.epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joining else -1,
            subscribed_topic_names=TOPICS if joining else None,
            topic_partitions=self.owned if self.changed else None,
        )

    async def heartbeat(self) -> None:
        """Send one heartbeat and apply its response."""
        request = self.request()
        self.changed = False
        answer: ConsumerGroupHeartbeatResponse = await self.line.ask(request, 1)
        if answer.error_code:
            raise AssertionError(f"heartbeat: error {answer.error_code} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions != self.owned:
            self.owned = answer.assignment.topic_partitions
            self.changed = True

    def partitions(self) -> list[tuple[uuid.UUID, int]]:
        """The partitions that it owns."""
        return [(topic.topic_id, number) for topic in self.owned for number in topic.partitions]


async def keep_alive(member: Member, stop: asyncio.Event) -> None:
    """Send heartbeats at most every 100 ms until stopped."""
    while not stop.is_set():
        begun = time.perf_counter()
        await member.heartbeat()
        await asyncio.sleep(max(0.0, PAUSE_S - (time.perf_counter() - begun)))


def is_stable(members: Sequence[Member]) -> bool:
    """Whether every partition has one owner that has confirmed it, at one epoch."""
    if len({member.epoch for member in members}) > 1 or any(m.changed for m in members):
        return False
    counts = Counter(each for member in members for each in member.partitions())
    return len(counts) == PARTITIONS and max(counts.values()) == 1


async def join(servers: str, count: int) -> tuple[float, list[Member], list[Line]]:
    """Let members join at once; return the seconds until the group is stable."""
    lines = [await Line.connect(servers) for _ in range(CONNECTIONS)]
    group = f"group-{uuid.uuid4().hex}"
    members = [Member(group, lines[number % CONNECTIONS]) for number in range(count)]
    stop = asyncio.Event()
    begun = time.perf_counter()
    tasks = [asyncio.create_task(keep_alive(member, stop)) for member in members]
    while not is_stable(members):
        await asyncio.sleep(PAUSE_S / 2)
        for task in tasks:
            if task.done():
                task.result()
    seconds = time.perf_counter() - begun
    stop.set()
    await asyncio.gather(*tasks)
    return seconds, members, lines


class Steady(NamedTuple):
    """Heartbeats of settled members.

    Attributes:
        rate: Heartbeats per second.
        p99_ms: The 99th percentile of their response times.
        cost_us: CPU time of the broker per heartbeat.
    """

    rate: float
    p99_ms: float
    cost_us: float


def processor_s(broker: psutil.Process) -> float:
    """Return the CPU time that the broker has used so far."""
    times = broker.cpu_times()
    return float(times.user + times.system)


async def steady(members: Sequence[Member], connections: int, broker: psutil.Process) -> Steady:
    """Send heartbeats as fast as responses arrive, for a while."""
    waits: list[float] = []
    taken = processor_s(broker)
    end = time.perf_counter() + STEADY_S

    async def one_connection(mine: Sequence[Member]) -> None:
        number = 0
        while (begun := time.perf_counter()) < end:
            await mine[number % len(mine)].heartbeat()
            waits.append(time.perf_counter() - begun)
            number += 1

    lines = [members[0].line] if connections == 1 else sorted({m.line for m in members}, key=id)
    # eight requests in flight on each connection
    groups = [
        [m for m in members if m.line is line][part::8] for line in lines for part in range(8)
    ]
    await asyncio.gather(*(one_connection(mine) for mine in groups if mine))
    taken = processor_s(broker) - taken
    p99_ms = statistics.quantiles(waits, n=100)[-1] * 1000
    return Steady(len(waits) / STEADY_S, p99_ms, taken / len(waits) * 1e6)


async def commits(servers: str) -> float:
    """Commit 100 partitions repeatedly, with eight requests in flight; return commits/s."""
    line = await Line.connect(servers)
    offsets = tuple(
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=number, committed_metadata=""
        )
        for number in range(COMMIT_PARTITIONS)
    )
    group = f"group-{uuid.uuid4().hex}"
    topic = OffsetCommitRequestTopic(name=TOPICS[0], partitions=offsets)
    request = OffsetCommitRequest(group_id=group, member_id="", topics=(topic,))
    done = 0
    end = time.perf_counter() + STEADY_S

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            answer = await line.ask(request, 9)
            assert not any(part.error_code for part in answer.topics[0].partitions)
            done += 1

    await asyncio.gather(*(worker() for _ in range(8)))
    line.close()
    return done / STEADY_S


class ClassicGroup:
    """Classic members, each on its own connection, joining until they share a generation."""

    def __init__(self, servers: str, count: int) -> None:
        """Let `count` members use one group."""
        self.name = f"group-{uuid.uuid4().hex}"
        self._servers = servers
        self._count = count
        self._generations: dict[str, int] = {}
        self._settled = asyncio.Event()

    async def settle(self) -> float:
        """Return the seconds until every member has its share of the same generation."""
        lines = [await Line.connect(self._servers) for _ in range(self._count)]
        begun = time.perf_counter()
        tasks = [asyncio.create_task(self._member(line)) for line in lines]
        await self._settled.wait()
        seconds = time.perf_counter() - begun
        await asyncio.gather(*tasks)
        for line in lines:
            line.close()
        return seconds

    async def _member(self, line: Line) -> None:
        member_id = (await line.ask(self._join(""), 9)).member_id
        while not self._settled.is_set():
            joined = await line.ask(self._join(member_id), 9)
            shares = tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"share")
                for each in joined.members
            )
            synced = await line.ask(self._sync(member_id, joined.generation_id, shares), 5)
            if synced.error_code == ErrorCode.NONE:
                self._generations[member_id] = joined.generation_id
                await self._stay(line, member_id, joined.generation_id)

    async def _stay(self, line: Line, member_id: str, generation: int) -> None:
        """Send heartbeats until the group rebalances or all have settled."""
        mine = self._generations
        if len(mine) == self._count and len(set(mine.values())) == 1:
            self._settled.set()
        request = HeartbeatRequest(
            group_id=self.name, generation_id=generation, member_id=member_id
        )
        while not self._settled.is_set():
            answer = await line.ask(request, 4)
            if answer.error_code != ErrorCode.NONE:
                return
            await asyncio.sleep(PAUSE_S)

    def _join(self, member_id: str) -> JoinGroupRequest:
        metadata = encode_subscription(Subscription(topics=frozenset(TOPICS)))
        return JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        )

    def _sync(
        self, member_id: str, generation: int, shares: tuple[SyncGroupRequestAssignment, ...]
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.name,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )


async def coordinator_ready(servers: str) -> None:
    """Wait until the broker coordinates groups in every partition of its offsets topic."""
    line = await Line.connect(servers)
    for number in range(200):
        group = f"warm-{number}"
        find = FindCoordinatorRequest(coordinator_keys=(group,))
        probe = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=()),))
        while True:
            found = (await line.ask(find, 4)).coordinators[0].error_code
            if not found and not (await line.ask(probe, 8)).groups[0].error_code:
                break
            await asyncio.sleep(PAUSE_S)
    line.close()


class Bystander:
    """The only member of another group, in a separate process: this one is busy with the load."""

    def __init__(self, servers: str) -> None:
        """Let it send heartbeats until `longest_wait_ms` is called."""
        spawn = multiprocessing.get_context("spawn")
        self._stop = spawn.Event()
        self._longest = spawn.Value("d", 0.0)
        ready = spawn.Event()
        arguments = (servers, ready, self._stop, self._longest)
        self._process = spawn.Process(target=stand_by, args=arguments, daemon=True)
        self._process.start()
        ready.wait()

    def longest_wait_ms(self) -> float:
        """Stop, and return the longest response time."""
        self._stop.set()
        self._process.join()
        return float(self._longest.value) * 1000


def stand_by(servers: str, ready: Event, stop: Event, longest: Synchronized[float]) -> None:
    """Be the other group's member: send a heartbeat every 10 ms and record the longest wait."""

    async def heartbeats() -> None:
        line = await Line.connect(servers)
        member = Member(f"group-{uuid.uuid4().hex}", line)
        await member.heartbeat()
        ready.set()
        while not stop.is_set():
            begun = time.perf_counter()
            await member.heartbeat()
            longest.value = max(longest.value, time.perf_counter() - begun)
            await asyncio.sleep(0.01)
        line.close()

    asyncio.run(heartbeats())


async def measure(servers: str, sizes: Sequence[int], broker: psutil.Process) -> dict[str, float]:
    """Run all scenarios on one broker."""
    found: dict[str, float] = {}
    await coordinator_ready(servers)
    for count in sizes:
        bystander = Bystander(servers)
        seconds, members, lines = await join(servers, count)
        waited = bystander.longest_wait_ms()
        found[f"{count} members stable, s"] = seconds
        found[f"other group's longest heartbeat meanwhile, {count} members, ms"] = waited
        for connections in (1, CONNECTIONS):
            found_here = await steady(members, connections, broker)
            where = f"{count} members, {connections} connections"
            found[f"heartbeats/s, {where}"] = found_here.rate
            found[f"p99 of these, {where}, ms"] = found_here.p99_ms
            found[f"processor time of one, {where}, us"] = found_here.cost_us
        for line in lines:
            line.close()
    found["commits/s of 100 partitions"] = await commits(servers)
    found[f"{CLASSIC_MEMBERS} classic members synced, s"] = await ClassicGroup(
        servers, CLASSIC_MEMBERS
    ).settle()
    return found


def growth_name(connections: int) -> str:
    """Return the name of the figure of `growth`."""
    return f"processor time with {MANY} members over {FEW}, {connections} connections"


async def growth(few: BrokerProcess, many: BrokerProcess) -> dict[str, float]:
    """Compare a heartbeat in a large group with one in a small group, each on its own broker."""
    groups = []
    for broker, count in ((few, FEW), (many, MANY)):
        await coordinator_ready(broker.bootstrap_servers)
        _, members, lines = await join(broker.bootstrap_servers, count)
        groups.append((members, lines, psutil.Process(broker.process.pid)))
    found: dict[str, float] = {}
    for connections in (1, CONNECTIONS):
        costs = [
            [(await steady(members, connections, broker)).cost_us for members, _, broker in groups]
            for _ in range(TURNS)
        ]
        small, large = (statistics.median(each) for each in zip(*costs, strict=True))
        found[growth_name(connections)] = large / small
    for _, lines, _ in groups:
        for line in lines:
            line.close()
    return found


def targets(found: dict[str, float], sizes: Sequence[int]) -> dict[str, bool]:
    """Return the figures of the embedded broker with a target, and whether each is reached."""
    fast = f"heartbeats/s, 1000 members, {CONNECTIONS} connections"
    reached = {
        f"{count} members stable, s": found[f"{count} members stable, s"] <= target
        for count, target in TARGETS.items()
        if count in sizes
    }
    if 1_000 in sizes:
        p99 = f"p99 of these, 1000 members, {CONNECTIONS} connections, ms"
        reached[fast] = found[fast] >= HEARTBEATS_TARGET
        reached[p99] = found[p99] <= HEARTBEAT_P99_MS
    for name in (growth_name(1), growth_name(CONNECTIONS)):
        if name in found:
            reached[name] = found[name] <= HEARTBEAT_GROWTH
    for count in sizes:
        wait = f"other group's longest heartbeat meanwhile, {count} members, ms"
        reached[wait] = found[wait] <= WAIT_TARGET_MS
    reached["commits/s of 100 partitions"] = found["commits/s of 100 partitions"] >= COMMITS_TARGET
    classic = f"{CLASSIC_MEMBERS} classic members synced, s"
    reached[classic] = found[classic] <= CLASSIC_TARGET_S
    return reached


def create_topics(servers: str) -> None:
    """Create the topics that all groups read."""
    with Peer(servers) as peer:
        for topic in TOPICS:
            peer.create(topic, PARTITIONS_EACH)


def on_broker(servers: str, sizes: Sequence[int], pid: int) -> dict[str, float]:
    """Create the topics and run."""
    create_topics(servers)
    return asyncio.run(measure(servers, sizes, psutil.Process(pid)))


def in_turns(folder: str) -> dict[str, float]:
    """Start two brokers and compare."""
    with BrokerProcess(Path(folder, "few")) as few, BrokerProcess(Path(folder, "many")) as many:
        for broker in (few, many):
            create_topics(broker.bootstrap_servers)
        return asyncio.run(growth(few, many))


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description="Large groups over TCP.")
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1_000, 5_000])
    parser.add_argument("--without-kafka", action="store_true", help="only ours, for profiling")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours = stack.enter_context(BrokerProcess(Path(folder, "ours")))
        found = on_broker(ours.bootstrap_servers, options.members, ours.process.pid)
        if {FEW, MANY} <= set(options.members):
            found |= in_turns(folder)
        theirs: dict[str, float] = {}
        if not options.without_kafka:
            kafka = stack.enter_context(RealKafka(Path(folder, "kafka"), KAFKA_SETTINGS))
            theirs = on_broker(kafka.bootstrap_servers, options.members, kafka.pid)
    reached = targets(found, options.members)
    if options.json:
        print(json.dumps({"kohort": found, "Kafka": theirs, "reached": reached}))
    else:
        print(f"{'':64}{'kohort':>10}{'Kafka':>10}")
        for name, value in found.items():
            word = {True: "reached", False: "MISSED", None: ""}[reached.get(name)]
            other = f"{theirs[name]:10.1f}" if name in theirs else " " * 10
            print(f"{name:64}{value:10.1f}{other}   {word}")
    return 0 if all(reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
