"""Kafka's own command line tools administer the embedded broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.types import TopicPartition
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.real_kafka.broker import java_command

TOOLS = "org.apache.kafka.tools."
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        broker.create_topic("tooled", 2, {"retention.ms": "7000"})
        with Peer(broker.bootstrap_servers) as peer:
            for _ in range(4):
                peer.produce(TopicPartition("tooled", 0), batch(b"x"))
        yield broker.bootstrap_servers


def run(bootstrap: str, tool: str, *arguments: str) -> str:
    """What a tool prints; it must end well."""
    command = java_command(tool, "--bootstrap-server", bootstrap, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_topics(bootstrap: str) -> None:
    told = run(bootstrap, f"{TOOLS}TopicCommand", "--describe", "--topic", "tooled")
    assert "PartitionCount: 2" in told
    assert "retention.ms=7000" in told
    assert told.count("Leader: 1\tReplicas: 1\tIsr: 1") == 2


def test_kafka_configs(bootstrap: str) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "tooled")
    run(bootstrap, "kafka.admin.ConfigCommand", "--alter", *topic, "--add-config", "segment.ms=99")
    told = run(bootstrap, "kafka.admin.ConfigCommand", "--describe", *topic)
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=99" in told


def test_kafka_delete_records_and_get_offsets(bootstrap: str, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    partition = {"topic": "tooled", "partition": 0, "offset": 3}
    wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
    told = run(bootstrap, f"{TOOLS}DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "partition: tooled-0\tlow_watermark: 3" in told
    told = run(bootstrap, f"{TOOLS}GetOffsetShell", "--topic", "tooled", "--time", "earliest")
    assert told.split() == ["tooled:0:3", "tooled:1:0"]


def test_kafka_log_dirs_and_leader_election(bootstrap: str) -> None:
    told = run(bootstrap, f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", "tooled")
    assert '"partition":"tooled-1","size":0' in told
    preferred = ("--election-type", "preferred", "--topic", "tooled", "--partition", "0")
    told = run(bootstrap, f"{TOOLS}LeaderElectionCommand", *preferred)
    assert "Valid replica already elected" in told


def test_kafka_reassign_partitions(bootstrap: str, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    partition = {"topic": "tooled", "partition": 0, "replicas": [1]}
    wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
    plan = ("--reassignment-json-file", str(wanted))
    tool = f"{TOOLS}reassign.ReassignPartitionsCommand"
    assert "Successfully started" in run(bootstrap, tool, *plan, "--execute")
    assert "is completed" in run(bootstrap, tool, *plan, "--verify")
