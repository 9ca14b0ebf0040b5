"""The draft protocol, step by step (docs/internals/draft.md): answers and expired deadlines.

As for the classic protocol, the expected answer is derived from the request and the group before
it, independently of the table under test.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import kind as router
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.events import (
    JoinExpired,
    RequestArrived,
    SessionExpired,
    Tick,
    TopicsChanged,
)
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.coordinator.session import Lifecycle
from kohort.simulation.checkers.classic_answers import JOINS, PARKED, TOLD, code_of
from kohort.simulation.groups.facts import Loaded, Stepped
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
)
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

if TYPE_CHECKING:
    from kohort.group.coordinator.shard import Shard
    from kohort.simulation.groups.base import BaseWorld

Arrived: TypeAlias = RequestArrived[Any]
NONE, PREPARE = DraftState.NONE, DraftState.PREPARE_FOR_REBALANCE
REBALANCING, STEADY = DraftState.REBALANCING, DraftState.STEADY


def _was(step: Stepped, group_id: str, *, joins: bool = False) -> DraftGroup | None:
    """Return a group before a step; None: another protocol, or no group to join."""
    others = (step.session.groups, step.log.groups, step.log.consumer_groups)
    if joins and not any(group_id in each for each in others):
        return router.group_of(step.session, step.log, group_id)
    if not router.is_draft(step.session, step.log, group_id):
        return None
    return router.group_of(step.session, step.log, group_id)


def _is(shard: Shard, group_id: str) -> DraftGroup:
    return router.group_of(shard.session, shard.log, group_id)


# ------------------------------------------------------------------------------------- answers


def _beat(group: DraftGroup, arrived: Arrived, _step: Stepped) -> int:
    request = arrived.request
    if request.consumer_id not in group.consumers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    current = group.state is STEADY and request.group_generation_id == group.generation
    return ErrorCode.NONE if current else ErrorCode.ILLEGAL_GENERATION


def _commit(group: DraftGroup, arrived: Arrived, _step: Stepped) -> int:
    request = arrived.request
    generation = request.generation_id_or_member_epoch
    if group.state is NONE and not request.member_id and generation < 0:
        return ErrorCode.NONE
    if request.member_id not in group.consumers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    current = group.state is STEADY and generation == group.generation
    return ErrorCode.NONE if current else ErrorCode.ILLEGAL_GENERATION


def _join(group: DraftGroup, arrived: Arrived, step: Stepped) -> int:
    request, config = arrived.request, step.node.shard.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.heartbeat_frequency < 1:
        return ErrorCode.INVALID_REQUEST
    if not request.consumer_id:
        full = len(group.consumers) + len(group.newcomers) >= config.group_max_size
        return ErrorCode.GROUP_MAX_SIZE_REACHED if full else JOINS
    if request.consumer_id not in group.consumers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    same = group.consumers[request.consumer_id].topics == tuple(sorted(set(request.topics)))
    return TOLD if group.state is STEADY and same else JOINS


def _forget(_group: DraftGroup, _arrived: Arrived, _step: Stepped) -> int:
    return ErrorCode.NONE


_EXPECT: dict[type, Callable[[DraftGroup, Arrived, Stepped], int]] = {
    DraftHeartbeatRequest: _beat,
    OffsetCommitRequest: _commit,
    DraftJoinGroupRequest: _join,
    OffsetDeleteRequest: _forget,
}


@rule(
    "S2",
    "Draft: every request gets the answer that the group's state requires (D3-D12).",
    Stepped,
    about=tuple(_EXPECT),
)
def draft_answered_by_the_rules(_world: BaseWorld, step: Stepped) -> str | None:
    """Compare an answer with the rules for the request and the group before it."""
    arrived = step.event
    if not isinstance(arrived, RequestArrived) or step.session.lifecycle is not Lifecycle.READY:
        return None
    expect = _EXPECT.get(type(arrived.request))
    joins = isinstance(arrived.request, (DraftJoinGroupRequest, DraftHeartbeatRequest))
    group_id: str = getattr(arrived.request, "group_id", "")
    group = _was(step, group_id, joins=joins) if group_id else None
    if expect is None or group is None:
        return None
    wanted = expect(group, arrived, step)
    reply = next((each for each in step.effects.replies if each.token == arrived.token), None)
    if reply is None:
        given = JOINS if isinstance(arrived.request, DraftJoinGroupRequest) else PARKED
    else:
        given = code_of(reply.response)
        if isinstance(reply.response, DraftJoinGroupResponse) and given == ErrorCode.NONE:
            given = TOLD if reply.response.group_generation_id == group.generation else JOINS
    if given == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC and wanted == ErrorCode.NONE:
        return None
    if given == wanted:
        return None
    return (
        f"{type(arrived.request).__name__} in {group.state.name} is answered {given}, not {wanted}"
    )


@rule(
    "S2",
    "Draft: a group with consumers is not deleted, one without is (D16).",
    Stepped,
    about=(DeleteGroupsRequest,),
)
def draft_deleted_by_the_rules(_world: BaseWorld, step: Stepped) -> str | None:
    """Check each group that a request deletes."""
    event = step.event
    if not isinstance(event, RequestArrived) or not isinstance(event.request, DeleteGroupsRequest):
        return None
    for reply in step.effects.replies:
        results = {r.group_id: r.error_code for r in getattr(reply.response, "results", ())}
        for group_id in event.request.groups_names:
            group = _was(step, group_id)
            if group is None or step.session.lifecycle is not Lifecycle.READY:
                continue
            wanted = ErrorCode.NONE if group.state is NONE else ErrorCode.NON_EMPTY_GROUP
            if results.get(group_id) != wanted:
                return f"{group_id} is {group.state.name}: {results.get(group_id)} to its deletion"
            log = step.node.shard.log
            left = group_id in log.draft_groups or bool(log.offsets.get(group_id))
            if left and wanted == ErrorCode.NONE:
                return f"{group_id} was deleted and still exists"
    return None


@rule(
    "S2",
    "Draft: an accepted request of a consumer restarts its session (D12).",
    Stepped,
    about=(DraftHeartbeatRequest, DraftJoinGroupRequest, OffsetCommitRequest),
)
def draft_sessions_are_renewed(world: BaseWorld, step: Stepped) -> str | None:
    """Check the session of a consumer whose heartbeat, commit or join was accepted."""
    event = step.event
    if not isinstance(event, RequestArrived) or step.session.lifecycle is not Lifecycle.READY:
        return None
    request: Any = event.request
    if not isinstance(request, (DraftHeartbeatRequest, DraftJoinGroupRequest, OffsetCommitRequest)):
        return None
    was = _was(step, request.group_id)
    if was is None:
        return None
    is_commit = isinstance(request, OffsetCommitRequest)
    consumer_id: str = getattr(request, "member_id" if is_commit else "consumer_id")
    consumer = _is(step.node.shard, request.group_id).consumers.get(consumer_id)
    if consumer is None or consumer_id not in was.consumers:
        return None
    if is_commit and _commit(was, event, step) != ErrorCode.NONE:
        return None
    if isinstance(request, DraftJoinGroupRequest) and _join(was, event, step) < JOINS:
        return None
    due = step.node.shard.session.deadlines.get(SessionExpired(request.group_id, consumer_id))
    if due is not None and due >= world.engine.now + consumer.session_timeout_ms:
        return None
    return f"a request of {consumer_id} was accepted, and its session ends at {due}"


# ------------------------------------------------------------------------------------- steps


@rule(
    "S7",
    "Draft: an expired deadline has its effect (D12, D13).",
    Stepped,
    about=(Tick,),
)
def draft_time_is_kept(world: BaseWorld, step: Stepped) -> str | None:
    """Check the effect of the deadline that was handled."""
    earliest = step.session.deadlines.next() if isinstance(step.event, Tick) else None
    if earliest is None or earliest[0] > world.engine.now:
        return None
    due: Any = earliest[1]
    if not isinstance(due, (SessionExpired, JoinExpired)):
        return None
    was = _was(step, due.group_id)
    if was is None:
        return None
    group = _is(step.node.shard, due.group_id)
    if isinstance(due, JoinExpired):
        if group.state is PREPARE:
            return "the time to join is over, and the rebalance does not go on"
        late = set(group.consumers) & set(was.consumers) - set(was.joining)
        return f"{min(late)} has not joined, and is a consumer" if late else None
    if was.state is REBALANCING or due.member_id in was.joining:
        return None if group == was else f"the session of {due.member_id} ended, which waits for us"
    if due.member_id in group.consumers:
        return f"{due.member_id} is a consumer, though its session is over"
    if group.state is PREPARE is was.state:
        ends = JoinExpired(due.group_id)
        now = step.node.shard.session.deadlines.get(ends)
        if now != step.session.deadlines.get(ends):
            return "a death gives the others more time to join"
    return "a consumer is dead and there is no rebalance" if group.state is STEADY else None


@rule(
    "S7",
    "Draft: a computed assignment counts, an outdated one does not.",
    Stepped,
    about=(DraftJobDone,),
)
def draft_jobs_count(_world: BaseWorld, step: Stepped) -> str | None:
    """Check the effects of a job."""
    event = step.event
    if not isinstance(event, DraftJobDone):
        return None
    was, group = _was(step, event.job.group_id), _is(step.node.shard, event.job.group_id)
    if was is None:
        return None
    mine = (event.job.generation, event.job.number) == (was.generation, was.job)
    if was.state is not REBALANCING or not mine:
        return None if group == was else "an assignment that is out of date changes the group"
    if event.owned is not None:
        stored = step.node.shard.log.draft_groups.get(event.job.group_id)
        written = stored is not None and stored.generation == was.generation
        return None if written else "an assignment that was made is not in the log"
    failed = not group.joining and group.state is PREPARE
    return None if failed else "an assignment that failed leaves members waiting"


def _wanted(group: DraftGroup | None) -> object:
    """Return the input of a rebalancing group's assignment: subscriptions and generation."""
    if group is None or group.state is not REBALANCING:
        return None
    return group.generation, {each.consumer_id: each.topics for each in group.sorted_consumers()}


