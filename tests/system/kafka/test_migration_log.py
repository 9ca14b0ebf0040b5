"""What a real Kafka wrote while it moved groups, and compacted, loads into our coordinator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.group.subscription import Subscription, encode_assignment, encode_subscription
from kohort.types import TopicPartition
from kohort.wire.group_log import decode_record
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.broker.peer import Peer
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.dialogue import MixedDialogue
from tests.real_kafka.broker import RealKafka
from tests.system.clients.group import eventually
from tests.system.kafka.test_group_log import raw_group_log

# No member is to be thrown out while the cleaner is waited for.
LONG_MS = 300_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": str(LONG_MS),
    "group.consumer.max.session.timeout.ms": str(LONG_MS),
}
MOVED_BACK, MOVED_TWICE = "moved-back", "moved-twice"

# The cleaner needs seconds; what it has not done by then it does not do.
CLEANING_S = 120.0


class Script:
    """Requests of a static classic member "i-a" and of a consumer "z"."""

    def __init__(self, peer: Peer, group: str) -> None:
        self.peer = peer
        self.group = group
        self.member_id = ""
        self.generation = -1

    def join(self, *owned: int) -> JoinGroupResponse:
        partitions = frozenset(TopicPartition("t", number) for number in owned)
        asked = Subscription(topics=frozenset({"t"}), owned=partitions)
        protocol = JoinGroupRequestProtocol(name="range", metadata=encode_subscription(asked))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.member_id,
            group_instance_id="i-a",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        answer = self.peer.ask(request, 9)
        assert answer.error_code == 0, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self) -> None:
        everything = encode_assignment(TopicPartition("t", number) for number in range(4))
        given = SyncGroupRequestAssignment(member_id=self.member_id, assignment=everything)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id="i-a",
            protocol_type="consumer",
            protocol_name="range",
            assignments=(given,),
        )
        assert self.peer.ask(request, 5).error_code == 0

    def consumer(self, epoch: int, **more: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id="z",
            member_epoch=epoch,
            **more,  # type: ignore[arg-type]  # the names are fields of it
        )
        answer = self.peer.ask(request, 1)
        assert answer.error_code == 0, answer
        return answer

    def consumer_joins(self) -> None:
        self.consumer(
            0, rebalance_timeout_ms=LONG_MS, subscribed_topic_names=("t",), topic_partitions=()
        )

    def commit(self, count: int = 1, metadata: str = "") -> None:
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=5, committed_metadata=metadata
            )
            for number in range(count)
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=(OffsetCommitRequestTopic(name="t", partitions=partitions),),
        )
        codes = {each.error_code for each in self.peer.ask(request, 9).topics[0].partitions}
        assert codes == {0}

    def upgrade_half_way(self) -> None:
        """The classic member knows that it has to give something up, and has not done it yet."""
        self.join()
        self.sync()
        self.commit()
        self.consumer_joins()
        self.join(*range(4))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Stopped, after it moved three groups and compacted what it wrote of them."""
    folder: Path = tmp_path_factory.mktemp("migration-log")
    with RealKafka(folder, SETTINGS) as running:
        with Peer(running.bootstrap_servers) as peer:
            create_topic(peer)
            Script(peer, GROUP).upgrade_half_way()
            back = Script(peer, MOVED_BACK)
            back.upgrade_half_way()
            back.consumer(-1)
            twice = Script(peer, MOVED_TWICE)
            twice.upgrade_half_way()
            twice.consumer(-1)
            twice.consumer_joins()
            fill_a_segment(peer)
        checkpoint = running.log_dir / "cleaner-offset-checkpoint"
        pause = threading.Event()  # the cleaner tells nobody but this file
        eventually(
            lambda: is_compacted(checkpoint) or pause.wait(0.1),
            "the group log is compacted",
            CLEANING_S,
        )
        running.stop()
        yield running


