"""The two phases of a rebalance, departures of members, and expired deadlines."""

from __future__ import annotations

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.classic.fold import STORED
from kohort.group.coordinator.classic.group import (
    ClassicDecision,
    ClassicGroup,
    GroupState,
    Member,
    choose,
    member_error,
)
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    LoadFinished,
    PendingExpired,
    SessionExpired,
    SyncExpired,
    Unload,
)
from kohort.group.coordinator.refusals import sync_refused
from kohort.group.coordinator.services import Leave
from kohort.group.coordinator.session import Parked
from kohort.group.events import Cause, GenerationStarted
from kohort.values import replace
from kohort.wire.messages.membership import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    MemberIdentity,
)

DEAD, EMPTY = GroupState.DEAD, GroupState.EMPTY
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE


def start_or_continue(
    decision: ClassicDecision, cause: Cause, member_id: str, reason: str = ""
) -> None:
    """After a change of the group, rebalance, or check whether the running one is complete."""
    if decision.state is PREPARING:
        complete_if_all_joined(decision)
    else:
        prepare(decision, cause, member_id, reason)


def prepare(decision: ClassicDecision, cause: Cause, member_id: str, reason: str = "") -> None:
    """Begin a rebalance: the answers to heartbeats ask every member to rejoin."""
    _send_back_syncing(decision)
    decision.cancel(SyncExpired(decision.group.group_id))
    initial = decision.state is EMPTY
    decision.say_rebalance(decision.group.generation, cause, member_id, reason)
    decision.enter(PREPARING)
    decision.group = replace(decision.group, initial=initial)
    if initial:
        _start_initial_delay(decision)
    elif decision.group.all_joined or not decision.group.members:
        complete(decision)  # without members there is no rebalance timeout
    else:
        # C21: the slowest member decides how long all wait.
        decision.start(JoinExpired(decision.group.group_id), decision.group.rebalance_timeout_ms)


def _send_back_syncing(decision: ClassicDecision) -> None:
    """C26: tell members that wait for an assignment of the old generation to rejoin.

    Sessions may have expired during the wait (C17), so restart them all.
    """
    for member_id, parked in sorted(decision.group.syncing.items()):
        decision.reply(parked.token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), parked.version)
        restart_session(decision, decision.group.members[member_id])
    decision.group = replace(decision.group, syncing=Map(), unsynced=Map())


def _start_initial_delay(decision: ClassicDecision) -> None:
    """C20 (KIP-134): delay the first rebalance, because members often start together."""
    delay_ms = decision.config.group_initial_rebalance_delay_ms
    decision.group = replace(
        decision.group,
        member_added=False,
        last_delay_ms=delay_ms,
        delay_left_ms=max(decision.group.rebalance_timeout_ms - delay_ms, 0),
    )
    decision.start(InitialDelayExpired(decision.group.group_id), delay_ms)


def extend_or_end_initial_delay(decision: ClassicDecision) -> None:
    """C20: extend the delay if a member joined during it, up to the rebalance timeout."""
    group = decision.group
    if not group.member_added or not group.delay_left_ms:
        complete(decision)
        return
    delay_ms = min(decision.config.group_initial_rebalance_delay_ms, group.delay_left_ms)
    decision.group = replace(
        group,
        member_added=False,
        last_delay_ms=delay_ms,
        delay_left_ms=max(group.delay_left_ms - group.last_delay_ms, 0),
    )
    decision.start(InitialDelayExpired(group.group_id), delay_ms)


def complete_if_all_joined(decision: ClassicDecision) -> None:
    """C16, C21: end the first phase if all have joined, except in an initial rebalance (C20)."""
    if decision.group.all_joined and not decision.group.initial:
        complete(decision)


def complete(decision: ClassicDecision) -> None:
    """End the first phase: remove absent members, and begin a generation with the others."""
    decision.cancel(JoinExpired(decision.group.group_id))
    _drop_absent(decision)
    group = decision.group
    if group.members and not group.joining:
        # C22: all members are static and absent: wait until one joins or all expire.
        decision.start(JoinExpired(group.group_id), group.rebalance_timeout_ms)
        return
    if group.members:
        _begin_generation(decision)
    else:
        _become_empty(decision)


