"""`kohort topics` on Apache Kafka, and beside Kafka's own tools."""

from __future__ import annotations

import re

from tests.cli import topic_scenarios as scenarios
from tests.cli.group_scenarios import dated_topic
from tests.cli.running import as_json, printed
from tests.real_kafka.broker import RealKafka

TOOLS = "org.apache.kafka.tools."


def test_a_topic_is_made_changed_and_deleted(real_kafka: RealKafka) -> None:
    scenarios.a_topic_is_made_changed_and_deleted(real_kafka.bootstrap_servers)


def test_settings_are_changed_one_by_one(real_kafka: RealKafka) -> None:
    scenarios.settings_are_changed_one_by_one(real_kafka.bootstrap_servers)


def test_a_topic_is_described_as_kafkas_tools_do(real_kafka: RealKafka) -> None:
    address = ("--bootstrap-server", real_kafka.bootstrap_servers)
    topic = dated_topic(real_kafka.bootstrap_servers, 3, each=4)
    (found,) = as_json("topics", "describe", topic, "-b", address[1])["topics"]
    described = real_kafka.run_tool(
        f"{TOOLS}TopicCommand", *address, "--describe", "--topic", topic
    )
    row_of = re.compile(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\S+)\tIsr: (\S+)")
    assert row_of.findall(described) == [
        (
            str(row["partition"]),
            str(row["leader"]),
            ",".join(map(str, row["replicas"])),
            ",".join(map(str, row["isr"])),
        )
        for row in found["partitions"]
    ]
    configs = ",".join(f"{name}={value}" for name, value in found["configs"].items())
    assert f"Configs: {configs}" in described.replace("min.insync.replicas=1,", "")
    for time, column in (("earliest", "begin_offset"), ("latest", "end_offset")):
        offsets = real_kafka.run_tool(
            f"{TOOLS}GetOffsetShell", *address, "--topic", topic, "--time", time
        )
        assert offsets.split() == [
            f"{topic}:{row['partition']}:{row[column]}" for row in found["partitions"]
        ]


def test_topics_are_listed_as_kafkas_tool_does(real_kafka: RealKafka) -> None:
    """Kafka's own topics, of which there are some or none, are left out of both."""
    address = ("--bootstrap-server", real_kafka.bootstrap_servers)
    made = {dated_topic(real_kafka.bootstrap_servers, 1, each=1) for _ in range(2)}
    theirs = real_kafka.run_tool(f"{TOOLS}TopicCommand", *address, "--list", "--exclude-internal")
    found = as_json("topics", "list", "-b", address[1])["topics"]
    assert made <= {each["topic"] for each in found} == set(theirs.split())


def test_a_topic_that_is_altered_is_so_for_kafkas_tools(real_kafka: RealKafka) -> None:
    address = ("--bootstrap-server", real_kafka.bootstrap_servers)
    topic = dated_topic(real_kafka.bootstrap_servers, 1, each=1)
    printed("topics", "alter", topic, "-b", address[1], "--partitions", "3")
    printed("topics", "configs", topic, "-b", address[1], "--set", "retention.ms=3600000")
    described = real_kafka.run_tool(
        f"{TOOLS}TopicCommand", *address, "--describe", "--topic", topic
    )
    assert "PartitionCount: 3\t" in described
    assert "retention.ms=3600000" in described
    printed("topics", "delete", topic, "-b", address[1])
    listed = real_kafka.run_tool(f"{TOOLS}TopicCommand", *address, "--list")
    assert topic not in listed.split()
