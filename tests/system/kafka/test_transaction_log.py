"""The log of transactions: Kafka's tool reads ours, and we go on from the one that Kafka wrote."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.coordination.coordinator import OFFSETS_TOPIC
from kohort.broker.coordination.transactions import TRANSACTIONS_TOPIC
from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.broker.settings import BrokerSettings
from kohort.types import TopicPartition
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transaction_histories import PARTITIONS, Player, history, played
from tests.system.kafka.test_group_log import dumped

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
DUMP = "org.apache.kafka.tools.DumpLogSegments"
STEPS = 120
# As the Apache Kafka of the tests has them.
SHARDS: BrokerSettings = {
    "offsets_topic_num_partitions": 5,
    "transaction_state_log_num_partitions": 1,
}


def seen(player: Player) -> list[Any]:
    """All that a broker tells of the transactions of a history."""
    ends = [player.end_of(number, kind, -1) for number in PARTITIONS for kind in (0, 1)]
    read = [player.read(number, kind) for number in PARTITIONS for kind in (0, 1)]
    positions = [player.positions(group, stable) for group in (0, 1) for stable in (True, False)]
    producers = [player.producers(number) for number in PARTITIONS]
    return [player.describe(), player.listed(()), ends, read, positions, producers]


@pytest.mark.parametrize("version", [1, 2])
def test_kafkas_tool_reads_our_log(real_kafka: RealKafka, tmp_path: Path, version: int) -> None:
    with EmbeddedBroker(tmp_path, **SHARDS) as broker:
        player = Player(broker.bootstrap_servers, "ours", version)
        played(player, history(7, version, STEPS))
        shown = player.describe()
        described = {name: (state, epoch) for name, _, state, *_, epoch, _ in shown if state}
        player.close()
    logs = ",".join(map(str, sorted((tmp_path / "__transaction_state-0").glob("*.log"))))
    output = real_kafka.run_tool(DUMP, "--files", logs, "--transaction-log-decoder")
    assert "isvalid: false" not in output
    last = {key["transactionalId"][-1]: value for key, value in dumped(output)}
    assert described == {
        name: (STATES[value["transactionStatus"]], value["producerEpoch"])
        for name, value in last.items()
    }


@pytest.mark.parametrize("version", [1, 2])
def test_we_go_on_from_what_kafka_wrote(tmp_path: Path, version: int) -> None:
    prefix, steps = f"theirs-{uuid.uuid4().hex[:8]}", history(11, version, STEPS)
    options = ["--feature", f"transaction.version={version}"]
    with RealKafka(tmp_path / "kafka", format_options=options) as kafka:
        player = Player(kafka.bootstrap_servers, prefix, version)
        played(player, steps)
        expected = seen(player)
        player.close()
        kafka.stop()
        with EmbeddedBroker(tmp_path / "ours", **SHARDS) as broker:
            broker.create_topic(player.topic, len(PARTITIONS))
        take_over(kafka.log_dir, tmp_path / "ours", player.topic)
    with EmbeddedBroker(tmp_path / "ours", **SHARDS) as broker:
        player.connect(broker.bootstrap_servers)
        assert seen(player) == expected
        for at, handle in enumerate(player.handles):  # whoever has a transaction can end it
            if handle.producer_id >= 0:
                assert player.init(at, "none", 4)[0] == 0
        assert all(player.end_of(n, 0, -1) == player.end_of(n, 1, -1) for n in PARTITIONS)
        player.close()


def take_over(kafka: Path, ours: Path, topic: str) -> None:
    """Put Kafka's segments in the place of ours, without any index."""
    found = [
        (source, TopicPartition(name, int(source.name.rpartition("-")[2])))
        for name in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC, topic)
        for source in kafka.glob(f"{name}-*")
    ]
    data = DataDirectory(ours, LogConfig())
    for _, partition in found:
        data.log(partition)
    data.close()
    for source, _ in found:
        target = ours / source.name
        for each in target.iterdir():
            if each.name != "partition.metadata":
                each.unlink()
        for segment in source.glob("*.log"):
            shutil.copy(segment, target)
