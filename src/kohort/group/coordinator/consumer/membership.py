"""Departures of members, and the return of static members (K30 to K32).

Members leave on their own request, on an administrator's, or after a timeout. Static members work
differently from the classic protocol (KIP-345 as adapted by KIP-848). There, a newcomer replaces
the holder of its instance id. Here, the newcomer is refused unless the holder announced its return.
"""

from __future__ import annotations

from collections.abc import Collection

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.consumer import validate
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import (
    LEAVE_STATIC_EPOCH,
    NOTHING,
    ConsumerGroup,
    Member,
    Owned,
    regex_tombstone,
)
from kohort.group.coordinator.consumer.state.session import Heartbeat
from kohort.group.coordinator.consumer.validate import Refused, Reported
from kohort.group.coordinator.events import (
    ConsumerDeadline,
    ConsumerJoinExpired,
    ConsumerRebalanceExpired,
    ConsumerSessionExpired,
    ConsumerSyncExpired,
)
from kohort.group.events import Cause
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.membership import MemberIdentity


def leave(decision: ConsumerDecision, arrived: Heartbeat) -> None:
    """K31: remove a member that leaves, unless it announces its return.

    Raises:
        Refused: The group or the member does not exist.
    """
    request = arrived.request
    if decision.group is None:
        raise validate.unknown_group(request.group_id)
    if request.instance_id is None:
        member = decision.group.members.get(request.member_id)
        if member is None:
            raise validate.unknown_member(request.group_id, request.member_id)
    else:
        member = held_by(decision.group, request.instance_id, request.member_id)
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        _leave_for_a_while(decision, member)
    else:
        remove(decision, [member], Cause.MEMBER_LEFT)
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    decision.reply(arrived.token, response, arrived.version)


def _leave_for_a_while(decision: ConsumerDecision, member: Member) -> None:
    """K31: keep a static member's partitions until it returns or its session ends.

    Its partitions now count as assigned in epoch 0, because it returns with another member id
    (KIP-1251).
    """
    decision.cancel_rebalance(member.member_id)
    gone = replace(
        member, epoch=LEAVE_STATIC_EPOCH, assigned=_since_ever(member.assigned), revoking=NOTHING
    )
    decision.write([log_records.current_record(decision.existing.group_id, gone)])


def _since_ever(owned: Owned) -> Owned:
    return Map({topic_id: Map(dict.fromkeys(owned[topic_id], 0)) for topic_id in owned})


def remove(decision: ConsumerDecision, members: Collection[Member], cause: Cause) -> None:
    """K31: remove members, and begin a new epoch for the others.

    If only classic members remain, convert the group instead (K47).
    """
    if decision.passage.after_leaving(decision, members, cause):
        return
    group = decision.existing
    for member in members:
        decision.write(log_records.member_tombstones(group.group_id, member.member_id))
        decision.cancel_timers(group.group_id, member.member_id)
        decision.say_left(member.member_id, cause)
    _forget_regexes(decision, group, members)
    # The log still needs the epoch of a group that has only these members.
    decision.group = decision.group or ConsumerGroup(group_id=group.group_id)
    decision.bump_epoch(cause, next(iter(members)).member_id)


def _forget_regexes(
    decision: ConsumerDecision, before: ConsumerGroup, members: Collection[Member]
) -> None:
    """K50: delete expressions that no member has any more."""
    for regex in sorted({member.regex for member in members if member.regex}):
        if decision.group is None or regex not in decision.group.regex_subscribers:
            decision.write([regex_tombstone(before.group_id, regex)])


_CAUSES = {
    ConsumerSessionExpired: Cause.SESSION_EXPIRED,
    ConsumerRebalanceExpired: Cause.REVOCATION_TIMED_OUT,
    ConsumerJoinExpired: Cause.JOIN_TIMED_OUT,
    ConsumerSyncExpired: Cause.SYNC_TIMED_OUT,
}


def expire(decision: ConsumerDecision, expired: ConsumerDeadline) -> None:
    """K30, K46: remove a member that was silent, or too slow to release partitions or rejoin."""
    member = decision.group.members.get(expired.member_id) if decision.group else None
    if member is not None:
        remove(decision, [member], _CAUSES[type(expired)])


# -------------------------------------------------------------- LeaveGroup, of the classic protocol


def leave_as_told(decision: ConsumerDecision, arrived: services.Leave) -> None:
    """Remove members at the request of an administrator, who may use either protocol."""
    found = [(identity, _found(decision, identity)) for identity in services.leavers(arrived)]
    gone = {member.member_id: member for _, member in found if isinstance(member, Member)}
    if gone:
        remove(decision, list(gone.values()), Cause.MEMBER_LEFT)
    results = (
        (identity, ErrorCode.NONE if isinstance(who, Member) else who) for identity, who in found
    )
    services.answer_leave(decision, arrived, list(results))


def _found(decision: ConsumerDecision, identity: MemberIdentity) -> Member | ErrorCode:
    group = decision.existing
    if identity.group_instance_id is None:
        return group.members.get(identity.member_id) or ErrorCode.UNKNOWN_MEMBER_ID
    member = group.static_member(identity.group_instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id not in ("", member.member_id):
        return ErrorCode.FENCED_INSTANCE_ID
    return member


# ----------------------------------------------------------------------------------- static members


def identified(
    decision: ConsumerDecision, arrived: Heartbeat, member_id: str, said: Reported
) -> Member:
    """Return the static member that sent the request: new, returning, or present.

    Raises:
        Refused: The instance id belongs to another member, or is unknown.
    """
    request = arrived.request
    instance_id = request.instance_id or ""
    if request.member_epoch != validate.JOIN_EPOCH:
        holder = held_by(decision.existing, instance_id, member_id)
        validate.check_epoch(holder, request.member_epoch, said)
        return holder
    existing = decision.existing.static_member(instance_id)
    if existing is None:
        return decision.existing.members.get(member_id) or Member(member_id=member_id)
    if existing.epoch != LEAVE_STATIC_EPOCH and existing.classic is None:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {existing.member_id} member.",
        )
    return replaced(decision, existing, member_id)


def held_by(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Return the member with this instance id, which must have this member id.

    Raises:
        Refused: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    holder = group.static_member(instance_id)
    if holder is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )
    return holder


def replaced(decision: ConsumerDecision, old: Member, member_id: str) -> Member:
    """K32: give the new member the old one's place and partitions, without a new epoch."""
    group_id = decision.existing.group_id
    target = decision.existing.target_of(old.member_id)
    word = decision.existing.words.get(old.member_id)
    new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
    decision.cancel_timers(group_id, old.member_id)
    decision.write(
        [
            *log_records.member_tombstones(group_id, old.member_id),
            log_records.member_record(group_id, new),
            log_records.target_record(group_id, member_id, target, word),
            log_records.current_record(group_id, new),
        ]
    )
    return new
