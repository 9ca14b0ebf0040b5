"""A running group is moved to the consumer protocol and back, on any broker and by any client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kohort.client import Consumer
from kohort.errors import KafkaError
from tests.real_kafka import foreign
from tests.system.clients.group import (
    DEADLINE_S,
    AiokafkaMember,
    ConfluentMember,
    ConsumerProtocolMember,
    Driver,
    KafkaPythonMember,
    Member,
    Seen,
    produce,
)

PARTITIONS = 6
RECORDS = 300

MakeMember = Callable[[str, str, str], Member]


class OurMember:
    """kohort's consumer, of either protocol."""

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.consumer = Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
            **settings,
        )

    def poll(self) -> list[Seen]:
        found = self.consumer.poll(50)
        return [(tp.partition, each.offset) for tp, records in found.items() for each in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def _ours(**settings: object) -> MakeMember:
    def make(servers: str, group: str, topic: str) -> Member:
        return OurMember(servers, group, topic, **settings)

    return make


_SOON = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
OUR_RANGE = _ours(partition_assignment_strategy=["range"], **_SOON)
OUR_COOPERATIVE = _ours(partition_assignment_strategy=["cooperative-sticky"], **_SOON)
OUR_CONSUMER = _ours(group_protocol="consumer")
THEIR_RANGE: MakeMember = ConfluentMember
THEIR_COOPERATIVE: MakeMember = partial(
    ConfluentMember, partition_assignment_strategy="cooperative-sticky"
)
THEIR_CONSUMER: MakeMember = ConsumerProtocolMember

# Members of the classic and of the consumer protocol.
PAIRS: dict[str, tuple[MakeMember, MakeMember]] = {
    "range": (OUR_RANGE, OUR_CONSUMER),
    "cooperative-sticky": (OUR_COOPERATIVE, OUR_CONSUMER),
    "librdkafka-range": (THEIR_RANGE, THEIR_CONSUMER),
    "ours-to-librdkafka": (OUR_COOPERATIVE, THEIR_CONSUMER),
    "librdkafka-to-ours": (THEIR_RANGE, OUR_CONSUMER),
    "kafka-python-to-ours": (KafkaPythonMember, OUR_CONSUMER),
    "kafka-python-to-librdkafka": (KafkaPythonMember, THEIR_CONSUMER),
    "aiokafka-to-ours": (AiokafkaMember, OUR_CONSUMER),
    "aiokafka-to-librdkafka": (AiokafkaMember, THEIR_CONSUMER),
}


class Move:
    """One group of two members on its way, and what it has read."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.group = f"moved-{uuid.uuid4().hex[:8]}"
        self.topic = foreign.new_topic(servers, PARTITIONS)
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._produced = 0
        self.driver = Driver()
        self.members: list[Member] = []

    def add(self, make: MakeMember) -> None:
        """A member joins."""
        self.begin(make)
        self.settle()

    def begin(self, make: MakeMember) -> Member:
        """A member begins to join."""
        member = self.driver.add(partial(make, self.servers, self.group, self.topic))
        self.members.append(member)
        return member

    def join(self, make: MakeMember) -> None:
        """Poll a member that is to be refused, until it is."""
        member = make(self.servers, self.group, self.topic)
        try:
            end = time.monotonic() + DEADLINE_S
            while time.monotonic() < end:
                member.poll()
        finally:
            member.close()

    def drop_oldest(self) -> None:
        """A member leaves."""
        self.driver.leave(self.members.pop(0))
        self.settle()

    def until_owns(self, member: Member) -> None:
        """Wait until a member has a partition; others may still be on their way."""
        self.driver.until(lambda: bool(self.driver.owned(member)), "a partition")

    def settle(self) -> None:
        """Wait until all share the partitions for good, and then have read more records."""
        self.driver.until_shared(self.members, PARTITIONS)
        self.driver.until(lambda: self._told("state") == "STABLE", "a stable group")
        produce(self.servers, self.topic, RECORDS, first=self._produced)
        self._produced += RECORDS
        self.driver.until(lambda: len(self.driver.seen) == self._produced, "every record")

    def group_type(self) -> str:
        """What the group is, as a foreign administrator is told."""
        return self._told("type")

    def _told(self, what: str) -> str:
        """Empty while a broker that has come back does not list the group yet."""
        listed = self._admin.list_consumer_groups().result()
        found = [getattr(each, what).name for each in listed.valid if each.group_id == self.group]
        return str(found[0]) if found else ""


def there_and_back(servers: str, classic: MakeMember, consumer: MakeMember) -> None:
    """K40, K47: roll a group of two over to the consumer protocol, one by one, and back again.

    Each record is consumed, and none twice, because every change is a graceful one that finds the
    group stable. (As on Kafka, a classic member that is an epoch behind when the last consumer
    leaves may not commit any more: the dialogue downgrade-of-a-group-in-motion.)
    """
    move = Move(servers)
    try:
        move.add(classic)
        move.add(classic)
        assert move.group_type() == "CLASSIC"
        for _ in range(2):
            move.add(consumer)
            assert move.group_type() == "CONSUMER"
            move.drop_oldest()
        assert move.group_type() == "CONSUMER"
        for _ in range(2):
            move.add(classic)
            assert move.group_type() == "CONSUMER"
            move.drop_oldest()
        assert move.group_type() == "CLASSIC"
    finally:
        move.driver.leave_all()
    assert set(move.driver.seen.values()) == {1}


def librdkafka_leads_a_group_that_stays(servers: str) -> None:
    """K41: the leader of librdkafka's cooperative-sticky tells its members more than partitions.

    (It sends each of them its own user data back.) The group goes on as it is, undisturbed.
    """
    move = Move(servers)
    try:
        move.add(THEIR_COOPERATIVE)
        move.add(THEIR_COOPERATIVE)
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            move.join(OUR_CONSUMER)
        move.drop_oldest()
        assert move.group_type() == "CLASSIC"
    finally:
        move.driver.leave_all()
    assert set(move.driver.seen.values()) == {1}
