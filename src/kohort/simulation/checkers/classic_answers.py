"""S2: the expected answers of a classic group, derived from rules C10-C57.

Each function returns the allowed answers to a request, given the group before it, independently of
the table under test: error codes, `PARKED` for a request that must wait, `JOINS` for a join that
waits or completes a generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState, Protocol
from kohort.group.coordinator.draft import kind as router
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.session import Lifecycle
from kohort.simulation.groups.facts import Stepped
from kohort.simulation.rules import rule
from kohort.wire.codec.schema import Message
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

Arrived: TypeAlias = RequestArrived[Any]
Answers: TypeAlias = frozenset[int]
Expect: TypeAlias = Callable[[ClassicGroup, Arrived, Stepped], Answers]

DEAD, EMPTY = GroupState.DEAD, GroupState.EMPTY
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
# Not Kafka's codes: the request waits; it waits or begins a generation; it gets the present one.
PARKED, JOINS, TOLD = 1_000, 1_001, 1_002


def _one(*codes: int) -> Answers:
    return frozenset(codes)


_OK = _one(ErrorCode.NONE)
_UNKNOWN = _one(ErrorCode.UNKNOWN_MEMBER_ID)
_STALE = _one(ErrorCode.ILLEGAL_GENERATION)
_AGAIN = _one(ErrorCode.REBALANCE_IN_PROGRESS)
_ODD = _one(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def stranger(group: ClassicGroup, member_id: str, instance: str | None) -> Answers | None:
    """C18: a request with another member's identity."""
    if instance is not None:
        names = {m.group_instance_id: m.member_id for m in group.members.values()}
        if names.get(instance, member_id) != member_id:
            return _one(ErrorCode.FENCED_INSTANCE_ID)
        if instance not in names:
            return _UNKNOWN
    return None if member_id in group.members else _UNKNOWN


def _of_generation(group: ClassicGroup, request: Any, generation: int) -> Answers | None:  # noqa: ANN401  # one of three kinds
    if group.state in (DEAD, EMPTY):
        return _UNKNOWN
    wrong = stranger(group, request.member_id, request.group_instance_id)
    return wrong or (None if generation == group.generation else _STALE)


def _heartbeat(group: ClassicGroup, arrived: Arrived, _step: Stepped) -> Answers:
    """C44: a heartbeat needs a member of the present generation, and no join phase."""
    wrong = _of_generation(group, arrived.request, arrived.request.generation_id)
    return wrong or (_AGAIN if group.state is PREPARING else _OK)


def _sync(group: ClassicGroup, arrived: Arrived, _step: Stepped) -> Answers:
    """C40, C41: a sync needs the present generation; it waits for the assignment."""
    request = arrived.request
    if arrived.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return _ODD
    wrong = _of_generation(group, request, request.generation_id)
    if wrong is not None:
        return wrong
    named = (request.protocol_type, request.protocol_name)
    if named != (None, None) and named != (group.protocol_type, group.protocol):
        return _ODD
    if group.state is COMPLETING:
        return _OK if request.member_id == group.leader else _one(PARKED)
    return _AGAIN if group.state is PREPARING else _OK


def _commit(group: ClassicGroup, arrived: Arrived, _step: Stepped) -> Answers:
    """C50, C51: a commit needs a member of the present generation, or an empty group."""
    request = arrived.request
    generation = request.generation_id_or_member_epoch
    if group.state is DEAD:
        newer = arrived.version >= 9
        missing = _one(ErrorCode.GROUP_ID_NOT_FOUND) if newer else _STALE
        return missing if generation >= 0 else _OK
    if generation < 0 and group.state is EMPTY:
        return _OK
    wrong = stranger(group, request.member_id, request.group_instance_id)
    if wrong is not None:
        return wrong
    if generation != group.generation:
        return _STALE
    return _AGAIN if group.state is COMPLETING else _OK


def _leave(group: ClassicGroup, arrived: Arrived, _step: Stepped) -> Answers:
    """C47: LeaveGroup of one member."""
    request = arrived.request
    if arrived.version < 3:
        member_id, instance = request.member_id, None
    else:
        member_id, instance = request.members[0].member_id, request.members[0].group_instance_id
    if group.state is DEAD:
        return _UNKNOWN
    if not member_id and instance is not None:
        names = {m.group_instance_id: m.member_id for m in group.members.values()}
        member_id = names.get(instance, "")
    if member_id in group.pending:
        return _OK
    return stranger(group, member_id, instance) or _OK


