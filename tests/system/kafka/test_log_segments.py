"""Our broker's files are Kafka's: its tool reads ours, and we load groups that it wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from kohort import types
from kohort.broker import EmbeddedBroker
from kohort.broker.coordination.coordinator import OFFSETS_TOPIC
from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.wire.records.header import iter_batches, with_base_offset
from tests.real_kafka.broker import RealKafka

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SHARDS = 5
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 200


def produce(servers: str, topic: str, count: int, **settings: object) -> None:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": servers, **dotted})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, key=b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def read_and_commit(servers: str, group: str, topic: str, offset: int) -> Consumer:
    """A member that stays in its group, because it is static, when it is closed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.instance.id": "instance",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 300_000,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert isinstance(message, Message)
    assert message.error() is None
    position = TopicPartition(topic, 0, offset, metadata="a note")
    consumer.commit(offsets=[position], asynchronous=False)
    return consumer


# ---------------------------------------------------------------------- Kafka's tool reads ours


def test_kafkas_tool_reads_our_segments_and_indexes(real_kafka: RealKafka, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1, {"segment.bytes": "3000"})
        for codec in CODECS:
            produce(broker.bootstrap_servers, "t", PER_CODEC, compression_type=codec, linger_ms=2)
    folder = tmp_path / "t-0"
    logs = joined(folder, "*.log")
    assert logs.count(",") >= 1
    output = real_kafka.run_tool(DUMP, "--files", logs, "--print-data-log", "--deep-iteration")
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == list(range(len(CODECS) * PER_CODEC))
    assert re.findall(r"payload: (value \d+)$", output, re.MULTILINE) == [
        f"value {number}" for number in range(PER_CODEC)
    ] * len(CODECS)
    assert "isvalid: false" not in output
    for codec in CODECS:
        assert f"compresscodec: {codec}" in output
    indexes = joined(folder, "*.index") + "," + joined(folder, "*.timeindex")
    checked = real_kafka.run_tool(DUMP, "--files", indexes)
    assert "Dumping" in checked
    assert "mismatch" not in checked.lower()
    assert "error" not in checked.lower()


def joined(folder: Path, pattern: str) -> str:
    return ",".join(str(path) for path in sorted(folder.glob(pattern)))


def test_kafkas_tool_reads_our_group_log(real_kafka: RealKafka, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, offsets_topic_num_partitions=1) as broker:
        produce(broker.bootstrap_servers, "t", 10)
        read_and_commit(broker.bootstrap_servers, "g", "t", 7).close()
    logs = joined(tmp_path / f"{OFFSETS_TOPIC}-0", "*.log")
    output = real_kafka.run_tool(DUMP, "--files", logs, "--offsets-decoder", "--deep-iteration")
    assert '"group":"g","topic":"t","partition":0' in output
    assert '"offset":7' in output
    assert '"metadata":"a note' in output  # librdkafka adds a zero byte
    assert '"groupInstanceId":"instance"' in output
    assert '"protocol":"range"' in output
    assert "isvalid: false" not in output


# ---------------------------------------------------------------------- we load what Kafka wrote


def test_our_coordinator_loads_the_groups_that_kafka_wrote(tmp_path: Path) -> None:
    """C70, C72: versions and all, as Kafka has them."""
    with RealKafka(tmp_path / "kafka") as kafka:
        servers = kafka.bootstrap_servers
        for group in ("first", "second", "third"):
            produce(servers, f"{group}-topic", 10)
            read_and_commit(servers, group, f"{group}-topic", len(group)).close()
        AdminClient({"bootstrap.servers": servers}).delete_consumer_groups(["third"])
        expected = [groups(servers, group) for group in ("first", "second", "third")]
        kafka.stop()
        take_over_group_log(kafka.log_dir, tmp_path / "ours")
    with EmbeddedBroker(tmp_path / "ours", offsets_topic_num_partitions=SHARDS) as broker:
        servers = broker.bootstrap_servers
        for group in ("first", "second", "third"):
            broker.create_topic(f"{group}-topic")
        assert [groups(servers, group) for group in ("first", "second", "third")] == expected
        again = read_on(servers, "first", "first-topic")
        assert again.offset() == len("first")


def groups(servers: str, group: str) -> dict[str, Any]:
    """What an admin client sees of a group: state, members, assignment, positions."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([group])[group].result(30)
    asked = ConsumerGroupTopicPartitions(group)
    listed = admin.list_consumer_group_offsets([asked])[group].result(30)
    return {
        "state": described.state.name,
        "assignor": described.partition_assignor,
        "members": [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.host,
                str(m.assignment.topic_partitions),
            )
            for m in described.members
        ],
        "positions": [
            (p.topic, p.partition, p.offset, p.metadata) for p in listed.topic_partitions
        ],
    }


def take_over_group_log(kafka: Path, ours: Path) -> None:
    """Append Kafka's batches to our offsets topic, shard by shard."""
    with EmbeddedBroker(ours, offsets_topic_num_partitions=SHARDS):
        pass
    data = DataDirectory(ours, LogConfig())
    try:
        for number in range(SHARDS):
            log = data.log(types.TopicPartition(OFFSETS_TOPIC, number))
            for segment in sorted((kafka / f"{OFFSETS_TOPIC}-{number}").glob("*.log")):
                for header, batch in iter_batches(segment.read_bytes()):
                    log.append(with_base_offset(batch, 0, 0), header.max_timestamp)
    finally:
        data.close()


def read_on(servers: str, group: str, topic: str) -> Message:
    """The first record that the static member reads when it comes back."""
    produce(servers, topic, 10)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.instance.id": "instance",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 300_000,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert isinstance(message, Message)
        return message
    finally:
        consumer.close()
