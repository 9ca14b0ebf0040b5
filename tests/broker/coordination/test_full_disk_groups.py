"""A disk that is full for a moment ends no group: failed loads are retried."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.coordination.coordinator import GroupCoordinator
from kohort.broker.log.directory import DataDirectory
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.full_disks import full_disk
from tests.broker.peer import Peer
from tests.broker.processes import eventually

GONE = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, offsets_topic_num_partitions=1) as made:
        made.create_topic("t")
        yield made


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def commit(peer: Peer, group: str = "g") -> int:
    """Commit an offset; return the error code."""
    position = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=(position,))
    answer = peer.ask(OffsetCommitRequest(group_id=group, member_id="", topics=(topic,)), 7)
    return answer.topics[0].partitions[0].error_code


def is_idle(broker: EmbeddedBroker) -> bool:
    return not broker._running().context.coordinator._reloading


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_group_that_came_while_the_disk_was_full_works_when_there_is_room(
    broker: EmbeddedBroker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    with full_disk():
        assert commit(peer) == GONE
        eventually(lambda: is_idle(broker), "the shard was given up")
        assert [commit(peer) for _ in range(10)] == [GONE] * 10
    eventually(lambda: commit(peer) == ErrorCode.NONE, "its shard was loaded")
    (line,) = errors(caplog)
    assert "No space left on device" in line


def test_what_the_disk_refuses_is_tried_again_once_a_second(
    broker: EmbeddedBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, opened, log = [10_000], [], DataDirectory.log

    def counted(data: DataDirectory, partition: TopicPartition) -> PartitionLog:
        opened.append(partition)
        return log(data, partition)

    monkeypatch.setattr(GroupCoordinator, "_now", lambda _: now[0])
    monkeypatch.setattr(DataDirectory, "log", counted)
    with full_disk():
        for _ in range(3):
            commit(peer)
            eventually(lambda: is_idle(broker), "the shard was given up")
            before = len(opened)
            assert [commit(peer) for _ in range(10)] == [GONE] * 10
            assert len(opened) == before
            now[0] += 1_000
