"""A group of two: a member behind a proxy that watches its commits, and one without a proxy."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer
from kohort.client.consumer.listener import Listens
from kohort.types import TopicPartition
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity
from tests.client.group_scenarios import Notes, is_shared, partitions_of
from tests.client.refusing_proxy import RefusingProxy
from tests.real_kafka import foreign
from tests.system.clients.ours import settings_of

PARTITIONS, RECORDS = 4, 10
NEVER_MS = 3_600_000

PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Case:
    """A member behind a proxy that has read everything, and other members that join later."""

    def __init__(self, broker: str, proxy: RefusingProxy, protocol: str) -> None:
        self.proxy = proxy
        self.protocol = protocol
        self.group = uuid.uuid4().hex
        self.topic = foreign.new_topic(broker, PARTITIONS)
        self.everything = partitions_of(self.topic, PARTITIONS)
        self.notes = Notes()
        self.seen: list[tuple[TopicPartition, int]] = []
        self.polls = 0
        self.members: list[AsyncConsumer] = []
        self.broker = broker
        self._settings = PROTOCOLS[protocol]
        self.produce()

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            foreign.produce(self.broker, self.topic, [b""] * RECORDS, partition)

    async def start(self, **settings: object) -> AsyncConsumer:
        """The member of interest, once it has read all records."""
        consumer = self.new(self.notes, **settings)
        await self.read_all()
        return consumer

    def new(self, listener: Listens, **settings: object) -> AsyncConsumer:
        """The member of interest, which commits only partitions that it gives up."""
        settings = {"auto_commit_interval_ms": NEVER_MS, "request_timeout_ms": 1_000} | settings
        consumer = self._new(self.proxy.bootstrap_servers, **settings)
        consumer.subscribe([self.topic], listener=listener)
        return consumer

    async def read_all(self) -> None:
        await self.poll_until(lambda: len(self.seen) == PARTITIONS * RECORDS)

    def another(self) -> AsyncConsumer:
        consumer = self._new(self.broker, enable_auto_commit=False)
        consumer.subscribe([self.topic])
        return consumer

    def _new(self, address: str, **settings: object) -> AsyncConsumer:
        consumer = AsyncConsumer(**settings_of(address, self.group, self._settings | settings))
        self.members.append(consumer)
        return consumer

    async def poll_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.polls += 1
            for each in self.members:
                for partition, records in (await each.poll(20)).items():
                    self.seen += [(partition, record.offset) for record in records]

    async def poll_until_shared(self) -> None:
        await self.poll_until(lambda: is_shared(self.members, self.topic, PARTITIONS))

    async def remove(self, member: AsyncConsumer, by: AsyncConsumer) -> None:
        """Take a member out of its group; it hears of that with its next heartbeat."""
        coordinator, gone = by._core.coordinator, member.member_id
        assert coordinator is not None
        if self.protocol == "consumer":
            await coordinator.send(
                ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=gone, member_epoch=-1)
            )
        else:
            members = (MemberIdentity(member_id=gone),)
            await coordinator.send(LeaveGroupRequest(group_id=self.group, members=members))

    async def until_refused(self, times: int = 1) -> None:
        await self.poll_until(lambda: len(self.proxy.refused) >= times)

    def committed(self) -> dict[int, int]:
        return {
            each: foreign.committed(self.broker, self.group, self.topic, each)
            for each in range(PARTITIONS)
        }


@contextlib.asynccontextmanager
async def case(protocol: str) -> AsyncIterator[Case]:
    with (
        EmbeddedBroker(
            group_consumer_heartbeat_interval_ms=100, group_consumer_session_timeout_ms=6_000
        ) as broker,
        RefusingProxy(broker.bootstrap_servers) as proxy,
    ):
        made = Case(broker.bootstrap_servers, proxy, protocol)
        try:
            yield made
        finally:
            proxy.refuses = lambda _: False
            for consumer in made.members:
                await consumer.close()
