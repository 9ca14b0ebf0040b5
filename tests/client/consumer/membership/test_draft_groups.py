"""Real consumers in draft groups on the embedded broker, over TCP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncAdminClient, AsyncConsumer, AsyncProducer
from kohort.errors import ConfigError, ErrorCode, KafkaError
from kohort.group.events import GenerationStarted, GroupEvent, MemberLeft, MemberStateChanged
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.group_scenarios import partitions_of, poll_until
from tests.client.loops import on_a_loop
from tests.real_kafka.broker import free_ports

PROTOCOLS = ("classic", "consumer", "draft")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder, protocols=PROTOCOLS, num_partitions=6) as started:
        yield started


def consumer(bootstrap: str, group: str, **settings: object) -> AsyncConsumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": "draft",
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 50,
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 500,
    }
    return AsyncConsumer(**(defaults | settings))


def new_names() -> tuple[str, str]:
    unique = uuid.uuid4().hex
    return f"topic-{unique}", f"group-{unique}"


def share(*consumers: AsyncConsumer) -> bool:
    """Whether they own all six partitions, evenly and each only once."""
    owned = [each.assignment() for each in consumers]
    whole = frozenset[TopicPartition]().union(*owned)
    sizes = {len(each) for each in owned}
    return len(whole) == 6 == sum(len(each) for each in owned) and len(sizes) == 1


@on_a_loop
async def test_three_join_one_leaves_one_crashes(broker: EmbeddedBroker) -> None:
    topic, group = new_names()
    broker.create_topic(topic, 6)
    facts: list[GroupEvent] = []
    broker.subscribe(lambda fact: facts.append(fact) if fact.group == group else None)
    settings: dict[str, object] = {"enable_auto_commit": False}  # a commit is a sign of life, too
    members = [consumer(broker.bootstrap_servers, group, **settings) for _ in range(3)]
    first, second, third = members
    try:
        for number, each in enumerate(members, 1):
            each.subscribe([topic])
            await poll_until(partial(share, *members[:number]), *members[:number])
        ids = {each.member_id for each in members}
        assert {each.rpartition("-")[2] for each in ids} == {"1", "2", "3"}
        assert all(each.startswith(f"{group}-") for each in ids)
        assert len({each.generation_id for each in members}) == 1
        await third.close()  # the design has no leave request: its session has to expire
        await poll_until(lambda: share(first, second), first, second)
        assert second._core.membership is not None
        await second._core.membership.stop()  # dies without a word
        await poll_until(lambda: share(first), first)
        assert first.member_id in ids
        gone = [each.member for each in facts if isinstance(each, MemberLeft)]
        assert {*gone} == ids - {first.member_id}
        started = [e.generation for e in facts if isinstance(e, GenerationStarted)]
        assert started == sorted(set(started))
    finally:
        for each in members:
            await each.close()


@on_a_loop
async def test_every_record_is_read_while_consumers_come(broker: EmbeddedBroker) -> None:
    """At least once: positions since the last commit are lost when the group rebalances (D6)."""
    topic, group = new_names()
    broker.create_topic(topic, 6)
    async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        sent = {b"%d" % number for number in range(300)}
        for value in sorted(sent):
            await (await producer.send(topic, value))
    seen: list[bytes] = []
    first = consumer(broker.bootstrap_servers, group, max_poll_records=10)
    second = consumer(broker.bootstrap_servers, group, max_poll_records=10)
    async with first, second:
        first.subscribe([topic])
        await poll_until(lambda: len(seen) > 50, first, seen=seen)
        second.subscribe([topic])
        await poll_until(lambda: share(first, second), first, second, seen=seen)
        await poll_until(lambda: {*seen} >= sent, first, second, seen=seen)
    assert {*seen} == sent


@on_a_loop
async def test_a_commit_is_read_back(broker: EmbeddedBroker) -> None:
    topic, group = new_names()
    broker.create_topic(topic, 6)
    partition = TopicPartition(topic, 0)
    async with consumer(broker.bootstrap_servers, group) as first:
        first.subscribe([topic])
        await poll_until(lambda: share(first), first)
        await first.commit({partition: OffsetAndMetadata(42, "draft")})
        committed = await first.committed(partition)
    assert committed[partition] == OffsetAndMetadata(42, "draft")


@on_a_loop
async def test_a_broker_that_restarts_finds_the_group_as_it_was(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    topic, group = new_names()
    states: list[GroupEvent] = []
    settings: dict[str, object] = {"event_listener": states.append, "session_timeout_ms": 20_000}
    members = [consumer(f"127.0.0.1:{port}", group, **settings) for _ in range(3)]
    try:
        async with EmbeddedBroker(tmp_path, port=port, protocols=PROTOCOLS) as broker:
            broker.create_topic(topic, 6)
            for each in members:
                each.subscribe([topic])
            await poll_until(lambda: share(*members), *members)
            before = [(each.member_id, each.generation_id, each.assignment()) for each in members]
            states.clear()
        await poll_until(lambda: _went_to("REDISCOVER_COORDINATOR", states) == 3, *members)
        assert [each.assignment() for each in members] == [owned for _, _, owned in before]
        async with EmbeddedBroker(tmp_path, port=port, protocols=PROTOCOLS):
            await poll_until(lambda: _went_to("PART_OF_GROUP", states) >= 3, *members)
            for each in members:
                await each.poll(100)
            after = [(each.member_id, each.generation_id, each.assignment()) for each in members]
            assert after == before
            for each in members:
                await each.close()
    finally:
        for each in members:
            await each.close()


def _went_to(state: str, facts: list[GroupEvent]) -> int:
    changes = [each for each in facts if isinstance(each, MemberStateChanged)]
    return len({each.member for each in changes if each.after == state})


@on_a_loop
async def test_a_broker_that_comes_back_without_the_protocol_ends_its_consumers(
    tmp_path: Path,
) -> None:
    """The partitions are no longer assigned: reading on could read records twice."""
    (port,) = free_ports(1)
    topic, group = new_names()
    member = consumer(f"127.0.0.1:{port}", group, enable_auto_commit=False)
    try:
        async with EmbeddedBroker(tmp_path, port=port, protocols=PROTOCOLS) as broker:
            broker.create_topic(topic, 6)
            member.subscribe([topic])
            await poll_until(lambda: share(member), member)
        async with EmbeddedBroker(tmp_path, port=port):
            with pytest.raises(KafkaError) as raised:
                await poll_until(lambda: False, member)
            assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
            await poll_until(lambda: not member.assignment(), member)
    finally:
        await member.close()


@on_a_loop
async def test_a_topic_that_grows_is_shared_out_anew(broker: EmbeddedBroker) -> None:
    topic, group = new_names()
    broker.create_topic(topic, 2)
    async with (
        consumer(broker.bootstrap_servers, group) as first,
        AsyncAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        first.subscribe([topic])
        await poll_until(lambda: first.assignment() == partitions_of(topic, 2), first)
        await admin.create_partitions({topic: 6})
        await poll_until(lambda: share(first), first)


@on_a_loop
async def test_a_classic_group_refuses_a_draft_consumer_and_the_reverse(
    broker: EmbeddedBroker,
) -> None:
    for there, here in (("classic", "draft"), ("draft", "classic")):
        topic, group = new_names()
        broker.create_topic(topic, 6)
        async with (
            consumer(broker.bootstrap_servers, group, group_protocol=there) as first,
            consumer(broker.bootstrap_servers, group, group_protocol=here) as stranger,
        ):
            first.subscribe([topic])
            await poll_until(partial(share, first), first)
            stranger.subscribe([topic])
            with pytest.raises(KafkaError) as raised:
                await poll_until(lambda: False, first, stranger)
            assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert share(first)


@on_a_loop
async def test_a_broker_that_does_not_serve_it_is_named_as_the_cause(tmp_path: Path) -> None:
    topic, group = new_names()
    async with EmbeddedBroker(tmp_path) as plain, consumer(plain.bootstrap_servers, group) as first:
        first.subscribe([topic])
        with pytest.raises(KafkaError, match="draft protocol needs a Kohort broker") as raised:
            await poll_until(lambda: False, first)
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "setting", [{"partition_assignment_strategy": "range"}, {"group_instance_id": "static"}]
)
def test_settings_that_have_no_effect_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"has no effect with group\.protocol=draft"):
        consumer("127.0.0.1:1", "g", **setting)


@pytest.mark.parametrize("protocols", [("draft",), ("classic", "drift"), ()])
def test_a_broker_refuses_protocols_that_make_no_sense(protocols: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="protocols"):
        EmbeddedBroker(protocols=protocols)
