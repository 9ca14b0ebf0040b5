"""Foreign admin clients ask what a single node has little to say about, and shorten partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, _acl, _listoffsets, _resource
from confluent_kafka.admin._config import ConfigResource

from kohort.broker import EmbeddedBroker
from tests.system.clients.group import DEADLINE_S, kafka, produce

RECORDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("t", 3)
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


def refusal(futures: dict[Any, Any]) -> int:
    """The code with which the one call was refused."""
    with pytest.raises(KafkaException) as refused:
        result(futures)
    code: int = refused.value.args[0].code()
    return code


# ----------------------------------------------------------------------------- confluent-kafka


def test_confluent_deletes_records(confluent: AdminClient, broker: EmbeddedBroker) -> None:
    produce(broker.bootstrap_servers, "c-shortened", RECORDS)
    partition = confluent_kafka.TopicPartition("c-shortened", 0)
    before = confluent_kafka.TopicPartition("c-shortened", 0, 7)
    assert result(confluent.delete_records([before])).low_watermark == 7
    start = _listoffsets.OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # not annotated there
    earliest = result(confluent.list_offsets({partition: start}))
    assert earliest.offset == 7
    beyond = confluent_kafka.TopicPartition("c-shortened", 0, RECORDS + 1)
    assert refusal(confluent.delete_records([beyond])) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = confluent_kafka.TopicPartition("c-shortened", 0, confluent_kafka.OFFSET_END)
    assert result(confluent.delete_records([everything])).low_watermark == RECORDS


def test_confluent_is_told_that_nothing_needs_an_election(confluent: AdminClient) -> None:
    partition = confluent_kafka.TopicPartition("t", 0)
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [partition]).result(DEADLINE_S)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_confluent_cannot_make_acls(confluent: AdminClient) -> None:
    pattern = (
        _resource.ResourceType.TOPIC,
        "t",
        _resource.ResourcePatternType.LITERAL,
        "User:x",
        "*",
    )
    rule = (_acl.AclOperation.READ, _acl.AclPermissionType.ALLOW)
    disabled = KafkaError.SECURITY_DISABLED
    assert refusal(confluent.create_acls([_acl.AclBinding(*pattern, *rule)])) == disabled
    assert refusal(confluent.delete_acls([_acl.AclBindingFilter(*pattern, *rule)])) == disabled


def test_confluent_is_told_that_nobody_has_a_password(confluent: AdminClient) -> None:
    assert confluent.describe_user_scram_credentials().result(DEADLINE_S) == {}  # type: ignore[union-attr]  # without users it is one future
    missing = KafkaError.RESOURCE_NOT_FOUND
    assert refusal(confluent.describe_user_scram_credentials(["somebody"])) == missing  # type: ignore[arg-type]  # and with users it is many


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what it is replaced by sets one by one
def test_confluent_replaces_all_settings(confluent: AdminClient, broker: EmbeddedBroker) -> None:
    broker.create_topic("c-settings", configs={"retention.bytes": "5000"})
    topic = ConfigResource("topic", "c-settings", set_config={"retention.ms": "7000"})
    result(confluent.alter_configs([topic]))
    described = result(confluent.describe_configs([ConfigResource("topic", "c-settings")]))
    assert described["retention.ms"].value == "7000"
    assert described["retention.bytes"].value == "-1"


# ----------------------------------------------------------------------------- kafka-python


def test_kafka_python_deletes_records(kafka_python: Any, broker: EmbeddedBroker) -> None:
    produce(broker.bootstrap_servers, "k-shortened", RECORDS)
    partition = kafka.TopicPartition("k-shortened", 0)
    deleted = kafka_python.delete_records({partition: 7})
    assert deleted[partition]["low_watermark"] == 7
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        kafka_python.delete_records({partition: RECORDS + 1})


def test_kafka_python_reads_a_topic_page_by_page(kafka_python: Any) -> None:
    first = kafka_python.describe_topic_partitions(["t"], response_partition_limit=2)
    assert first["next_cursor"] == {"topic_name": "t", "partition_index": 2}
    rest = kafka_python.describe_topic_partitions(["t"], cursor=first["next_cursor"])
    pages = (first, rest)
    numbers = [
        each["partition_index"] for page in pages for each in page["topics"][0]["partitions"]
    ]
    assert numbers == [0, 1, 2]
    assert rest["next_cursor"] is None


def test_kafka_python_finds_everything_where_it_should_be(kafka_python: Any) -> None:
    partition = kafka.TopicPartition("t", 0)
    (node,) = kafka_python.describe_log_dirs()
    (directory,) = node["log_dirs"]
    assert directory["error_code"] == 0
    assert "t" in str(directory["topics"])
    replica = kafka.structs.TopicPartitionReplica("t", 0, node["broker"])
    moved = kafka_python.alter_replica_log_dirs({replica: directory["log_dir"]})
    assert moved[replica] is kafka.errors.NoError
    assert kafka_python.alter_partition_reassignments({partition: [1]}) == {partition: None}
    assert kafka_python.list_partition_reassignments() == {}
    elected = kafka_python.elect_leaders(0, {"t": [0]}).replica_election_results
    assert elected[0][1][0][1] == kafka.errors.ElectionNotNeededError.errno
    assert kafka_python.list_config_resources()["broker"] == ["1"]
    assert kafka_python.list_transactions() == {1: []}


def test_kafka_python_sees_who_writes(kafka_python: Any, broker: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}
    )
    producer.produce("t", b"x", partition=1)
    assert producer.flush(DEADLINE_S) == 0
    partition = kafka.TopicPartition("t", 1)
    described = str(kafka_python.describe_producers([partition]))
    assert "producer_id" in described
    assert "last_sequence" in described
