"""Scenarios of members of a group, for any broker: embedded and real.

Each scenario is a coroutine that takes the address of a broker.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

import pytest

from kohort.client import AsyncConsumer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import CommitFailedError, ConfigError, KafkaError
from kohort.group.events import GroupEvent, Ownership, OwnershipChanged
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.real_kafka import foreign

Scenario = Callable[[str], Awaitable[None]]

SCENARIOS: list[Scenario] = []


def scenario(play: Scenario) -> Scenario:
    """Add a scenario to the list."""
    SCENARIOS.append(play)
    return play


# The protocol of a scenario's members, "classic" or "consumer" (KIP-848).
PROTOCOL: ContextVar[str] = ContextVar("PROTOCOL", default="classic")

CLASSIC_ONLY = ("session_timeout_ms", "heartbeat_interval_ms")


def member(bootstrap: str, group: str, **settings: object) -> AsyncConsumer:
    """A member that notices rebalances quickly."""
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 100,
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 1_000,
    }
    chosen = defaults | settings
    if PROTOCOL.get() == "consumer":
        chosen = {name: value for name, value in chosen.items() if name not in CLASSIC_ONLY}
        chosen["group_protocol"] = "consumer"
    return AsyncConsumer(**chosen)


def partitions_of(topic: str, count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(count))


async def poll_until(
    condition: Callable[[], bool],
    *members: AsyncConsumer,
    seen: list[bytes] | None = None,
) -> None:
    """Poll all members in turn until the condition holds."""
    while not condition():
        for each in members:
            for polled in (await each.poll(20)).values():
                if seen is not None:
                    seen += [record.value for record in polled]


class Notes(RebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        self.told.append(("revoked", partitions))
        return None

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        self.told.append(("assigned", partitions))
        return None

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> Told:
        self.told.append(("lost", partitions))
        return None

    def all_of(self, kind: str) -> frozenset[TopicPartition]:
        """All partitions in its calls of this kind."""
        return frozenset().union(*(partitions for what, partitions in self.told if what == kind))


@scenario
async def three_members_share_and_lose_nothing(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 6), uuid.uuid4().hex
    for partition in range(6):
        foreign.produce(bootstrap, topic, [b"%d-%d" % (partition, n) for n in range(50)], partition)
    members = [member(bootstrap, group, max_poll_records=7) for _ in range(3)]
    seen: list[bytes] = []
    present: list[AsyncConsumer] = []
    for each in members:
        each.subscribe([topic])
        present = [*present, each]
        await poll_until(lambda p=present: is_shared(p, topic, 6), *present, seen=seen)  # type: ignore[misc]  # binds the loop's value
    while present:
        leaver = present.pop()
        await leaver.close()
        if present:
            await poll_until(lambda p=present: is_shared(p, topic, 6), *present, seen=seen)  # type: ignore[misc]  # binds the loop's value
            await poll_until(lambda: len(set(seen)) == 300, *present, seen=seen)
    assert len(seen) == len(set(seen)) == 300
    for partition in range(6):
        assert foreign.committed(bootstrap, group, topic, partition) == 50


def is_shared(members: Iterable[AsyncConsumer], topic: str, count: int) -> bool:
    """Whether the members have all partitions, shared evenly, none twice."""
    shares = [each.assignment() for each in members]
    even = max(map(len, shares)) - min(map(len, shares)) <= 1
    together = sorted(partition for share in shares for partition in share)
    return even and together == sorted(partitions_of(topic, count))


@scenario
async def listeners_hear_of_every_change_in_order(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    everything = partitions_of(topic, 2)
    first_notes, second_notes = Notes(), Notes()
    first, second = member(bootstrap, group), member(bootstrap, group)
    first.subscribe([topic], listener=first_notes)
    await poll_until(lambda: bool(first_notes.told), first)
    second.subscribe([topic], listener=second_notes)
    await poll_until(lambda: len(first_notes.told) == 3 and bool(second_notes.told), first, second)
    shares = first.assignment(), second.assignment()
    await second.close()
    await poll_until(lambda: len(first_notes.told) == 5, first)
    await first.close()
    assert first_notes.told == [
        ("assigned", everything),
        ("revoked", everything),
        ("assigned", shares[0]),
        ("revoked", shares[0]),
        ("assigned", everything),
        ("revoked", everything),
    ]
    assert second_notes.told == [("assigned", shares[1]), ("revoked", shares[1])]


class SlowToLetGo(RebalanceListener):
    """Gives up partitions when its future is done."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.done: Future[object] = Future()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        self.asked.set()
        return self.done


