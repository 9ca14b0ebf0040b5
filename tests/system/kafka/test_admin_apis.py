"""Administrators' requests, sound ones and mistakes, are answered as Apache Kafka answers them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kohort.wire.messages.alter_configs import (
    AlterConfigsRequest,
    ReplacedConfig,
    ReplacedConfigsResource,
)
from kohort.wire.messages.cluster import DescribeClusterRequest
from kohort.wire.messages.config_resources import ListConfigResourcesRequest
from kohort.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.quotas import ComponentData, DescribeClientQuotasRequest
from kohort.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kohort.wire.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from kohort.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kohort.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    ListTransactionsRequest,
)
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.alike import Asked, differences
from tests.real_kafka.broker import RealKafka
from tests.system.kafka.scram_requests import scram

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One without the open transactions of other tests, which some requests list."""
    with RealKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def prepare(bootstrap: str, topic: str) -> None:
    """Make a topic of three partitions with ten records, and a compacted one."""
    partition = TopicPartition(topic, 0)
    with Peer(bootstrap) as peer:
        peer.create(topic, 3)
        peer.create(f"{topic}.compacted", cleanup_policy="compact")
        eventually(
            lambda: peer.produce(partition, batch(*[b"x"] * 10)).error_code == ErrorCode.NONE,
            "the topic takes records",
        )
        other = offsets(f"{topic}.compacted", [(0, -1)])
        eventually(
            lambda: peer.ask(other, 7).topics[0].partitions[0].error_code == ErrorCode.NONE,
            "the other topic is there too",
        )
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        eventually(lambda: peer.ask(init, 4).error_code == ErrorCode.NONE, "ids are given")


def creating(topic: str) -> Iterator[Asked]:
    """What is said first of a topic that cannot be made for several reasons."""

    def request(name: str, **wrong: Any) -> CreateTopicsRequest:
        usual = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
        wanted = CreatableTopic(name=name, **{**usual, **wrong})
        return CreateTopicsRequest(topics=(wanted,), validate_only=True)

    bad_setting = (CreatableTopicConfig(name="nonsense", value="1"),)
    for name in (f"{topic}.new", topic, "a/b"):
        for wrong in (
            {"num_partitions": 0},
            {"replication_factor": 7},
            {"assignments": (CreatableReplicaAssignment(partition_index=0, broker_ids=(7,)),)},
        ):
            yield request(name, **wrong), 4
            yield request(name, **wrong, configs=bad_setting), 4


def delete_records(topic: str) -> Iterator[Asked]:
    def request(name: str, *offsets: tuple[int, int]) -> DeleteRecordsRequest:
        partitions = tuple(
            DeleteRecordsPartition(partition_index=number, offset=offset)
            for number, offset in offsets
        )
        wanted = DeleteRecordsTopic(name=name, partitions=partitions)
        return DeleteRecordsRequest(topics=(wanted,), timeout_ms=10_000)

    for version in (0, 1, 2):
        yield request(topic, (0, 4)), version
    for offset in (2, 11, -2, 10, -1):
        yield request(topic, (0, offset)), 2
        yield offsets(topic, [(0, -2), (1, -1)]), 7
    yield request(topic, (9, 0), (-1, 0), (1, -1)), 2
    yield request(topic, (2, 0), (2, 1)), 2
    for name in ("nowhere", "a/b", "", f"{topic}.compacted"):
        yield request(name, (0, 0)), 2


def offsets(topic: str, asked: Sequence[tuple[int, int]], level: int = 0) -> ListOffsetsRequest:
    partitions = tuple(
        ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        for number, timestamp in asked
    )
    wanted = ListOffsetsTopic(name=topic, partitions=partitions)
    return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=(wanted,))


