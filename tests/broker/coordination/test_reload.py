"""The group coordinator has the same state after a restart as before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.coordination.coordinator import partition_of
from kohort.broker.log.compaction import compact_due
from kohort.broker.log.config import LogConfig
from kohort.broker.log.directory import DataDirectory
from kohort.broker.log.partition_log import PartitionLog
from kohort.broker.settings import BrokerSettings
from kohort.errors import ErrorCode, KafkaError
from kohort.group.coordinator.shard import Shard
from kohort.types import TopicPartition
from kohort.wire.messages.groups import DescribedGroup, DescribeGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kohort.wire.records import Record, encode_batch
from tests.broker.peer import Peer
from tests.broker.processes import eventually

OFFSETS = TopicPartition("__consumer_offsets", 0)
# One shard in small segments, so that compaction processes all of it.
SETTINGS: BrokerSettings = {"offsets_topic_num_partitions": 1, "offsets_topic_segment_bytes": 4_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path / "data", **SETTINGS).start()
    made.create_topic("t", 4)
    yield made
    made.stop()


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def restarted(broker: EmbeddedBroker) -> Peer:
    broker.stop()
    broker.start()
    return Peer(broker.bootstrap_servers)


def commit(
    peer: Peer, group: str, offsets: dict[int, int], metadata: str = "", error: int = ErrorCode.NONE
) -> None:
    positions = tuple(
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        for partition, offset in offsets.items()
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=positions)
    answer = peer.ask(OffsetCommitRequest(group_id=group, member_id="", topics=(topic,)), 7)
    assert {each.error_code for each in answer.topics[0].partitions} == {error}


def fetch(peer: Peer, group: str) -> OffsetFetchResponse:
    return peer.ask(OffsetFetchRequest(group_id=group, topics=None), 7)


def committed(peer: Peer, group: str) -> dict[int, tuple[int, str | None]]:
    answer = fetch(peer, group)
    assert answer.error_code == ErrorCode.NONE
    return {
        each.partition_index: (each.committed_offset, each.metadata)
        for topic in answer.topics
        for each in topic.partitions
    }


def join_request(group: str, instance: str) -> JoinGroupRequest:
    """Return a static member's first join."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"subscription")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(protocol,),
    )


def join_alone(peer: Peer, group: str) -> tuple[str, int]:
    """Join a group as its only member, with an assignment; return member id and generation."""
    joined = peer.ask(join_request(group, "instance"), 5)
    assert joined.error_code == ErrorCode.NONE
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="instance",
        assignments=(assignment,),
    )
    assert peer.ask(sync, 3).assignment == b"assigned"
    return joined.member_id, joined.generation_id


def described(peer: Peer, group: str) -> DescribedGroup:
    (answer,) = peer.ask(DescribeGroupsRequest(groups=(group,)), 5).groups
    return answer


def test_offsets_and_their_metadata_are_read_back(broker: EmbeddedBroker, peer: Peer) -> None:
    commit(peer, "g", {0: 5, 1: 6}, "a note")
    commit(peer, "g", {0: 7})
    commit(peer, "h", {0: 1})
    with restarted(broker) as again:
        assert committed(again, "g") == {0: (7, ""), 1: (6, "a note")}
        assert committed(again, "h") == {0: (1, "")}
        assert committed(again, "unknown") == {}