def _drop_absent(decision: ClassicDecision) -> None:
    """C21: remove dynamic members that did not rejoin; static ones may still return."""
    absent = [
        member
        for member in decision.group.sorted_members()
        if member.group_instance_id is None and member.member_id not in decision.group.joining
    ]
    for member in absent:
        remove_member(decision, member.member_id, Cause.JOIN_TIMED_OUT)


def _become_empty(decision: ClassicDecision) -> None:
    """C23: begin a generation without members, and write the empty group to the log."""
    decision.group = replace(
        decision.group,
        generation=decision.group.generation + 1,
        protocol=None,
        leader=None,
        initial=False,
    )
    decision.enter(EMPTY)
    decision.write_group({})


def _begin_generation(decision: ClassicDecision) -> None:
    """C23: answer every parked join; only the leader's answer lists the members."""
    group = decision.group
    leader = group.leader
    if leader is None or leader not in group.joining:
        leader = min(group.joining)  # C22: the leader has to be a member that joined
    group = replace(
        group,
        generation=group.generation + 1,
        protocol=choose(group),
        leader=leader,
        unsynced=Map(dict.fromkeys(group.members)),
        syncing=Map(),
        initial=False,
    )
    joined = sorted(group.joining.items())
    decision.group = replace(group, joining=Map())
    decision.enter(COMPLETING)
    decision.observed.append(
        GenerationStarted(
            group=group.group_id,
            now=decision.now,
            generation=group.generation,
            protocol=group.protocol or "",
            leader=leader,
            members=tuple(sorted(group.members)),
        )
    )
    for member_id, parked in joined:
        decision.reply(parked.token, current_generation(decision.group, member_id), parked.version)
    _settle_members(decision, [member_id for member_id, _ in joined])
    decision.start(SyncExpired(group.group_id), group.rebalance_timeout_ms)


def _settle_members(decision: ClassicDecision, member_ids: list[str]) -> None:
    """Start the sessions of all members whose joins were answered; none is new now (C17)."""
    members = decision.group.members
    with members.mutate() as settled:
        for member_id in member_ids:
            member = members[member_id]
            restart_session(decision, member)
            if member.is_new:
                settled[member_id] = replace(member, is_new=False)
        decision.group = replace(decision.group, members=settled.finish())


