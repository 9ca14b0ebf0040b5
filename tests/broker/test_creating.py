"""Created topics: valid names, numbers and settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.log.batches import batch
from tests.broker.peer import Peer


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("a.b", 2)
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def assigned(*replicas: tuple[int, tuple[int, ...]]) -> dict[str, Any]:
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
        for number, brokers in replicas
    )
    return {"assignments": assignments}


def with_setting(name: str, value: str | None) -> dict[str, Any]:
    return {"num_partitions": 1, "configs": (CreatableTopicConfig(name=name, value=value),)}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "a_b", "num_partitions": 1}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"num_partitions": 1, "replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (assigned((0, (1,)), (1, (1,))), ErrorCode.NONE),
        (assigned((0, (2,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (1, 1))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, (1,)), (0, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({**assigned((0, (1,))), "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({**assigned((0, (1,))), "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        (with_setting("nonsense", "1"), ErrorCode.INVALID_CONFIG),
        (with_setting("retention.ms", None), ErrorCode.INVALID_CONFIG),
        (with_setting("retention.ms", ""), ErrorCode.INVALID_CONFIG),
        (with_setting("min.insync.replicas", "1"), ErrorCode.NONE),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(
    change: dict[str, Any], code: ErrorCode, peer: Peer
) -> None:
    usual: dict[str, Any] = {
        "name": "new",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": (),
        "configs": (),
    }
    request = CreateTopicsRequest(topics=(CreatableTopic(**usual | change),), validate_only=True)
    (made,) = peer.ask(request, 7).topics
    assert made.error_code == code
    assert bool(made.error_message) == (code is not ErrorCode.NONE)


def test_a_topic_that_is_asked_for_twice_is_not_made(peer: Peer) -> None:
    wanted = CreatableTopic(
        name="twice", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    (made,) = peer.ask(CreateTopicsRequest(topics=(wanted, wanted)), 7).topics
    assert made.error_code == ErrorCode.INVALID_REQUEST


def test_python_is_told_the_same(broker: EmbeddedBroker) -> None:
    for name, configs, code in (
        ("a_b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("new", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaError) as refused:
            broker.create_topic(name, configs=configs)
        assert refused.value.code == code


def test_a_new_topic_can_be_used_as_soon_as_it_is_told(peer: Peer) -> None:
    asked = (MetadataRequestTopic(name="wished-for"), MetadataRequestTopic(name="a_b"))
    made, refused = peer.ask(MetadataRequest(topics=asked), 12).topics
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # collides with a.b
    assert (made.error_code, len(made.partitions)) == (ErrorCode.NONE, 1)
    assert peer.produce(TopicPartition("wished-for", 0), batch(b"x")).error_code == ErrorCode.NONE


def test_what_one_request_can_make_is_bounded(peer: Peer) -> None:
    asked = tuple(MetadataRequestTopic(name=f"wished-{i}") for i in range(1_000))
    told = peer.ask(MetadataRequest(topics=asked), 12).topics
    assert sum(topic.error_code == ErrorCode.NONE for topic in told) == 100
    wanted = (
        CreatableTopic(
            name=f"many-{i}", num_partitions=900, replication_factor=1, assignments=(), configs=()
        )
        for i in range(20)
    )
    made = peer.ask(CreateTopicsRequest(topics=tuple(wanted), validate_only=True), 7).topics
    codes = [topic.error_code for topic in made]
    assert codes == [ErrorCode.NONE] * 11 + [ErrorCode.POLICY_VIOLATION] * 9


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        (((1,),), ErrorCode.NONE),
        (((2,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (((1,), (1,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_new_partitions_are_on_the_one_broker(
    assignments: tuple[tuple[int, ...], ...], code: ErrorCode, peer: Peer
) -> None:
    replicas = tuple(CreatePartitionsAssignment(broker_ids=each) for each in assignments)
    wanted = CreatePartitionsTopic(name="a.b", count=3, assignments=replicas)
    request = CreatePartitionsRequest(topics=(wanted,), timeout_ms=1, validate_only=True)
    assert peer.ask(request, 3).results[0].error_code == code


def test_a_topic_to_delete_is_named_once(peer: Peer) -> None:
    peer.create("doomed")
    by_name = DeleteTopicState(name="doomed", topic_id=ZERO_UUID)
    for wanted in (
        (by_name, by_name),
        (DeleteTopicState(name=None, topic_id=ZERO_UUID),),
    ):
        (answer,) = peer.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=1), 6).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message
    (answer,) = peer.ask(DeleteTopicsRequest(topics=(by_name,), timeout_ms=1), 6).responses
    assert answer.error_code == ErrorCode.NONE


def test_many_topics_come_and_go_in_one_request(peer: Peer) -> None:
    names = [f"flock-{i}" for i in range(300)]
    wanted = (
        CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    made = peer.ask(CreateTopicsRequest(topics=tuple(wanted)), 7).topics
    assert {topic.error_code for topic in made} == {ErrorCode.NONE}
    assert peer.produce(TopicPartition("flock-7", 1), batch(b"x")).error_code == ErrorCode.NONE
    doomed = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names[1:]]
    doomed.append(DeleteTopicState(name=None, topic_id=made[0].topic_id))
    gone = peer.ask(DeleteTopicsRequest(topics=tuple(doomed), timeout_ms=1), 6).responses
    assert {topic.error_code for topic in gone} == {ErrorCode.NONE}
    assert {topic.name for topic in gone} == set(names)
    told = peer.ask(MetadataRequest(topics=None), 12).topics
    assert not [topic.name for topic in told if topic.name in names]
