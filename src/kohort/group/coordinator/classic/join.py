"""JoinGroup of new and known members (C10-C19), and of returning static ones (C30-C32)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.fold import STORED
from kohort.group.coordinator.classic.group import (
    ClassicDecision,
    ClassicGroup,
    GroupState,
    Member,
    Protocol,
    choose,
    is_consistent,
    member_error,
)
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import PendingExpired, RequestArrived, SessionExpired
from kohort.group.coordinator.refusals import join_refused
from kohort.group.coordinator.session import Parked
from kohort.group.events import Cause
from kohort.values import replace
from kohort.wire.messages.membership import JoinGroupRequest

Join: TypeAlias = RequestArrived[JoinGroupRequest]

# KIP-394: from this version on, a client rejoins with the id that it was given.
_MEMBER_ID_REQUIRED_SINCE = 4
# KIP-814: from this version on, the answer can tell the leader to keep the assignment.
_SKIP_ASSIGNMENT_SINCE = 9
# Characters of at most four bytes each, in a string of 32,767 bytes.
_ID_PREFIX_MAX = 8_000
_NOBODY = Member(
    member_id="",
    group_instance_id=None,
    client_id="",
    client_host="",
    rebalance_timeout_ms=0,
    session_timeout_ms=0,
    protocols=(),
)


def _refuse(
    decision: ClassicDecision, join: Join, code: ErrorCode, member_id: str | None = None
) -> None:
    response = join_refused(join.request, join.version, code, member_id)
    decision.reply(join.token, response, join.version)


# ---------------------------------------------------------------------------------- session timeout


def is_session_timeout_allowed(config: CoordinatorConfig, request: JoinGroupRequest) -> bool:
    """C10: return whether a session timeout is within the limits."""
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    return shortest <= request.session_timeout_ms <= longest


def session_timeout_error(decision: ClassicDecision, join: Join) -> ErrorCode | None:
    """C10: return the error for a session timeout outside the limits."""
    allowed = is_session_timeout_allowed(decision.config, join.request)
    return None if allowed else ErrorCode.INVALID_SESSION_TIMEOUT


# --------------------------------------------------------------------------------- a group is made


def member_id_error(_decision: ClassicDecision, join: Join) -> ErrorCode | None:
    """C11: return the error for a member of a missing group; it then joins as a new member."""
    return ErrorCode.UNKNOWN_MEMBER_ID if join.request.member_id else None


def create_group(decision: ClassicDecision, _join: Join) -> None:
    """C11: create the group with its first join, and write it to the log."""
    decision.enter(GroupState.EMPTY)
    decision.write_group({})


# ------------------------------------------------------------------------------------ group is full


def size_error(decision: ClassicDecision, join: Join) -> ErrorCode | None:
    """C14: return the error for a member that needs more space than allowed.

    In Kafka, writing the group then fails for all members; here only the sender is refused.
    """
    too_large = member_of(join).size > decision.config.group_member_max_bytes
    return ErrorCode.MESSAGE_TOO_LARGE if too_large else None


def is_full(decision: ClassicDecision, join: Join) -> bool:
    """C14 (KIP-389): return whether the group has no room for this join."""
    group, member_id, limit = decision.group, join.request.member_id, decision.config.group_max_size
    pending_max = decision.config.group_max_pending_members
    if needs_member_id(decision, join) and len(group.pending) >= pending_max:
        return True
    if group.state is GroupState.EMPTY:
        return False
    before = group.members.get(member_id)
    if (
        group.size + member_of(join).size
        > decision.config.group_max_bytes + (before or _NOBODY).size
    ):
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        # Only members that have rejoined count, so the first to rejoin may stay.
        return member_id not in group.joining and len(group.joining) >= limit
    return member_id not in group.members and len(group.members) >= limit


def refuse_full(decision: ClassicDecision, join: Join) -> None:
    """C14: refuse and remove the member; Kafka would wait for it until the timeout."""
    member_id = join.request.member_id
    _refuse(decision, join, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
    if member_id in decision.group.members:
        rebalance.remove_member(decision, member_id, Cause.GROUP_TOO_LARGE)
        rebalance.start_or_continue(decision, Cause.GROUP_TOO_LARGE, member_id)


# ------------------------------------------------------------------------------------ bad protocols


def protocol_error(decision: ClassicDecision, join: Join) -> ErrorCode | None:
    """C13: return the error for a member that has no assignor in common with the group."""
    consistent = is_consistent(decision.group, join.request)
    return None if consistent else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -------------------------------------------------------------------------------------- new members


def needs_member_id(_decision: ClassicDecision, join: Join) -> bool:
    """C15: return whether a new dynamic member has to rejoin with an id."""
    return requires_member_id(join)


def requires_member_id(join: Join) -> bool:
    """C15: return as `needs_member_id`, in a group of either kind."""
    request = join.request
    dynamic = not request.member_id and request.group_instance_id is None
    return dynamic and join.version >= _MEMBER_ID_REQUIRED_SINCE


def hand_out_member_id(decision: ClassicDecision, join: Join) -> None:
    """C15 (KIP-394): issue an id only, so that a client that gives up leaves no member behind."""
    group = decision.group
    member_id = _new_member_id(join.client_id, join)
    decision.group = replace(group, pending=group.pending.set(member_id, None))
    decision.start(PendingExpired(group.group_id, member_id), join.request.session_timeout_ms)
    _refuse(decision, join, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _new_member_id(prefix: str, join: Join) -> str:
    """C15: return the client id and a unique part, cut to the maximum length of a string."""
    return f"{prefix[:_ID_PREFIX_MAX]}-{join.unique_id}"


def is_new(decision: ClassicDecision, join: Join) -> bool:
    """Return whether the join adds a member: it has no id, or one just issued (C15)."""
    request = join.request
    if request.member_id:
        return request.member_id in decision.group.pending and request.group_instance_id is None
    return (
        request.group_instance_id is None or request.group_instance_id not in decision.group.static
    )


def add_member(decision: ClassicDecision, join: Join) -> None:
    """C15, C17: add the member and park its join; its session starts with the answer."""
    member = replace(member_of(join), is_new=True)
    group = decision.group
    decision.cancel(PendingExpired(group.group_id, member.member_id))
    if group.initial:
        decision.group = group = replace(group, member_added=True)
    decision.group = park_join(_typed(group, join).with_member(member), join, member.member_id)
    instance = member.group_instance_id
    decision.say_joined(member.member_id, member.client_id, member.client_host, instance)
    decision.start(
        SessionExpired(group.group_id, member.member_id), decision.config.new_member_join_timeout_ms
    )
    reason = join.request.reason or ""
    rebalance.start_or_continue(decision, Cause.MEMBER_JOINED, member.member_id, reason)


def _typed(group: ClassicGroup, join: Join) -> ClassicGroup:
    """Set the group's type from the first member."""
    if group.members:
        return group
    return replace(group, protocol_type=join.request.protocol_type)


