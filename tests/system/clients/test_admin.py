"""Foreign admin clients manage topics, groups and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, _listoffsets
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kohort.broker import EmbeddedBroker
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.peer import Peer
from tests.system.clients.group import (
    DEADLINE_S,
    Driver,
    KafkaPythonMember,
    eventually,
    kafka,
    produce,
)

INTERVAL = "consumer.heartbeat.interval.ms"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def confluent(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def kafka_python(broker: EmbeddedBroker) -> Iterator[Any]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def result(futures: dict[Any, Any]) -> Any:
    """The one result of an AdminClient's call."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def with_position(broker: EmbeddedBroker, group: str, topic: str, records: int) -> None:
    """A group without members that has read a topic to its end."""
    produce(broker.bootstrap_servers, topic, records)
    driver = Driver()
    try:
        driver.add(lambda: KafkaPythonMember(broker.bootstrap_servers, group, topic))
        driver.until(lambda: len(driver.seen) == records, "all records")
    finally:
        driver.leave_all()


# ----------------------------------------------------------------------------- confluent-kafka


def test_k57_confluent_gives_a_group_another_interval(broker: EmbeddedBroker) -> None:
    give_a_group_another_interval(broker.bootstrap_servers)


def give_a_group_another_interval(servers: str) -> None:
    """K57, on any broker: an administrator sets it, and the next heartbeat's answer has it."""
    admin = AdminClient({"bootstrap.servers": servers})
    result(admin.incremental_alter_configs([tuned("2500")]))
    described = ConfigResource(ConfigResource.Type.GROUP, "tuned")

    def is_told() -> bool:
        interval = result(admin.describe_configs([described]))[INTERVAL]
        return (interval.value, interval.is_default) == ("2500", False)

    eventually(is_told, "the setting, which Kafka's broker hears of from its controller")
    with pytest.raises(KafkaException) as error:
        result(admin.incremental_alter_configs([tuned("0")]))
    assert error.value.args[0].code() == KafkaError.INVALID_CONFIG
    request = ConsumerGroupHeartbeatRequest(
        group_id="tuned",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    with Peer(servers) as peer:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=("tuned",))
        eventually(
            lambda: bool(peer.ask(find, 6)) and peer.ask(request, 1).heartbeat_interval_ms == 2500,
            "the new interval",
        )


def tuned(interval_ms: str) -> ConfigResource:
    change = ConfigEntry(INTERVAL, interval_ms, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ConfigResource.Type.GROUP, "tuned", incremental_configs=[change])


def test_confluent_makes_grows_describes_and_deletes_a_topic(confluent: AdminClient) -> None:
    wanted = NewTopic("made", 3, 1, config={"retention.ms": "60000"})
    result(confluent.create_topics([wanted]))
    with pytest.raises(KafkaException) as refused:
        result(confluent.create_topics([wanted]))
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    result(confluent.create_partitions([NewPartitions("made", 5)]))
    assert len(confluent.list_topics("made", 20).topics["made"].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, "made")
    configs = result(confluent.describe_configs([resource]))
    assert configs["retention.ms"].value == "60000"
    assert not configs["retention.ms"].is_default
    assert configs["segment.bytes"].is_default
    result(confluent.delete_topics(["made"]))
    assert "made" not in confluent.list_topics(timeout=20).topics