def list_offsets(topic: str) -> Iterator[Asked]:
    yield offsets(topic, [(0, -1), (0, -2)]), 7
    yield offsets(topic, [(0, -1), (9, -1)]), 7
    yield offsets(topic, [(0, -1)], level=9), 7
    yield offsets(topic, [(0, -1), (1, -1), (1, -2), (9, -7)]), 7
    yield offsets("nowhere", [(0, -1), (1, -7)]), 7
    for version in (6, 7, 8, 9, 10, 11):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7):
            yield offsets(topic, [(0, timestamp)]), version


def topic_partitions(topic: str) -> Iterator[Asked]:
    other = f"{topic}.compacted"

    def request(
        *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsRequest:
        return DescribeTopicPartitionsRequest(
            topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    yield request(topic, other, topic), 0
    yield request("nowhere", "a/b"), 0
    for limit in (-5, 0, 1, 2, 3, 4):
        yield request(topic, other, "a", "~z", limit=limit), 0
    for cursor in (
        (topic, 0),
        (topic, 2),
        (topic, 3),
        (topic, 9),
        (topic, -1),
        (other, 0),
        ("a", 0),
    ):
        yield request(topic, other, limit=1, cursor=cursor), 0
        yield request(topic, other, "~z", cursor=cursor), 0


def config_resources(topic: str) -> Iterator[Asked]:
    yield ListConfigResourcesRequest(resource_types=()), 0
    for kinds in ((BROKER,), (CLIENT_METRICS,), (BROKER, BROKER), (99,), (0,), (BROKER, 99)):
        yield ListConfigResourcesRequest(resource_types=kinds), 1


def alter_configs(topic: str) -> Iterator[Asked]:
    def request(kind: int, name: str, **configs: str | None) -> AlterConfigsRequest:
        settings = tuple(
            ReplacedConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        )
        resource = ReplacedConfigsResource(resource_type=kind, resource_name=name, configs=settings)
        return AlterConfigsRequest(resources=(resource,), validate_only=False)

    yield request(TOPIC, topic, retention_ms="7000", segment_bytes="1048576"), 0
    yield request(TOPIC, topic, min_insync_replicas="1", compression_type="gzip"), 1
    yield request(TOPIC, topic), 2
    for bad in (
        {"nonsense": "1"},
        {"retention_ms": None},
        {"retention_ms": "x"},
        {"retention_ms": "-2"},
        {"retention_ms": "7_000"},
        {"retention_ms": " +7000 "},
        {"min_cleanable_dirty_ratio": "7"},
        {"min_cleanable_dirty_ratio": "1e-1"},
        {"compression_type": "nope"},
        {"compression_gzip_level": "0"},
        {"message_timestamp_type": "nope"},
        {"cleanup_policy": ""},
        {"cleanup_policy": "compact, delete"},
        {"cleanup_policy": "Compact"},
        {"preallocate": "yes"},
        {"preallocate": "FALSE"},
        {"remote_storage_enable": "true"},
        {"leader_replication_throttled_replicas": "abc"},
        {"leader_replication_throttled_replicas": "0:1,1:1"},
        {"max_message_bytes": "99999999999"},
        {"local_retention_ms": "99999999999"},
    ):
        yield request(TOPIC, topic, **bad), 2
    group = {"consumer_session_timeout_ms": "7000"}
    yield request(TOPIC, "nowhere", retention_ms="1"), 2
    yield request(TOPIC, "a/b", retention_ms="1"), 2
    yield request(GROUP, topic, **group), 2
    yield request(GROUP, ""), 2
    yield request(BROKER, "77", message_max_bytes="7000"), 2
    yield request(99, "x"), 2


def describe_configs(topic: str) -> Iterator[Asked]:
    """Where a setting is from, over all places that it could be from."""
    keys = (
        *("cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes"),
        *("message.timestamp.type", "min.cleanable.dirty.ratio", "nonsense", "preallocate"),
        *("retention.bytes", "unclean.leader.election.enable"),
    )
    for version in (1, 2, 3, 4):
        for name in (topic, f"{topic}.compacted"):
            resource = DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=keys
            )
            for synonyms in (False, True):
                yield (
                    DescribeConfigsRequest(resources=(resource,), include_synonyms=synonyms),
                    version,
                )


def leader_epochs(topic: str) -> Iterator[Asked]:
    """Known to the client: none, the present one, a later one, and one that never was."""
    for known in (-1, 0, 1, -2):
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=0)
        wanted = OffsetForLeaderTopic(topic=topic, partitions=(asked,))
        yield OffsetForLeaderEpochRequest(topics=(wanted,)), 4
        place = FetchPartition(
            partition=0, current_leader_epoch=known, fetch_offset=100, partition_max_bytes=1
        )
        fetched = FetchTopic(topic=topic, partitions=(place,))
        yield FetchRequest(max_wait_ms=0, min_bytes=0, topics=(fetched,)), 12


