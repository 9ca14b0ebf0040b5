"""Members of a group from three foreign clients, and what all of them together consumed."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import aiokafka
import confluent_kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange

from kohort.broker import EmbeddedBroker

with warnings.catch_warnings():
    # It reads its schemas by a call that Python 3.11 alone calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin
    import kafka.errors
    from kafka.coordinator.assignors.cooperative_sticky import (
        CooperativeStickyAssignor as KafkaPythonCooperative,
    )
    from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
    from kafka.coordinator.assignors.roundrobin import (
        RoundRobinPartitionAssignor as KafkaPythonRoundRobin,
    )

__all__ = [
    "KafkaPythonCooperative",
    "KafkaPythonRoundRobin",
    "kafka",
]  # from here without a warning

DEADLINE_S = 30.0
Seen = tuple[int, int]  # partition and offset


def quick_broker() -> EmbeddedBroker:
    """A broker on which KIP-848 members beat often and die soon."""
    return EmbeddedBroker(
        group_consumer_heartbeat_interval_ms=100, group_consumer_session_timeout_ms=2_000
    )


def eventually(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Call `condition`, which itself waits a little each time, until it holds."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"


class Member(Protocol):
    """One consumer in a group, driven by the test's thread."""

    def poll(self) -> list[Seen]:
        """Wait for records, half a second at most."""
        ...

    def assignment(self) -> set[int]:
        """The partitions it owns."""
        ...

    def close(self) -> None:
        """Commit what was read and leave the group."""
        ...


class ConfluentMember:
    """librdkafka, in a classic group."""

    defaults: ClassVar[dict[str, Any]] = {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
        "reconnect.backoff.max.ms": 300,
    }

    def __init__(self, servers: str, group: str, topic: str, **settings: object) -> None:
        common = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer = confluent_kafka.Consumer({**common, **self.defaults, **dotted})
        self.consumer.subscribe([topic])

    def poll(self) -> list[Seen]:
        messages = self.consumer.consume(500, 0.05)
        whole = [message for message in messages if message.error() is None]
        return [(message.partition() or 0, message.offset() or 0) for message in whole]

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class ConsumerProtocolMember(ConfluentMember):
    """librdkafka under KIP-848, which leaves session and heartbeat to the coordinator."""

    defaults: ClassVar[dict[str, Any]] = {
        "group.protocol": "consumer",
        "topic.metadata.refresh.interval.ms": 500,
    }


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, servers: str, group: str, topic: str, **settings: object) -> None:
        common: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "partition_assignment_strategy": [KafkaPythonRange],
        }
        self.consumer = kafka.KafkaConsumer(topic, **(common | settings))

    def poll(self) -> list[Seen]:
        # It can hang for good when its poll ends in the middle of joining: poll long enough.
        try:
            found = self.consumer.poll(timeout_ms=500)
        except kafka.errors.KafkaConnectionError:  # it raises where others go on trying
            return []
        return [(tp.partition, r.offset) for tp, records in found.items() for r in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


class AiokafkaMember:
    """aiokafka, on a loop in a thread."""

    def __init__(self, servers: str, group: str, topic: str, **settings: object) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        common: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "partition_assignment_strategy": [AiokafkaRange],
        }
        self.consumer = self._run(self._start(topic, common | settings))

    async def _start(self, topic: str, settings: Mapping[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings)
        await consumer.start()
        return consumer

    def _run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(DEADLINE_S)

    def poll(self) -> list[Seen]:
        found = self._run(self.consumer.getmany(timeout_ms=50))
        return [(tp.partition, r.offset) for tp, records in found.items() for r in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self._run(self.consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


class Driver:
    """Polls members in a thread each, as applications do, and keeps what they consumed."""

    def __init__(self) -> None:
        self.seen: Counter[Seen] = Counter()
        self._owned: dict[Member, set[int]] = {}
        self._members: dict[Member, tuple[threading.Thread, threading.Event]] = {}
        self._changed = threading.Condition()
        self.failures: list[BaseException] = []

    def add(self, make: Callable[[], Member]) -> Member:
        """Start a member; its thread polls until `leave`."""
        member = make()
        leaving = threading.Event()
        thread = threading.Thread(target=self._drive, args=(member, leaving), daemon=True)
        self._members[member] = (thread, leaving)
        thread.start()
        return member

    def _drive(self, member: Member, leaving: threading.Event) -> None:
        try:
            while not leaving.is_set():
                found, owned = member.poll(), member.assignment()
                with self._changed:
                    self.seen.update(found)
                    self._owned[member] = owned
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  # shown by the test's thread
            self.failures.append(error)
        finally:
            member.close()

    def owned(self, member: Member) -> set[int]:
        """What a member owned after its last poll; clients are not asked by other threads."""
        return self._owned.get(member, set())

    def leave(self, member: Member) -> None:
        """End a member's thread; it commits and leaves."""
        thread, leaving = self._members.pop(member)
        leaving.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert not self.failures, self.failures

    def leave_all(self) -> None:
        """End every member."""
        for _, leaving in self._members.values():
            leaving.set()
        for thread, _ in self._members.values():
            thread.join(DEADLINE_S)
        self._members.clear()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, looking again after each poll of a member."""

        def holds() -> bool:
            with self._changed:
                self._changed.wait(0.1)
                assert not self.failures, self.failures
                return condition()

        eventually(holds, what)

    def until_shared(self, members: Sequence[Member], partitions: int) -> None:
        """Wait until the members own all partitions, evenly and each once."""

        def shared() -> bool:
            owned = [self.owned(member) for member in members]
            together = [partition for each in owned for partition in each]
            fair = max(map(len, owned)) - min(map(len, owned)) <= 1
            return sorted(together) == list(range(partitions)) and fair

        self.until(shared, f"{len(members)} members share {partitions} partitions")


def produce(servers: str, topic: str, count: int, first: int = 0) -> None:
    """Append `count` records with librdkafka's default producer, spread over the partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, key=str(number).encode(), value=b"value %d" % number)
    assert producer.flush(DEADLINE_S) == 0
