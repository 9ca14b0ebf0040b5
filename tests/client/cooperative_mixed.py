"""Cooperative groups of our members and other clients', on any broker."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Callable

import confluent_kafka

from kohort.group.member.classic.machine import ClassicMemberState
from kohort.types import TopicPartition
from tests.client.cooperative_scenarios import cooperative, state_of
from tests.client.group_scenarios import Notes, poll_until
from tests.real_kafka import foreign

PARTITIONS = 4


class Stranger:
    """A member of another client, polling in a thread of its own."""

    def __init__(
        self,
        poll: Callable[[], list[bytes]],
        owned: Callable[[], set[int]],
        close: Callable[[], None],
    ) -> None:
        self.seen: list[bytes] = []
        self.owned: set[int] = set()
        self._calls = poll, owned, close
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poll, owned, close = self._calls
        while not self._stopping.is_set():
            self.seen += poll()
            with self._news:
                self.owned = owned()
                self._news.notify()
        close()

    def wait_for_all(self) -> None:
        """Wait until it has all partitions."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.owned) == PARTITIONS, timeout=30)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def kafka_python(bootstrap: str, group: str, topic: str) -> Stranger:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[CooperativeStickyAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    )
    # Otherwise it may lead the group before it knows the topic, and assign nothing for minutes.
    assert consumer.partitions_for_topic(topic)

    def poll() -> list[bytes]:
        found = consumer.poll(100)
        return [record.value for records in found.values() for record in records]

    return Stranger(
        poll, lambda: {each.partition for each in consumer.assignment()}, consumer.close
    )


def librdkafka(bootstrap: str, group: str, topic: str) -> Stranger:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[bytes]:
        record = consumer.poll(0.1)
        return [record.value() or b""] if record is not None and record.error() is None else []

    return Stranger(
        poll, lambda: {each.partition for each in consumer.assignment()}, consumer.close
    )


def produce(bootstrap: str, topic: str, start: int) -> set[bytes]:
    """Write forty more records, ten into each partition."""
    for partition in range(PARTITIONS):
        values = [b"%d" % n for n in range(start, start + 40) if n % PARTITIONS == partition]
        foreign.produce(bootstrap, topic, values, partition)
    return {b"%d" % number for number in range(start, start + 40)}


MakeStranger = Callable[[str, str, str], Stranger]
STRANGERS: list[MakeStranger] = [kafka_python, librdkafka]


async def each_record_is_read_once(
    bootstrap: str, make_stranger: MakeStranger, stranger_leads: bool
) -> None:
    """Another client's member comes and goes; our partitions stay ours, and keep delivering."""
    group = uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap, PARTITIONS)
    everything = produce(bootstrap, topic, 0)
    ours, notes = cooperative(bootstrap, group), Notes()
    seen: list[bytes] = []
    stranger: Stranger | None = None
    try:
        if stranger_leads:
            stranger = make_stranger(bootstrap, group, topic)
            await asyncio.to_thread(stranger.wait_for_all)
        ours.subscribe([topic], listener=notes)
        await poll_until(lambda: len(ours.assignment()) > 0, ours, seen=seen)
        if stranger is None:
            stranger = make_stranger(bootstrap, group, topic)
        other = stranger
        await poll_until(lambda: is_halved(ours.assignment(), other), ours, seen=seen)
        everything |= produce(bootstrap, topic, 40)
        await poll_until(lambda: {*seen, *other.seen} == everything, ours, seen=seen)
        await asyncio.to_thread(other.stop)
        await poll_until(lambda: len(ours.assignment()) == PARTITIONS, ours, seen=seen)
        await poll_until(lambda: state_of(ours) is ClassicMemberState.STABLE, ours, seen=seen)
        everything |= produce(bootstrap, topic, 80)
        await poll_until(lambda: {*seen, *other.seen} == everything, ours, seen=seen)
    finally:
        if stranger is not None:
            await asyncio.to_thread(stranger.stop)
        await ours.close()
    assert set(Counter([*seen, *stranger.seen]).values()) == {1}
    # our partitions stayed ours when the other member came and when it left
    revoked = [len(partitions) for what, partitions in notes.told if what == "revoked"]
    assert revoked == ([PARTITIONS] if stranger_leads else [PARTITIONS // 2, PARTITIONS])
    assert "lost" not in {what for what, _ in notes.told}
    committed = [foreign.committed(bootstrap, group, topic, n) for n in range(PARTITIONS)]
    assert committed == [30] * PARTITIONS


def is_halved(assignment: frozenset[TopicPartition], other: Stranger) -> bool:
    numbers = {each.partition for each in assignment}
    half = len(numbers) == len(other.owned) == PARTITIONS // 2
    return half and not numbers & other.owned
