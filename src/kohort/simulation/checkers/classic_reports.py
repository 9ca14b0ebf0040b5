"""S3: a classic group reports exactly its changes; timelines and diagrams rely on that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.events import RequestArrived, SessionExpired, SyncExpired, Tick
from kohort.group.events import Cause, GroupStateChanged, RebalanceStarted
from kohort.simulation.checkers.classic_answers import classic_group, code_of
from kohort.simulation.groups.facts import Loaded, Stepped
from kohort.simulation.rules import rule
from kohort.wire.messages.membership import (
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import OffsetCommitRequest

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

_CHANGING = (JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest, OffsetCommitRequest, Tick)


def _due(step: Stepped) -> Any:  # noqa: ANN401  # any deadline
    """Return the deadline that a tick has handled."""
    earliest = step.session.deadlines.next()
    return earliest[1] if earliest is not None else None


def _group_id(step: Stepped) -> str:
    """Return the group of an event; empty for none or several."""
    about = step.event.request if isinstance(step.event, RequestArrived) else _due(step)
    return str(getattr(about, "group_id", ""))


@rule(
    "S3",
    "Classic: a group reports each change of its state, with the former state.",
    Stepped,
    about=_CHANGING,
)
def states_are_reported(_world: BaseWorld, step: Stepped) -> str | None:
    """Follow the reports from the state before to the one after."""
    session, log = step.node.shard.session, step.node.shard.log
    if not step.effects.observed and not step.effects.records:
        return None
    reported: dict[str, str] = {}
    for event in step.effects.observed:
        if isinstance(event, GroupStateChanged):
            was = classic_group(step, event.group)
            if was is None or event.group in log.consumer_groups:
                return None  # a change of protocol is reported by another event
            before = reported.get(event.group, was.state.value)
            if event.before != before:
                return f"{event.group} was {before}, and reports that it was {event.before}"
            reported[event.group] = event.after
    group_id = _group_id(step)
    was = classic_group(step, group_id) if group_id else None
    if was is not None and group_id not in log.consumer_groups:
        reported.setdefault(group_id, was.state.value)
    for each, after in reported.items():
        state = session.group(log, each).state.value
        if state != after:
            return f"{each} is {state}, and reports that it is {after}"
    return None


@rule(
    "S3",
    "Classic: a rebalance is reported with its cause.",
    Stepped,
    about=(JoinGroupRequest, LeaveGroupRequest, Tick),
)
def causes_are_reported(_world: BaseWorld, step: Stepped) -> str | None:
    """Compare the reported cause with the event."""
    for event in step.effects.observed:
        if isinstance(event, RebalanceStarted):
            was = classic_group(step, event.group)
            cause = _cause(step, was) if was is not None else None
            if cause not in (None, event.cause):
                return f"{event.group} rebalances because {cause}, and reports {event.cause}"
    return None


def _cause(step: Stepped, was: ClassicGroup) -> Cause | None:
    if isinstance(step.event, Tick):
        ends = {SessionExpired: Cause.SESSION_EXPIRED, SyncExpired: Cause.SYNC_TIMED_OUT}
        return ends.get(type(_due(step)))
    assert isinstance(step.event, RequestArrived)
    request = step.event.request
    if not isinstance(request, JoinGroupRequest):
        return Cause.MEMBER_LEFT
    mine = [each for each in step.effects.replies if each.token == step.event.token]
    if mine and code_of(mine[0].response) == ErrorCode.GROUP_MAX_SIZE_REACHED:
        return Cause.GROUP_TOO_LARGE
    if request.member_id in was.members:
        leads = was.state is GroupState.STABLE and request.member_id == was.leader
        return Cause.LEADER_REJOINED if leads else Cause.SUBSCRIPTION_CHANGED
    instances = {member.group_instance_id for member in was.members.values()}
    returns = not request.member_id and request.group_instance_id in instances - {None}
    return Cause.MEMBER_REPLACED if returns else Cause.MEMBER_JOINED


@rule("S3", "Classic: a rebalance after a load is reported with its cause (C72).", Loaded)
def causes_after_a_load(_world: BaseWorld, fact: Loaded) -> str | None:
    """Compare the reported cause with the size of the group."""
    shard = fact.node.shard
    for event in fact.observed:
        stored = shard.log.groups.get(event.group)
        if isinstance(event, RebalanceStarted) and stored is not None:
            too_large = len(stored.members) > shard.config.group_max_size
            cause = Cause.GROUP_TOO_LARGE if too_large else Cause.COORDINATOR_UNLOADED
            if event.cause is not cause:
                return f"{event.group} rebalances because {cause}, and reports {event.cause}"
    return None