def member_of(join: Join) -> Member:
    """Return the member that a join describes, with a new id if it has none."""
    request = join.request
    instance = request.group_instance_id
    prefix = instance if instance is not None else join.client_id
    timeout_ms = request.rebalance_timeout_ms
    return Member(
        member_id=request.member_id or _new_member_id(prefix, join),
        group_instance_id=instance,
        client_id=join.client_id,
        client_host=join.client_host,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=tuple(Protocol(entry.name, entry.metadata) for entry in request.protocols),
    )


def park_join(group: ClassicGroup, join: Join, member_id: str) -> ClassicGroup:
    """Keep a join until the group is complete."""
    parked = Parked(join.token, join.version)
    return replace(group, joining=group.joining.set(member_id, parked))


# ------------------------------------------------------------------------------------ known members


def identity_error(decision: ClassicDecision, join: Join) -> ErrorCode | None:
    """C18: return the error for a sender that is not the member it claims to be."""
    request = join.request
    if not request.member_id:
        return None
    return member_error(decision.group, request.member_id, request.group_instance_id)


def is_leader(decision: ClassicDecision, join: Join) -> bool:
    """Return whether the sender is the leader."""
    return join.request.member_id == decision.group.leader


def says_something_new(decision: ClassicDecision, join: Join) -> bool:
    """C19: return whether assignors or subscription have changed."""
    member = decision.group.members[join.request.member_id]
    return member.protocols != tuple(Protocol(p.name, p.metadata) for p in join.request.protocols)


def tell_generation(decision: ClassicDecision, join: Join) -> None:
    """C19: repeat the answer, which may have been lost: the join is unchanged."""
    response = rebalance.current_generation(decision.group, join.request.member_id)
    decision.reply(join.token, response, join.version)


def rejoin(decision: ClassicDecision, join: Join) -> None:
    """C19: park the join of a rejoining member."""
    _park_again(decision, join)
    rebalance.complete_if_all_joined(decision)


