"""A Kafka to test a service against: what the pytest fixtures give, also for other frameworks."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.client import NewTopic
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.wire.records.header import parse_header

if TYPE_CHECKING:
    from kohort.broker import EmbeddedBroker
    from kohort.broker.faults import Action, Faults, Injected
    from kohort.client.admin_values import GroupDescription
    from kohort.client.records import ConsumerRecord

T = TypeVar("T")

DEADLINE_S = 60.0
"""How long the calls of a harness wait for what they are about."""

_READY = re.compile(r"kohort broker ready on (\S+)\s")
_NAME = "kohort-harness"
# The least that Kafka's defaults allow (group.min.session.timeout.ms).
_SHORTEST_SESSION_MS = 6_000
_ALONE = "only an embedded broker can do that, and this is another Kafka"


class HarnessError(KohortError):
    """What a test asked for did not come about, or cannot here."""


class KafkaHarness:
    """One Kafka, and what tests do with it.

    Args:
        bootstrap_servers: Where it is.
        broker: The same as an embedded broker; None for any other Kafka.

    Attributes:
        bootstrap_servers: Where clients connect to.
    """

    def __init__(self, bootstrap_servers: str, broker: EmbeddedBroker | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._broker = broker

    @property
    def is_embedded(self) -> bool:
        """Whether it can have faults."""
        return self._broker is not None

    # ------------------------------------------------------------------------------- topics

    def create_topic(
        self, name: str = "", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name; without a name it gets one of its own."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        with self._admin() as admin:
            admin.create_topics([NewTopic(name, partitions, configs=dict(configs or {}))])
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic; one that is gone already is no error."""
        with self._admin() as admin:
            if name in admin.list_topics():
                admin.delete_topics([name])

    def produce(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        """Write records with these values, in this order; returns when they are acknowledged.

        Raises:
            KafkaError: One could not be written.
        """
        with Producer(bootstrap_servers=self.bootstrap_servers, client_id=_NAME) as producer:
            for future in [producer.send(topic, value, key=key) for value in values]:
                future.result(DEADLINE_S)

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return all committed records of a topic, partition by partition.

        Raises:
            HarnessError: There is no such topic, or not all could be read in time.
        """
        with Consumer(
            bootstrap_servers=self.bootstrap_servers,
            client_id=_NAME,
            isolation_level="read_committed",
        ) as consumer:
            numbers = consumer.partitions_for_topic(topic)
            if not numbers:
                raise HarnessError(f"there is no topic {topic}")
            places = [TopicPartition(topic, each) for each in sorted(numbers)]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            found: dict[TopicPartition, list[ConsumerRecord]] = {each: [] for each in places}
            self._until(
                lambda: _read(consumer, found, ends), f"all records of {topic} could be read"
            )
        return [record for each in places for record in found[each]]

    def expire_records(self, topic: str) -> None:
        """Delete all that is in a topic, as its retention does."""
        with self._admin() as admin:
            numbers = range(len(admin.describe_topics([topic])[topic]))
            admin.delete_records({TopicPartition(topic, each): -1 for each in numbers})

    def corrupt(self, topic: str, partition: int = 0, offset: int = 0) -> None:
        """Flip a bit in the batch of a record, on the disk of the embedded broker.

        Raises:
            HarnessError: There is no such record, or this is another Kafka.
        """
        if self._broker is None:
            raise HarnessError(f"corrupt: {_ALONE}")
        place = f"{topic}-{partition} has no offset {offset}"
        for path in sorted(self._broker.directory.glob(f"**/{topic}-{partition}/*.log")):
            data, at = bytearray(path.read_bytes()), 0
            while at < len(data):
                header = parse_header(memoryview(data)[at:])
                if header.base_offset <= offset <= header.last_offset:
                    with path.open("r+b") as file:
                        file.seek(at + header.size_in_bytes - 1)
                        file.write(bytes([data[at + header.size_in_bytes - 1] ^ 1]))
                    return
                at += header.size_in_bytes
        raise HarnessError(f"corrupt: {place}")

    # ------------------------------------------------------------------------------- groups

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed."""
        with self._admin() as admin:
            found = admin.list_group_offsets(group)
        return {partition: stored.offset for partition, stored in found.items()}

    def wait_for_commit(self, group: str, counts: Mapping[str, int]) -> None:
        """Return once a group has committed so many records of topics, over all partitions.

        Raises:
            HarnessError: It has not in time; says what it has committed last.
        """
        found: dict[str, int] = {}

        def done() -> bool:
            found.clear()
            for place, offset in self.committed(group).items():
                found[place.topic] = found.get(place.topic, 0) + offset
            return all(found.get(topic, 0) >= count for topic, count in counts.items())

        what = f"group {group} has committed {dict(counts)}"
        self._until(done, what, lambda: f"it has committed {found}")

    def wait_for_members(self, group: str, count: int) -> GroupDescription:
        """Return a group once it is stable with so many members.

        Raises:
            HarnessError: It is not in time; says what it was last.
        """
        last = "it does not exist"
        with self._admin() as admin:

            def found() -> GroupDescription | None:
                nonlocal last
                described = _described(admin, group)
                if described is None:
                    return None
                last = f"{described.state} with {len(described.members)} members"
                stable = described.state == "Stable" and len(described.members) == count
                return described if stable else None

            what = f"group {group} is stable with {count} members"
            return self._until(found, what, lambda: last)

    def rebalance(self, group: str) -> None:
        """Have a group rebalance: a member joins for a moment, then leaves.

        It subscribes to what the others have, takes partitions as long as there are more of them
        than members, and commits nothing. The others must poll meanwhile.

        Raises:
            HarnessError: The group has no members, or it was not ready in time.
        """
        described = self._group_with_members(group)
        topics = {place.topic for each in described.members for place in each.assignment}
        topics |= {topic for each in described.members for topic in each.topics}
        settings = (
            {"group_protocol": "consumer"}
            if described.type == "consumer"
            else {"partition_assignment_strategy": described.assignor}
        )
        with self._member(group, topics, **settings) as member, self._admin() as admin:
            self._until(
                lambda: _polled(member) and _has_its_part(member, _described(admin, group)),
                f"{group} rebalances with one more member",
            )

    def expire_member(self, group: str, client_id: str = "") -> None:
        """Remove members as the end of their session does; they hear of it at the next heartbeat.

        Args:
            group: Their group.
            client_id: What the client calls itself; empty for all members.

        Raises:
            HarnessError: The group has no such member.
        """
        described = self._group_with_members(group)
        chosen = [each.member_id for each in described.members if client_id in ("", each.client_id)]
        if not chosen:
            names = ", ".join(sorted({each.client_id for each in described.members}))
            raise HarnessError(f"group {group} has no member of client {client_id}; it has {names}")
        with self._admin() as admin:
            admin.remove_group_members(group, chosen, "removed by a test")

    def fence(self, group: str, instance_id: str) -> None:
        """Take the place of a static member of a classic group, which is fenced by that.

        It hears so at its next heartbeat. The place is free again after some seconds, when the
        session of the one that took it has ended.

        Raises:
            HarnessError: The group has no members, or speaks KIP-848, where the newcomer is the one
                that is refused.
        """
        described = self._group_with_members(group)
        if described.type == "consumer":
            raise HarnessError("fence: in a group of KIP-848 the newcomer is refused, not fenced")
        topics = {topic for each in described.members for topic in each.topics}
        member = self._member(
            group,
            topics,
            partition_assignment_strategy=described.assignor,
            group_instance_id=instance_id,
            session_timeout_ms=_SHORTEST_SESSION_MS,
            heartbeat_interval_ms=_SHORTEST_SESSION_MS // 3,
        )
        with member:  # a static member does not leave when it closes: it expires
            self._until(lambda: _polled(member) and member.member_id, f"{instance_id} is fenced")

    def expire_offsets(self, group: str) -> None:
        """Delete what a group without members has committed, as its retention does."""
        with self._admin() as admin:
            places = admin.list_group_offsets(group)
            admin.delete_group_offsets(list(places), group)

    def delete_group(self, group: str) -> None:
        """Remove a group with its members and offsets; one that is gone already is no error."""
        with self._admin() as admin:

            def gone() -> bool:
                described = _described(admin, group)
                if described is None:
                    return True
                try:
                    members = [each.member_id for each in described.members]
                    if members:
                        admin.remove_group_members(group, members, "its test is over")
                    admin.delete_groups([group])
                except KohortError:
                    time.sleep(0.05)  # it may have got another member meanwhile
                    return False
                return True

            self._until(gone, f"group {group} could be deleted")

    # ------------------------------------------------------------------------------- faults

    @property
    def faults(self) -> Faults:
        """The faults of the embedded broker.

        Raises:
            HarnessError: This is another Kafka.
        """
        if self._broker is None:
            raise HarnessError(f"faults: {_ALONE}")
        return self._broker.faults

    def fault(self, action: Action, **where: object) -> AbstractContextManager[Injected]:
        """Return a context in which the broker has a fault; see `kohort.broker.Fault`.

        Raises:
            ConfigError: It makes no sense.
            HarnessError: This is another Kafka.
        """
        from kohort.broker.faults import fault_of

        return self.faults.injected(fault_of({"action": action, **where}))

    def mute(self, client_id: str) -> AbstractContextManager[Injected]:
        """Return a context in which a client gets no answers, as if it were cut off.

        At its end the connections that wait for answers are closed.
        """
        return self.fault("silence", client_id=client_id, times=0)

    def moved_coordinator(self, group: str) -> AbstractContextManager[Injected]:
        """Return a context in which a group has no coordinator: it says that another broker is."""
        return self.fault("error", error="NOT_COORDINATOR", group=group, times=0)

    # ------------------------------------------------------------------------------- inside

    def _admin(self) -> AdminClient:
        return AdminClient(bootstrap_servers=self.bootstrap_servers, client_id=_NAME)

    def _member(self, group: str, topics: Iterable[str], **settings: str | int) -> Consumer:
        member = Consumer.from_config(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": _NAME,
                "group.id": group,
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        member.subscribe(topics)
        return member

    def _group_with_members(self, group: str) -> GroupDescription:
        with self._admin() as admin:
            described = _described(admin, group)
        if described is None or not described.members:
            raise HarnessError(f"group {group} has no members: start them before")
        return described

    def _until(self, found: Callable[[], T | None], what: str, last: Callable[[], str] = str) -> T:
        end = time.monotonic() + DEADLINE_S
        while not (value := found()):
            if time.monotonic() > end:
                said = f"; {last()}" if last() else ""
                raise HarnessError(f"not within {DEADLINE_S:.0f} s: {what}{said}")
            time.sleep(0.01)
        return value


class KafkaProcess:
    """An embedded broker in a process of its own, which tests may kill, stop and pause.

    Args:
        data: Its data directory.
        options: Options of `kohort broker`.
    """

    def __init__(self, data: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{port}"
        words = ["--data", str(data), "--port", str(port), *options]
        self._command = [sys.executable, "-m", "kohort.broker", *words]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def kafka(self) -> KafkaHarness:
        """What tests do with the Kafka that it is."""
        return KafkaHarness(self.bootstrap_servers)

    def start(self) -> None:
        """Start it; returns when it serves clients. What it had is there again.

        Raises:
            HarnessError: It runs already, or did not start.
        """
        if self._process is not None:
            raise HarnessError("the broker runs already")
        self._process = subprocess.Popen(  # noqa: S603  # our own command
            self._command, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not _READY.match(line):
            code = self._ended()
            raise HarnessError(f"the broker did not start: it said {line!r} and ended with {code}")

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); one that does not run stays so."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> int:
        """End it in order (SIGTERM); return its exit code."""
        self._signal(signal.SIGTERM)
        return self._ended()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP) until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise HarnessError("the broker does not run")
        self._process.send_signal(number)

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        code = process.wait(DEADLINE_S)
        process.stdout.close()
        return code


def _described(admin: AdminClient, group: str) -> GroupDescription | None:
    try:
        described = admin.describe_groups([group])[group]
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return None if described.state == "Dead" else described


def _has_its_part(member: Consumer, group: GroupDescription | None) -> bool:
    """Whether a group is stable with a member that has partitions, if there are enough for it."""
    if group is None or group.state != "Stable":
        return False
    if member.member_id not in {each.member_id for each in group.members}:
        return False
    partitions = sum(len(each.assignment) for each in group.members)
    return bool(member.assignment()) or partitions < len(group.members)


def _polled(member: Consumer) -> bool:
    member.poll(20)
    return True


def _read(
    consumer: Consumer,
    found: dict[TopicPartition, list[ConsumerRecord]],
    ends: Mapping[TopicPartition, int],
) -> bool:
    for place, records in consumer.poll(50).items():
        found[place] += records
    return all(consumer.position(place) >= end for place, end in ends.items())