@scenario
async def a_deferred_revocation_holds_the_partitions_and_the_group(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    slow = SlowToLetGo()
    first = member(bootstrap, group, session_timeout_ms=6_000)
    second = member(bootstrap, group)
    first.subscribe([topic], listener=slow)
    await poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    await poll_until(slow.asked.is_set, first, second)
    for _ in range(10):
        await first.poll(20)
        await second.poll(20)
    assert (len(first.assignment()), len(second.assignment())) == (2, 0)
    await first.commit({TopicPartition(topic, 0): OffsetAndMetadata(0)})
    slow.done.set_result(None)
    await poll_until(lambda: is_shared([first, second], topic, 2), first, second)
    await second.close()
    await first.close()


class CommitsAsItLeaves(RebalanceListener):
    """A listener of coroutines."""

    def __init__(self, consumer: AsyncConsumer, topic: str) -> None:
        self.consumer = consumer
        self.topic = topic

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        await self.consumer.commit({each: OffsetAndMetadata(7) for each in partitions})


@scenario
async def a_listener_commits_while_partitions_are_still_its_own(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    first = member(bootstrap, group, enable_auto_commit=False)
    second = member(bootstrap, group, enable_auto_commit=False)
    first.subscribe([topic], listener=CommitsAsItLeaves(first, topic))
    await poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    await poll_until(lambda: is_shared([first, second], topic, 2), first, second)
    assert [foreign.committed(bootstrap, group, topic, number) for number in range(2)] == [7, 7]
    await first.close()
    await second.close()


class Fails(RebalanceListener):
    """Raises in an assignment."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        raise ArithmeticError("the application's own fault")


@scenario
async def what_a_listener_raises_comes_out_of_the_poll(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap), uuid.uuid4().hex
    foreign.produce(bootstrap, topic, [b"1"])
    async with member(bootstrap, group) as consumer:
        consumer.subscribe([topic], listener=Fails())
        with pytest.raises(ArithmeticError):
            await poll_until(lambda: False, consumer)
        seen: list[bytes] = []
        await poll_until(lambda: seen == [b"1"], consumer, seen=seen)


@scenario
async def a_member_may_seek_as_it_is_assigned(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap), uuid.uuid4().hex
    foreign.produce(bootstrap, topic, [b"%d" % number for number in range(10)])
    async with member(bootstrap, group) as consumer:

        class FromEight(RebalanceListener):
            def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
                for partition in partitions:
                    consumer.seek(partition, 8)
                return None

        seen: list[bytes] = []
        consumer.subscribe([topic], listener=FromEight())
        await poll_until(lambda: len(seen) == 2, consumer, seen=seen)
    assert seen == [b"8", b"9"]


@scenario
async def a_member_that_does_not_poll_loses_its_partitions(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    notes = Notes()
    lazy = member(bootstrap, group, max_poll_interval_ms=400, enable_auto_commit=False)
    eager = member(bootstrap, group)
    lazy.subscribe([topic], listener=notes)
    await poll_until(lambda: len(lazy.assignment()) == 2, lazy)
    eager.subscribe([topic])
    await poll_until(lambda: len(eager.assignment()) == 2, eager)
    with pytest.raises(CommitFailedError):
        await lazy.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})
    await poll_until(lambda: is_shared([lazy, eager], topic, 2), lazy, eager)
    assert notes.all_of("lost") == partitions_of(topic, 2)
    await lazy.close()
    await eager.close()


@scenario
async def a_pattern_takes_topics_as_they_come(bootstrap: str) -> None:
    prefix, group = f"p{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    first = foreign.create_topic(bootstrap, f"{prefix}-one", 1)
    async with member(bootstrap, group, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"{prefix}-.*")
        await poll_until(lambda: consumer.assignment() == partitions_of(first, 1), consumer)
        second = foreign.create_topic(bootstrap, f"{prefix}-two", 2)
        both = partitions_of(first, 1) | partitions_of(second, 2)
        await poll_until(lambda: consumer.assignment() == both, consumer)
        assert consumer.subscription() == {first, second}


@scenario
async def a_static_member_comes_back_to_what_it_had(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    other_notes = Notes()
    static = member(bootstrap, group, group_instance_id="a")
    other = member(bootstrap, group, group_instance_id="b")
    static.subscribe([topic])
    other.subscribe([topic], listener=other_notes)
    await poll_until(lambda: is_shared([static, other], topic, 2), static, other)
    before, told = static.assignment(), len(other_notes.told)
    await static.close()
    again = member(bootstrap, group, group_instance_id="a")
    again.subscribe([topic])
    await poll_until(lambda: again.assignment() == before, again, other)
    assert len(other_notes.told) == told
    await again.close()
    await other.close()


@scenario
async def a_static_member_can_leave_for_good(bootstrap: str) -> None:
    """KIP-1092: the group does not wait for its session to expire."""
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    static = member(bootstrap, group, group_instance_id="a", session_timeout_ms=120_000)
    other = member(bootstrap, group)
    static.subscribe([topic])
    other.subscribe([topic])
    await poll_until(lambda: is_shared([static, other], topic, 2), static, other)
    await static.close(operation=GroupMembershipOperation.LEAVE_GROUP)
    await poll_until(lambda: len(other.assignment()) == 2, other)
    await other.close()


@scenario
async def unsubscribing_leaves_and_subscribing_comes_back(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap), uuid.uuid4().hex
    async with member(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 1, consumer)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 1, consumer)


@scenario
async def membership_without_reading(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    foreign.produce(bootstrap, topic, [b"1"])
    facts: list[GroupEvent] = []
    async with member(bootstrap, group, event_listener=facts.append) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            await consumer.poll_membership(1_000)
        assert consumer.generation_id >= 1
        assert consumer.member_id
        assert await consumer.position(TopicPartition(topic, 0)) == 0
    changes = [fact.change for fact in facts if isinstance(fact, OwnershipChanged)]
    assert changes == [Ownership.ASSIGNED, Ownership.REVOKED]


@scenario
async def assignors_that_differ_are_refused(bootstrap: str) -> None:
    topic, group = foreign.new_topic(bootstrap), uuid.uuid4().hex
    first = member(bootstrap, group, partition_assignment_strategy="range")
    second = member(bootstrap, group, partition_assignment_strategy="roundrobin")
    first.subscribe([topic])
    await poll_until(lambda: len(first.assignment()) == 1, first)
    second.subscribe([topic])
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL") as refused:
        await poll_until(lambda: False, second)
    assert "offers the assignors roundrobin" in str(refused.value)
    assert "kohort groups describe" in str(refused.value)
    await second.close()
    await first.close()


@scenario
async def subscribing_by_hand_and_by_group_exclude_each_other(bootstrap: str) -> None:
    async with member(bootstrap, uuid.uuid4().hex) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(Exception, match="exclude each other"):
            consumer.subscribe(["t"])
    with pytest.raises(ConfigError):
        member(bootstrap, "")


# Applications see the same with the classic protocol and with KIP-848.
THE_SAME: list[Scenario] = [
    three_members_share_and_lose_nothing,
    a_deferred_revocation_holds_the_partitions_and_the_group,
    what_a_listener_raises_comes_out_of_the_poll,
    a_member_may_seek_as_it_is_assigned,
    a_member_that_does_not_poll_loses_its_partitions,
    a_static_member_comes_back_to_what_it_had,
    a_static_member_can_leave_for_good,
    unsubscribing_leaves_and_subscribing_comes_back,
    membership_without_reading,
]