def log_dirs(topic: str) -> Iterator[Asked]:
    def request(*wanted: tuple[str, tuple[int, ...]]) -> DescribeLogDirsRequest:
        topics = (DescribableLogDirTopic(topic=name, partitions=parts) for name, parts in wanted)
        return DescribeLogDirsRequest(topics=tuple(topics))

    for version in (1, 2, 3, 4, 5):
        yield request((topic, (0, 1, 2, 9)), ("nowhere", (0,))), version
    yield request(), 4
    yield request((topic, (0,)), (topic, (1,)), ("nowhere", ())), 4
    for path in ("/nope", "", "relative"):
        moved = AlterReplicaLogDirTopic(name=topic, partitions=(0, 9))
        directory = AlterReplicaLogDir(path=path, topics=(moved,))
        yield AlterReplicaLogDirsRequest(dirs=(directory,)), 2


def elections(topic: str) -> Iterator[Asked]:
    def request(*wanted: tuple[str, tuple[int, ...]], kind: int = 0) -> ElectLeadersRequest:
        partitions = (TopicPartitions(topic=name, partitions=parts) for name, parts in wanted)
        return ElectLeadersRequest(election_type=kind, topic_partitions=tuple(partitions))

    for version in (0, 1, 2):
        yield request((topic, (0, 1))), version
    yield request((topic, (0,)), kind=1), 2
    yield request((topic, (0,)), kind=9), 2
    yield request(("nowhere", (0,)), ("a/b", (0,)), (topic, (9, -1))), 2
    yield request(), 2
    yield request((topic, ())), 2


def reassignments(topic: str) -> Iterator[Asked]:
    def request(
        name: str, number: int, replicas: tuple[int, ...] | None, may_grow: bool = True
    ) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=number, replicas=replicas)
        wanted = ReassignableTopic(name=name, partitions=(partition,))
        return AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_grow, topics=(wanted,)
        )

    for replicas in ((1,), None, (2,), (1, 2), (), (1, 1), (-1,)):
        for version in (0, 1):
            yield request(topic, 0, replicas, may_grow=version == 0), version
    yield request("nowhere", 0, (1,)), 1
    yield request(topic, 9, (1,)), 1
    yield request(topic, 9, None), 1
    asked = ListPartitionReassignmentsTopics(name=topic, partition_indexes=(0, 9))
    missing = ListPartitionReassignmentsTopics(name="nowhere", partition_indexes=(0,))
    yield ListPartitionReassignmentsRequest(), 0
    yield ListPartitionReassignmentsRequest(topics=(asked, missing)), 0


def quotas(topic: str) -> Iterator[Asked]:
    def request(*wanted: tuple[str, int, str | None]) -> DescribeClientQuotasRequest:
        components = (
            ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in wanted
        )
        return DescribeClientQuotasRequest(components=tuple(components), strict=False)

    exactly, default, any_name = range(3)
    for version in (0, 1):
        yield request(), version
    for component in (
        ("user", exactly, topic),
        ("user", default, None),
        ("client-id", any_name, None),
        ("ip", exactly, "10.1.2.3"),
        ("nonsense", any_name, None),
        ("user", 9, None),
        ("user", exactly, None),
        ("", exactly, "x"),
        ("user", default, "x"),
        ("user", any_name, "x"),
    ):
        yield request(component), 1
    yield request(("user", exactly, "x"), ("user", exactly, "y")), 1
    yield request(("user", exactly, "x"), ("client-id", exactly, "y")), 1
    yield request(("client-id", exactly, "x"), ("ip", any_name, None)), 1