@rule(
    "S7",
    "Draft: an assignment is computed when its input is new, and not otherwise (D5, D8).",
    Stepped,
    about=(DraftJoinGroupRequest, DraftJobDone, Tick, TopicsChanged),
)
def draft_jobs_are_asked_for(_world: BaseWorld, step: Stepped) -> str | None:
    """Look for groups that start an assignment, or restart it for a new input."""
    groups = step.node.shard.session.draft_groups
    if step.session.draft_groups is groups:
        return None
    asked = {job.group_id for job in step.effects.draft_jobs}
    for group_id, group in sorted(groups.items()):
        wanted = _wanted(group)
        is_new = wanted is not None and wanted != _wanted(step.session.draft_groups.get(group_id))
        if is_new and group_id not in asked:
            return "consumers wait for an assignment that is not being computed"
        if group_id in asked and not is_new:
            return "an assignment that is being made is asked for once more"
    return None


@rule("S18", "Draft: a group that waits for joins has a deadline.", Stepped)
def draft_waiting_ends(_world: BaseWorld, step: Stepped) -> str | None:
    """Look for groups that are stuck."""
    session = step.node.shard.session
    if step.session.draft_groups is session.draft_groups:
        return None
    for group_id, group in sorted(session.draft_groups.items()):
        if group.state is not PREPARE:
            continue
        if session.deadlines.get(JoinExpired(group_id)) is None:
            return "nothing ends the time to join"
        if group.all_joined and (group.consumers or group.newcomers):
            return "all consumers have joined and the rebalance does not go on"
    return None


