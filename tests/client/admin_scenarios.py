"""What the admin client must do on any broker: the embedded one and a real Kafka run the same."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from kohort.client import AdminClient, NewTopic
from kohort.errors import KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.real_kafka.foreign import committed, new_topic, produce


def wait_until(holds: Callable[[], bool]) -> None:
    """Ask until it is so: a broker learns of topics a moment after the controller has answered."""
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


def offsets_by_both_ends_and_by_time(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    produce(bootstrap, topic, [b"one", b"two", b"three"])
    where = TopicPartition(topic, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = [admin.list_offsets({where: target})[where] for target in (-2, -1, 1, 2**50)]
    assert found == [0, 3, 0, -1]


def a_group_is_described_while_it_lives_and_deleted_after(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    produce(bootstrap, topic, [b"v"])
    group = f"group-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "north",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        described = admin.describe_groups([group])[group]
        assert (described.state, described.protocol_type) == ("Stable", "consumer")
        (member,) = described.members
        assert member.client_id == "north"
        assert member.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            admin.delete_groups([group])
        consumer.commit(asynchronous=False)
        consumer.close()
        listed = {each.group_id: each.state for each in admin.list_groups()}
        assert listed[group] == "Empty"
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
