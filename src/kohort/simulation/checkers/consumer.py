"""The consumer protocol (KIP-848): S2, S3, S5, S6, S7, S8 and S10."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING
from uuid import UUID

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, GroupState, Owned
from kohort.group.coordinator.events import RequestArrived
from kohort.simulation.groups.facts import Answered, Looked, Recorded, Stepped
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

_Partition = tuple[UUID, int]
# Checked after group records (not after positions alone), and at each full check.
_GROUPS = (GroupRecord, NoneType)


def _group(world: BaseWorld) -> ConsumerGroup | None:
    return world.ledger.fold.consumer_groups.get(GROUP)


def _flat(owned: Owned) -> set[_Partition]:
    return {(topic, number) for topic, numbers in owned.items() for number in numbers}


@rule(
    "S2",
    "A heartbeat is accepted only from a member, and never answered with an older epoch.",
    Answered,
    about=(ConsumerGroupHeartbeatRequest,),
)
def heartbeats_of_members(world: BaseWorld, fact: Answered) -> str | None:
    """Check accepted heartbeats."""
    request, response = fact.arrived.request, fact.response
    if not isinstance(request, ConsumerGroupHeartbeatRequest):
        return None
    if not isinstance(response, ConsumerGroupHeartbeatResponse) or request.group_id != GROUP:
        return None
    if response.error_code != ErrorCode.NONE or request.member_epoch < 0 or world.is_loading:
        return None
    if fact.node is not world.coordinator.leader:
        return None
    group = _group(world)
    member = group.members.get(request.member_id) if group is not None else None
    if member is None:
        return f"a heartbeat of {request.member_id}, which is not a member"
    if response.member_epoch < request.member_epoch:
        return f"epoch {request.member_epoch} is answered with {response.member_epoch}"
    if response.member_epoch != member.epoch:
        return f"{request.member_id} gets epoch {response.member_epoch}, the log has {member.epoch}"
    return None


@rule(
    "S2",
    "A heartbeat is accepted only in the present or the previous epoch of its member.",
    Stepped,
    about=(ConsumerGroupHeartbeatRequest,),
)
def heartbeats_of_this_epoch(_world: BaseWorld, step: Stepped) -> str | None:
    """Compare a heartbeat's epoch with its member's epoch before the request."""
    arrived = step.event
    if not isinstance(arrived, RequestArrived):
        return None
    request = arrived.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch <= 0:
        return None
    group = step.log.consumer_groups.get(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if member is None or request.member_epoch in (member.epoch, member.previous_epoch):
        return None
    for reply in step.effects.replies:
        code = getattr(reply.response, "error_code", ErrorCode.NONE)
        if reply.token == arrived.token and code == ErrorCode.NONE:
            return f"epoch {request.member_epoch} is accepted, its member is in {member.epoch}"
    return None


@rule(
    "S3",
    "At most one member has a partition, or has not yet given it up.",
    Looked,
    Recorded,
    about=_GROUPS,
)
def one_holder(world: BaseWorld, _fact: Looked | Recorded) -> str | None:
    """Look for partitions that two members have in the log."""
    group = _group(world)
    if group is None:
        return None
    holders: dict[_Partition, str] = {}
    for member_id, member in sorted(group.members.items()):
        for partition in _flat(member.assigned) | _flat(member.revoking):
            if holders.setdefault(partition, member_id) != member_id:
                return f"both {holders[partition]} and {member_id} have {partition[1]}"
    return None


@rule(
    "S5",
    "Member epoch <= epoch of the target <= group epoch, and the group's never goes back.",
    Looked,
    Recorded,
    about=_GROUPS,
)
def epochs_in_order(world: BaseWorld, _fact: Looked | Recorded) -> str | None:
    """Compare the epochs in the log."""
    group = _group(world)
    if group is None:
        stored = world.ledger.fold.groups.get(GROUP)
        world.ledger.newest_epoch = stored.generation if stored and stored.members else 0
        return None
    if group.epoch < world.ledger.newest_epoch:
        return f"group epoch {group.epoch} after {world.ledger.newest_epoch}"
    world.ledger.newest_epoch = group.epoch
    if group.assignment_epoch > group.epoch:
        return f"a target for epoch {group.assignment_epoch} in epoch {group.epoch}"
    for member_id, member in sorted(group.members.items()):
        if member.epoch > group.assignment_epoch:
            return f"{member_id} is in epoch {member.epoch}, the target in {group.assignment_epoch}"
    return None


@rule("S6", "A member in the target's epoch only has partitions of its target.", Looked)
def at_target(world: BaseWorld, _fact: Looked) -> str | None:
    """Compare members in the target's epoch with their target."""
    group = _group(world)
    if group is None:
        return None
    for member_id, member in sorted(group.members.items()):
        if member.is_reconciled_to(group.assignment_epoch):
            target = group.target_of(member_id)
            wanted = {(topic, number) for topic, numbers in target.items() for number in numbers}
            # The member has given up unsubscribed topics; the next target will omit them, too.
            ids = world.image.ids(group.topics_of(member))
            has = _flat(member.assigned)
            # A member that changed its subscription lacks partitions that the next target will add.
            lacks = wanted - has if group.assignment_epoch == group.epoch else set()
            differ = {each for each in (has - wanted) | lacks if each[0] in ids}
            if differ:
                return f"{member_id} is in the target's epoch, but differs in {len(differ)}"
    return None


