"""Auto-commit while the coordinator refuses commits for a time, around a revocation."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer
from kohort.types import TopicPartition
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity
from tests.client.group_scenarios import Notes, is_shared, partitions_of
from tests.client.loops import on_a_loop
from tests.client.refusing_proxy import Offsets, RefusingProxy
from tests.clients.ours import settings_of
from tests.real_kafka import foreign

PARTITIONS, RECORDS = 4, 10
NEVER_MS = 3_600_000

PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Case:
    """A member behind a proxy that has read everything, and others that come."""

    def __init__(self, broker: str, proxy: RefusingProxy, protocol: str) -> None:
        self.proxy = proxy
        self.group = uuid.uuid4().hex
        self.topic = foreign.new_topic(broker, PARTITIONS)
        self.everything = partitions_of(self.topic, PARTITIONS)
        self.notes = Notes()
        self.seen: list[tuple[TopicPartition, int]] = []
        self.polls = 0
        self.members: list[AsyncConsumer] = []
        self._broker = broker
        self._protocol = PROTOCOLS[protocol]
        self.produce()

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            foreign.produce(self._broker, self.topic, [b""] * RECORDS, partition)

    async def start(self, **settings: object) -> AsyncConsumer:
        """The member of interest, once it has read all that there is."""
        settings = {"auto_commit_interval_ms": NEVER_MS, "request_timeout_ms": 1_000} | settings
        consumer = self._new(self.proxy.bootstrap_servers, **settings)
        consumer.subscribe([self.topic], listener=self.notes)
        await self.poll_until(lambda: len(self.seen) == PARTITIONS * RECORDS)
        return consumer

    def another(self) -> AsyncConsumer:
        consumer = self._new(self._broker, enable_auto_commit=False)
        consumer.subscribe([self.topic])
        return consumer

    def _new(self, address: str, **settings: object) -> AsyncConsumer:
        consumer = AsyncConsumer(**settings_of(address, self.group, self._protocol | settings))
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

    async def until_refused(self, times: int = 1) -> None:
        await self.poll_until(lambda: len(self.proxy.refused) >= times)

    def committed(self) -> dict[int, int]:
        return {
            each: foreign.committed(self._broker, self.group, self.topic, each)
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


def always(_offsets: Offsets) -> bool:
    return True


@every_protocol
@on_a_loop
async def test_l32_a_commit_before_a_revocation_goes_on_behind_the_polls(protocol: str) -> None:
    """Longer than one request may take, and while the member's heartbeats go on."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        c.another()
        await c.until_refused()
        polls, heartbeats = c.polls, c.proxy.heartbeats
        await c.until_refused(6)
        assert c.polls > polls + 3
        assert c.proxy.heartbeats > heartbeats
        assert subject.assignment() == c.everything
        assert [what for what, _ in c.notes.told] == ["assigned"]
        c.proxy.refuses = lambda _: False
        await c.poll_until_shared()
        given_up = c.everything - subject.assignment()
        assert {each.partition for each in given_up} <= c.proxy.stored[0].keys()
        c.produce()
        await c.poll_until(lambda: len(c.seen) == 2 * PARTITIONS * RECORDS)
        assert len(set(c.seen)) == len(c.seen)


@every_protocol
@on_a_loop
async def test_l32_kept_partitions_are_read_while_a_revocation_waits(protocol: str) -> None:
    """Those that go are not: what was read of them is being committed."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        c.another()
        await c.until_refused()
        going = c.proxy.refused[0].keys()
        c.seen.clear()
        c.produce()
        kept = {each for each in subject.assignment() if each.partition not in going}
        assert len(kept) == (0 if protocol == "eager" else 2)
        await c.poll_until(lambda: len(c.seen) == len(kept) * RECORDS)
        await c.until_refused(len(c.proxy.refused) + 2)
        assert {partition for partition, _ in c.seen} == kept


@every_protocol
@on_a_loop
async def test_l3_a_poll_that_is_cancelled_takes_no_call_along(protocol: str) -> None:
    """Nor does an unsubscribe: what it waited for is waited for by whatever comes next."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        other = c.another()
        await c.until_refused()
        for call in (subject.poll(60_000), subject.unsubscribe()):
            waiting = asyncio.ensure_future(call)
            refused = len(c.proxy.refused)
            while len(c.proxy.refused) == refused:
                await other.poll(20)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert subject.assignment() == c.everything
        c.proxy.refuses = lambda _: False
        subject.subscribe([c.topic], listener=c.notes)
        await c.poll_until_shared()
        first = c.notes.told[1]
        assert first[0] == "revoked"
        assert {each.partition for each in first[1]} <= c.proxy.stored[0].keys()


@every_protocol
@on_a_loop
async def test_l3_who_is_removed_meanwhile_has_lost_and_commits_no_more(protocol: str) -> None:
    """The others have the partitions already, and may have come further."""
    async with case(protocol) as c:
        subject = await c.start()
        member_id = subject.member_id
        c.proxy.refuses = always
        other = c.another()
        await c.until_refused()
        coordinator = other.core.coordinator
        assert coordinator is not None
        if protocol == "consumer":
            await coordinator.send(
                ConsumerGroupHeartbeatRequest(
                    group_id=c.group, member_id=member_id, member_epoch=-1
                )
            )
        else:
            gone = (MemberIdentity(member_id=member_id),)
            await coordinator.send(LeaveGroupRequest(group_id=c.group, members=gone))
        await c.poll_until(lambda: c.notes.all_of("lost") == c.everything)
        assert not c.notes.all_of("revoked")
        c.proxy.refuses = lambda _: False
        await c.poll_until_shared()
        assert c.proxy.stored == []


@every_protocol
@on_a_loop
async def test_who_closes_does_not_wait_for_ever(protocol: str) -> None:
    """For a commit that the coordinator does not take; the group has the partitions then."""
    async with case(protocol) as c:
        subject = await c.start()
        c.proxy.refuses = always
        await subject.close()
        c.members.remove(subject)
        assert c.notes.told[-1] == ("revoked", c.everything)
        assert c.proxy.refused
        other = c.another()
        await c.poll_until(lambda: other.assignment() == c.everything)
        assert all(at < 0 for at in c.committed().values())


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
@on_a_loop
async def test_a_later_attempt_leaves_out_what_was_given_up_meanwhile(protocol: str) -> None:
    """KAFKA-18641. Another member has come further there: its progress would be undone."""
    async with case(protocol) as c:
        c.proxy.refuses = lambda offsets: len(offsets) == PARTITIONS
        subject = await c.start(auto_commit_interval_ms=100)
        await c.until_refused()
        c.another()
        await c.poll_until_shared()
        c.proxy.refuses = lambda _: False
        c.produce()
        stored = len(c.proxy.stored)
        kept = {each.partition for each in subject.assignment()}
        await c.poll_until(lambda: len(c.proxy.stored) > stored)
        assert all(offsets.keys() <= kept for offsets in c.proxy.stored[stored:])
