"""Changing the subscription, unsubscribing and closing during a listener's call."""

from __future__ import annotations

import asyncio

import pytest

from kohort.client import AsyncConsumer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import LocalProtocolError
from kohort.types import TopicPartition
from tests.client.group_scenarios import partitions_of
from tests.client.loops import on_a_loop
from tests.client.watched_group import PARTITIONS, RECORDS, Case, case, every_protocol
from tests.real_kafka import foreign

Given = frozenset[TopicPartition]
every_call = pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
every_way_out = pytest.mark.parametrize("way_out", ["unsubscribe", "close"])


class Acts(RebalanceListener):
    """Acts on the first call of one kind; a coroutine."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entered = asyncio.Event()

    async def act(self) -> None:
        """Do the action."""

    async def _told(self, kind: str) -> None:
        if kind == self.kind and not self.entered.is_set():
            self.entered.set()
            await self.act()

    def on_partitions_assigned(self, partitions: Given, /) -> Told:
        return self._told("assigned")

    def on_partitions_revoked(self, partitions: Given, /) -> Told:
        return self._told("revoked")

    def on_partitions_lost(self, partitions: Given, /) -> Told:
        return self._told("lost")


class SubscribesAnew(Acts):
    """Subscribes to another topic."""

    def __init__(self, kind: str, topic: str) -> None:
        super().__init__(kind)
        self.topic = topic
        self.consumer: AsyncConsumer

    async def act(self) -> None:
        self.consumer.subscribe([self.topic], listener=self)


class TriesToLeave(Acts):
    """Makes a call that would wait for this listener itself."""

    def __init__(self, kind: str, way_out: str) -> None:
        super().__init__(kind)
        self.way_out = way_out
        self.consumer: AsyncConsumer
        self.refused = False

    async def act(self) -> None:
        with pytest.raises(LocalProtocolError, match="inside a listener"):
            await getattr(self.consumer, self.way_out)()
        self.refused = True


class TakesItsTime(Acts):
    """Finishes only on command."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.gate = asyncio.Event()

    async def act(self) -> None:
        await self.gate.wait()


async def begin(c: Case, listener: Acts) -> tuple[AsyncConsumer, AsyncConsumer]:
    """A group of two, during the listener's call; both have read everything."""
    subject = c.new(listener)
    if listener.kind == "assigned":
        await c.poll_until(listener.entered.is_set)
        return subject, c.another()
    await c.read_all()
    other = c.another()
    if listener.kind == "lost":
        await c.poll_until_shared()
        await c.remove(subject, by=other)
    await c.poll_until(listener.entered.is_set)
    return subject, other


def check_commits(c: Case) -> None:
    """No unread offsets were committed, and no position ever went back."""
    for number in range(PARTITIONS):
        stored = [offsets[number] for offsets in c.proxy.stored if number in offsets]
        assert stored == sorted(stored)
        assert set(stored) <= {0, RECORDS}


@every_protocol
@on_a_loop
async def test_l4_another_subscription_inside_a_revocation(protocol: str) -> None:
    """Revoked partitions are committed and given up; then so is the rest of the topic."""
    async with case(protocol) as c:
        listener = SubscribesAnew("revoked", foreign.new_topic(c.broker, 2))
        subject = listener.consumer = c.new(listener)
        await c.read_all()
        other = c.another()
        wanted = partitions_of(listener.topic, 2)
        await c.poll_until(
            lambda: subject.assignment() == wanted and other.assignment() == c.everything
        )
        assert c.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
        foreign.produce(c.broker, listener.topic, [b""] * RECORDS, 1)
        c.produce()
        await c.poll_until(lambda: len(c.seen) == (2 * PARTITIONS + 1) * RECORDS)
        assert len(set(c.seen)) == len(c.seen)


@every_protocol
@every_call
@every_way_out
@on_a_loop
async def test_l7_l33_leaving_inside_of_a_call_is_refused(
    protocol: str, kind: str, way_out: str
) -> None:
    """It would wait for the listener that makes it. The group continues undisturbed."""
    async with case(protocol) as c:
        listener = TriesToLeave(kind, way_out)
        subject = listener.consumer = c.new(listener)
        await c.read_all()
        other = c.another()
        await c.poll_until_shared()
        if kind == "lost":
            await c.remove(subject, by=other)
        await c.poll_until(lambda: listener.refused)
        await c.poll_until_shared()
        check_commits(c)


@every_protocol
@every_call
@every_way_out
@on_a_loop
async def test_l7_l33_leaving_while_a_call_is_open(protocol: str, kind: str, way_out: str) -> None:
    """It ends when the listener is done; the other member gets all partitions, without loss."""
    async with case(protocol) as c:
        listener = TakesItsTime(kind)
        subject, other = await begin(c, listener)
        leaving = asyncio.ensure_future(getattr(subject, way_out)())
        await asyncio.sleep(0)
        listener.gate.set()
        await leaving
        if way_out == "close":
            c.members.remove(subject)
            await c.poll_until(lambda: other.assignment() == c.everything)
        else:
            await c.poll_until(lambda: not subject.assignment())
            await c.poll_until(lambda: other.assignment() == c.everything)
            subject.subscribe([c.topic])
            await c.poll_until_shared()
        check_commits(c)
        await c.poll_until(lambda: len(set(c.seen)) == PARTITIONS * RECORDS)
        if kind == "revoked":
            assert c.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
