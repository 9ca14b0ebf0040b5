"""A Kafka to test a service against: the objects behind the pytest fixtures, for any framework."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kohort import AdminClient, TopicPartition
from kohort.client import NewTopic
from kohort.errors import ErrorCode, KohortError, PartialFailureError
from kohort.testing.harness_clients import (
    DEADLINE_S,
    HarnessClients,
    HarnessError,
    left_ms,
)
from kohort.testing.looking import (
    begun,
    described_group,
    has_its_part,
    lag_of,
    polled,
    read,
    shown,
)
from kohort.wire.records.header import parse_header

if TYPE_CHECKING:
    from kohort.broker import EmbeddedBroker
    from kohort.broker.faults import Action, Faults, Injected
    from kohort.client.admin.values import GroupDescription, MemberDescription
    from kohort.client.consumer.records import ConsumerRecord

# The minimum that Kafka's defaults allow (group.min.session.timeout.ms).
_SHORTEST_SESSION_MS = 6_000
# For this long after a topic's creation, a broker of a cluster may still not know it.
_SPREADS_S = 5.0
_ALONE = "only an embedded broker can do that, and this is another Kafka"


class KafkaHarness(HarnessClients):
    """One Kafka, with operations for tests.

    Methods take the name of a `topic`, the number of a `partition`, the id of a `group` or of a
    client (`client_id`); `timeout_s` is the timeout in seconds.

    Args:
        bootstrap_servers: Its address.
        broker: Its embedded broker; None for any other Kafka.
        settings: Settings of its clients, by Kafka's names (`security.protocol`) or with
            underscores; None: those of the first user of a secured embedded broker. The user needs
            all rights.

    Attributes:
        bootstrap_servers: The address for clients.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        broker: EmbeddedBroker | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if settings is None:
            settings = {} if broker is None else broker.client_settings()
        super().__init__(bootstrap_servers, settings)
        self._broker = broker

    def apart(self) -> KafkaHarness:
        """Return another harness for the same Kafka, which can be cancelled independently."""
        return KafkaHarness(self.bootstrap_servers, self._broker, self._settings)

    @property
    def is_embedded(self) -> bool:
        """Whether it supports faults."""
        return self._broker is not None

    # ------------------------------------------------------------------------------- topics

    def create_topic(
        self, name: str = "", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with `partitions` and `configs`; return its `name`, unique by default.

        It returns once the topic can be described: brokers may learn of it after its creation.

        Raises:
            HarnessError: The topic cannot be described in time.
            KafkaError: The brokers refuse it, for instance because the topic exists.
        """
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        with self._admin() as admin:
            admin.create_topics([NewTopic(name, partitions, configs=dict(configs or {}))])
            self._until(
                lambda: admin.describe_topics([name]), f"the new topic {name} can be described"
            )
        return name

    def delete_topic(self, name: str) -> None:
        """Delete the topic with this `name`, if it exists."""
        with self._admin() as admin:
            if name in admin.list_topics():
                admin.delete_topics([name])

    def produce(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        """Write records with `values`, in this order and all with `key`; wait until acknowledged.

        Raises:
            HarnessError: The topic does not exist (this does not create it), or no broker answers
                in time.
            KafkaError: The brokers refuse a record.
        """
        self._numbers(topic)
        with self._producer() as producer:
            for future in [producer.send(topic, value, key=key) for value in values]:
                future.result()

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return all committed records of a topic, partition by partition.

        Raises:
            HarnessError: The topic does not exist, or not all could be read in time.
        """
        with self._reader() as consumer:
            numbers = consumer.partitions_for_topic(topic)
            if not numbers:
                raise HarnessError(f"there is no topic {topic}")
            places = begun(consumer, topic, numbers)
            ends = consumer.end_offsets(places)
            found: dict[TopicPartition, list[ConsumerRecord]] = {each: [] for each in places}
            self._until(
                lambda: read(consumer, found, ends), f"all records of {topic} could be read"
            )
        return [record for each in places for record in found[each]]

    def wait_for_records(
        self, topic: str, count: int, timeout_s: float = DEADLINE_S
    ) -> list[ConsumerRecord]:
        """Return committed records of a topic once there are at least `count`, in read order.

        Args:
            topic: The topic; it may be created meanwhile.
            count: Minimum number of records.
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: There were fewer in time; the message gives their number.
        """
        found: list[ConsumerRecord] = []
        last, end = "", time.monotonic() + timeout_s
        with self._reader() as consumer:

            def enough() -> bool:
                nonlocal last
                if not consumer.assignment():
                    numbers = consumer.partitions_for_topic(topic, left_ms(end))
                    if not numbers:
                        last = f"there is no topic {topic}"
                        return False
                    begun(consumer, topic, numbers)
                for records in consumer.poll(50).values():
                    found.extend(records)
                last = f"it has {len(found)}" + (
                    f", the last is {found[-1].value!r}" if found else ""
                )
                return len(found) >= count

            self._until(enough, f"{topic} has {count} records", lambda: last, timeout_s)
        return found

    def expire_records(self, topic: str) -> None:
        """Delete all records of a topic, as its retention does.

        Raises:
            HarnessError: The topic does not exist.
        """
        numbers = self._numbers(topic)
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, each): -1 for each in numbers})

    def corrupt(self, topic: str, partition: int = 0, offset: int = 0) -> None:
        """Flip a bit in the batch of the record at `offset`, on the disk of the embedded broker.

        Raises:
            HarnessError: The record does not exist, or this is another Kafka.
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
        """Return the committed offsets of a group; none if the group does not exist."""
        with self._admin() as admin:
            found = admin.list_group_offsets(group)
        return {partition: stored.offset for partition, stored in found.items()}

    def wait_for_commit(
        self, group: str, counts: Mapping[str, int], timeout_s: float = DEADLINE_S
    ) -> None:
        """Return once a group has committed these numbers of records, over all partitions.

        Args:
            group: The group.
            counts: Number of records, by topic.
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: It had not in time; the message gives the committed numbers.
        """
        found: dict[str, int] = {}

        def done(admin: AdminClient) -> bool:
            committed = admin.list_group_offsets(group)
            found.clear()
            for place, stored in committed.items():
                found[place.topic] = found.get(place.topic, 0) + stored.offset
            return all(found.get(topic, 0) >= count for topic, count in counts.items())

        what = f"group {group} has committed {dict(counts)}"
        self._seen(done, what, lambda: f"it has committed {found}", timeout_s)

    def lag(self, group: str, *topics: str) -> dict[TopicPartition, int]:
        """Return how many records a group has not committed yet, by partition.

        Args:
            group: The group.
            topics: The topics, with all partitions; all records of a partition without a commit
                count. None: the partitions that the group has committed.

        Raises:
            HarnessError: The topic does not exist.
        """
        for topic in topics:
            self._numbers(topic)
        with self._admin() as admin:
            return lag_of(admin, group, topics)

    def wait_for_no_lag(self, group: str, *topics: str, timeout_s: float = DEADLINE_S) -> None:
        """Return once a group has committed all records of topics.

        Args:
            group: The group.
            topics: The topics, at least one.
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: It had not in time; the message gives the lag of each partition.
        """
        if not topics:
            raise HarnessError("wait_for_no_lag: name at least one topic")
        behind: dict[TopicPartition, int] = {}

        def done(admin: AdminClient) -> bool:
            lags = lag_of(admin, group, topics)
            behind.clear()
            behind.update({at: lag for at, lag in lags.items() if lag})
            return not behind

        def last() -> str:
            return f"it is behind by {shown(behind)}" if behind else ""

        self._seen(done, f"group {group} has committed all of {', '.join(topics)}", last, timeout_s)

    def owners(self, group: str) -> dict[TopicPartition, MemberDescription]:
        """Return the owner of each partition of a group; empty if the group does not exist."""
        with self._admin() as admin:
            described = described_group(admin, group)
        members = described.members if described else ()
        return {place: member for member in members for place in member.assignment}

    def wait_for_members(
        self, group: str, count: int, timeout_s: float = DEADLINE_S
    ) -> GroupDescription:
        """Return a group once it is stable with `count` members.

        Args:
            group: The group.
            count: Number of members; 0 waits until it is empty.
            timeout_s: Timeout in seconds.

        Raises:
            HarnessError: It was not in time; the message gives its last state.
        """
        last = ""

        def found(admin: AdminClient) -> GroupDescription | None:
            nonlocal last
            described = described_group(admin, group)
            if described is None:
                last = "it does not exist"
                return None
            last = f"{described.state} with {len(described.members)} members"
            is_settled = described.state == ("Stable" if count else "Empty")
            return described if is_settled and len(described.members) == count else None

        what = f"group {group} {'is stable with' if count else 'has'} {count} members"
        return self._seen(found, what, lambda: last, timeout_s)

    def rebalance(self, group: str) -> None:
        """Trigger a rebalance: a member joins for a moment, then leaves.

        It subscribes to the other members' topics, gets partitions if there are more partitions
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
        with self._member(group, topics, **settings) as member:

            def has_joined(admin: AdminClient) -> bool:
                return polled(member) and has_its_part(member, described_group(admin, group))

            self._seen(has_joined, f"{group} rebalances with one more member")

    def expire_member(self, group: str, client_id: str = "") -> None:
        """Remove members as a session timeout does; they notice it at the next heartbeat.

        Args:
            group: Their group.
            client_id: Their client id; empty: all members.

        Raises:
            HarnessError: The group does not have this member.
        """
        described = self._group_with_members(group)
        chosen = [each.member_id for each in described.members if client_id in ("", each.client_id)]
        if not chosen:
            names = ", ".join(sorted({each.client_id for each in described.members}))
            raise HarnessError(f"group {group} has no member of client {client_id}; it has {names}")
        with self._admin() as admin:
            admin.remove_group_members(group, chosen, "removed by a test")

    def fence(self, group: str, instance_id: str) -> None:
        """Replace the static member `instance_id` of a classic group, which fences it.

        The member notices it at its next heartbeat. The instance id is free again after some
        seconds, when the session of the new member has ended.

        Raises:
            HarnessError: The group has no members, or uses KIP-848, where the new member is refused
                instead.
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
            self._until(lambda: polled(member) and member.member_id, f"{instance_id} is fenced")

    def expire_offsets(self, group: str) -> None:
        """Delete the committed offsets of a group without members, as their retention does.

        Raises:
            HarnessError: The group does not exist.
            KafkaError: It has members that subscribe to those topics.
        """
        with self._admin() as admin:
            places = admin.list_group_offsets(group)
            if not places and described_group(admin, group) is None:
                raise HarnessError(f"there is no group {group}")
            admin.delete_group_offsets(list(places), group)

    def delete_group(self, group: str) -> None:
        """Remove a group with its members and offsets; a missing group is not an error."""

        def gone(admin: AdminClient) -> bool:
            described = described_group(admin, group)
            if described is None:
                return True
            try:
                members = [each.member_id for each in described.members]
                if members:
                    admin.remove_group_members(group, members, "its test is over")
                admin.delete_groups([group])
            except KohortError:
                time.sleep(0.05)  # another member may have joined meanwhile
                return False
            return True

        self._seen(gone, f"group {group} could be deleted")

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
        """Return a context with a fault, by its `action` and `where`; see `kohort.broker.Fault`.

        It affects the harness's own calls only with `client_id="kohort-harness"`.

        Raises:
            ConfigError: The fault is invalid.
            HarnessError: This is another Kafka.
        """
        from kohort.broker.faults import fault_of

        return self.faults.injected(fault_of({"action": action, **where}))

    def mute(self, client_id: str) -> AbstractContextManager[Injected]:
        """Return a context in which a client gets no responses, as if disconnected.

        At its end, connections that wait for responses are closed.
        """
        return self.fault("silence", client_id=client_id, times=0)

    def moved_coordinator(self, group: str) -> AbstractContextManager[Injected]:
        """Return a context in which no broker serves a group: its coordinator names another broker.

        The service is blocked until the end: wait for its next action after the context.
        """
        return self.fault("error", error="NOT_COORDINATOR", group=group, times=0)

    # ------------------------------------------------------------------------------- inside

    def _numbers(self, topic: str) -> range:
        """Return the partitions of a topic; other brokers may learn of a new one a little later."""
        end = time.monotonic() + (0 if self.is_embedded else _SPREADS_S)
        with self._admin() as admin:
            while True:
                try:
                    return range(len(admin.describe_topics([topic])[topic]))
                except PartialFailureError as error:
                    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    if time.monotonic() >= end:
                        raise HarnessError(f"there is no topic {topic}") from error
                time.sleep(0.05)

    def _group_with_members(self, group: str) -> GroupDescription:
        with self._admin() as admin:
            described = described_group(admin, group)
        if described is None or not described.members:
            raise HarnessError(f"group {group} has no members: start them before")
        return described
