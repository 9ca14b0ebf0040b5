"""Outcomes of a draft group: for each state and event, state, responses, records and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kohort.group.coordinator import jobs
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.draft.kind import group_of
from kohort.group.coordinator.events import (
    Deadline,
    JoinExpired,
    SessionExpired,
    ShardEvent,
    Tick,
    Unload,
)
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.membership import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group.coordinator.dialogue import GROUP, WALL
from tests.group.coordinator.draft.draft_dialogue import DraftDialogue
from tests.group.outcomes.shard_parts import asked, led_to

_POSITION = {TopicPartition("flights", 0): OffsetAndMetadata(7)}


@dataclass
class Situation:
    """A group, the ids of its two consumers, and an earlier assignment for it."""

    talk: DraftDialogue
    north: str
    south: str
    old_job: DraftAssignmentJob = field(
        default_factory=lambda: DraftAssignmentJob(GROUP, 1, 1, "range", {}, {})
    )

    @property
    def generation(self) -> int:
        return self.talk.generation


def steady() -> Situation:
    talk = DraftDialogue()
    north, south = talk.steady("north", "south")
    return Situation(talk, north, south)


def preparing() -> Situation:
    """One has rejoined, the other has not; a new consumer waits."""
    now = steady()
    now.talk.ask_join(host="west")
    now.talk.ask_join(now.north, host="north")
    return now


def rebalancing() -> Situation:
    """All have joined; their partitions are being assigned."""
    now = preparing()
    now.talk.ask_join(now.south, host="south")
    return now


def over() -> Situation:
    """Both have left; one offset remains."""
    now = steady()
    now.talk.commit(now.north, now.generation)
    now.talk.advance(60_000)
    return now


SITUATIONS: dict[DraftState, Callable[[], Situation]] = {
    DraftState.NONE: over,
    DraftState.PREPARE_FOR_REBALANCE: preparing,
    DraftState.REBALANCING: rebalancing,
    DraftState.STEADY: steady,
}


def _join(consumer_id: str = "", host: str = "east", **more: object) -> DraftJoinGroupRequest:
    fields: dict[str, object] = {
        "session_timeout_ms": 10_000,
        "heartbeat_frequency": 3,
        "topics": ("flights",),
    }
    return DraftJoinGroupRequest(
        group_id=GROUP,
        consumer_host=host,
        consumer_id=consumer_id,
        **(fields | more),  # type: ignore[arg-type]  # fields of the request
    )


def _joins(now: Situation) -> Iterator[tuple[str, Message]]:
    yield "without an id", _join()
    yield "of a stranger", _join("who")
    yield "of north", _join(now.north, "north")
    yield "of north with other topics", _join(now.north, "north", topics=("delays",))
    yield "of south", _join(now.south, "south")
    yield "with a bad session timeout", _join(session_timeout_ms=1)
    yield "without heartbeats", _join(heartbeat_frequency=0)
    range_only = (JoinGroupRequestProtocol(name="range", metadata=b""),)
    yield (
        "of the classic protocol",
        JoinGroupRequest(
            group_id=GROUP,
            member_id="",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=range_only,
        ),
    )


def _other_requests(now: Situation) -> Iterator[tuple[str, Message]]:
    for who, consumer_id, generation in (
        ("of north", now.north, now.generation),
        ("of north as it was", now.north, now.generation - 1),
        ("of south", now.south, now.generation),
        ("of a stranger", "who", now.generation),
        ("of nobody", "", -1),
    ):
        yield (
            who,
            DraftHeartbeatRequest(
                group_id=GROUP, consumer_id=consumer_id, group_generation_id=generation
            ),
        )
        yield who, commit_request(GROUP, CommitIdentity(consumer_id, generation), None, _POSITION)
    yield "of the group", DeleteGroupsRequest(groups_names=(GROUP,))
    partitions = (OffsetDeleteRequestPartition(partition_index=0),)
    for topic in ("flights", "delays"):
        topics = (OffsetDeleteRequestTopic(name=topic, partitions=partitions),)
        yield f"of {topic}", OffsetDeleteRequest(group_id=GROUP, topics=topics)


def cases(now: Situation) -> Iterator[tuple[str, ShardEvent]]:
    """Yield every event except those of timers, with a few variants of requests."""
    for name, request in (*_joins(now), *_other_requests(now)):
        kind = type(request).__name__.removesuffix("Request")
        yield f"{kind} {name}", asked(request, min(type(request).max_version, 9))
    yield "an assignment of another generation", DraftJobDone(now.old_job, {})
    for job in now.talk.waiting:
        yield "the assignment is made", DraftJobDone(job, jobs.compute(job))
        yield "the assignment failed", DraftJobDone(job, None)
    yield "the topics are as they were", now.talk.topics_event()
    now.talk.counts["flights"] += 1
    yield "a topic has grown", now.talk.topics_event()
    yield "Unload", Unload()


def _clocks(now: Situation) -> Iterator[tuple[str, Deadline]]:
    running = now.talk.shard.session.deadlines.due_times()
    for name, deadline in (
        ("north is silent", SessionExpired(GROUP, now.north)),
        ("south is silent", SessionExpired(GROUP, now.south)),
        ("the joins take too long", JoinExpired(GROUP)),
    ):
        if deadline in running:
            yield name, deadline


def outcome(talk: DraftDialogue, event: ShardEvent) -> str:
    """Run an event and describe all its effects in one line."""
    shard = talk.shard
    effects = shard.decide(event, talk.now)
    log = shard.log
    for record in effects.records:
        log = log.apply(record)
    state = group_of(effects.session, log, GROUP).state.value
    return "; ".join([state, *led_to(shard.session, effects)])


def expired(talk: DraftDialogue, deadline: Deadline) -> str:
    """Let one timer expire, before all others."""
    session = talk.shard.session
    due = session.deadlines.set(deadline, talk.now)
    talk.shard.install(replace(session, deadlines=due))
    found = outcome(talk, Tick(WALL))
    talk.shard.install(session)
    return found


def table() -> dict[str, dict[str, str]]:
    """Run every case in every state; deciding changes nothing, so one situation serves all."""
    found: dict[str, dict[str, str]] = {}
    for state, make in SITUATIONS.items():
        now = make()
        assert now.talk.state == state.value
        found[state.value] = {name: outcome(now.talk, event) for name, event in cases(now)}
        found[state.value] |= {name: expired(now.talk, each) for name, each in _clocks(now)}
    return found
