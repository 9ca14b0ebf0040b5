"""The classic protocol between member and coordinator: S2, S9 and S10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived
from kohort.group.events import Assigned
from kohort.group.subscription import decode_subscription
from kohort.simulation.checkers.ownership import shown
from kohort.simulation.groups.facts import Answered, Committing, Decided
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.types import TopicPartition
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld


@rule(
    "S2",
    "A heartbeat, an assignment or a commit is accepted only with the newest generation.",
    Answered,
    about=(HeartbeatRequest, SyncGroupRequest),
)
def zombies_are_harmless(world: BaseWorld, fact: Answered) -> str | None:
    """Compare accepted requests with the newest generation."""
    request, response = fact.arrived.request, fact.response
    ledger = world.ledger
    if fact.node is not world.coordinator.leader or GROUP in ledger.fold.consumer_groups:
        return None
    if isinstance(response, JoinGroupResponse):
        return None
    if isinstance(response, HeartbeatResponse) and isinstance(request, HeartbeatRequest):
        if request.group_id != GROUP or response.error_code != ErrorCode.NONE:
            return None
        if world.is_loading or request.generation_id == ledger.newest:
            return None
        return f"a heartbeat of generation {request.generation_id}, now {ledger.newest}"
    if isinstance(response, SyncGroupResponse) and isinstance(request, SyncGroupRequest):
        if request.group_id != GROUP or response.error_code != ErrorCode.NONE:
            return None
        if request.generation_id == ledger.newest:
            return None
        return f"an assignment in generation {request.generation_id}, now {ledger.newest}"
    return None


@rule(
    "S10",
    "A commit is accepted only from a member of the newest generation, or without a member while"
    " the group is empty.",
    Answered,
    about=(OffsetCommitRequest,),
)
def commits_of_members(world: BaseWorld, fact: Answered) -> str | None:
    """Check accepted commits."""
    request, response = fact.arrived.request, fact.response
    if not isinstance(request, OffsetCommitRequest) or request.group_id != GROUP:
        return None
    if GROUP in world.ledger.fold.consumer_groups:
        return None
    if not isinstance(response, OffsetCommitResponse):
        return f"a commit is answered with {type(response).__name__}"
    codes = [entry.error_code for topic in response.topics for entry in topic.partitions]
    if ErrorCode.NONE not in codes:
        return None
    generation = request.generation_id_or_member_epoch
    members = world.ledger.members(GROUP)
    if generation < 0:
        return "a commit without a generation in a group that has members" if members else None
    if generation != world.ledger.newest:
        return f"a commit of generation {generation}, now {world.ledger.newest}"
    return None


@rule("S10", "A member commits only what it owns, and not beyond what it has read.", Committing)
def commits_are_own(world: BaseWorld, fact: Committing) -> str | None:
    """Compare a commit with the application's partitions and positions."""
    believes = fact.client.application.believes
    foreign = {partition for partition in fact.offsets if partition not in believes}
    if foreign:
        return f"{fact.client.name} commits {shown(foreign)}, which it does not own"
    for partition, position in fact.offsets.items():
        key = (fact.client.name, fact.client.life, partition)
        read = world.ledger.positions.get(key)
        if read is not None and position.offset > read:
            if world.ledger.reading(partition).is_tainted:
                continue
            return f"{fact.client.name} commits {position.offset} of {partition}, read to {read}"
    return None


@rule(
    "S9",
    "Cooperative: no partition goes to a member while another one that stays in the group claims"
    " it, by right of the newest generation (KIP-429, KIP-792).",
    Decided,
)
def no_move_in_one_round(world: BaseWorld, fact: Decided) -> str | None:
    """Compare an accepted assignment with what the members claimed when they joined."""
    if not isinstance(fact.event, RequestArrived):
        return None
    for event in fact.effects.observed:
        if not isinstance(event, Assigned) or event.group != GROUP:
            continue
        stored = world.ledger.fold.groups.get(GROUP)
        if stored is None or stored.protocol != "cooperative-sticky":
            return None
        claims: dict[TopicPartition, tuple[int, list[str]]] = {}
        for member_id, member in sorted(stored.members.items()):
            claim = decode_subscription(member.subscription)
            for partition in claim.owned:
                newest, who = claims.get(partition, (-2, []))
                if claim.generation > newest:
                    claims[partition] = (claim.generation, [member_id])
                elif claim.generation == newest:
                    who.append(member_id)
        for member_id, partitions in event.assignments:
            for partition in partitions:
                _, owners = claims.get(partition, (-2, []))
                if owners and member_id not in owners and len(owners) == 1:
                    return f"{partition} moves from {owners[0]} to {member_id} in one round"
    return None