def current_generation(
    group: ClassicGroup, member_id: str, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the answer to a join, with the present generation."""
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=_members_for_leader(group) if member_id == group.leader else (),
    )


def _members_for_leader(group: ClassicGroup) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.sorted_members()
    )


def restart_session(decision: ClassicDecision, member: Member) -> None:
    """Start the member's session from now."""
    decision.start(
        SessionExpired(decision.group.group_id, member.member_id), member.session_timeout_ms
    )


def remove_member(
    decision: ClassicDecision, member_id: str, cause: Cause, reason: str = ""
) -> None:
    """Remove a member, or an id that was issued but not used, from the group.

    Its parked request is answered UNKNOWN_MEMBER_ID, so that the sender joins as a new member.
    """
    group_id = decision.group.group_id
    known = member_id in decision.group.members
    refuse_parked(decision, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    decision.cancel(SessionExpired(group_id, member_id))
    decision.cancel(PendingExpired(group_id, member_id))
    decision.group = decision.group.without_member(member_id)
    if known:
        decision.say_left(member_id, cause, reason)


def refuse_parked(decision: ClassicDecision, member_id: str, code: ErrorCode) -> None:
    """Answer a member's parked requests with an error."""
    joining: Parked | None = decision.group.joining.get(member_id)
    if joining is not None:
        decision.reply(
            joining.token, _join_failed(joining.version, code, member_id), joining.version
        )
        decision.group = replace(decision.group, joining=decision.group.joining.delete(member_id))
    syncing: Parked | None = decision.group.syncing.get(member_id)
    if syncing is not None:
        decision.reply(syncing.token, sync_refused(code), syncing.version)
        decision.group = replace(decision.group, syncing=decision.group.syncing.delete(member_id))


def _join_failed(version: int, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id="" if code is ErrorCode.UNKNOWN_MEMBER_ID else member_id,
        members=(),
    )


# --------------------------------------------------------------------------------------- LeaveGroup


def leave(decision: ClassicDecision, leaving: Leave) -> None:
    """C47: remove the given members, then react once.

    An unknown member or a missing group is an error in each member's entry, not of the whole call.
    """
    leavers = services.leavers(leaving)
    results = [(identity, _take_out(decision, identity)) for identity in leavers]
    services.answer_leave(decision, leaving, results)
    gone = [identity for identity, error in results if error is ErrorCode.NONE]
    if gone and decision.state is not EMPTY:
        cause, reason = Cause.MEMBER_LEFT, gone[0].reason or ""
        start_or_continue(decision, cause, gone[0].member_id, reason)


def _take_out(decision: ClassicDecision, identity: MemberIdentity) -> ErrorCode:
    group, instance = decision.group, identity.group_instance_id
    member_id = identity.member_id
    if not member_id and instance is not None:
        # An operator removes a static member by its instance id.
        member_id = group.static.get(instance, "")
    if member_id not in group.pending:
        error = member_error(group, member_id, instance)
        if error is not None:
            return error
    remove_member(decision, member_id, Cause.MEMBER_LEFT, identity.reason or "")
    return ErrorCode.NONE


# ---------------------------------------------------------------------------------------- deadlines


def is_parked(decision: ClassicDecision, expired: SessionExpired) -> bool:
    """C17: return whether a request of the member is parked, which shows that it is alive.

    False for a new member: its client may have given up without a sign.
    """
    group, member_id = decision.group, expired.member_id
    if group.members[member_id].is_new:
        return False
    return member_id in group.joining or member_id in group.syncing


def spare(_decision: ClassicDecision, _expired: SessionExpired) -> None:
    """C17, C43: keep the member; its session restarts when the parked request is answered."""


def expire_member(decision: ClassicDecision, expired: SessionExpired) -> None:
    """C46: remove the member."""
    remove_member(decision, expired.member_id, Cause.SESSION_EXPIRED)
    start_or_continue(decision, Cause.SESSION_EXPIRED, expired.member_id)


def expire_pending(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15: drop the issued id; the rebalance no longer waits for its client."""
    decision.group = decision.group.without_member(expired.member_id)


def expire_pending_join(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15, C16: drop the id, and complete the rebalance if it waited only for it."""
    expire_pending(decision, expired)
    complete_if_all_joined(decision)


def expire_join(decision: ClassicDecision, _expired: JoinExpired) -> None:
    """C21: continue with the members that have joined."""
    complete(decision)


def expire_initial_delay(decision: ClassicDecision, _expired: InitialDelayExpired) -> None:
    """C20: end the initial delay, or extend it if a member joined during it."""
    extend_or_end_initial_delay(decision)


def expire_sync(decision: ClassicDecision, _expired: SyncExpired) -> None:
    """C42: remove members that sent no SyncGroup, including a missing leader."""
    absent = sorted(decision.group.unsynced)
    for member_id in absent:
        remove_member(decision, member_id, Cause.SYNC_TIMED_OUT)
    prepare(decision, Cause.SYNC_TIMED_OUT, absent[0])


# --------------------------------------------------------------------- the shard comes, and goes


def release(decision: ClassicDecision, _unload: Unload) -> None:
    """C73: answer parked requests, because another broker is the coordinator now."""
    group = decision.group
    for member_id in sorted({*group.joining, *group.syncing}):
        refuse_parked(decision, member_id, ErrorCode.NOT_COORDINATOR)
    decision.enter(DEAD)


def is_too_large(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """C72: return whether the group exceeds `group.max.size`, which may have been lowered."""
    return len(decision.group.members) > decision.config.group_max_size


def restart_sessions(decision: ClassicDecision, _loaded: LoadFinished) -> None:
    """C72: start all sessions now, because the last heartbeats are unknown."""
    for member in decision.group.sorted_members():
        restart_session(decision, member)


def was_never_led(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """K47: return whether a former consumer group has not completed its first rebalance."""
    stored = STORED.of(decision.log).get(decision.group.group_id)
    return stored is not None and bool(stored.members) and stored.leader is None


def begin_again(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """K47: rebalance, because no member has taken over the consumers' partitions yet."""
    restart_sessions(decision, loaded)
    prepare(decision, Cause.COORDINATOR_UNLOADED, "")


def shrink(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """C72: rebalance; the last members to join are refused (C14)."""
    restart_sessions(decision, loaded)
    prepare(decision, Cause.GROUP_TOO_LARGE, "")
