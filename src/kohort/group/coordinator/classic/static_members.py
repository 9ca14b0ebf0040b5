"""Static members come back under a new member id (KIP-345; C30-C32)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.fold import STORED
from kohort.group.coordinator.classic.group import choose
from kohort.group.coordinator.classic.join import Join, member_of, park_join
from kohort.group.coordinator.events import SessionExpired
from kohort.group.events import Cause
from kohort.values import replace

# KIP-814: from this version on the leader can be told to keep the assignment.
_SKIP_ASSIGNMENT_SINCE = 9


def returns(decision: ClassicDecision, join: Join) -> bool:
    """C30: return whether a known instance joins without its member id, as after a restart."""
    request = join.request
    return not request.member_id and request.group_instance_id in decision.group.static


def returns_unchanged(decision: ClassicDecision, join: Join) -> bool:
    """C31: return whether it returns and the group would keep the same assignor."""
    if not returns(decision, join):
        return False
    old_id = decision.group.static[join.request.group_instance_id or ""]
    renewed = replace(member_of(join), member_id=old_id)
    return choose(decision.group.with_member(renewed)) == decision.group.protocol


def swap_quietly(decision: ClassicDecision, join: Join) -> None:
    """C31: the newcomer takes over id, role and assignment, without a rebalance.

    Before version 9 a leader that returned would assign the partitions again. So its
    answer names its own old id as leader, and it acts as a follower.
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
    """C32: it returns while all members join: its new join counts."""
    _park(decision, join)
    rebalance.complete_if_all_joined(decision)


def swap_and_rebalance(decision: ClassicDecision, join: Join) -> None:
    """C32: it returns with other assignors, or after the leader learned its old id."""
    new_id = _park(decision, join)
    rebalance.prepare(decision, Cause.MEMBER_REPLACED, new_id, join.request.reason or "")


def _park(decision: ClassicDecision, join: Join) -> str:
    new_id = _swap(decision, join)
    decision.group = park_join(decision.group, join, new_id)
    return new_id


def _swap(decision: ClassicDecision, join: Join) -> str:
    """C30: replace the old member by the newcomer; the old one, if alive, is fenced."""
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
