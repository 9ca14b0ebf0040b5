"""What is too long, too large or unknown is answered as a real Kafka does: the same to both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
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
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic, produce

LONG = 32_767
MIB = 1 << 20
# No subscriptions, nor assignments. (Of others, as forty times 255, Kafka 4.3 fails in a way that
# leaves the join without any answer.)
GARBAGE = [b"", b"m", b"\x7f\xff\0"]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


def ready(peer: Peer, group: str) -> str:
    """Return a group once somebody coordinates it: Kafka makes its log when it is first asked."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
    describe = DescribeGroupsRequest(groups=(group,))

    def is_there() -> bool:
        peer.ask(find, 6)
        return peer.ask(describe, 5).groups[0].error_code == 0

    eventually(is_there, "a coordinator")
    return group


def classic(peer: Peer, group: str, metadata: bytes, assignment: bytes, **ids: str) -> list[Any]:
    """A member joins, hands itself an assignment and beats."""
    ready(peer, group)
    protocol = JoinGroupRequestProtocol(name=ids.get("protocol", "range"), metadata=metadata)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=ids.get("instance"),
        protocol_type=ids.get("protocol_type", "consumer"),
        protocols=(protocol,),
    )
    joined = peer.ask(join, 5)
    if joined.error_code == 79:  # MEMBER_ID_REQUIRED
        joined = peer.ask(replace(join, member_id=joined.member_id), 5)
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
    here = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": ids.get("instance"),
    }
    synced = peer.ask(SyncGroupRequest(**here, assignments=(mine,)), 3)  # type: ignore[arg-type]  # of its fields' types
    beat = peer.ask(HeartbeatRequest(**here), 3)  # type: ignore[arg-type]  # of its fields' types
    (described,) = peer.ask(DescribeGroupsRequest(groups=(group,)), 5).groups
    return [
        joined.error_code,
        synced.error_code,
        synced.assignment == assignment,
        beat.error_code,
        described.group_state,
        [len(each.member_metadata) for each in described.members],
    ]


def beat(peer: Peer, **more: Any) -> list[Any]:
    """The first heartbeat of a member of the consumer protocol."""
    fields: dict[str, Any] = {
        "group_id": "beats",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    ready(peer, (fields | more)["group_id"])
    answer = peer.ask(ConsumerGroupHeartbeatRequest(**(fields | more)), 1)
    return [answer.error_code, answer.member_epoch, len(answer.member_id or "")]


def unknown_values(peer: Peer, topic: str) -> list[Any]:
    """Numbers and names that no enum has."""
    found: list[Any] = []
    for kind in (-1, 3, 99, 127):
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=("g",))
        found.append(("key type", kind, peer.ask(asked, 6).coordinators[0].error_code))
    for states, types in ((("Nonsense",), ()), ((), ("nonsense",)), (("stable",), ("CLASSIC",))):
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        answer = peer.ask(request, 5)
        found.append((states, types, answer.error_code, len(answer.groups) > 0))
    for timestamp in (-4, -5, -6, -7, -(2**63)):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked_offsets = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),),
        )
        (told,) = peer.ask(asked_offsets, 11).topics[0].partitions
        found.append(("timestamp", timestamp, told.error_code, told.offset))
    for level in (-1, 0, 1, 2, 127):
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        asked_offsets = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=level,
            topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),),
        )
        (told,) = peer.ask(asked_offsets, 2).topics[0].partitions
        found.append(("ListOffsets", level, told.error_code, told.offset))
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=level,
            topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
        )
        (fetched,) = peer.ask(fetch, 12).responses[0].partitions
        found.append(("Fetch", level, fetched.error_code, bool(fetched.records)))
    return found


def long_ids(peer: Peer, group: str) -> list[Any]:
    """As long as the protocol allows, wherever Kafka can write them back.

    It fails where it makes a longer text of one: a member id of a static name (C30), an error.
    """
    name = "x" * LONG
    found = [classic(peer, group.ljust(LONG, "g"), b"m", b"a", protocol=name, protocol_type=name)]
    fields: list[dict[str, Any]] = [
        {"group_id": group[::-1].ljust(LONG, "x")},
        {"member_id": name},
        {"instance_id": name},
        {"rack_id": name},
        {"subscribed_topic_names": (name,)},
        {"subscribed_topic_names": None, "subscribed_topic_regex": name},
        # more than one record of the log can hold
        {"subscribed_topic_names": tuple(f"{at}".ljust(LONG, "x") for at in range(40))},
    ]
    found += [
        beat(peer, **({"group_id": f"{group}-{at}"} | each)) for at, each in enumerate(fields)
    ]
    return found


def answers(bootstrap: str, which: str) -> list[Any]:
    topic = new_topic(bootstrap)
    produce(bootstrap, topic, [b"one"])
    with Peer(bootstrap) as peer:
        match which:
            case "garbage":
                return [
                    classic(peer, f"{topic}-{at}", metadata, metadata)
                    for at, metadata in enumerate(GARBAGE)
                ]
            case "long ids":
                return long_ids(peer, topic)
            case _:
                return unknown_values(peer, topic)


@pytest.mark.parametrize("which", ["garbage", "long ids", "unknown values"])
def test_c14_what_is_bad_is_answered_alike(
    which: str, ours: EmbeddedBroker, real_kafka: RealKafka
) -> None:
    assert answers(ours.bootstrap_servers, which) == answers(real_kafka.bootstrap_servers, which)