def _forget(group: ClassicGroup, _arrived: Arrived, _step: Stepped) -> Answers:
    """C56: offsets of topics without subscribers can be deleted."""
    if group.state is DEAD:
        return _one(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not EMPTY and group.protocol_type != "consumer":
        return _one(ErrorCode.NON_EMPTY_GROUP)
    return _OK


def _delete(group: ClassicGroup, _arrived: Arrived, _step: Stepped) -> Answers:
    """C57: only an empty group can be deleted."""
    if group.state is DEAD:
        return _one(ErrorCode.GROUP_ID_NOT_FOUND)
    return _OK if group.state is EMPTY else _one(ErrorCode.NON_EMPTY_GROUP)


def _join(group: ClassicGroup, arrived: Arrived, step: Stepped) -> Answers:
    """C10-C19, C30-C32: whether a member may join, and the answer."""
    request, config = arrived.request, step.node.shard.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return _one(ErrorCode.INVALID_SESSION_TIMEOUT)
    if sum(len(each.metadata) for each in request.protocols) > config.group_member_max_bytes:
        return _one(ErrorCode.MESSAGE_TOO_LARGE)
    if group.state is DEAD and request.member_id:
        return _UNKNOWN
    if _has_no_room(group, request, config.group_max_size):
        return _one(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not _is_understood(group, request):
        return _ODD
    instance = request.group_instance_id
    if not request.member_id:
        if instance is None:
            required = _one(ErrorCode.MEMBER_ID_REQUIRED)
            return required if arrived.version >= 4 else _one(JOINS)
        returns = any(m.group_instance_id == instance for m in group.members.values())
        return _static(group, request) if returns else _one(JOINS)
    if request.member_id in group.pending and instance is None:
        return _one(JOINS)
    return stranger(group, request.member_id, instance) or _known(group, request)


def _has_no_room(group: ClassicGroup, request: JoinGroupRequest, limit: int) -> bool:
    """C14: a full group refuses new members."""
    if group.state in (DEAD, EMPTY):
        return False
    there = group.joining if group.state is PREPARING else group.members
    return request.member_id not in there and len(there) >= limit


def _is_understood(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """C13: protocol type and an assignor must match those of the members."""
    names = {each.name for each in request.protocols}
    if not group.members:
        return bool(names) and bool(request.protocol_type)
    known = [{each.name for each in member.protocols} for member in group.members.values()]
    common = set.intersection(*known)
    return request.protocol_type == group.protocol_type and bool(names & common)


def _static(group: ClassicGroup, request: JoinGroupRequest) -> Answers:
    """C30-C32: a static member that returns unchanged to a stable group starts no rebalance."""
    if group.state is not STABLE:
        return _one(JOINS)
    names = [p.name for p in request.protocols]
    before = next(
        [p.name for p in m.protocols]
        for m in group.members.values()
        if m.group_instance_id == request.group_instance_id
    )
    return _one(TOLD) if names == before else _one(TOLD, JOINS)


def _known(group: ClassicGroup, request: JoinGroupRequest) -> Answers:
    """C19: whether a rejoining member starts a rebalance."""
    if group.state is PREPARING:
        return _one(JOINS)
    if group.state is EMPTY:
        return _UNKNOWN
    says = tuple(Protocol(each.name, each.metadata) for each in request.protocols)
    if says != group.members[request.member_id].protocols:
        return _one(JOINS)
    leads = group.state is STABLE and request.member_id == group.leader
    return _one(JOINS) if leads else _one(TOLD)


_EXPECT: dict[type[Message], Expect] = {
    HeartbeatRequest: _heartbeat,
    SyncGroupRequest: _sync,
    OffsetCommitRequest: _commit,
    LeaveGroupRequest: _leave,
    OffsetDeleteRequest: _forget,
    JoinGroupRequest: _join,
}


def classic_group(step: Stepped, group_id: str) -> ClassicGroup | None:
    """Return a group before a step; None: it has another protocol."""
    if step.group is None or step.group[0] != group_id:
        step.group = (group_id, _found(step, group_id))
    return step.group[1]


def _found(step: Stepped, group_id: str) -> ClassicGroup | None:
    if group_id in step.log.consumer_groups or router.is_draft(step.session, step.log, group_id):
        return None
    return step.session.group(step.log, group_id)


def code_of(response: object) -> int:
    """Return the error code of an answer or, if it has none of its own, of its first entry."""
    own = getattr(response, "error_code", 0)
    if own:
        return int(own)
    for entries in ("members", "topics", "results", "groups"):
        for entry in getattr(response, entries, ()):
            inner = getattr(entry, "partitions", (entry,))
            for each in inner:
                if getattr(each, "error_code", None) is not None:
                    return int(each.error_code)
    return int(ErrorCode.NONE)


def _given(step: Stepped, arrived: Arrived, group: ClassicGroup) -> set[int]:
    """Return the actual answer: a code, and its meaning for a join."""
    reply = next((each for each in step.effects.replies if each.token == arrived.token), None)
    is_join = isinstance(arrived.request, JoinGroupRequest)
    if reply is None:
        return {PARKED, JOINS} if is_join else {PARKED}
    code = code_of(reply.response)
    if not isinstance(reply.response, JoinGroupResponse) or code != ErrorCode.NONE:
        return {code}
    return {TOLD} if reply.response.generation_id == group.generation else {JOINS}


@rule(
    "S2",
    "Classic: every request gets the answer that the group's state requires (C10-C57).",
    Stepped,
    about=tuple(_EXPECT),
)
def answered_by_the_rules(_world: BaseWorld, step: Stepped) -> str | None:
    """Compare an answer with the rules for the request and the group before it."""
    arrived = step.event
    if not isinstance(arrived, RequestArrived):
        return None
    request: Any = arrived.request
    expect = _EXPECT.get(type(request))
    if step.session.lifecycle is not Lifecycle.READY:
        return _while_away(step, arrived)
    if expect is None or not request.group_id:
        return None
    group = classic_group(step, request.group_id)
    if group is None:
        return None
    wanted, given = expect(group, arrived, step), _given(step, arrived, group)
    if isinstance(request, OffsetDeleteRequest) and ErrorCode.NONE in wanted:
        wanted |= {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    if wanted & given:
        return None
    name = type(request).__name__
    return f"{name} in {group.state.name} is answered {sorted(given)}, not {sorted(wanted)}"


def _while_away(step: Stepped, arrived: Arrived) -> str | None:
    """C3, C44: answers of a shard that is down or loading its log."""
    loads = step.session.lifecycle is Lifecycle.CATCH_UP
    if isinstance(arrived.request, HeartbeatRequest) and loads:
        wanted = int(ErrorCode.NONE)
    else:
        wanted = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loads else ErrorCode.NOT_COORDINATOR)
    reply = next((each for each in step.effects.replies if each.token == arrived.token), None)
    if reply is None:
        return f"{type(arrived.request).__name__} waits for a coordinator that does not exist"
    code = code_of(reply.response)
    return None if code == wanted else f"a shard that is away answers {code}, not {wanted}"


@rule(
    "S2",
    "Classic: a group with members is not deleted, one without is (C57).",
    Stepped,
    about=(DeleteGroupsRequest,),
)
def deleted_by_the_rules(_world: BaseWorld, step: Stepped) -> str | None:
    """Check each group that a request deletes."""
    arrived = step.event
    if not isinstance(arrived, RequestArrived) or step.session.lifecycle is not Lifecycle.READY:
        return None
    if not isinstance(arrived.request, DeleteGroupsRequest):
        return None
    for reply in step.effects.replies:
        if reply.token != arrived.token:
            continue
        results = {r.group_id: r.error_code for r in getattr(reply.response, "results", ())}
        for group_id in arrived.request.groups_names:
            group = classic_group(step, group_id)
            if group is None:
                continue
            wanted = _delete(group, arrived, step)
            if results.get(group_id) not in wanted:
                return f"{group_id} is {group.state.name}: {results.get(group_id)} to its deletion"
            log = step.node.shard.log
            left = group_id in log.groups or bool(log.offsets.get(group_id))
            if ErrorCode.NONE in wanted and left:
                return f"{group_id} was deleted and still exists"
    return None
