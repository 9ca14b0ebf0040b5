"""Outcomes of a shard: for each state and event, the next state and the effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kohort.errors import LocalProtocolError
from kohort.group.coordinator.events import (
    JobDone,
    LoadFinished,
    LoadStarted,
    ShardEvent,
    Tick,
    TopicsChanged,
    TopicsDeleted,
    Unload,
)
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone, NewTarget
from kohort.group.coordinator.session import Lifecycle
from kohort.group.coordinator.shard import Shard
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire import group_log
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue
from tests.group.coordinator.dialogue import GROUP, WALL
from tests.group.outcomes.shard_parts import asked, led_to

CONSUMERS, WAITING = "consumers", "waiting"
_POSITION = {TopicPartition("t", 0): OffsetAndMetadata(7)}
_BY_NAME = 9  # later versions of OffsetCommit have topic ids, which a shard does not know
_LONG_AFTER_MS = 3_600_000


def ready() -> ConsumerDialogue:
    """A classic and a consumer group with one member each, and one with a parked first join."""
    talk = ConsumerDialogue()
    talk.topics(t=4)
    talk.enter("m", "t", group_id=CONSUMERS)
    (leader,) = talk.stable("a")
    talk.get(commit_request(GROUP, CommitIdentity(leader, 1), None, _POSITION), _BY_NAME)
    talk.join(group_id=WAITING, version=3)
    return talk


def loading() -> ConsumerDialogue:
    """The same, while another coordinator is reading the log."""
    talk = down()
    talk.shard.load_started()
    for key, value in talk.log:
        record = group_log.decode_record(key, value)
        assert record is not None
        talk.shard.apply(record)
    return talk


def down() -> ConsumerDialogue:
    """A coordinator that has not started to read."""
    talk = ready()
    talk.shard = Shard(talk.config)
    return talk


SITUATIONS: dict[Lifecycle, Callable[[], ConsumerDialogue]] = {
    Lifecycle.DOWN: down,
    Lifecycle.CATCH_UP: loading,
    Lifecycle.READY: ready,
}


def requests() -> Iterator[Message]:
    """Yield each request that a shard serves, sent by an unknown client."""
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="46000")
    resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=(config,))
    yield JoinGroupRequest(
        group_id=GROUP,
        member_id="who",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"m"),),
    )
    yield SyncGroupRequest(
        group_id=GROUP,
        member_id="who",
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )
    yield HeartbeatRequest(group_id=GROUP, member_id="who", generation_id=1)
    yield LeaveGroupRequest(group_id=GROUP, members=())
    yield commit_request(GROUP, CommitIdentity("", -1), None, _POSITION)
    yield TxnOffsetCommitRequest(
        transactional_id="x", group_id=GROUP, producer_id=1, producer_epoch=0, topics=()
    )
    yield OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=None),))
    yield OffsetDeleteRequest(group_id=GROUP, topics=())
    yield DescribeGroupsRequest(groups=(GROUP,))
    yield ListGroupsRequest()
    yield DeleteGroupsRequest(groups_names=(GROUP,))
    yield ConsumerGroupHeartbeatRequest(group_id=CONSUMERS, member_id="who", member_epoch=1)
    yield ConsumerGroupDescribeRequest(group_ids=(CONSUMERS,))
    yield ConsumerGroupPrepareAssignmentRequest(group_id=CONSUMERS, member_id="who", member_epoch=1)
    yield ConsumerGroupInstallAssignmentRequest(
        group_id=CONSUMERS, member_id="who", member_epoch=1, group_epoch=1, error=0, members=()
    )
    yield DraftJoinGroupRequest(
        group_id="drafts",
        consumer_host="h",
        session_timeout_ms=10_000,
        heartbeat_frequency=3,
        topics=("t",),
        consumer_id="",
    )
    yield DraftHeartbeatRequest(group_id="drafts", consumer_id="who", group_generation_id=1)
    yield IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def cases(talk: ConsumerDialogue) -> Iterator[tuple[str, ShardEvent, int]]:
    """Yield every event, with its name and its delay."""
    for request in requests():
        version = _BY_NAME if isinstance(request, OffsetCommitRequest) else None
        yield type(request).__name__.removesuffix("Request"), asked(request, version), 0
    yield "Tick, nothing is due", Tick(WALL), 0
    yield "Tick, later than the first deadline", Tick(WALL), _LONG_AFTER_MS
    yield "TopicsChanged", TopicsChanged(talk.image), 0
    yield "TopicsDeleted", TopicsDeleted(frozenset({"t"})), 0
    yield "JobDone, nobody waits for it", JobDone(99, CONSUMERS, NewTarget(), WALL), 0
    job = DraftAssignmentJob("drafts", 9, 1, "range", {}, {})
    yield "DraftJobDone, nobody waits for it", DraftJobDone(job, None), 0
    yield "LoadStarted", LoadStarted(), 0
    yield "LoadFinished", LoadFinished(), 0
    yield "Unload", Unload(), 0


def outcome(talk: ConsumerDialogue, event: ShardEvent, later_ms: int) -> str:
    """Run an event and describe all its effects in one line."""
    before = talk.shard.session
    try:
        effects = talk.shard.decide(event, talk.now + later_ms)
    except LocalProtocolError:
        return "LocalProtocolError"
    return "; ".join([effects.session.lifecycle.value, *led_to(before, effects)])


def table() -> dict[str, dict[str, str]]:
    """Run every case in every state; deciding changes nothing."""
    found: dict[str, dict[str, str]] = {}
    for state, make in SITUATIONS.items():
        talk = make()
        assert talk.shard.state is state
        found[state.value] = {
            name: outcome(talk, event, later_ms) for name, event, later_ms in cases(talk)
        }
    return found
