"""Scenarios of the admin client for any broker: the embedded one and a real Kafka."""

from __future__ import annotations

import asyncio
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer

from kohort.client import (
    AdminClient,
    AsyncAdminClient,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetReset,
    Producer,
)
from kohort.client.admin.values import OffsetSpec
from kohort.errors import KafkaError, LocalProtocolError, PartialFailureError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.real_kafka.foreign import committed, new_topic, produce

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python uses what Python deprecates
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as PeerPartition
    from kafka.admin import ConfigResource as PeerResource


def wait_until(holds: Callable[[], bool]) -> None:
    """Retry until a condition holds: brokers learn of topics after the controller answers."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end


def topics_come_and_go(bootstrap: str) -> None:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3, configs={"cleanup.policy": "compact"})])
        with pytest.raises(KafkaError, match=f"TOPIC_ALREADY_EXISTS: {name}"):
            admin.create_topics([NewTopic(name, 3)])
        wait_until(lambda: name in admin.list_topics())
        assert [each.partition for each in admin.describe_topics([name])[name]] == [0, 1, 2]
        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics())
        with pytest.raises(KafkaError, match=f"UNKNOWN_TOPIC_OR_PARTITION: {name}"):
            admin.delete_topics([name])


def offsets_are_set_for_a_topic_made_anew(bootstrap: str) -> None:
    name, group = f"topic-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    where = TopicPartition(name, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        for offset in (0, 1):
            admin.create_topics([NewTopic(name, 1)])
            wait_until(lambda: name in admin.list_topics())
            produce(bootstrap, name, [b"one", b"two"])
            admin.list_offsets({where: -1})
            admin.alter_group_offsets({where: offset}, group)
            assert admin.list_group_offsets(group)[where].offset == offset
            if not offset:
                admin.delete_topics([name])
                wait_until(lambda: name not in admin.list_topics())


def offsets_by_both_ends_and_by_time(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    produce(bootstrap, topic, [b"one", b"two", b"three"])
    where = TopicPartition(topic, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = [admin.list_offsets({where: target})[where] for target in (-2, -1, 1, 2**50)]
        latest = admin.list_offsets({where: -3})[where]
    assert found == [0, 3, 0, None]
    assert latest in (0, 1, 2)


def topics_grow_and_what_fails_is_told_one_by_one(bootstrap: str) -> None:
    name = new_topic(bootstrap, partitions=2)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        with pytest.raises(PartialFailureError, match="and 1 more") as failed:
            admin.create_partitions({name: 4, "nowhere-1": 2, "nowhere-2": 2})
        assert {item: error.name for item, error in failed.value.errors.items()} == dict.fromkeys(
            ("nowhere-1", "nowhere-2"), "UNKNOWN_TOPIC_OR_PARTITION"
        )
        wait_until(lambda: len(admin.describe_topics([name])[name]) == 4)
        with pytest.raises(PartialFailureError, match=f"INVALID_PARTITIONS: {name}"):
            admin.create_partitions({name: 4})


def offsets_of_a_group_are_forgotten_but_not_while_it_reads_them(bootstrap: str) -> None:
    """C56."""
    read, old = new_topic(bootstrap), new_topic(bootstrap)
    produce(bootstrap, read, [b"v"])
    group = f"group-{read}"
    here, there = TopicPartition(read, 0), TopicPartition(old, 0)
    with AdminClient(bootstrap_servers=bootstrap, group_id=group) as admin:
        with pytest.raises(KafkaError, match=f"GROUP_ID_NOT_FOUND: {group}"):
            admin.delete_group_offsets([here])
        admin.alter_group_offsets({here: 0, there: 0})
        with Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        ) as consumer:
            consumer.subscribe([read])
            assert consumer.poll(30) is not None
            with pytest.raises(PartialFailureError) as failed:
                admin.delete_group_offsets([here, there, TopicPartition("nowhere", 0)])
            assert {item: error.name for item, error in failed.value.errors.items()} == {
                here: "GROUP_SUBSCRIBED_TO_TOPIC",
                TopicPartition("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
            }
            assert set(admin.list_group_offsets()) == {here}
        wait_until(lambda: admin.describe_groups([group])[group].state == "Empty")
        admin.delete_group_offsets([here])
        assert admin.list_group_offsets() == {}


def members_are_taken_out_of_their_group(
    bootstrap: str, protocol: str, instance: str | None
) -> None:
    """A member that rejoins has a new id, so one that still polls is seen twice."""
    topic = new_topic(bootstrap)
    group = f"group-{topic}"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        **({"group.instance.id": instance} if instance else {}),
    }
    with AdminClient(bootstrap_servers=bootstrap) as admin, Consumer(settings) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
        member = admin.describe_groups([group])[group].members[0].member_id
        with pytest.raises(PartialFailureError, match=r"UNKNOWN_MEMBER_ID: .* does not have"):
            admin.remove_group_members(group, ["nobody"])
        with pytest.raises(PartialFailureError) as failed:
            admin.remove_group_members(group, ["nobody", member], "for a test")
        assert failed.value.errors.keys() == {"nobody"}
        assert not admin.describe_groups([group])[group].members  # it has not polled since
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: nowhere"):
            admin.remove_group_members("nowhere", [member])


def everything_can_be_awaited(bootstrap: str) -> None:
    async def work() -> None:
        async with AsyncAdminClient(bootstrap_servers=bootstrap) as admin:
            name = f"topic-{uuid.uuid4().hex[:12]}"
            await admin.create_topics([NewTopic(name, 2)])
            # A broker learns of a topic shortly after the controller has answered.
            while name not in await admin.list_topics():
                pass
            where = TopicPartition(name, 1)
            await admin.alter_group_offsets({where: 0}, name)
            listed = await admin.list_groups(["empty"], ["classic"])
            assert name in {each.group_id for each in listed}
            assert set(await admin.list_group_offsets(name)) == {where}
            reset = await admin.reset_group_offsets({where: "latest"}, name)
            assert reset == {where: OffsetReset(0)}
            await admin.delete_group_offsets([where], name)
            await admin.delete_topics([name])
        with pytest.raises(LocalProtocolError, match="closed"):
            await admin.list_topics()

    asyncio.run(work())


def offsets_are_reset_to_what_the_partition_has(bootstrap: str) -> None:
    """To the start or end, an offset, or a time at the second of three records."""
    topic = new_topic(bootstrap, retention_ms="-1")
    where, group = TopicPartition(topic, 0), f"group-{topic}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"v", timestamp_ms=1_000 * number)
    second = datetime.fromtimestamp(1, UTC)
    expected: dict[OffsetSpec, tuple[int, str]] = {
        "earliest": (1, ""),
        "latest": (3, ""),
        0: (1, "offset 0 is before the first, 1"),
        2: (2, ""),
        4: (3, "the end, 3: offset 4 is beyond it"),
        second: (1, ""),
        second + timedelta(microseconds=1): (2, ""),
        second + timedelta(days=1): (3, "the end, 3: no record is at or after 1970-01-02 00:00:01"),
    }
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({where: 1})
        for spec, (offset, note) in expected.items():
            only_asked = admin.reset_group_offsets({where: spec}, group, validate_only=True)
            assert admin.reset_group_offsets({where: spec}, group) == only_asked
            found = only_asked[where]
            assert (found.offset, found.note.removesuffix("+00:00")) == (offset, note)
            assert admin.list_group_offsets(group)[where].offset == offset
        assert admin.reset_group_offsets({}, group) == {}
        with pytest.raises(ValueError, match="needs a time zone"):
            admin.reset_group_offsets({where: second.replace(tzinfo=None)}, group)


def a_group_is_described_while_it_lives_and_deleted_after(bootstrap: str, protocol: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    produce(bootstrap, topic, [b"v"])
    group = f"group-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "north",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    both = frozenset((TopicPartition(topic, 0), TopicPartition(topic, 1)))
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        wait_until(lambda: admin.describe_groups([group])[group].state == "Stable")
        described = admin.describe_groups([group])[group]
        assert (described.type, described.protocol_type) == (protocol, "consumer")
        (member,) = described.members
        assert (member.client_id, member.topics) == ("north", frozenset((topic,)))
        assert member.assignment == both
        if protocol == "consumer":
            assert described.assignor == "uniform"
            assert member.type == "consumer"
            assert member.target_assignment == both
            assert member.epoch == described.epoch == described.target_epoch
        else:
            assert described.assignor == "range"
            assert (described.epoch, described.target_epoch) == (None, None)
            assert (member.type, member.epoch, member.target_assignment) == ("classic", None, None)
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            admin.delete_groups([group])
        consumer.commit(asynchronous=False)
        consumer.close()
        listed = {each.group_id: (each.type, each.state) for each in admin.list_groups()}
        assert listed[group] == (protocol, "Empty")
        where = TopicPartition(topic, 0)
        assert admin.list_group_offsets(group)[where].offset == 1
        admin.alter_group_offsets({where: 0}, group)
        stored = admin.list_group_offsets(group, [where])
        assert stored == {where: OffsetAndMetadata(0, "", stored[where].leader_epoch)}
        assert committed(bootstrap, group, topic) == 0
        admin.delete_groups([group])
        assert group not in {each.group_id for each in admin.list_groups()}
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            admin.describe_groups([group])


def what_a_future_time_has_no_offset_for_cannot_be_stored(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    produce(bootstrap, topic, [b"one", b"two"])
    where, group = TopicPartition(topic, 0), f"group-{topic}"
    with AdminClient(bootstrap_servers=bootstrap, group_id=group) as admin:
        admin.alter_group_offsets({where: 2})
        none: Any = admin.list_offsets({where: 2**50})
        assert none == {where: None}
        with pytest.raises(TypeError, match="whole number, not None"):
            admin.alter_group_offsets(none)
        for negative in (-1, OffsetAndMetadata(-1)):
            with pytest.raises(ValueError, match="must be at least 0"):
                admin.alter_group_offsets({where: negative})
        assert admin.committed([where]) == {where: 2}
        admin.alter_group_offsets({where: OffsetAndMetadata(1, "by hand")})
        assert admin.list_group_offsets()[where].metadata == "by hand"


def settings_are_described_as_kafka_python_describes_them(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    resources = [ConfigResource("topic", topic), ConfigResource("broker", "1")]
    peers = [PeerResource(each.resource_type.upper(), each.name) for each in resources]
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        ours = admin.describe_configs(resources)
    peer = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        described = peer.describe_configs(peers, config_filter="all")
    finally:
        peer.close()
    for resource in resources:
        theirs = described[resource.resource_type][resource.name]
        assert theirs
        assert {entry.name: _as_peer(entry) for entry in ours[resource].values()} == {
            name: {each: entry[each] for each in _ENTRY} for name, entry in theirs.items()
        }


_ENTRY = ("value", "config_source", "read_only", "is_sensitive", "config_type")


def _as_peer(entry: ConfigEntry) -> dict[str, object]:
    kind = entry.source.upper() + "_CONFIG"
    values = (entry.value, kind, entry.is_read_only, entry.is_sensitive, entry.type.upper())
    return dict(zip(_ENTRY, values, strict=True))


def settings_are_changed_one_by_one(bootstrap: str) -> None:
    """KIP-339."""
    topic = ConfigResource("topic", new_topic(bootstrap))
    nowhere = ConfigResource("topic", "nowhere")
    with AdminClient(bootstrap_servers=bootstrap) as admin:

        def settings() -> dict[str, tuple[str | None, bool]]:
            found = admin.describe_configs([topic])[topic]
            names = ("retention.ms", "segment.bytes", "cleanup.policy")
            return {name: (found[name].value, found[name].is_default) for name in names}

        before = settings()
        admin.alter_configs({topic: {"retention.ms": "60000"}}, validate_only=True)
        assert settings() == before
        admin.alter_configs({topic: {"retention.ms": "60000", "segment.bytes": "2000000"}})
        admin.alter_configs({topic: {"cleanup.policy": ("append", "compact")}})
        changed = {
            "retention.ms": ("60000", False),
            "segment.bytes": ("2000000", False),
            "cleanup.policy": ("delete,compact", False),
        }
        wait_until(lambda: settings() == changed)
        with pytest.raises(PartialFailureError, match="and 1 more") as failed:
            admin.alter_configs(
                {
                    nowhere: {"retention.ms": "1"},
                    ConfigResource("broker", "1"): {"no.such.thing": ("append", "x")},
                    topic: {"retention.ms": None, "segment.bytes": ("delete", None)},
                }
            )
        assert set(failed.value.errors) == {nowhere, ConfigResource("broker", "1")}
        assert failed.value.errors[nowhere].name == "UNKNOWN_TOPIC_OR_PARTITION"
        admin.alter_configs({topic: {"cleanup.policy": None}})
        wait_until(lambda: settings() == before)
        with pytest.raises(PartialFailureError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nowhere"):
            admin.describe_configs([topic, nowhere])


def first_records_are_deleted(bootstrap: str) -> None:
    """KIP-107."""
    topic = new_topic(bootstrap, partitions=2)
    produce(bootstrap, topic, [b"one", b"two", b"three"])
    here, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    nowhere = TopicPartition("nowhere", 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.delete_records({here: 2}) == {here: 2}
        assert admin.list_offsets({here: -2}) == {here: 2}
        with pytest.raises(PartialFailureError) as failed:
            admin.delete_records({here: 3, other: 9, nowhere: 0, TopicPartition(topic, 7): 0})
        assert {item: error.name for item, error in failed.value.errors.items()} == {
            other: "OFFSET_OUT_OF_RANGE",
            nowhere: "UNKNOWN_TOPIC_OR_PARTITION",
            TopicPartition(topic, 7): "UNKNOWN_TOPIC_OR_PARTITION",
        }
        assert admin.list_offsets({here: -2}) == {here: 3}
        assert admin.delete_records({here: -1, other: -1}) == {here: 3, other: 0}
    peer = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        offset = PeerPartition(topic, 0)
        assert peer.delete_records({offset: 3})[offset]["low_watermark"] == 3
    finally:
        peer.close()


Ask = Callable[..., Any]


@contextmanager
def asking(bootstrap: str, *, is_async: bool) -> Iterator[Ask]:
    """Return a function that makes any call of either admin client by name."""
    if not is_async:
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            yield lambda name, *given: getattr(admin, name)(*given)
        return
    with asyncio.Runner() as runner:
        client = AsyncAdminClient(bootstrap_servers=bootstrap)
        yield lambda name, *given: runner.run(getattr(client, name)(*given))
        runner.run(client.close())


def one_that_fails_costs_no_other(bootstrap: str, *, is_async: bool) -> None:
    """Each call for several items, with one that exists and one that does not."""
    with asking(bootstrap, is_async=is_async) as ask:
        _looks_up_the_others(bootstrap, ask)
        _changes_the_others(bootstrap, ask)


def _failed(ask: Ask, name: str, *given: object) -> tuple[set[object], dict[object, object]]:
    with pytest.raises(PartialFailureError) as failed:
        ask(name, *given)
    return set(failed.value.errors), failed.value.results


def _looks_up_the_others(bootstrap: str, ask: Ask) -> None:
    topic, group = new_topic(bootstrap), f"group-{uuid.uuid4().hex}"
    produce(bootstrap, topic, [b"one", b"two"])
    here, nowhere = TopicPartition(topic, 0), TopicPartition("nowhere", 0)
    ask("alter_group_offsets", {here: 1}, group)

    bad, good = _failed(ask, "describe_groups", ["typo", group])
    assert (bad, [*good]) == ({"typo"}, [group])
    bad, good = _failed(ask, "describe_topics", ["nowhere", topic])
    assert (bad, [*good]) == ({"nowhere"}, [topic])
    assert _failed(ask, "list_offsets", {nowhere: -1, here: -1}) == ({nowhere}, {here: 2})
    for resource in (ConfigResource("topic", "nowhere"), ConfigResource("broker", "4711")):
        known = ConfigResource("topic", topic)
        bad, good = _failed(ask, "describe_configs", [resource, known])
        assert (bad, [*good]) == ({resource}, [known])


def _changes_the_others(bootstrap: str, ask: Ask) -> None:
    topic, group = new_topic(bootstrap), f"group-{uuid.uuid4().hex}"
    produce(bootstrap, topic, [b"one", b"two"])
    here, nowhere = TopicPartition(topic, 0), TopicPartition("nowhere", 0)

    assert _failed(ask, "alter_group_offsets", {nowhere: 1, here: 1}, group)[0] == {nowhere}
    assert ask("list_group_offsets", group)[here].offset == 1
    wanted: dict[TopicPartition, OffsetSpec] = {nowhere: "latest", here: "latest"}
    expected = {nowhere}, {here: OffsetReset(2)}
    assert _failed(ask, "reset_group_offsets", wanted, group) == expected
    assert ask("list_group_offsets", group)[here].offset == 2
    assert _failed(ask, "delete_group_offsets", [nowhere, here], group)[0] == {nowhere}
    assert ask("list_group_offsets", group) == {}
    ask("alter_group_offsets", {here: 1}, group)
    assert _failed(ask, "delete_groups", ["typo", group])[0] == {"typo"}
    assert group not in {each.group_id for each in ask("list_groups")}

    known = ConfigResource("topic", topic)
    for resource in (ConfigResource("topic", "nowhere"), ConfigResource("broker", "4711")):
        changes = {resource: {"retention.ms": "1"}, known: {"retention.ms": "86400000"}}
        assert _failed(ask, "alter_configs", changes)[0] == {resource}
    wait_until(lambda: ask("describe_configs", [known])[known]["retention.ms"].value == "86400000")
    assert _failed(ask, "delete_records", {nowhere: 1, here: 1}) == ({nowhere}, {here: 1})
    assert _failed(ask, "create_partitions", {"nowhere": 2, topic: 2})[0] == {"nowhere"}
    wait_until(lambda: len(ask("describe_topics", [topic])[topic]) == 2)
    other = f"topic-{uuid.uuid4().hex}"
    assert _failed(ask, "create_topics", [NewTopic(topic), NewTopic(other)])[0] == {topic}
    wait_until(lambda: other in ask("list_topics"))
    assert _failed(ask, "delete_topics", ["nowhere", other])[0] == {"nowhere"}
    wait_until(lambda: other not in ask("list_topics"))
