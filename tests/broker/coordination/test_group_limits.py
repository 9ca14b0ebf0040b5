"""Groups with hostile members: requests beyond a limit, or unknown ones, harm only the sender."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.settings import BrokerSettings
from kohort.client import Consumer
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from kohort.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import eventually

# One shard, so that all groups share it.
SETTINGS: BrokerSettings = {"offsets_topic_num_partitions": 1}
LONG = 32_767
MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", **SETTINGS) as running:
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as made:
        yield made


def join_request(group: str, metadata: bytes, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
    )


def alone(peer: Peer, group: str, assignment: bytes = b"all") -> tuple[str, int]:
    """Join a group as its only member; return member id and generation."""
    joined = peer.ask(join_request(group, b"m"), 3)
    given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(given,),
    )
    assert peer.ask(sync, 2).assignment == assignment
    return joined.member_id, joined.generation_id


def beat(peer: Peer, group: str, member_id: str, generation: int) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    return peer.ask(request, 2).error_code


def commit_many(peer: Peer, group: str, count: int) -> set[int]:
    positions = tuple(
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata=""
        )
        for number in range(count)
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=positions)
    answer = peer.ask(OffsetCommitRequest(group_id=group, member_id="", topics=(topic,)), 7)
    return {each.error_code for each in answer.topics[0].partitions}


def committed(peer: Peer, group: str) -> int:
    answer = peer.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
    return sum(len(topic.partitions) for topic in answer.topics)


def test_c6_c7_what_the_log_cannot_take_is_refused_and_the_neighbours_stay(peer: Peer) -> None:
    peer.create("t", 8_000)
    member_id, generation = alone(peer, "neighbour")
    group = "g" * LONG  # part of the key of every offset
    assert commit_many(peer, group, 3) == {ErrorCode.NONE}
    assert commit_many(peer, group, 1_000) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert committed(peer, group) == 3
    assert beat(peer, "neighbour", member_id, generation) == ErrorCode.NONE
    assert commit_many(peer, group, 4) == {ErrorCode.NONE}


def test_c14_huge_subscriptions_are_refused_and_the_group_lives(peer: Peer) -> None:
    member_id, generation = alone(peer, "g")
    refused = peer.ask(join_request("g", bytes(MIB + 1)), 3)
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert beat(peer, "g", member_id, generation) == ErrorCode.NONE


def test_a_large_assignment_is_stored_whole(broker: EmbeddedBroker, peer: Peer) -> None:
    assignment = bytes(7 * MIB)
    member_id, generation = alone(peer, "g", assignment)
    broker.stop()
    broker.start()
    with Peer(broker.bootstrap_servers) as other:
        assert beat(other, "g", member_id, generation) == ErrorCode.NONE
        (described,) = other.ask(DescribeGroupsRequest(groups=("g",)), 5).groups
        assert described.members[0].member_assignment == assignment


def test_c60_more_positions_than_one_batch_holds_expire(tmp_path: Path) -> None:
    group = "g" * 2_000
    with (
        EmbeddedBroker(
            tmp_path,
            offsets_topic_num_partitions=1,
            offsets_retention_ms=1,
            offsets_retention_check_interval_ms=100,
        ) as broker,
        Peer(broker.bootstrap_servers) as peer,
    ):
        peer.create("t", 8_000)
        for _ in range(2):
            assert commit_many(peer, group, 7_000) == {ErrorCode.NONE}
        eventually(lambda: not committed(peer, group), "the offsets are forgotten")


def test_the_longest_ids_of_everything(broker: EmbeddedBroker, peer: Peer) -> None:
    group, name = "g" * LONG, "s" * LONG
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=name,
        protocol_type="t" * LONG,
        protocols=(JoinGroupRequestProtocol(name="p" * LONG, metadata=b""),),
    )
    joined = peer.ask(request, 5)
    assert joined.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=name,
        assignments=(),
    )
    assert peer.ask(sync, 3).error_code == ErrorCode.NONE
    (described,) = peer.ask(DescribeGroupsRequest(groups=(group,)), 5).groups
    assert described.members[0].group_instance_id == name
    broker.stop()
    broker.start()
    with Peer(broker.bootstrap_servers) as other:
        (again,) = other.ask(DescribeGroupsRequest(groups=(group,)), 5).groups
    assert again == described


def test_errors_that_name_the_longest_names_are_answered(peer: Peer) -> None:
    """C58, K6: the error repeats the requested name, which has the maximum length."""
    name = "g" * LONG
    classic = peer.ask(DescribeGroupsRequest(groups=(name,)), 6).groups[0]
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    consumer = peer.ask(ConsumerGroupDescribeRequest(group_ids=(name,)), 1).groups[0]
    assert consumer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    beats: dict[ErrorCode, dict[str, Any]] = {
        ErrorCode.GROUP_ID_NOT_FOUND: {"group_id": name, "member_epoch": 1},
        ErrorCode.UNSUPPORTED_ASSIGNOR: {"server_assignor": name},
        ErrorCode.INVALID_REGULAR_EXPRESSION: {"subscribed_topic_regex": "(" * LONG},
    }
    for code, fields in beats.items():
        assert first_beat(peer, **fields).error_code == code
    for kind, key in ((2, "retention.ms"), (32, name), (2, name)):
        config = AlterableConfig(name=key, config_operation=0, value=name)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=(config,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        assert peer.ask(request, 1).responses[0].error_code != 0
    asked = DescribeConfigsResource(resource_type=99, resource_name=name, configuration_keys=None)
    described = peer.ask(DescribeConfigsRequest(resources=(asked,)), 4).results[0]
    assert described.error_code == ErrorCode.INVALID_REQUEST
    wanted = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(CreatableTopicConfig(name="retention.ms", value=name),),
    )
    made = peer.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=1, validate_only=False), 7)
    assert made.topics[0].error_code == ErrorCode.INVALID_CONFIG


def first_beat(peer: Peer, **more: Any) -> ConsumerGroupHeartbeatResponse:
    fields: dict[str, Any] = {
        "group_id": "beats",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": (),
        "topic_partitions": (),
    }
    return peer.ask(ConsumerGroupHeartbeatRequest(**(fields | more)), 1)


def test_values_that_no_enum_has(peer: Peer) -> None:
    peer.create("t")
    peer.produce(TopicPartition("t", 0), batch(b"a"))
    alone(peer, "g")
    for kind in (-1, 2, 99, 127):
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=("g",))
        assert peer.ask(asked, 4).coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    unknown = ListGroupsRequest(states_filter=("Nonsense",), types_filter=("nonsense",))
    assert peer.ask(unknown, 5).groups == ()
    for level in (-1, 2, 127):
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name="t", partitions=(partition,))
        asked_offsets = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=(topic,))
        told = peer.ask(asked_offsets, 2).topics[0].partitions[0]
        assert (told.error_code, told.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
        fetch = FetchRequest(
            max_wait_ms=9_000,
            min_bytes=1,
            isolation_level=level,
            topics=(FetchTopic(topic="t", partitions=(wanted,)),),
        )
        (fetched,) = peer.ask(fetch, 12).responses[0].partitions
        assert (fetched.error_code, fetched.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")


@pytest.mark.parametrize("metadata", [b"", b"\xff" * 40, b"\0\1\x7f\xff\xff\xff", b"\x7f\xff\0"])
def test_a_member_with_bytes_that_are_no_subscription_gets_nothing(
    metadata: bytes, broker: EmbeddedBroker, peer: Peer
) -> None:
    broker.create_topic("t", 4)
    with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        heartbeat_interval_ms=100,
    ) as honest:

        def has_all() -> bool:
            honest.poll(100)
            return len(honest.assignment()) == 4

        def is_answered() -> bool:
            honest.poll(50)
            return bool(select.select([peer.socket], [], [], 0)[0])

        eventually(has_all, "a member alone has everything")
        peer.send(join_request("g", metadata), 3)
        eventually(is_answered, "the other one has joined")
        peer.frame()
        eventually(has_all, "nothing is given to the other one")
