"""The coordinator's bookkeeping: S3, S5, S7, S8, S14, S15, S16 and S18."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.draft import kind as router
from kohort.group.coordinator.events import RequestArrived, SessionExpired
from kohort.group.coordinator.state import LogState
from kohort.group.events import Assigned, Cause, MemberLeft
from kohort.group.subscription import decode_assignment
from kohort.simulation.groups.facts import Answered, Decided, Loaded, Looked, Recorded
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseNode, BaseWorld


def _classic_group(node: BaseNode) -> ClassicGroup:
    return node.shard.session.group(node.shard.log, GROUP)


def _is_draft(node: BaseNode) -> bool:
    return router.is_draft(node.shard.session, node.shard.log, GROUP)


@rule(
    "S3",
    "Every request is answered, now or later: a waiting request is known to its group.",
    Looked,
)
def who_waits_is_known(world: BaseWorld, _fact: Looked) -> str | None:
    """Compare the unanswered requests with the requests that the groups have parked."""
    node = world.coordinator.ready
    if node is None:
        return None
    session = node.shard.session
    parked = {
        each.token
        for group in session.groups.values()
        for each in (*group.joining.values(), *group.syncing.values())
    }
    for drafted in session.draft_groups.values():
        parked |= {each.token for each in drafted.joining.values()}
        parked |= {each.parked.token for each in drafted.newcomers}
    targets = session.consumer.targets.values()
    parked |= {run.waiting.arrived.token for run in targets if run.waiting is not None}
    parked |= {arrived.token for arrived in session.consumer.installing.values()}
    if parked != node.waiting_tokens:
        return f"{len(node.waiting_tokens)} requests wait, the groups know of {len(parked)}"
    return None


@rule(
    "S3",
    "Classic: parked requests, the leader and instance ids belong to members.",
    Looked,
    Decided,
)
def bookkeeping(world: BaseWorld, fact: Looked | Decided) -> str | None:
    """Check parked requests, the leader and static members."""
    node = fact.node if isinstance(fact, Decided) else world.coordinator.ready
    if node is None:
        return None
    if GROUP in node.shard.log.consumer_groups or _is_draft(node):
        return None
    group = _classic_group(node)
    if not all(member_id in group.members for member_id in group.joining):
        return "a parked join does not belong to a member"
    if not all(member_id in group.members for member_id in group.syncing):
        return "a parked sync does not belong to a member"
    static = {m.group_instance_id: i for i, m in group.members.items() if m.group_instance_id}
    if static != dict(group.static):
        return f"static members are {sorted(static)}, the group has {sorted(group.static)}"
    if group.members and group.leader not in group.members:
        return f"the leader {group.leader!r} is not a member"
    return None


@rule(
    "S5",
    "Generations never go back, neither in the log nor at the coordinator.",
    Recorded,
)
def generations_grow(world: BaseWorld, fact: Recorded) -> str | None:
    """Compare a group record with the previous one."""
    for record in fact.records:
        key, value = record.key, record.value
        if not isinstance(key, GroupMetadataKey) or not isinstance(value, GroupMetadataValue):
            continue
        before = world.ledger.fold.groups.get(key.group)
        if before is not None and value.generation < before.generation:
            return f"generation {value.generation} follows {before.generation}"
        consumers = world.ledger.fold.consumer_groups.get(key.group)
        if consumers is not None and consumers.members and value.generation < consumers.epoch:
            return f"generation {value.generation} follows epoch {consumers.epoch}"
    return None


@rule(
    "S8",
    "An assignment gives each partition to one member that subscribes to its topic.",
    Decided,
)
def legal_assignment(world: BaseWorld, fact: Decided) -> str | None:
    """Check an accepted assignment."""
    for event in fact.effects.observed:
        if not isinstance(event, Assigned) or event.group != GROUP:
            continue
        owners: dict[TopicPartition, str] = {}
        subscribed = world.ledger.subscriptions(GROUP)
        if GROUP in world.ledger.fold.consumer_groups:
            return None  # a target, computed for the members at the start of the job
        for member_id, partitions in event.assignments:
            for partition in partitions:
                if owners.setdefault(partition, member_id) != member_id:
                    return f"{partition} is given to two members"
                if partition.topic not in subscribed.get(member_id, frozenset()):
                    return f"{member_id} gets {partition} but does not subscribe to it"
    return None


@rule(
    "S7",
    "A stable group has no parked request, and one session for each member.",
    Looked,
    Decided,
)
def stable_is_stable(world: BaseWorld, fact: Looked | Decided) -> str | None:
    """Check a group in the stable state."""
    node = fact.node if isinstance(fact, Decided) else world.coordinator.ready
    if node is None:
        return None
    group = _classic_group(node)
    deadlines = node.shard.session.deadlines
    for member_id, member in group.members.items():
        waits = member_id in group.joining or member_id in group.syncing
        if deadlines.get(SessionExpired(GROUP, member_id)) is None and not waits:
            return f"{member_id} has no session"
        if group.state is GroupState.STABLE and (waits or member.is_new):
            return f"{member_id} waits in a stable group"
    return None


@rule(
    "S14",
    "A repeated request removes no member.",
    Decided,
)
def repeated_is_harmless(_world: BaseWorld, fact: Decided) -> str | None:
    """Check the effects of a repeated request."""
    event = fact.event
    if not isinstance(event, RequestArrived) or not fact.node.is_copy(event.token):
        return None
    if isinstance(event.request, JoinGroupRequest) and event.request.group_instance_id:
        return None  # a repeated static join looks like one of a second process
    if not isinstance(event.request, (HeartbeatRequest, SyncGroupRequest, OffsetCommitRequest)):
        return None
    for each in fact.effects.observed:
        if isinstance(each, MemberLeft):
            return f"a repeated {type(event.request).__name__} removed {each.member}"
    return None


@rule(
    "S15",
    "No answer before its records are in the log: confirmed positions and assignments are in it.",
    Answered,
    about=(OffsetCommitRequest, SyncGroupRequest),
)
def durable_before_answered(world: BaseWorld, fact: Answered) -> str | None:
    """Compare confirmed data with the fold of the log."""
    request, response = fact.arrived.request, fact.response
    if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
        return _commit_is_stored(world, request, response)
    if isinstance(response, SyncGroupResponse) and isinstance(request, SyncGroupRequest):
        if response.error_code != ErrorCode.NONE or fact.node is not world.coordinator.leader:
            return None
        consumers = world.ledger.fold.consumer_groups.get(request.group_id)
        if consumers is not None:
            return _is_told_what_it_has(world, consumers, request, response)
        stored = world.ledger.fold.groups.get(request.group_id)
        if stored is None or stored.generation != request.generation_id:
            return "an answer has an assignment whose generation is not in the log"
        if stored.assignment_of(request.member_id) != response.assignment:
            return f"{request.member_id} gets another assignment than the log has"
    return None


def _is_told_what_it_has(
    world: BaseWorld, group: ConsumerGroup, request: SyncGroupRequest, response: SyncGroupResponse
) -> str | None:
    """Compare the assignment of a classic member in a consumer group with the log."""
    member = group.members.get(request.member_id)
    if member is None or member.epoch != request.generation_id:
        return f"{request.member_id} gets an assignment in generation {request.generation_id}"
    names = world.image.names
    has = {
        TopicPartition(names[topic_id], number)
        for topic_id, numbers in member.assigned.items()
        if topic_id in names
        for number in numbers
    }
    told = decode_assignment(response.assignment)[0]
    if {each for each in told if each.topic in world.image.by_name} != has:
        return f"{request.member_id} gets {len(told)} partitions, the log gives it {len(has)}"
    return None


def _commit_is_stored(
    world: BaseWorld, request: OffsetCommitRequest, response: OffsetCommitResponse
) -> str | None:
    stored = world.ledger.fold.offsets_of(request.group_id)
    asked = {
        TopicPartition(topic.name, entry.partition_index): entry.committed_offset
        for topic in request.topics
        for entry in topic.partitions
    }
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code == ErrorCode.NONE:
                position = stored.get(partition)
                if position is None or position.offset != asked[partition]:
                    return f"the commit of {partition} is confirmed but not in the log"
    return None


@rule(
    "S15",
    "A coordinator that loads the log has the fold of its records, compacted or not, once or"
    " twice.",
    Loaded,
)
def reload_is_fold(world: BaseWorld, fact: Loaded) -> str | None:
    """Compare a loaded log state with the simulation's own fold."""
    if fact.node.shard.log != world.ledger.fold:
        return "the loaded log state is not the fold of the records"
    twice = LogState()
    records = world.log.read()
    for record in [*records, *records]:
        twice = twice.apply(record)
    if twice != fact.node.shard.log:
        return "reading the log twice gives another state than reading it once"
    return None


