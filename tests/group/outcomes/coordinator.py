"""Outcomes of a classic group: for each state and event, state, responses, records and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from msgspec import Struct

from kohort.group.coordinator import dispatch
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.events import (
    Deadline,
    InitialDelayExpired,
    JoinExpired,
    LoadFinished,
    PendingExpired,
    RequestArrived,
    RetentionCheckDue,
    SessionExpired,
    SyncExpired,
    Unload,
)
from kohort.group.coordinator.session import ShardDecision
from kohort.group.coordinator.state import ShardSession
from kohort.group.effects import Effects
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group.coordinator.dialogue import GROUP, WALL, Dialogue
from tests.group.outcomes.shard_parts import ASKED, led_to

S = GroupState
WEEK = 7 * 24 * 3_600_000
RANGE = (("range", b"m"),)


class Situation(Struct):
    """A group, with the ids of its leader, of its static follower "s1", and of a joining member."""

    talk: Dialogue
    leader: str = "gone"
    follower: str = "gone"
    pending: str = "gone"

    @property
    def generation(self) -> int:
        return self.talk.shard.session.group(self.talk.shard.log, GROUP).generation


def dead() -> Situation:
    return Situation(Dialogue())


def empty() -> Situation:
    """Two members have left; one offset remains, and a pending member id."""
    now = stable()
    talk = now.talk
    talk.get(commit_request(GROUP, CommitIdentity(now.leader, 1), None, _positions()))
    talk.leave((now.leader, None), (now.follower, None))
    assert talk.state == "Empty"
    return replace(now, pending=talk.new_id(client_id="n"))


def preparing() -> Situation:
    """The leader has rejoined, its follower has not; there is a pending member id."""
    now = stable()
    now.pending = now.talk.new_id(client_id="n")
    now.talk.join(now.leader, client_id="a")
    assert now.talk.state == "PreparingRebalance"
    return now


def completing() -> Situation:
    """All have joined; the follower waits for its assignment."""
    now = stable()
    now.talk.join(now.leader, client_id="a")
    now.talk.join(now.follower, instance="s1")
    now.talk.sync_token(now.follower, 2, {})
    now.pending = now.talk.new_id(client_id="n")
    assert now.talk.state == "CompletingRebalance"
    return now


def stable() -> Situation:
    talk = Dialogue()
    leader, follower = talk.stable("a", "s1")
    return Situation(talk, leader, follower)


SITUATIONS: dict[GroupState, Callable[[], Situation]] = {
    S.DEAD: dead,
    S.EMPTY: empty,
    S.PREPARING_REBALANCE: preparing,
    S.COMPLETING_REBALANCE: completing,
    S.STABLE: stable,
}


def _positions() -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("t", 0): OffsetAndMetadata(7)}


class Case(NamedTuple):
    """An event with its name in the table; `trigger` is what its rows are found by."""

    name: str
    trigger: type[object]
    event: object


def cases(now: Situation) -> Iterator[Case]:
    """Yield every event, with a few variants of requests."""
    yield from _joins(now)
    yield from _syncs_and_heartbeats(now)
    yield from _other_requests(now)
    yield from _deadlines(now)
    for event in (LoadFinished(), Unload()):
        yield Case(type(event).__name__, type(event), event)


def _asked(name: str, request: Message, version: int | None = None) -> Case:
    arrived = RequestArrived(
        token=ASKED,
        request=request,
        version=type(request).max_version if version is None else version,
        client_id="n",
        unique_id="fresh",
        wall_ms=WALL,
    )
    return Case(f"{type(request).__name__.removesuffix('Request')} {name}", type(request), arrived)


def _joins(now: Situation) -> Iterator[Case]:
    other = (("range", b"other"),)
    yield _asked("without an id", _join(""))
    yield _asked("without an id, version 3", _join(""), 3)
    yield _asked("of an id that was given out", _join(now.pending))
    yield _asked("of a stranger", _join("who"))
    yield _asked("of the leader", _join(now.leader))
    yield _asked("of the follower", _join(now.follower, instance="s1"))
    yield _asked("of the follower with news", _join(now.follower, other, "s1"))
    yield _asked("of s1 started anew", _join("", instance="s1"))
    yield _asked("of s1 started anew with news", _join("", other, "s1"))
    yield _asked("of a former s1", _join("old", instance="s1"))
    yield _asked("with an unknown assignor", _join("", (("other", b""),)))
    yield _asked("with a bad session timeout", _join("", session=1))


def _join(
    member_id: str,
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    instance: str | None = None,
    session: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=tuple(JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols),
    )


def _syncs_and_heartbeats(now: Situation) -> Iterator[Case]:
    here = now.generation
    whole = (SyncGroupRequestAssignment(member_id=now.leader, assignment=b"all"),)
    for who, member_id, generation in (
        ("of the leader", now.leader, here),
        ("of the follower", now.follower, here),
        ("of a stranger", "who", here),
        ("of the leader as it was", now.leader, here - 1),
    ):
        given = whole if who == "of the leader" else ()
        identity = {"group_id": GROUP, "generation_id": generation, "member_id": member_id}
        yield _asked(who, SyncGroupRequest(**_typed(identity), assignments=given))
        yield _asked(who, HeartbeatRequest(**_typed(identity)))


def _typed(values: dict[str, object]) -> Any:
    return values


def _other_requests(now: Situation) -> Iterator[Case]:
    for who, member_id, instance in (
        ("of the leader", now.leader, None),
        ("of s1 by an operator", "", "s1"),
        ("of an id that was given out", now.pending, None),
        ("of a stranger", "who", None),
        ("of another as s1", now.leader, "s1"),
    ):
        members = (MemberIdentity(member_id=member_id, group_instance_id=instance),)
        yield _asked(who, LeaveGroupRequest(group_id=GROUP, members=members))
    for who, member_id, generation in (
        ("of the leader", now.leader, now.generation),
        ("of the leader as it was", now.leader, now.generation - 1),
        ("of nobody", "", -1),
    ):
        identity = CommitIdentity(member_id, generation)
        yield _asked(who, commit_request(GROUP, identity, None, _positions()), 9)
    yield _asked("of the group", DeleteGroupsRequest(groups_names=(GROUP,)))
    partitions = (OffsetDeleteRequestPartition(partition_index=0),)
    topics = (OffsetDeleteRequestTopic(name="t", partitions=partitions),)
    yield _asked("of a topic", OffsetDeleteRequest(group_id=GROUP, topics=topics))


def _deadlines(now: Situation) -> Iterator[Case]:
    running = set(now.talk.shard.session.deadlines.due_times())
    for name, deadline in (
        ("leader's SessionExpired", SessionExpired(GROUP, now.leader)),
        ("follower's SessionExpired", SessionExpired(GROUP, now.follower)),
        ("PendingExpired", PendingExpired(GROUP, now.pending)),
        ("JoinExpired", JoinExpired(GROUP)),
        ("InitialDelayExpired", InitialDelayExpired(GROUP)),
        ("SyncExpired", SyncExpired(GROUP)),
    ):
        if deadline in running:
            yield Case(name, type(deadline), deadline)
    yield Case("RetentionCheckDue, a week later", RetentionCheckDue, RetentionCheckDue(GROUP))


# ------------------------------------------------------------------------------------- outcomes


def outcome(now: Situation, case: Case) -> str:
    """Run an event and describe all its effects in one line."""
    shard = now.talk.shard
    session = shard.session
    if isinstance(case.event, tuple):  # a deadline that fires is no longer set
        deadlines = session.deadlines.cancel(cast("Deadline", case.event))
        session = replace(session, deadlines=deadlines)
    decision = ShardDecision(shard.config, shard.log, session, now.talk.now, WALL + 2 * WEEK)
    dispatch.run_group(decision, GROUP, case.trigger, case.event)
    log = shard.log
    for record in decision.records:
        log = log.apply(record)
    effects = cast("Effects[ShardSession]", decision.effects())
    parts = [effects.session.group(log, GROUP).state.value]
    parts += led_to(session, effects)
    return "; ".join(parts)


def table() -> dict[str, dict[str, str]]:
    """Run every case in every state, each in its own situation."""
    found: dict[str, dict[str, str]] = {}
    for state, make in SITUATIONS.items():
        now = make()  # which no case changes: deciding changes nothing
        assert now.talk.state == state.value
        found[state.value] = {case.name: outcome(now, case) for case in cases(now)}
    return found


def triggers() -> dict[GroupState, set[type[object]]]:
    """Return the triggers that each state was tested with."""
    return {state: {case.trigger for case in cases(make())} for state, make in SITUATIONS.items()}
