"""The group log: Kafka's tool reads our records, and we read what Kafka's coordinator wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from kohort.wire.group_log import decode_record, encode_record
from kohort.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.messages.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    GroupValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.wire.records import Record, decode_records, encode_batch, iter_batches
from tests.real_kafka.broker import RealKafka

MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=300,
    session_timeout=45,
    subscription=encode_subscription(ConsumerProtocolSubscription(topics=("t",)), 3),
    assignment=b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff",
)
RECORDS: list[tuple[GroupKey, GroupValue | None]] = [
    (
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=1000),
    ),
    (
        OffsetCommitKey(group="g", topic="t", partition=4),
        OffsetCommitValue(offset=1, metadata="", commit_timestamp=1, expire_timestamp=2),
    ),
    (OffsetCommitKey(group="g", topic="gone", partition=0), None),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=7,
            protocol="range",
            leader="m-1",
            current_state_timestamp=99,
            members=(MEMBER,),
        ),
    ),
    (GroupMetadataKey(group="gone"), None),
]


def test_kafkas_tool_reads_our_records(real_kafka: RealKafka, tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    pairs = [encode_record(key, value) for key, value in RECORDS]
    records = [Record(offset, 1000, *pair) for offset, pair in enumerate(pairs)]
    segment.write_bytes(encode_batch(records))
    options = ["--files", str(segment), "--offsets-decoder", "--deep-iteration"]
    output = real_kafka.run_tool("org.apache.kafka.tools.DumpLogSegments", *options)
    read = dumped(output)
    assert read == [
        (
            {"group": "g", "topic": "t", "partition": 3},
            {"offset": 42, "leaderEpoch": 5, "metadata": "note", "commitTimestamp": 1000},
        ),
        (
            {"group": "g", "topic": "t", "partition": 4},
            {"offset": 1, "metadata": "", "commitTimestamp": 1, "expireTimestamp": 2},
        ),
        ({"group": "g", "topic": "gone", "partition": 0}, None),
        ({"group": "g"}, GROUP_AS_DUMPED),
        ({"group": "gone"}, None),
    ]


GROUP_AS_DUMPED = {
    "protocolType": "consumer",
    "generation": 7,
    "protocol": "range",
    "leader": "m-1",
    "currentStateTimestamp": 99,
    "members": [
        {
            "memberId": "m-1",
            "groupInstanceId": "i-1",
            "clientId": "c",
            "clientHost": "/127.0.0.1",
            "rebalanceTimeout": 300,
            "sessionTimeout": 45,
            "subscription": {
                "topics": ["t"],
                "userData": None,
                "ownedPartitions": [],
                "generationId": -1,
                "rackId": None,
            },
            "assignment": {
                "assignedPartitions": [{"topic": "t", "partitions": [0]}],
                "userData": None,
            },
        }
    ],
}


def dumped(output: str) -> list[tuple[Any, Any]]:
    """Key and value of each record as DumpLogSegments prints them: JSON, or a word for null."""
    lines = re.findall(r"key: (\{.*\}) payload: (.*)$", output, re.MULTILINE)
    return [
        (json.loads(key)["data"], json.loads(value)["data"] if value != "<DELETE>" else None)
        for key, value in lines
    ]


def test_we_read_the_log_that_kafka_wrote(real_kafka: RealKafka) -> None:
    commit_in_a_group(real_kafka, topic="group-log", group="group-log-readers")
    records = [
        record
        for record in group_log(real_kafka)
        if isinstance(record.key, (OffsetCommitKey, GroupMetadataKey))
        and record.key.group == "group-log-readers"
    ]
    commits = [record for record in records if isinstance(record.value, OffsetCommitValue)]
    assert commits[-1].key == OffsetCommitKey(
        group="group-log-readers", topic="group-log", partition=0
    )
    groups = [r.value for r in records if isinstance(r.value, GroupMetadataValue)]
    stable = next(value for value in groups if value.members)
    assert (stable.protocol_type, stable.protocol) == ("consumer", "range")
    member = stable.members[0]
    assert member.member_id == stable.leader
    assert decode_subscription(member.subscription).topics == ("group-log",)
    assigned = decode_assignment(member.assignment).assigned_partitions
    assert [(each.topic, each.partitions) for each in assigned] == [("group-log", (0,))]
    assert groups[-1].members == ()


def test_our_bytes_are_kafkas_bytes(real_kafka: RealKafka) -> None:
    commit_in_a_group(real_kafka, topic="group-log-bytes", group="group-log-bytes-readers")
    compared = 0
    for raw in raw_group_log(real_kafka):
        assert raw.key is not None
        read = decode_record(raw.key, raw.value)
        if read is not None:
            assert encode_record(read.key, read.value) == (raw.key, raw.value)
            compared += 1
    assert compared >= 3


def commit_in_a_group(kafka: RealKafka, topic: str, group: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    finally:
        consumer.close()


def group_log(kafka: RealKafka) -> list[GroupRecord]:
    read = [decode_record(raw.key or b"", raw.value) for raw in raw_group_log(kafka)]
    return [record for record in read if record is not None]


def raw_group_log(kafka: RealKafka) -> list[Record]:
    """All records of `__consumer_offsets` on Kafka's disk, without the markers of transactions."""
    segments = sorted(kafka.log_dir.glob("__consumer_offsets-*/*.log"))
    return [
        record
        for segment in segments
        for header, batch in iter_batches(segment.read_bytes())
        if not header.is_control
        for record in decode_records(batch)
    ]
