"""Consumer groups in the group log: Kafka's tool reads ours, our coordinator loads Kafka's."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.wire.group_log import decode_record, encode_record
from kohort.wire.messages.consumer_group_records import KINDS, ConsumerGroupMetadataValue
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.records import Record, encode_batch
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue
from tests.real_kafka.broker import RealKafka
from tests.system.kafka.test_group_log import dumped, group_log, raw_group_log

TOPIC = "consumer-group-log"
GROUP = "consumer-group-log-readers"
DEADLINE_S = 30.0


def test_k55_kafkas_tool_reads_our_records(real_kafka: RealKafka, tmp_path: Path) -> None:
    """All kinds we write, with the tagged fields of KIP-1101, 1251 and 1263."""
    ours = ConsumerDialogue()
    ours.topics(t=4)
    ours.settled("a", instance_id="i", rack_id="r", server_assignor="range")
    ours.enter("b", subscribed_topic_regex="t.*", subscribed_topic_names=())
    ours.heartbeat("a", 2)
    ours.heartbeat("a", -2, instance_id="i")
    ours.heartbeat("b", -1)
    segment = tmp_path / "00000000000000000000.log"
    records = [Record(offset, 1000, *pair) for offset, pair in enumerate(ours.log)]
    segment.write_bytes(encode_batch(records))
    options = ["--files", str(segment), "--offsets-decoder", "--deep-iteration"]
    output = real_kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", *options)
    read = dumped(output)
    assert len(read) == len(ours.log)
    topic_id = ours.image.by_name["t"].topic_id
    values: list[Any] = [value for _, value in read if value is not None]
    assert {"memberEpoch", "groupId", "subscribedTopicNames", "topicPartitions"} <= {
        name for pair in read for part in pair if part for name in part
    }
    current = next(value for value in values if "memberEpoch" in value)
    assert current["assignedPartitions"] == [
        {
            "topicId": kafkas_text(topic_id),
            "partitions": [0, 1, 2, 3],
            "assignmentEpochs": [2, 2, 2, 2],
        }
    ]
    hashes = [value.get("metadataHash") for value in values if "epoch" in value]
    assert hashes[0] == ours.image.metadata_hash(["t"])
    assert any("assignmentTimestamp" in value for value in values)
    members = [value for value in values if "clientHost" in value]
    assert all(value["classicMemberMetadata"] is None for value in members)
    assert any(value.get("topics") == ["t"] for value in values)


def kafkas_text(topic_id: uuid.UUID) -> str:
    """A UUID as Kafka prints it."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


@pytest.fixture(scope="module")
def log(real_kafka: RealKafka) -> list[GroupRecord]:
    """A log of Kafka's with a group that was rebalanced: by name, by pattern, static."""
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers})
    for done in admin.create_topics([NewTopic(TOPIC, 4, 1)]).values():
        done.result(DEADLINE_S)
    with member(real_kafka, TOPIC, "one") as one, member(real_kafka, f"^{TOPIC}$", None) as two:
        polled = 0
        while not (one.assignment() and two.assignment()):
            one.poll(0.1)
            two.poll(0.1)
            polled += 1
            assert polled < DEADLINE_S * 10
        one.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        return group_log(real_kafka)


@contextmanager
def member(kafka: RealKafka, topic: str, instance: str | None) -> Iterator[Consumer]:
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": GROUP,
        "group.protocol": "consumer",
        "enable.auto.commit": False,
    }
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def test_k30_our_coordinator_loads_kafkas_log(log: list[GroupRecord]) -> None:
    shard = Shard(CoordinatorConfig())
    shard.load_started()
    for record in log:
        shard.apply(record)
    shard.load_finished(0)
    group = shard.log.consumer_groups[GROUP]
    assert group.state.value in ("Stable", "Reconciling", "Assigning")
    assert len(group.members) == 2
    assert list(group.static) == ["one"]
    (static,) = (each for each in group.members.values() if each.instance_id)
    assert static.topics == (TOPIC,)
    (by_regex,) = (each for each in group.members.values() if each.regex)
    assert group.topics_of(by_regex) == {TOPIC}
    (owned,) = group.owners.values()
    assert all(len(claims) == 1 for claims in owned.values())
    (target,) = {frozenset(group.target_of(each)) for each in group.target}
    assert target == frozenset(group.owners)
    assert GROUP in shard.log.offsets
    # each member has a session, and only members have
    assert sum(key.group_id == GROUP for key in shard.session.deadlines.due_times()) == 2


def test_k14_our_hash_of_the_topics_is_kafkas(log: list[GroupRecord]) -> None:
    """KIP-1101: else each group would be assigned anew when our broker takes it over."""
    epochs = [
        each.value
        for each in log
        if isinstance(each.value, ConsumerGroupMetadataValue)
        and getattr(each.key, "group_id", "") == GROUP
    ]
    group = folded(log)
    (topic_id,) = group.owners
    image = TopicsImage.of([(TOPIC, TopicView(topic_id, 4))], NO_TOPICS)
    assert epochs[-1].metadata_hash == image.metadata_hash([TOPIC])
    assert epochs[-1].metadata_hash != 0


def folded(log: list[GroupRecord]) -> ConsumerGroup:
    shard = Shard(CoordinatorConfig())
    for record in log:
        shard.apply(record)
    return shard.log.consumer_groups[GROUP]


@pytest.mark.usefixtures("log")
def test_k55_our_bytes_are_kafkas_bytes(real_kafka: RealKafka) -> None:
    kinds = set()
    for raw in raw_group_log(real_kafka):
        read = decode_record(raw.key or b"", raw.value)
        if read is not None and isinstance(read.key, tuple(key for key, _ in KINDS)):
            assert encode_record(read.key, read.value) == (raw.key, raw.value)
            kinds.add(type(read.key).max_version)
    assert kinds >= {3, 5, 6, 7, 8, 16}


def test_k31_what_was_written_for_a_member_can_be_taken_back(log: list[GroupRecord]) -> None:
    """Our tombstones forget what Kafka's coordinator wrote."""
    shard = Shard(CoordinatorConfig())
    for record in log:
        shard.apply(record)
    group = shard.log.consumer_groups[GROUP]
    for member_id in group.members:
        for tombstone in log_records.member_tombstones(GROUP, member_id):
            shard.apply(tombstone)
    left = shard.log.consumer_groups[GROUP]
    assert (dict(left.members), dict(left.owners), dict(left.static)) == ({}, {}, {})
    for tombstone in left.tombstones():
        shard.apply(tombstone)
    assert GROUP not in shard.log.consumer_groups