def test_confluent_describes_topics_and_the_cluster(
    confluent: AdminClient, broker: EmbeddedBroker
) -> None:
    broker.create_topic("described", 2)
    names = confluent_kafka.TopicCollection(["described"])
    topic = result(confluent.describe_topics(names))
    assert [p.leader.id for p in topic.partitions] == [1, 1]
    cluster = confluent.describe_cluster().result(DEADLINE_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers


def test_confluent_lists_offsets(confluent: AdminClient, broker: EmbeddedBroker) -> None:
    produce(broker.bootstrap_servers, "listed", 7)
    partition = confluent_kafka.TopicPartition("listed", 0)
    spec: Any = _listoffsets.OffsetSpec  # whose methods have no types
    for wanted, offset in [(spec.earliest(), 0), (spec.latest(), 7)]:
        assert result(confluent.list_offsets({partition: wanted})).offset == offset
    assert result(confluent.list_offsets({partition: spec.max_timestamp()})).offset < 7


def test_confluent_manages_a_group(confluent: AdminClient, broker: EmbeddedBroker) -> None:
    with_position(broker, "managed", "managed-topic", 9)
    listed = confluent.list_consumer_groups().result(DEADLINE_S)
    assert not listed.errors
    assert "managed" in [group.group_id for group in listed.valid]
    described = result(confluent.describe_consumer_groups(["managed"]))
    assert (described.state.name, described.members) == ("EMPTY", [])
    asked = confluent_kafka.ConsumerGroupTopicPartitions("managed")
    assert [p.offset for p in positions(confluent, asked)] == [9]
    moved = confluent_kafka.ConsumerGroupTopicPartitions(
        "managed", [confluent_kafka.TopicPartition("managed-topic", 0, 4)]
    )
    result(confluent.alter_consumer_group_offsets([moved]))
    assert [p.offset for p in positions(confluent, asked)] == [4]
    result(confluent.delete_consumer_groups(["managed"]))
    with pytest.raises(KafkaException) as refused:
        result(confluent.delete_consumer_groups(["managed"]))
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def positions(admin: AdminClient, group: Any) -> list[Any]:
    answer = result(admin.list_consumer_group_offsets([group]))
    found: list[Any] = answer.topic_partitions
    return found


def test_a_group_with_members_is_described_and_not_deleted(
    confluent: AdminClient, broker: EmbeddedBroker
) -> None:
    broker.create_topic("live-topic", 2)
    driver = Driver()
    try:
        member = driver.add(
            lambda: KafkaPythonMember(
                broker.bootstrap_servers, "live", "live-topic", client_id="me"
            )
        )
        driver.until_shared([member], 2)
        described = result(confluent.describe_consumer_groups(["live"]))
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        (seen,) = described.members
        assert (seen.client_id, seen.host) == ("me", "/127.0.0.1")
        assert {p.partition for p in seen.assignment.topic_partitions} == {0, 1}
        with pytest.raises(KafkaException) as refused:
            result(confluent.delete_consumer_groups(["live"]))
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    finally:
        driver.leave_all()


# ----------------------------------------------------------------------------- kafka-python


def test_kafka_python_makes_describes_and_deletes_a_topic(kafka_python: Any) -> None:
    kafka_python.create_topics([kafka.admin.NewTopic("kp-made", 3, 1)])
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        kafka_python.create_topics([kafka.admin.NewTopic("kp-made", 3, 1)])
    (described,) = kafka_python.describe_topics(["kp-made"])
    assert len(described["partitions"]) == 3
    kafka_python.create_partitions({"kp-made": kafka.admin.NewPartitions(4)})
    (described,) = kafka_python.describe_topics(["kp-made"])
    assert len(described["partitions"]) == 4
    kafka_python.delete_topics(["kp-made"])
    assert "kp-made" not in kafka_python.list_topics()


def test_kafka_python_manages_a_group(kafka_python: Any, broker: EmbeddedBroker) -> None:
    with_position(broker, "kp-managed", "kp-managed-topic", 5)
    partition = kafka.TopicPartition("kp-managed-topic", 0)
    groups = str(kafka_python.list_groups())
    assert "kp-managed" in groups
    assert "Empty" in str(kafka_python.describe_groups(["kp-managed"]))
    offsets = kafka_python.list_group_offsets("kp-managed")["kp-managed"]
    assert offsets[partition].offset == 5
    position = kafka.OffsetAndMetadata(2, "moved", -1)
    kafka_python.alter_group_offsets("kp-managed", {partition: position})
    offsets = kafka_python.list_group_offsets("kp-managed")["kp-managed"]
    assert (offsets[partition].offset, offsets[partition].metadata) == (2, "moved")
    kafka_python.delete_groups(["kp-managed"])
    assert "kp-managed" not in str(kafka_python.list_groups())
