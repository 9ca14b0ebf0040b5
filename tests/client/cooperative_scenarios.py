"""Scenarios of members of a cooperative group (KIP-429), for any broker.

Each scenario is a coroutine that takes the address of a broker.
"""

from __future__ import annotations

import math
import uuid
from concurrent.futures import Future

import pytest

from kohort.client import AsyncConsumer
from kohort.client.consumer.listener import Told
from kohort.errors import KafkaError, LocalProtocolError
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.group_scenarios import (
    Notes,
    Scenario,
    is_shared,
    member,
    partitions_of,
    poll_until,
)
from tests.real_kafka import foreign

SCENARIOS: list[Scenario] = []


def scenario(play: Scenario) -> Scenario:
    """Add a scenario to the list."""
    SCENARIOS.append(play)
    return play


def cooperative(bootstrap: str, group: str, **settings: object) -> AsyncConsumer:
    """A member that keeps its partitions during rebalances."""
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    return member(bootstrap, group, **(strategy | settings))


def state_of(consumer: AsyncConsumer) -> ClassicMemberState:
    membership = consumer._core.membership
    assert membership is not None
    state = membership.member.state
    assert isinstance(state, ClassicMemberState)
    return state


def is_at_rest(members: list[AsyncConsumer]) -> bool:
    """Whether no member is in a rebalance or behind the others."""
    states = {state_of(each) for each in members}
    return (
        states == {ClassicMemberState.STABLE} and len({each.generation_id for each in members}) == 1
    )


@scenario
async def three_members_come_and_go_and_each_record_is_read_once(bootstrap: str) -> None:
    """L24: and members give up only partitions that another member gets."""
    topic, group = foreign.new_topic(bootstrap, 6), uuid.uuid4().hex
    for partition in range(6):
        foreign.produce(bootstrap, topic, [b"%d-%d" % (partition, n) for n in range(50)], partition)
    members = [cooperative(bootstrap, group, max_poll_records=7) for _ in range(3)]
    notes = [Notes() for _ in members]
    seen: list[bytes] = []
    present: list[AsyncConsumer] = []
    for each, note in zip(members, notes, strict=True):
        each.subscribe([topic], listener=note)
        present = [*present, each]
        await poll_until(lambda p=present: is_shared(p, topic, 6), *present, seen=seen)  # type: ignore[misc]  # binds the loop's value
    while present:
        leaver = present.pop()
        await leaver.close()
        if present:
            await poll_until(lambda p=present: is_shared(p, topic, 6), *present, seen=seen)  # type: ignore[misc]  # binds the loop's value
            await poll_until(lambda: len(set(seen)) == 300, *present, seen=seen)
    assert len(seen) == len(set(seen)) == 300
    given_up = [len(p) for what, p in notes[0].told if what == "revoked" and p]
    assert given_up == [3, 1, 6]  # for the second, for the third, and when it closed
    assert all(what != "lost" for note in notes for what, _ in note.told)
    for partition in range(6):
        assert foreign.committed(bootstrap, group, topic, partition) == 50