def create_topic(peer: Peer) -> None:
    topic = CreatableTopic(
        name="t", num_partitions=4, replication_factor=1, assignments=(), configs=()
    )
    assert peer.ask(CreateTopicsRequest(topics=(topic,)), 7).topics[0].error_code == 0
    find = FindCoordinatorRequest(coordinator_keys=(GROUP,))
    eventually(lambda: peer.ask(find, 4).coordinators[0].error_code == 0, "a coordinator")
    beat = HeartbeatRequest(group_id=GROUP, generation_id=0, member_id="nobody")
    known = ErrorCode.UNKNOWN_MEMBER_ID
    eventually(lambda: peer.ask(beat, 4).error_code == known, "the group log is loaded")
    asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    eventually(lambda: len(peer.ask(asked, 12).topics[0].partitions) == 4, "the topic's partitions")


def fill_a_segment(peer: Peer) -> None:
    """The cleaner leaves the newest segment alone."""
    for _ in range(120):
        Script(peer, "others").commit(4, "x" * 4_000)


def is_compacted(checkpoint: Path) -> bool:
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return any(line.startswith("__consumer_offsets 0 ") for line in lines)


@pytest.fixture
def loaded(kafka: RealKafka) -> MixedDialogue:
    """Our coordinator with Kafka's log."""
    dialogue = MixedDialogue()
    raw = [(each.key or b"", each.value) for each in raw_group_log(kafka)]
    dialogue.log = [pair for pair in raw if decode_record(*pair) is not None]
    dialogue.shard = dialogue.loaded()
    (topic_id,) = dialogue.group.owners
    dialogue.image = TopicsImage.of([("t", TopicView(topic_id, 4))], NO_TOPICS)
    dialogue.shard = dialogue.loaded()
    return dialogue


def test_the_log_was_compacted(kafka: RealKafka) -> None:
    offsets = [record.offset for record in raw_group_log(kafka)]
    assert len(offsets) < max(offsets) + 1


def test_b1_b3_our_coordinator_loads_what_is_left(loaded: MixedDialogue) -> None:
    """One group in the middle of its upgrade, one moved back, one upgraded again."""
    log = loaded.shard.log
    assert set(log.consumer_groups) == {GROUP, MOVED_TWICE}
    assert set(log.groups) == {MOVED_BACK}
    for group in log.consumer_groups.values():
        assert (len(group.members), group.classic_members) == (2, 1)
        assert set(group.static) == {"i-a"}
        owned = [claims for parts in group.owners.values() for claims in parts.values()]
        assert all(len(claims) == 1 for claims in owned)
    (back,) = log.groups[MOVED_BACK].members.values()
    assert (back.group_instance_id, log.groups[MOVED_BACK].protocol) == ("i-a", "range")
    assert {GROUP, MOVED_BACK, MOVED_TWICE} <= set(log.offsets)
    loaded.check_log()


def test_k41_k45_the_upgrade_goes_on_where_it_was(loaded: MixedDialogue) -> None:
    member = loaded.group.static["i-a"]
    assert loaded.beat(member, 1, "i-a") == ErrorCode.REBALANCE_IN_PROGRESS
    kept = loaded.synced(member, 1)
    assert len(kept) == 2
    again = loaded.joined(member, instance="i-a", owned=kept)
    assert again.generation_id == loaded.group.epoch == 2
    rest = loaded.told(loaded.heartbeat("z", 2))
    assert rest == {"t": {0, 1, 2, 3} - kept}
    assert loaded.beat(member, 2, "i-a") == ErrorCode.NONE
    loaded.settle_consumer("z")
    assert loaded.group.state.value == "Stable"


def test_k47_the_group_that_was_moved_back_rebalances(loaded: MixedDialogue) -> None:
    (member,) = loaded.shard.log.groups[MOVED_BACK].members
    answer = loaded.joined(member, group_id=MOVED_BACK, instance="i-a")
    assert (answer.error_code, answer.leader) == (0, member)
