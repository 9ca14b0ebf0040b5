"""Static members of a consumer group (K32; KIP-345 as adapted by KIP-848).

The opposite of the classic protocol: there a newcomer drives the old holder of its instance id
out, here the holder stays and the newcomer is refused, unless the holder announced its return.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer import validate
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.reconcile import Reported
from kohort.group.coordinator.consumer.refused import Refused
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import LEAVE_STATIC_EPOCH, ConsumerGroup, Member
from kohort.group.coordinator.consumer.state.session import Heartbeat
from kohort.values import replace


def identified(
    decision: ConsumerDecision, arrived: Heartbeat, member_id: str, said: Reported
) -> Member:
    """Return the static member that sent the request: new, returning, or present.

    Raises:
        Refused: The instance id is another's, or not known.
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
    """K32: the new member takes over the old one's place and partitions; no new epoch begins."""
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
