"""Static members come back under a new member id (KIP-345; C30-C32)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import protocol_choice, rebalance
from kohort.group.coordinator.classic.draft import GroupDraft
from kohort.group.coordinator.classic.join import Join, member_of, park_join
from kohort.group.coordinator.events import SessionExpired
from kohort.group.events import Cause, MemberJoined
from kohort.values import replace

# KIP-814: from this version on the leader can be told to leave the assignment as it is.
_SKIP_ASSIGNMENT_SINCE = 9


def returns(draft: GroupDraft, join: Join) -> bool:
    """C30: whether a known instance joins without its member id, as it does after a restart."""
    request = join.request
    return not request.member_id and request.group_instance_id in draft.group.static


def returns_unchanged(draft: GroupDraft, join: Join) -> bool:
    """C31: whether it comes back and the group would go on with the same assignor."""
    if not returns(draft, join):
        return False
    old_id = draft.group.static[join.request.group_instance_id or ""]
    renewed = replace(member_of(join), member_id=old_id)
    return protocol_choice.choose(draft.group.with_member(renewed)) == draft.group.protocol


def swap_quietly(draft: GroupDraft, join: Join) -> None:
    """C31: the newcomer takes over id, role and assignment, without a rebalance.

    Before version 9 a leader that came back would share the partitions out again. So it is told
    that its own old id leads, and acts as a follower.
    """
    old_leader = draft.group.leader
    old_id = draft.group.static[join.request.group_instance_id or ""]
    new_id = _swap(draft, join)
    group = draft.group
    stored = draft.log.groups[group.group_id]
    assignments = {member_id: stored.assignment_of(member_id) for member_id in group.members}
    assignments[new_id] = stored.assignment_of(old_id)
    draft.write_group(assignments)
    if join.version >= _SKIP_ASSIGNMENT_SINCE:
        leads = group.leader == new_id
        response = rebalance.current_generation(group, new_id, skip_assignment=leads)
    else:
        response = rebalance.current_generation(replace(group, leader=old_leader), new_id)
    draft.reply(join.token, response, join.version)


def swap(draft: GroupDraft, join: Join) -> None:
    """C32: it comes back while everybody joins: its new join counts."""
    _park(draft, join)
    rebalance.complete_if_all_joined(draft)


def swap_and_rebalance(draft: GroupDraft, join: Join) -> None:
    """C32: it comes back with other assignors, or after the leader was told its old id."""
    new_id = _park(draft, join)
    rebalance.prepare(draft, Cause.MEMBER_REPLACED, new_id, join.request.reason or "")


def _park(draft: GroupDraft, join: Join) -> str:
    new_id = _swap(draft, join)
    draft.group = park_join(draft.group, join, new_id)
    return new_id


def _swap(draft: GroupDraft, join: Join) -> str:
    """C30: put the newcomer in the place of the old member; the old one, if it lives, is fenced."""
    instance = join.request.group_instance_id or ""
    old_id = draft.group.static[instance]
    rebalance.refuse_parked(draft, old_id, ErrorCode.FENCED_INSTANCE_ID)
    draft.cancel(SessionExpired(draft.group.group_id, old_id))
    group = draft.group
    member = member_of(join)
    led, owed = group.leader == old_id, old_id in group.unsynced
    group = group.without_member(old_id).with_member(member)
    if led:
        group = replace(group, leader=member.member_id)
    if owed:
        group = replace(group, unsynced=group.unsynced.set(member.member_id, None))
    draft.group = group
    draft.say_left(old_id, Cause.MEMBER_REPLACED)
    draft.observed.append(
        MemberJoined(
            group=group.group_id,
            now=draft.now,
            member=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            group_instance_id=instance,
        )
    )
    rebalance.restart_session(draft, member)
    return member.member_id
