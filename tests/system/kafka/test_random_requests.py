"""Requests drawn at random, sound ones and mistakes, are answered as Apache Kafka answers them.

Nobody is in the groups, so that no answer hangs on the time; who is in one, and waits, is what the
dialogues are about.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.dispatch import SERVED
from kohort.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from kohort.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kohort.wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.coordinator_dialogues.client import coordinators_ready
from tests.real_kafka.alike import Asked, differences
from tests.real_kafka.broker import RealKafka
from tests.system.kafka.test_admin_apis import prepare

REQUESTS = 150
# The versions since which topics are named by ids, which each broker makes up itself; since which
# a request is of several groups or members; says an epoch; or says whether a topic may be made.
BY_ID, SEVERAL_GROUPS, SEVERAL_MEMBERS, WITH_EPOCHS, MAY_CREATE = 10, 8, 3, 4, 4


class Draw:
    """Draws requests, of few names, so that they meet."""

    def __init__(self, seed: int, topic: str) -> None:
        self._rng = random.Random(seed)
        self._topics = (topic, f"{topic}.compacted", "nowhere", "a/b", "")
        self._groups = (f"{topic}-1", f"{topic}-2", f"{topic}-3")

    def requests(self, count: int) -> Iterator[Asked]:
        for _ in range(count):
            yield self._rng.choice(KINDS)(self)

    def one(self, *values: int) -> int:
        return self._rng.choice(values)

    def text(self, *values: str) -> str:
        return self._rng.choice(values)

    def version(self, api_key: int, first: int = 0, last: int = 99) -> int:
        served = SERVED[api_key]
        return self._rng.randint(max(first, served.first), min(last, served.last))

    def group(self) -> str:
        return self._rng.choice(self._groups)

    def topics(self) -> list[str]:
        """Each at most once: of one that is named twice Kafka forgets a part here and there."""
        return self._rng.sample(self._topics, self._rng.randint(1, 3))

    def partitions(self) -> list[int]:
        return self._rng.choices((0, 1, 2, 9, -1), k=self._rng.randint(1, 3))


def commit(draw: Draw) -> Asked:
    def topic(name: str) -> OffsetCommitRequestTopic:
        partitions = (
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=draw.one(-1, 0, 5),
                committed_metadata=draw.text("", "x"),
            )
            for number in draw.partitions()
        )
        return OffsetCommitRequestTopic(name=name, partitions=tuple(partitions))

    request = OffsetCommitRequest(
        group_id=draw.group(),
        generation_id_or_member_epoch=draw.one(-1, -1, -1, 0, 7),
        member_id=draw.text("", "", "who"),
        topics=tuple(map(topic, draw.topics())),
    )
    return request, draw.version(OffsetCommitRequest.api_key, last=BY_ID - 1)


def fetch(draw: Draw) -> Asked:
    version = draw.version(OffsetFetchRequest.api_key, last=BY_ID - 1)
    if version < SEVERAL_GROUPS:
        topics = (
            OffsetFetchRequestTopic(name=name, partition_indexes=tuple(draw.partitions()))
            for name in draw.topics()
        )
        return OffsetFetchRequest(group_id=draw.group(), topics=tuple(topics)), version
    several = (
        OffsetFetchRequestTopics(name=name, partition_indexes=tuple(draw.partitions()))
        for name in draw.topics()
    )
    group = OffsetFetchRequestGroup(
        group_id=draw.group(), topics=None if draw.one(0, 1) else tuple(several)
    )
    return OffsetFetchRequest(groups=(group,)), version


def list_offsets(draw: Draw) -> Asked:
    version = draw.version(ListOffsetsRequest.api_key)
    topics = (
        ListOffsetsTopic(
            name=name,
            partitions=tuple(
                ListOffsetsPartition(
                    partition_index=number,
                    current_leader_epoch=draw.one(-1, 0, 7) if version >= WITH_EPOCHS else -1,
                    timestamp=draw.one(-1, -2, -3, -4, -9, 0, 2**60),
                )
                for number in draw.partitions()
            ),
        )
        for name in draw.topics()
    )
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=tuple(topics)), version


def leader_epochs(draw: Draw) -> Asked:
    topics = (
        OffsetForLeaderTopic(
            topic=name,
            partitions=tuple(
                OffsetForLeaderPartition(
                    partition=number,
                    current_leader_epoch=draw.one(-1, 0, 7),
                    leader_epoch=draw.one(-1, 0, 7),
                )
                for number in draw.partitions()
            ),
        )
        for name in draw.topics()
    )
    request = OffsetForLeaderEpochRequest(topics=tuple(topics))
    return request, draw.version(OffsetForLeaderEpochRequest.api_key)


def metadata(draw: Draw) -> Asked:
    topics = tuple(MetadataRequestTopic(name=name) for name in draw.topics())
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return request, draw.version(MetadataRequest.api_key, first=MAY_CREATE)


def heartbeat(draw: Draw) -> Asked:
    request = HeartbeatRequest(
        group_id=draw.group(), generation_id=draw.one(-1, 0, 1), member_id=draw.text("", "who")
    )
    return request, draw.version(HeartbeatRequest.api_key)


def sync(draw: Draw) -> Asked:
    request = SyncGroupRequest(
        group_id=draw.group(),
        generation_id=draw.one(-1, 0, 1),
        member_id=draw.text("", "who"),
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )
    return request, draw.version(SyncGroupRequest.api_key)


def leave(draw: Draw) -> Asked:
    version = draw.version(LeaveGroupRequest.api_key)
    if version < SEVERAL_MEMBERS:
        return LeaveGroupRequest(group_id=draw.group(), member_id=draw.text("", "who")), version
    who = MemberIdentity(member_id=draw.text("", "who"), group_instance_id="i")
    return LeaveGroupRequest(group_id=draw.group(), members=(who,)), version


def describe(draw: Draw) -> Asked:
    request = DescribeGroupsRequest(groups=(draw.group(), draw.group()))
    return request, draw.version(DescribeGroupsRequest.api_key)


def describe_consumers(draw: Draw) -> Asked:
    request = ConsumerGroupDescribeRequest(group_ids=(draw.group(), draw.group()))
    return request, draw.version(ConsumerGroupDescribeRequest.api_key)


def delete(draw: Draw) -> Asked:
    request = DeleteGroupsRequest(groups_names=(draw.group(), draw.group()))
    return request, draw.version(DeleteGroupsRequest.api_key)


KINDS: tuple[Callable[[Draw], Asked], ...] = (
    *(commit, commit, commit, fetch, fetch, fetch),
    *(delete, describe, describe_consumers),
    *(heartbeat, leader_epochs, leave, list_offsets, metadata, sync),
)


@pytest.mark.parametrize("seed", range(3))
def test_both_brokers_answer_alike(seed: int, real_kafka: RealKafka) -> None:
    topic = f"topic-{uuid.uuid4().hex}"
    theirs = real_kafka.bootstrap_servers
    with EmbeddedBroker() as broker:
        ours = broker.bootstrap_servers
        for each in (ours, theirs):
            asyncio.run(coordinators_ready(each))
            prepare(each, topic)
        assert differences(ours, theirs, Draw(seed, topic).requests(REQUESTS)) == []