@rule("S15", "The log state of the leader is the fold of the records.", Looked)
def live_is_fold(world: BaseWorld, _fact: Looked) -> str | None:
    """Compare the leader's log state with the simulation's own fold."""
    node = world.coordinator.ready
    if node is not None and node.shard.log != world.ledger.fold:
        return "the leader's log state is not the fold of the records"
    return None


@rule(
    "S16",
    "A static member that returns in time, unchanged, keeps its assignment, and there is no"
    " rebalance.",
    Decided,
    about=(JoinGroupRequest,),
)
def static_return_is_quiet(world: BaseWorld, fact: Decided) -> str | None:
    """Check a group record that was written when a static member returned."""
    event = fact.event
    if not isinstance(event, RequestArrived) or not isinstance(event.request, JoinGroupRequest):
        return None
    replaced = [
        each.member
        for each in fact.effects.observed
        if isinstance(each, MemberLeft) and each.cause is Cause.MEMBER_REPLACED
    ]
    if not replaced or not fact.effects.records:
        return None
    value = fact.effects.records[-1].value
    if not isinstance(value, GroupMetadataValue):
        return None
    instance = event.request.group_instance_id
    now = [m.assignment for m in value.members if m.group_instance_id == instance]
    before = world.ledger.before_last(GROUP)
    had = [
        m.assignment
        for m in (before.members.values() if before is not None else ())
        if m.group_instance_id == instance
    ]
    if had and now != had:
        return f"{instance} came back and has another assignment"
    return None


@rule(
    "S18",
    "Nothing grows without limit: parked requests, pending ids, deadlines, requests in flight.",
    Looked,
)
def bounded(world: BaseWorld, _fact: Looked) -> str | None:
    """Count everything that could grow without bound."""
    node = world.coordinator.ready
    if node is not None:
        session = node.shard.session
        consumers = node.shard.log.consumer_groups.get(GROUP)
        known = 3 * (len(consumers.members) if consumers else 0)
        known += sum(len(each.members) + len(each.pending) for each in session.groups.values())
        known += sum(len(each.consumers) for each in session.draft_groups.values())
        groups = len(session.groups) + len(session.draft_groups)
        if len(session.deadlines) > known + 2 * groups + 6:
            return f"{len(session.deadlines)} deadlines for {known} members"
    for client in world.living():
        if len(client.application.callbacks) > 2:
            return f"{client.name} has {len(client.application.callbacks)} calls waiting"
        if client.in_flight > 100:
            return f"{client.name} has {client.in_flight} requests in flight"
    return None
