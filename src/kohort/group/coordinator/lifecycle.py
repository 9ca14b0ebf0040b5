"""The lifecycle of a shard: Down, Catch-up, Ready (C3, C72-C74).

A shard that went down, or whose log refused a write, is discarded, and a new one reads the log.
"""

from __future__ import annotations

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator import dispatch
from kohort.group.coordinator.events import (
    JobDone,
    LoadFinished,
    LoadStarted,
    RequestArrived,
    RetentionCheckDue,
    Tick,
    TopicsChanged,
    TopicsDeleted,
    Unload,
)
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.coordinator.kinds import KINDS
from kohort.group.coordinator.records import offset_tombstone
from kohort.group.coordinator.session import Lifecycle, ShardDecision
from kohort.group.coordinator.topics import NO_TOPICS
from kohort.group.machine import Deadlines, Row, Table, row
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import HeartbeatRequest, HeartbeatResponse

DOWN, CATCH_UP, READY = Lifecycle.DOWN, Lifecycle.CATCH_UP, Lifecycle.READY
ANY = (DOWN, CATCH_UP, READY)
_RETENTION_CHECK = RetentionCheckDue()


def start_catch_up(decision: ShardDecision, _event: LoadStarted) -> None:
    """Enter Catch-up, in which the shard's records are applied, oldest first."""
    decision.session = replace(decision.session, lifecycle=CATCH_UP)


def become_ready(decision: ShardDecision, event: LoadFinished) -> None:
    """C72: restore every group that has members."""
    decision.session = replace(decision.session, lifecycle=READY)
    dispatch.load(decision, event)
    watch_retention(decision)


def answer(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Answer, and schedule the next retention check if positions are stored (C60)."""
    dispatch.answer(decision, arrived)
    watch_retention(decision)


def watch_retention(decision: ShardDecision) -> None:
    """C60: schedule a retention check as soon as the log has something that can expire."""
    if decision.session.deadlines.get(_RETENTION_CHECK) is None and _holds_something(decision):
        at = decision.now + decision.config.offsets_retention_check_interval_ms
        deadlines = decision.session.deadlines.set(_RETENTION_CHECK, at)
        decision.session = replace(decision.session, deadlines=deadlines)


def _holds_something(decision: ShardDecision) -> bool:
    log, session = decision.log, decision.session
    if decision.records or log.offsets or log.pending:
        return True
    kinds = (kind for kind in KINDS.all if KINDS.takes(kind, RetentionCheckDue))
    return any(kind.ids(session, log) for kind in kinds)


def go_down(decision: ShardDecision, event: Unload) -> None:
    """C73: answer parked requests, forget all session state."""
    dispatch.unload(decision, event)
    decision.session = replace(
        decision.session, lifecycle=DOWN, deadlines=Deadlines(), topics=NO_TOPICS, parts=Map()
    )


def refuse_down(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C3: refuse a request, because another broker coordinates this group."""
    dispatch.refuse_all(decision, arrived, ErrorCode.NOT_COORDINATOR)


def refuse_loading(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C3: refuse a request while the shard is loading; the client retries."""
    dispatch.refuse_all(decision, arrived, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def is_heartbeat(_decision: ShardDecision, arrived: RequestArrived[Message]) -> bool:
    """Return whether the request is a heartbeat."""
    return isinstance(arrived.request, HeartbeatRequest)


def accept_blindly(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C44: accept a heartbeat while loading, because the members are not known yet."""
    decision.reply(arrived, HeartbeatResponse(error_code=ErrorCode.NONE))


def let_expire(decision: ShardDecision, tick: Tick) -> None:
    """Handle the earliest deadline, if it is due: one deadline, one decision."""
    earliest = decision.session.deadlines.next()
    if earliest is None or earliest[0] > decision.now:
        return
    decision.wall_ms = tick.wall_ms
    deadline = earliest[1]
    deadlines = decision.session.deadlines.cancel(deadline)
    decision.session = replace(decision.session, deadlines=deadlines)
    if isinstance(deadline, RetentionCheckDue):
        check_retention(decision)
    else:
        dispatch.run_group(decision, deadline.group_id, type(deadline), deadline)


def check_retention(decision: ShardDecision) -> None:
    """C60: delete each group's expired positions, and schedule the next check."""
    for group_id in KINDS.ids(decision.session, decision.log):
        dispatch.run_group(decision, group_id, RetentionCheckDue, RetentionCheckDue(group_id))
    watch_retention(decision)


def forget_topics(decision: ShardDecision, deleted: TopicsDeleted) -> None:
    """C61: delete positions in a deleted topic, even if a topic of that name exists again."""
    log = decision.log
    for group_id in sorted({*log.offsets, *log.pending}):
        for partition in log.known_offsets_of(group_id):
            if partition.topic in deleted.topics:
                decision.records.append(offset_tombstone(group_id, partition))


def take_topics(decision: ShardDecision, changed: TopicsChanged) -> None:
    """K14, D14: consumer groups react at their next heartbeat, draft groups at once."""
    decision.session = replace(decision.session, topics=changed.topics)
    dispatch.hear(decision, changed)


_ARRIVED = RequestArrived
ROWS: tuple[Row[Lifecycle, ShardDecision], ...] = (
    row(DOWN, LoadStarted, start_catch_up, to=CATCH_UP, rule="C71"),
    row(CATCH_UP, LoadFinished, become_ready, to=READY, rule="C72"),
    row(ANY, Unload, go_down, to=DOWN, rule="C73"),
    row(DOWN, _ARRIVED, refuse_down, rule="C3"),
    row(CATCH_UP, _ARRIVED, accept_blindly, when=is_heartbeat, rule="C44"),
    row(CATCH_UP, _ARRIVED, refuse_loading, rule="C3 C45"),
    row(READY, _ARRIVED, answer, rule="C60"),
    # A shard that is down has no deadlines or jobs, so these events cannot occur.
    row(ANY, Tick, let_expire),
    row(ANY, DraftJobDone, dispatch.hear, rule="D5"),
    row(ANY, JobDone, dispatch.hear, rule="K11 K50"),
    row(ANY, TopicsChanged, take_topics, rule="K14 D14"),
    row(READY, TopicsDeleted, forget_topics, rule="C61"),
)

SHARD: Table[Lifecycle, ShardDecision] = Table(
    "coordinator shard",
    Lifecycle,
    ROWS,
    total=(
        RequestArrived,
        Tick,
        DraftJobDone,
        Unload,
        TopicsChanged,
        JobDone,
    ),
    local=(LoadStarted, LoadFinished, TopicsDeleted),
)