class Holds(Notes):
    """Gives up partitions slowly, which delays the whole rebalance."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Future[object] = Future()
        self.holds = False

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        super().on_partitions_revoked(partitions)
        return self.done if self.holds else None


@scenario
async def kept_partitions_deliver_during_a_rebalance(bootstrap: str) -> None:
    """KIP-429 with KAFKA-8421; they are also committed while the group waits (L11)."""
    topic, group = foreign.new_topic(bootstrap, 4), uuid.uuid4().hex
    other = foreign.new_topic(bootstrap, 1)
    reader, slow = cooperative(bootstrap, group), cooperative(bootstrap, group)
    holds = Holds()
    reader.subscribe([topic])
    slow.subscribe([topic, other], listener=holds)
    both = partitions_of(topic, 4) | partitions_of(other, 1)
    members = [reader, slow]
    await poll_until(lambda: reader.assignment() | slow.assignment() == both, *members)
    await poll_until(lambda: is_at_rest(members), *members)
    kept = reader.assignment()
    holds.holds = True
    slow.subscribe([topic])  # now it has to give up the other topic, but does not
    await poll_until(lambda: holds.told[-1][0] == "revoked", reader, slow)
    reader.enforce_rebalance("to have one")
    await poll_until(
        lambda: state_of(reader) is ClassicMemberState.PREPARING_REBALANCE, reader, slow
    )
    for partition in sorted(kept):
        foreign.produce(bootstrap, topic, [b"during"], partition.partition)
    seen: list[bytes] = []
    await poll_until(lambda: len(seen) == len(kept), reader, slow, seen=seen)
    assert state_of(reader) is ClassicMemberState.PREPARING_REBALANCE
    assert reader.assignment() == kept
    await reader.commit()
    assert state_of(reader) is ClassicMemberState.PREPARING_REBALANCE
    stored = await reader.committed(*kept)
    assert {each: at.offset for each, at in stored.items()} == dict.fromkeys(kept, 1)
    holds.done.set_result(None)
    await poll_until(lambda: is_shared(members, topic, 4), *members)
    await poll_until(lambda: is_at_rest(members), *members)
    await reader.commit()
    assert len(reader.assignment() & kept) == 2
    await reader.close()
    await slow.close()


@scenario
async def an_eager_newcomer_is_refused_and_the_group_lives(bootstrap: str) -> None:
    """KIP-429, L10: only the newcomer gets the error."""
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    notes = Notes()
    native = cooperative(bootstrap, group)
    native.subscribe([topic], listener=notes)
    await poll_until(lambda: len(native.assignment()) == 2, native)
    generation = native.generation_id
    stranger = member(bootstrap, group, partition_assignment_strategy="range")
    stranger.subscribe([topic])
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        await poll_until(lambda: False, stranger, native)
    await stranger.close()
    seen: list[bytes] = []
    foreign.produce(bootstrap, topic, [b"1"])
    await poll_until(lambda: seen == [b"1"], native, seen=seen)
    assert native.generation_id == generation
    assert len(notes.told) == 1
    await native.close()


@scenario
async def two_rolling_bounces_lead_from_eager_to_cooperative(bootstrap: str) -> None:
    """M6: in the end, a rebalance takes no partitions from members that keep them."""
    topic, group = foreign.new_topic(bootstrap, 4), uuid.uuid4().hex
    steps = ("range", "cooperative-sticky,range", "cooperative-sticky")

    def start(step: int) -> AsyncConsumer:
        consumer = member(bootstrap, group, partition_assignment_strategy=steps[step])
        consumer.subscribe([topic])
        return consumer

    members = [start(0), start(0)]
    await poll_until(lambda: is_shared(members, topic, 4), *members)
    for step in (1, 2):
        for index in range(2):
            await members[index].close()
            members[index] = start(step)
            await poll_until(lambda: is_shared(members, topic, 4), *members)
    await poll_until(lambda: is_at_rest(members), *members)
    notes = Notes()
    members[0].subscribe([topic], listener=notes)
    generation = members[0].generation_id
    members[1].enforce_rebalance()
    await poll_until(lambda: members[0].generation_id > generation, *members)
    await poll_until(lambda: is_at_rest(members), *members)
    assert notes.told == [("assigned", frozenset())]
    for each in members:
        await each.close()


class Fails(Notes):
    """Raises in every call."""

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        super().on_partitions_revoked(partitions)
        raise ValueError("first")

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        super().on_partitions_assigned(partitions)
        raise ValueError("second" if len(self.told) > 1 else "begin")


@scenario
async def the_first_error_of_a_listener_is_raised_and_all_calls_are_made(bootstrap: str) -> None:
    """L6: the assignment stands, whatever the listener does."""
    topic, group = foreign.new_topic(bootstrap, 4), uuid.uuid4().hex
    fails = Fails()
    failing, other = cooperative(bootstrap, group), cooperative(bootstrap, group)
    failing.subscribe([topic], listener=fails)
    with pytest.raises(ValueError, match="begin"):
        await poll_until(lambda: False, failing)
    other.subscribe([topic])
    with pytest.raises(ValueError, match="first"):
        await poll_until(lambda: False, failing, other)
    assert [what for what, _ in fails.told] == ["assigned", "revoked", "assigned"]
    with pytest.raises(ValueError, match="second"):  # the round in which the other member gets them
        await poll_until(lambda: False, failing, other)
    await poll_until(lambda: is_shared([failing, other], topic, 4), other, failing)
    with pytest.raises(ValueError, match="first"):
        await failing.close()
    await other.close()


@scenario
async def what_a_member_measures(bootstrap: str) -> None:
    """L12, L13, L14: all of Kafka's metrics, with the values of two members."""
    topic, group = foreign.new_topic(bootstrap, 2), uuid.uuid4().hex
    first, second = cooperative(bootstrap, group), cooperative(bootstrap, group)
    first.subscribe([topic])
    before = first.metrics()["consumer-coordinator-metrics"]
    assert before["last-rebalance-seconds-ago"] == -1
    assert math.isnan(before["rebalance-latency-avg"])
    await poll_until(lambda: len(first.assignment()) == 2, first)
    second.subscribe([topic])
    await poll_until(lambda: is_shared([first, second], topic, 2), first, second)
    await poll_until(lambda: state_of(first) is ClassicMemberState.STABLE, first, second)
    await first.commit(dict.fromkeys(first.assignment(), OffsetAndMetadata(0)))
    found = first.metrics()["consumer-coordinator-metrics"]
    assert found["assigned-partitions"] == 1
    assert found["join-total"] == found["sync-total"] == found["rebalance-total"] >= 3
    assert found["failed-rebalance-total"] == 0
    assert found["rebalance-latency-total"] >= found["rebalance-latency-max"] > 0
    assert found["last-rebalance-seconds-ago"] >= 0
    assert found["commit-total"] >= 1
    assert found["heartbeat-total"] >= 1
    assert found["heartbeat-response-time-max"] >= 0
    assert found["partition-revoked-latency-max"] >= 0
    assert found["partition-assigned-latency-avg"] >= 0
    assert math.isnan(found["partition-lost-latency-max"])
    await first.close()
    await second.close()


@scenario
async def a_rebalance_can_be_asked_for_by_members_only(bootstrap: str) -> None:
    """L15, KIP-568."""
    topic, group = foreign.new_topic(bootstrap, 1), uuid.uuid4().hex
    async with cooperative(bootstrap, group) as consumer:
        with pytest.raises(LocalProtocolError):
            consumer.enforce_rebalance()
        consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 1, consumer)
        generation = consumer.generation_id
        consumer.enforce_rebalance("x" * 1_000)
        await poll_until(lambda: consumer.generation_id > generation, consumer)
