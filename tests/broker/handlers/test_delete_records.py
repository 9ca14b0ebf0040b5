"""DeleteRecords: the start of a partition is kept on disk, and no reader gets earlier records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import BrokerProcess

T = TopicPartition("t", 0)


def delete(peer: Peer, offset: int, topic: str = "t") -> DeleteRecordsPartitionResult:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsTopic(name=topic, partitions=(partition,))
    answer = peer.ask(DeleteRecordsRequest(topics=(wanted,), timeout_ms=10_000), 2)
    return answer.topics[0].partitions[0]


def earliest(peer: Peer) -> int:
    wanted = ListOffsetsTopic(
        name="t", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-2),)
    )
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=(wanted,)), 7)
    return answer.topics[0].partitions[0].offset


def size(peer: Peer) -> int:
    """Return the size of the partition in bytes, as reported by the broker."""
    wanted = DescribableLogDirTopic(topic="t", partitions=(0,))
    (directory,) = peer.ask(DescribeLogDirsRequest(topics=(wanted,)), 4).results
    return directory.topics[0].partitions[0].partition_size


def bytes_in(data: Path) -> int:
    return sum(path.stat().st_size for path in (data / "t-0").glob("*.log"))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_start_outlives_the_broker(how: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t", segment_bytes="400")
            for _ in range(20):
                assert peer.produce(T, batch(b"a" * 60, b"b" * 60)).error_code == ErrorCode.NONE
            before = size(peer)
            assert before == bytes_in(broker.data)
            assert delete(peer, 25).low_watermark == 25
            assert size(peer) == bytes_in(broker.data) < before / 2
        getattr(broker, how)()
        broker.start()
        with Peer(broker.bootstrap_servers) as peer:
            assert size(peer) == bytes_in(broker.data)  # no log has been opened yet
            assert earliest(peer) == 25
            assert peer.fetch(T, 24).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            found = peer.fetch(T, 25)
            assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 25, 40)
            assert delete(peer, -1).low_watermark == 40
            assert peer.produce(T, batch(b"c")).base_offset == 40


def test_an_empty_log_goes_on_where_it_was(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t")
            assert peer.produce(T, batch(b"a", b"b")).error_code == ErrorCode.NONE
            assert delete(peer, -1).low_watermark == 2
        broker.kill()
        broker.start()
        with Peer(broker.bootstrap_servers) as peer:
            assert earliest(peer) == 2
            assert peer.produce(T, batch(b"c")).base_offset == 2


def test_the_offsets_topic_keeps_its_records(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Peer(broker.bootstrap_servers) as peer:
        refused = delete(peer, -1, "__consumer_offsets")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert refused.low_watermark == -1
