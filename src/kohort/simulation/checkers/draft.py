"""The draft protocol (docs/internals/draft.md): S2, S3, S5, S7, S14 and S15."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import kind as router
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.events import RequestArrived, SessionExpired
from kohort.group.events import MemberLeft
from kohort.simulation.groups.facts import Answered, Decided, Looked, Recorded
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.types import TopicPartition
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
)
from kohort.wire.messages.draft_records import DraftGroupKey, DraftGroupValue

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseNode, BaseWorld


def _group(node: BaseNode) -> DraftGroup | None:
    shard = node.shard
    if not router.is_draft(shard.session, shard.log, GROUP):
        return None
    return router.group_of(shard.session, shard.log, GROUP)


@rule(
    "S2",
    "Draft: a heartbeat is accepted only from a consumer of the newest generation.",
    Answered,
    about=(DraftHeartbeatRequest,),
)
def draft_zombies_are_harmless(world: BaseWorld, fact: Answered) -> str | None:
    """Compare accepted heartbeats with the newest generation."""
    request, response = fact.arrived.request, fact.response
    if not isinstance(response, DraftHeartbeatResponse) or response.error_code != ErrorCode.NONE:
        return None
    if not isinstance(request, DraftHeartbeatRequest) or request.group_id != GROUP:
        return None
    if fact.node is not world.coordinator.leader or world.is_loading:
        return None
    newest = world.ledger.newest
    if request.group_generation_id != newest:
        return f"a heartbeat of generation {request.group_generation_id}, now {newest}"
    if request.consumer_id not in world.ledger.members(GROUP):
        return f"a heartbeat of {request.consumer_id}, which is not a consumer"
    return None


@rule(
    "S3",
    "Draft: parked requests belong to consumers, or to future ones.",
    Looked,
    Decided,
)
def draft_bookkeeping(world: BaseWorld, fact: Looked | Decided) -> str | None:
    """Check parked joins."""
    node = fact.node if isinstance(fact, Decided) else world.coordinator.ready
    group = _group(node) if node is not None else None
    if node is None or group is None:
        return None
    if not all(each in group.consumers for each in group.joining):
        return "a parked join does not belong to a consumer"
    return None


@rule("S5", "Draft: generations and sequences never go back in the log.", Recorded)
def draft_generations_grow(world: BaseWorld, fact: Recorded) -> str | None:
    """Compare a group's record with the previous one."""
    for record in fact.records:
        key, value = record.key, record.value
        if not isinstance(key, DraftGroupKey) or not isinstance(value, DraftGroupValue):
            continue
        before = world.ledger.fold.draft_groups.get(key.group)
        if before is None:
            continue
        if value.generation < before.generation:
            return f"generation {value.generation} follows {before.generation}"
        if value.next_sequence < before.next_sequence:
            return f"sequence {value.next_sequence} follows {before.next_sequence}"
    return None


@rule(
    "S7",
    "Draft: a steady group has no parked request, and a session for each consumer.",
    Looked,
    Decided,
)
def draft_steady_is_steady(world: BaseWorld, fact: Looked | Decided) -> str | None:
    """Check a group in the steady state."""
    node = fact.node if isinstance(fact, Decided) else world.coordinator.ready
    group = _group(node) if node is not None else None
    if node is None or group is None or group.state is not DraftState.STEADY:
        return None
    if group.joining or group.newcomers:
        return "a request is parked in a steady group"
    deadlines = node.shard.session.deadlines
    for consumer_id in group.consumers:
        if deadlines.get(SessionExpired(GROUP, consumer_id)) is None:
            return f"{consumer_id} has no session"
    return None


@rule("S14", "Draft: a repeated heartbeat removes no consumer.", Decided)
def draft_repeated_is_harmless(_world: BaseWorld, fact: Decided) -> str | None:
    """Check the effects of a repeated heartbeat."""
    event = fact.event
    if not isinstance(event, RequestArrived) or not fact.node.is_copy(event.token):
        return None
    left = [each.member for each in fact.effects.observed if isinstance(each, MemberLeft)]
    if left and isinstance(event.request, DraftHeartbeatRequest):
        return f"a repeated heartbeat removed {left[0]}"
    return None


@rule(
    "S15",
    "Draft: answers only have generations and partitions that are in the log.",
    Answered,
    about=(DraftJoinGroupRequest,),
)
def draft_durable_before_answered(world: BaseWorld, fact: Answered) -> str | None:
    """Compare the answer to a join with the fold of the log."""
    response = fact.response
    if not isinstance(response, DraftJoinGroupResponse) or response.error_code != ErrorCode.NONE:
        return None
    if fact.node is not world.coordinator.leader:
        return None
    stored = world.ledger.fold.draft_groups.get(response.group_id)
    if stored is None or stored.generation != response.group_generation_id:
        return f"generation {response.group_generation_id} is answered but not in the log"
    told = {TopicPartition(each.topic, each.partition) for each in response.partitions_to_own}
    if told != set(stored.owned.get(response.consumer_id, ())):
        return f"{response.consumer_id} gets other partitions than the log has"
    return None