def _is_outdated(shard: Shard, group_id: str) -> bool:
    """D14: return whether the assignment does not match the present topics."""
    stored = shard.log.draft_groups.get(group_id)
    if stored is None:
        return False
    known = shard.session.topics.by_name
    wanted = _is(shard, group_id).topics
    present = {name: known[name].partitions for name in wanted if name in known}
    return dict(stored.topics) != present


@rule(
    "S7",
    "Draft: a steady group rebalances if its topics have changed, and only then (D14).",
    Stepped,
    Loaded,
    about=(TopicsChanged, NoneType),
)
def draft_topics_are_followed(_world: BaseWorld, fact: Stepped | Loaded) -> str | None:
    """Check the group after a change of topics, and after a load."""
    shard = fact.node.shard
    if shard.session.lifecycle is not Lifecycle.READY:
        return None
    if isinstance(fact, Stepped):
        was = _was(fact, GROUP)
        if was is None or was.state is not STEADY:
            return None
    elif GROUP not in shard.session.draft_groups:
        stored = shard.log.draft_groups.get(GROUP)
        return "a group with consumers is not loaded" if stored and stored.consumers else None
    calls, outdated = _is(shard, GROUP).state is not STEADY, _is_outdated(shard, GROUP)
    if outdated and not calls:
        return "the topics have changed and there is no rebalance"
    return "the topics have not changed, and the group rebalances" if calls > outdated else None
