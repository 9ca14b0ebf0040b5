"""Groups of our members on a real Kafka, among themselves and with other people's."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable

import confluent_kafka
import pytest

from tests.client.group_scenarios import SCENARIOS, Scenario, member, poll_until
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka


@pytest.mark.parametrize("play", SCENARIOS)
@on_a_loop
async def test_members_on_a_real_kafka(real_kafka: RealKafka, play: Scenario) -> None:
    await play(real_kafka.bootstrap_servers)


class ForeignMember:
    """A member that is not ours, polling in a thread of its own."""

    def __init__(self, poll: Callable[[], list[bytes]], close: Callable[[], None]) -> None:
        self.seen: list[bytes] = []
        self._poll = poll
        self._close = close
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.seen += self._poll()
        self._close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def kafka_python(bootstrap: str, group: str, topic: str) -> ForeignMember:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    )

    def poll() -> list[bytes]:
        found = consumer.poll(100)
        return [record.value for records in found.values() for record in records]

    return ForeignMember(poll, consumer.close)


def librdkafka(bootstrap: str, group: str, topic: str) -> ForeignMember:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[bytes]:
        record = consumer.poll(0.1)
        return [record.value() or b""] if record is not None and record.error() is None else []

    return ForeignMember(poll, consumer.close)


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")  # kafka-python's own
@pytest.mark.parametrize("make_foreign", [kafka_python, librdkafka])
@pytest.mark.parametrize("foreign_first", [True, False])
@on_a_loop
async def test_a_group_of_our_members_and_others(
    real_kafka: RealKafka,
    make_foreign: Callable[[str, str, str], ForeignMember],
    foreign_first: bool,
) -> None:
    bootstrap, group = real_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap, 4)
    everything: set[bytes] = set()
    seen: list[bytes] = []
    ours = member(bootstrap, group)
    other: ForeignMember | None = None
    try:
        if foreign_first:
            other = make_foreign(bootstrap, group, topic)
        ours.subscribe([topic])
        await poll_until(lambda: len(ours.assignment()) > 0, ours)
        if other is None:
            other = make_foreign(bootstrap, group, topic)
        stranger = other
        await poll_until(lambda: len(ours.assignment()) == 2, ours)
        while not (seen and stranger.seen):  # on a busy machine a member can lose its session
            await poll_until(lambda: len(ours.assignment()) == 2, ours, seen=seen)
            values = [b"%d" % number for number in range(len(everything), len(everything) + 40)]
            for partition in range(4):
                foreign.produce(bootstrap, topic, values[partition::4], partition)
            everything.update(values)
            await poll_until(lambda: everything == {*seen, *stranger.seen}, ours, seen=seen)
        await asyncio.to_thread(stranger.stop)
        await poll_until(lambda: len(ours.assignment()) == 4, ours, seen=seen)
    finally:
        if other is not None:
            await asyncio.to_thread(other.stop)
        await ours.close()
    committed = [foreign.committed(bootstrap, group, topic, number) for number in range(4)]
    assert committed == [len(everything) // 4] * 4