def test_c73_who_is_parked_when_the_broker_stops_is_answered(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    """As in Kafka at shutdown: the connection is closed after the response."""
    join_alone(peer, "g")
    peer.send(join_request("g", "newcomer"), 5)
    with Peer(broker.bootstrap_servers) as other:
        eventually(
            lambda: described(other, "g").group_state == "PreparingRebalance", "a parked join"
        )
    broker.stop()
    assert peer.answer(JoinGroupResponse, 5).error_code == ErrorCode.NOT_COORDINATOR


def test_members_generation_and_assignment_are_read_back(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    member, generation = join_alone(peer, "g")
    before = described(peer, "g")
    with restarted(broker) as again:
        assert described(again, "g") == before
        assert before.members[0].member_assignment == b"assigned"
        beat = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member, group_instance_id="instance"
        )
        assert again.ask(beat, 4).error_code == ErrorCode.NONE


def test_the_groups_are_the_same_after_compaction_while_commits_go_on(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    for offset in range(300):
        commit(peer, "g", {0: offset, 1: 2 * offset})
    commit(peer, "once", {3: 33}, "written once")
    before = segments(broker)
    compact_while(broker, peer)
    assert segments(broker) < before
    expected = {0: (499, ""), 1: (998, "")}
    assert committed(peer, "g") == expected
    with restarted(broker) as again:
        assert committed(again, "g") == expected
        assert committed(again, "once") == {3: (33, "written once")}


def segments(broker: EmbeddedBroker) -> int:
    return len(broker._running().context.data.log(OFFSETS).segments)


def compact_while(broker: EmbeddedBroker, peer: Peer) -> None:
    """Compact on the broker's loop, at most one step between two commits."""
    context, loop = broker._running().context, broker._loop
    assert loop is not None

    async def compact() -> None:
        for _ in compact_due([context.data.log(OFFSETS)], context.wall_ms()):
            await asyncio.sleep(0)

    done = asyncio.run_coroutine_threadsafe(compact(), loop)
    for offset in range(300, 500):
        commit(peer, "g", {0: offset, 1: 2 * offset})
    done.result(30)


def test_a_log_whose_compaction_was_left_halfway_is_as_it_was(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    for offset in range(300):
        commit(peer, "g", {0: offset})
    loop = broker._loop
    assert loop is not None

    async def half() -> None:
        context = broker._running().context
        steps = compact_due([context.data.log(OFFSETS)], context.wall_ms())
        for _, _ in zip(range(3), steps, strict=False):
            await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(half(), loop).result(30)
    with restarted(broker) as again:
        assert committed(again, "g") == {0: (299, "")}


def test_b1_groups_are_loaded_whole_while_their_log_waits_for_compaction(
    broker: EmbeddedBroker, peer: Peer
) -> None:
    """KAFKA-19862: a reader would never see records that compaction moves past it."""
    for partition in range(4):
        for offset in range(50):
            commit(peer, "g", {partition: offset})
    running, loop = broker._running(), broker._loop
    assert loop is not None
    before = segments(broker)

    async def load_and_compact() -> None:
        context = running.context
        context.coordinator.shards[0] = Shard(context.coordinator.shards[0].config)
        load = context.coordinator._load(0)
        load.send(None)  # it has read one record, and yields
        await running._compact(context.data)
        with suppress(StopIteration):
            while True:
                load.send(None)

    asyncio.run_coroutine_threadsafe(load_and_compact(), loop).result(30)
    assert committed(peer, "g") == dict.fromkeys(range(4), (49, ""))
    assert segments(broker) == before
    asyncio.run_coroutine_threadsafe(running._compact(running.context.data), loop).result(30)
    assert segments(broker) < before


def test_offsets_of_a_deleted_topic_stay_deleted(broker: EmbeddedBroker, peer: Peer) -> None:
    commit(peer, "g", {0: 5})
    context = broker._running().context
    broker._call(lambda: context.coordinator.topics_deleted(frozenset({"t"})))
    assert committed(peer, "g") == {}
    with restarted(broker) as again:
        assert committed(again, "g") == {}


def test_the_directory_can_be_opened_by_itself(broker: EmbeddedBroker, peer: Peer) -> None:
    commit(peer, "g", {0: 5})
    broker.stop()
    data = DataDirectory(broker._data_dir or Path(), LogConfig())
    try:
        assert data.log(OFFSETS).log_end_offset == 1
    finally:
        data.close()
    broker.start()


def no_disk(*_: object) -> NoReturn:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")


def no_log(*_: object) -> NoReturn:
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch")


def test_c7_a_group_log_that_fails_once_is_loaded_again(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(peer, "g", {0: 3})
    with monkeypatch.context() as disk:
        disk.setattr(PartitionLog, "append", no_disk)
        commit(peer, "g", {0: 4}, error=ErrorCode.NOT_COORDINATOR)
    eventually(lambda: fetch(peer, "g").error_code == ErrorCode.NONE, "the log was read again")
    assert committed(peer, "g") == {0: (3, "")}
    commit(peer, "g", {0: 5})


def test_c7_c73_a_group_log_that_cannot_be_read_either_has_no_coordinator(
    broker: EmbeddedBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(peer, "g", {0: 3})
    with monkeypatch.context() as disk:
        disk.setattr(PartitionLog, "append", no_disk)
        disk.setattr(PartitionLog, "batches", no_log)
        commit(peer, "g", {0: 4}, error=ErrorCode.NOT_COORDINATOR)
        refused = ErrorCode.NOT_COORDINATOR
        eventually(lambda: fetch(peer, "g").error_code == refused, "the shard was given up")
    commit(peer, "g", {0: 5}, error=ErrorCode.NOT_COORDINATOR)
    with restarted(broker) as again:
        assert committed(again, "g") == {0: (3, "")}


def test_c7_a_part_of_the_log_that_nobody_can_read_keeps_only_its_groups_from_being_coordinated(
    tmp_path: Path,
) -> None:
    """As in Kafka, where the coordinator of that partition fails to load and the broker starts."""
    shards = 2
    ill, well = (next(g for g in "abcdef" if partition_of(g, shards) == n) for n in range(shards))
    settings: BrokerSettings = {"offsets_topic_num_partitions": shards, "num_partitions": 1}
    broker = EmbeddedBroker(tmp_path / "data", **settings).start()
    broker.create_topic("t")
    with Peer(broker.bootstrap_servers) as peer:
        for group in (ill, well):
            commit(peer, group, {0: 3})
    broker.stop()
    data = DataDirectory(tmp_path / "data", LogConfig())
    a_key_that_ends_too_soon = Record(0, 0, b"\x00\x01\x00\x09g", b"")
    data.log(OFFSETS).append(encode_batch([a_key_that_ends_too_soon]), 0)
    data.close()
    with broker, Peer(broker.bootstrap_servers) as peer:
        assert fetch(peer, ill).error_code == ErrorCode.NOT_COORDINATOR
        assert committed(peer, well) == {0: (3, "")}
