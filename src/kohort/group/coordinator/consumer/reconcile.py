"""Moves one member a step towards its target, independently of all others (K20 to K25).

A member first releases partitions outside its target, and keeps its epoch until then. Next it
moves to the target's epoch and gets the free partitions; the rest follow as others release them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.group import (
    NOTHING,
    Member,
    MemberState,
    Owned,
    Owners,
    Target,
)
from kohort.group.coordinator.consumer.validate import Refused, Reported
from kohort.values import replace


class Goal(Struct, frozen=True):
    """The destination of a member.

    Attributes:
        epoch: Epoch of the target assignment.
        target: The partitions that the member should have.
        subscribed: Ids of the topics it subscribes to; nothing else is given to it (K25).
        owners: The present owner of each partition, if any.
    """

    epoch: int
    target: Target
    subscribed: frozenset[uuid.UUID]
    owners: Owners


def next_step(member: Member, goal: Goal, reported: Reported, resubscribed: bool) -> Member:
    """Return the member after its next step, unchanged if it has to wait.

    Args:
        member: The member before the step.
        goal: Its destination.
        reported: The partitions it reports.
        resubscribed: Whether its subscription has just changed.

    Raises:
        Refused: The member is in an unknown state and still has partitions.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == goal.epoch:
            return _drop_unsubscribed(member, goal, reported) if resubscribed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_has(reported, member.revoking):
            return _drop_unsubscribed(member, goal, reported) if resubscribed else member
        case MemberState.UNKNOWN:
            if reported is None or any(reported.values()):
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _advance(replace(member, epoch=goal.epoch), goal, reported)
        case _:
            return _advance(member, goal, reported)


def _still_has(reported: Reported, partitions: Owned) -> bool:
    """K23: return whether a member still has some of the partitions; without a report, True."""
    if reported is None:
        return True
    return any(
        number in partitions[topic_id]
        for topic_id, numbers in reported.items()
        if topic_id in partitions
        for number in numbers
    )


def _advance(member: Member, goal: Goal, reported: Reported) -> Member:
    """K21, K22: release partitions outside the target, and only then add new ones."""
    kept, revoking = _parted(member.assigned, goal)
    if revoking and _still_has(reported, revoking):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoking)
    free, all_free = _obtainable(member, goal, kept)
    state = MemberState.STABLE if all_free else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, state, goal.epoch, _with(kept, free, goal.epoch), NOTHING)


def _moved(
    member: Member, state: MemberState, epoch: int, assigned: Owned, revoking: Owned
) -> Member:
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )


def _parted(assigned: Owned, goal: Goal) -> tuple[Owned, Owned]:
    """Return the partitions that a member keeps and those that it gives up."""
    kept: dict[uuid.UUID, Map[int, int]] = {}
    revoking: dict[uuid.UUID, Map[int, int]] = {}
    for topic_id, partitions in assigned.items():
        target = _wanted(goal, topic_id)
        if target.issuperset(partitions):
            kept[topic_id] = partitions
            continue
        inside = {number: epoch for number, epoch in partitions.items() if number in target}
        outside = {number: epoch for number, epoch in partitions.items() if number not in target}
        revoking[topic_id] = Map(outside)
        if inside:
            kept[topic_id] = Map(inside)
    return Map(kept), Map(revoking)


def _wanted(goal: Goal, topic_id: uuid.UUID) -> frozenset[int]:
    return goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()


def _obtainable(member: Member, goal: Goal, kept: Owned) -> tuple[dict[uuid.UUID, list[int]], bool]:
    """Return the target's partitions that a member can get now, and whether they are all of them.

    Partitions that the member itself was giving up count as free (K25).
    """
    free: dict[uuid.UUID, list[int]] = {}
    all_free = True
    for topic_id in goal.target:
        missing = _wanted(goal, topic_id).difference(kept.get(topic_id, ()))
        owners, given_up = goal.owners.get(topic_id, ()), member.revoking.get(topic_id, ())
        found = [number for number in missing if number not in owners or number in given_up]
        all_free = all_free and len(found) == len(missing)
        if found:
            free[topic_id] = found
    return free, all_free


def _with(kept: Owned, more: Mapping[uuid.UUID, list[int]], epoch: int) -> Owned:
    for topic_id, numbers in more.items():
        partitions = kept.get(topic_id, Map())
        kept = kept.set(topic_id, partitions.update(dict.fromkeys(numbers, epoch)))
    return kept


def _drop_unsubscribed(member: Member, goal: Goal, reported: Reported) -> Member:
    """K25: release partitions of unsubscribed topics before there is a new target."""
    dropped = [topic_id for topic_id in member.assigned if topic_id not in goal.subscribed]
    if not dropped:
        return member
    assigned, revoking = member.assigned, member.revoking
    for topic_id in dropped:
        before = revoking.get(topic_id, Map())
        revoking = revoking.set(topic_id, before.update(assigned[topic_id]))
        assigned = assigned.delete(topic_id)
    if _still_has(reported, revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return _moved(member, state, member.epoch, assigned, revoking)
    # The member had released them already.
    return replace(member, previous_epoch=member.epoch, assigned=assigned)