@rule("S7", "In a stable group every member has exactly its target.", Looked)
def stable_has_target(world: BaseWorld, _fact: Looked) -> str | None:
    """Check a group in the stable state."""
    group = _group(world)
    if group is None or group.state is not GroupState.STABLE:
        return None
    for member_id, member in sorted(group.members.items()):
        if _flat(member.revoking) or member.epoch != group.epoch:
            return f"{member_id} is reconciling in a stable group"
    return None


@rule("S8", "The target gives each partition to one member that subscribes to its topic.", Looked)
def legal_target(world: BaseWorld, _fact: Looked) -> str | None:
    """Check the target.

    A look-up soon after another is delayed, in Kafka by 10 s. Until then a new expression is not
    resolved, and the target has the topics of the former one. The member has given them up, so it
    does not read them.
    """
    group = _group(world)
    if group is None or group.assignment_epoch != group.epoch:
        return None
    names = world.image.names
    owners: dict[_Partition, str] = {}
    for member_id in sorted(group.target):
        member = group.members.get(member_id)
        if member is None:
            return f"the target has {member_id}, which is not a member"
        topics = group.topics_of(member)
        is_resolved = not member.regex or member.regex in group.regexes
        for topic_id, numbers in group.target_of(member_id).items():
            if is_resolved and topic_id in names and names[topic_id] not in topics:
                return f"{member_id} is given {names[topic_id]}, to which it does not subscribe"
            for number in numbers:
                if owners.setdefault((topic_id, number), member_id) != member_id:
                    return f"partition {number} is given to two members"
    return None


@rule(
    "S10",
    "A commit is accepted only from a member that has the partitions, in an epoch not newer than"
    " its own (KIP-1251).",
    Answered,
    about=(OffsetCommitRequest,),
)
def commits_of_holders(world: BaseWorld, fact: Answered) -> str | None:
    """Check accepted commits."""
    request, response = fact.arrived.request, fact.response
    group = _group(world)
    if not isinstance(request, OffsetCommitRequest) or request.group_id != GROUP or group is None:
        return None
    if not isinstance(response, OffsetCommitResponse):
        return f"a commit is answered with {type(response).__name__}"
    codes = [entry.error_code for topic in response.topics for entry in topic.partitions]
    if ErrorCode.NONE not in codes:
        return None
    epoch = request.generation_id_or_member_epoch
    if epoch < 0:
        return "a commit without an epoch in a group with members" if group.members else None
    member = group.members.get(request.member_id)
    if member is None:
        return f"a commit of {request.member_id}, which is not a member"
    if epoch > member.epoch:
        return f"a commit of epoch {epoch}, its member is in {member.epoch}"
    if epoch == member.epoch:
        return None
    held = _flat(member.assigned) | _flat(member.revoking)
    for topic in request.topics:
        view = world.image.by_name.get(topic.name)
        for entry in topic.partitions:
            if view is not None and (view.topic_id, entry.partition_index) not in held:
                return f"a commit of epoch {epoch} for {topic.name}-{entry.partition_index}"
    return None