def rejoin_changed(decision: ClassicDecision, join: Join) -> None:
    """C19: rebalance, because the member's subscription has changed."""
    _park_again(decision, join)
    member_id, reason = join.request.member_id, join.request.reason or ""
    rebalance.prepare(decision, Cause.SUBSCRIPTION_CHANGED, member_id, reason)


def rejoin_leader(decision: ClassicDecision, join: Join) -> None:
    """C19: rebalance whenever the leader rejoins, as it does when topics have changed."""
    _park_again(decision, join)
    member_id, reason = join.request.member_id, join.request.reason or ""
    rebalance.prepare(decision, Cause.LEADER_REJOINED, member_id, reason)


def _park_again(decision: ClassicDecision, join: Join) -> None:
    """Update the member from the join, which replaces an earlier parked one."""
    member_id = join.request.member_id
    before = decision.group.members[member_id]
    rebalance.refuse_parked(decision, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    member = replace(member_of(join), is_new=before.is_new)
    decision.group = park_join(decision.group.with_member(member), join, member_id)


# -------------------------------------- static members that return, under a new member id (KIP-345)


def returns(decision: ClassicDecision, join: Join) -> bool:
    """C30: return whether a known instance joins without its member id, as after a restart."""
    request = join.request
    return not request.member_id and request.group_instance_id in decision.group.static


def returns_unchanged(decision: ClassicDecision, join: Join) -> bool:
    """C31: return whether a static member returns and the chosen assignor stays the same."""
    if not returns(decision, join):
        return False
    old_id = decision.group.static[join.request.group_instance_id or ""]
    renewed = replace(member_of(join), member_id=old_id)
    return choose(decision.group.with_member(renewed)) == decision.group.protocol


def swap_quietly(decision: ClassicDecision, join: Join) -> None:
    """C31: give the newcomer the old member's role and assignment, without a rebalance.

    Before version 9, a returning leader would assign the partitions again. So the answer names its
    old id as the leader, and it acts as a follower.
    """
    old_leader = decision.group.leader
    old_id = decision.group.static[join.request.group_instance_id or ""]
    new_id = _swap(decision, join)
    group = decision.group
    stored = STORED.of(decision.log)[group.group_id]
    assignments = {member_id: stored.assignment_of(member_id) for member_id in group.members}
    assignments[new_id] = stored.assignment_of(old_id)
    decision.write_group(assignments)
    if join.version >= _SKIP_ASSIGNMENT_SINCE:
        leads = group.leader == new_id
        response = rebalance.current_generation(group, new_id, skip_assignment=leads)
    else:
        response = rebalance.current_generation(replace(group, leader=old_leader), new_id)
    decision.reply(join.token, response, join.version)


def swap(decision: ClassicDecision, join: Join) -> None:
    """C32: replace a static member that returns while all members join; its new join counts."""
    _swap_and_park(decision, join)
    rebalance.complete_if_all_joined(decision)


def swap_and_rebalance(decision: ClassicDecision, join: Join) -> None:
    """C32: replace a static member and rebalance: its assignors or the leader's view are stale."""
    new_id = _swap_and_park(decision, join)
    rebalance.prepare(decision, Cause.MEMBER_REPLACED, new_id, join.request.reason or "")


def _swap_and_park(decision: ClassicDecision, join: Join) -> str:
    new_id = _swap(decision, join)
    decision.group = park_join(decision.group, join, new_id)
    return new_id


def _swap(decision: ClassicDecision, join: Join) -> str:
    """C30: replace the old member with the newcomer; the old one, if alive, is fenced."""
    instance = join.request.group_instance_id or ""
    old_id = decision.group.static[instance]
    rebalance.refuse_parked(decision, old_id, ErrorCode.FENCED_INSTANCE_ID)
    decision.cancel(SessionExpired(decision.group.group_id, old_id))
    group = decision.group
    member = member_of(join)
    led, owed = group.leader == old_id, old_id in group.unsynced
    group = group.without_member(old_id).with_member(member)
    if led:
        group = replace(group, leader=member.member_id)
    if owed:
        group = replace(group, unsynced=group.unsynced.set(member.member_id, None))
    decision.group = group
    decision.say_left(old_id, Cause.MEMBER_REPLACED)
    decision.say_joined(member.member_id, member.client_id, member.client_host, instance)
    rebalance.restart_session(decision, member)
    return member.member_id