def producers(topic: str) -> Iterator[Asked]:
    wanted = DescribeProducersTopic(name=topic, partition_indexes=(0, 1))
    yield DescribeProducersRequest(topics=(wanted,)), 0
    yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4
    for known in ((5, 3), (5, -1), (-1, 3), (-5, -5), (5, 32767)):
        producer_id, epoch = known
        init = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        yield init, 5
    yield InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 5


def transactions(topic: str) -> Iterator[Asked]:
    def request(*states: str, pattern: str | None = None) -> ListTransactionsRequest:
        return ListTransactionsRequest(
            state_filters=states, producer_id_filters=(), transactional_id_pattern=pattern
        )

    # other tests leave transactions of theirs, ended ones: what is asked for must leave those out
    for version in (0, 1, 2):
        yield request("Ongoing", "Dead", "nonsense", "ongoing"), version
    for pattern in ("(", f"{topic}.*"):
        yield request(pattern=pattern), 2
    yield request("Ongoing", pattern=""), 2


def acls(topic: str) -> Iterator[Asked]:
    either = {"host_filter": None, "operation": 1, "permission_type": 1, "principal_filter": None}
    resource = {"pattern_type_filter": 1, "resource_name_filter": None, "resource_type_filter": 1}
    creation = AclCreation(
        resource_type=2,
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:x",
        host="*",
        operation=3,
        permission_type=3,
    )
    for version in (1, 2, 3):
        yield DescribeAclsRequest(**either, **resource), version  # type: ignore[arg-type]  # each has its field's type
        yield CreateAclsRequest(creations=(creation,) * 2), version
        found = DeleteAclsFilter(**either, **resource)  # type: ignore[arg-type]  # as above
        yield DeleteAclsRequest(filters=(found,)), version


def metadata(topic: str) -> Iterator[Asked]:
    def request(*names: str, operations: bool = False) -> MetadataRequest:
        return MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in names),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
            include_cluster_authorized_operations=operations,
        )

    for version in (8, 9, 10):
        yield request(topic, "nowhere", operations=True), version
        yield request(operations=True), version
    yield request(topic, topic, "a/b", ""), 12
    by_name, named_none = MetadataRequestTopic(name=topic), MetadataRequestTopic(name=None)
    unknown = MetadataRequestTopic(name=None, topic_id=uuid.uuid4())
    both = MetadataRequestTopic(name=topic, topic_id=uuid.uuid4())
    for version in (10, 11, 12):
        for wanted in ((unknown,), (both,), (both, by_name)):
            yield MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version
    yield MetadataRequest(topics=(by_name, named_none), allow_auto_topic_creation=False), 11
    for version in (0, 1, 2):
        yield DescribeClusterRequest(include_cluster_authorized_operations=True), version
    for kind in (2, 9):
        of_kind = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=kind
        )
        yield of_kind, 1


ADMIN: tuple[Callable[[str], Iterator[Asked]], ...] = (
    acls,
    alter_configs,
    config_resources,
    creating,
    delete_records,
    describe_configs,
    elections,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    producers,
    quotas,
    reassignments,
    scram,
    topic_partitions,
    transactions,
)


@pytest.mark.parametrize("requests", ADMIN, ids=lambda each: each.__name__)
def test_both_brokers_answer_alike(
    requests: Callable[[str], Iterator[Asked]], ours: str, real_kafka: RealKafka
) -> None:
    topic = f"topic-{uuid.uuid4().hex}"
    theirs = real_kafka.bootstrap_servers
    prepare(ours, topic)
    prepare(theirs, topic)
    assert differences(ours, theirs, requests(topic)) == []
