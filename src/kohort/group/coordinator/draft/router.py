"""Which groups are draft groups, and what reaches them (D16).

A group belongs to one protocol. It is that of its first member, and stays so until the group is
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import describe
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.fold import loaded_group
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.draft.jobs import DraftJobDone
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.events import LoadFinished, RequestArrived, TopicsChanged, Unload
from kohort.group.coordinator.refusals import refuse
from kohort.group.effects import Reply
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import DescribedGroup, ListedGroup
from kohort.wire.messages.membership import JoinGroupRequest
from kohort.wire.schema import Message, Request

if TYPE_CHECKING:
    from kohort.group.coordinator.records import LogState
    from kohort.group.coordinator.session import ShardDecision, ShardSession

_OURS = (DraftJoinGroupRequest, DraftHeartbeatRequest)
_JOINS = (DraftJoinGroupRequest, JoinGroupRequest)


def is_draft(session: ShardSession, log: LogState, group_id: str) -> bool:
    """Whether a group speaks the draft protocol."""
    return group_id in session.draft_groups or group_id in log.draft_groups


def group_of(session: ShardSession, log: LogState, group_id: str) -> DraftGroup:
    """Return a group: the live one, or the one in the log, or one that does not exist."""
    live = session.draft_groups.get(group_id)
    if live is not None:
        return live
    stored = log.draft_groups.get(group_id)
    return loaded_group(group_id, stored) if stored else DraftGroup(group_id=group_id)


def listed(decision: ShardDecision, group_id: str) -> ListedGroup | None:
    """Return a draft group as ListGroups shows it, None when it is none."""
    if not is_draft(decision.session, decision.log, group_id):
        return None
    return describe.listed(group_of(decision.session, decision.log, group_id))


def described(decision: ShardDecision, group_id: str) -> DescribedGroup | None:
    """Return a draft group as DescribeGroups shows it, None when it is none."""
    if not is_draft(decision.session, decision.log, group_id):
        return None
    return describe.describe(decision.log, group_of(decision.session, decision.log, group_id))


def handled(decision: ShardDecision, group_id: str, trigger: type[object], event: object) -> bool:
    """Put an event to a draft group, or refuse it for a group of another protocol.

    Returns:
        False: it is no business of the draft protocol.
    """
    session, log = decision.session, decision.log
    ours = trigger in _OURS
    if is_draft(session, log, group_id):
        if trigger in DRAFT_GROUP.total:
            run(decision, group_id, trigger, event)
        elif isinstance(event, RequestArrived):
            _refuse(decision, event, trigger)
        return True
    if ours and _is_of_another_protocol(decision, group_id):
        _refuse(decision, cast("RequestArrived[Message]", event), trigger)
        return True
    if ours:
        run(decision, group_id, trigger, event)
    return ours


def _is_of_another_protocol(decision: ShardDecision, group_id: str) -> bool:
    classic = group_id in decision.session.groups or group_id in decision.log.groups
    return classic or decision.consumer_group(group_id) is not None


def refuses(decision: ShardDecision, arrived: RequestArrived[Message]) -> bool:
    """D16: refuse a member of the consumer protocol that comes to a draft group."""
    request = arrived.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest):
        return False
    if not is_draft(decision.session, decision.log, request.group_id):
        return False
    response = refuse(request, arrived.version, ErrorCode.GROUP_ID_NOT_FOUND)
    decision.replies.append(Reply(arrived.token, response, arrived.version))
    return True


def _refuse(
    decision: ShardDecision, arrived: RequestArrived[Message], trigger: type[object]
) -> None:
    """D16: whoever joins hears why, whoever says it is a member already is not."""
    joins = trigger in _JOINS
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if joins else ErrorCode.UNKNOWN_MEMBER_ID
    request = cast("Request[Message]", arrived.request)
    response = refuse(request, arrived.version, code)
    decision.replies.append(Reply(arrived.token, response, arrived.version))


def run(decision: ShardDecision, group_id: str, trigger: type[object], event: object) -> None:
    """Put an event to one group, and take over what it leads to."""
    session = decision.session
    before = group_of(session, decision.log, group_id)
    change = DraftDecision(
        decision.config,
        decision.log,
        decision.now,
        decision.wall_ms,
        before,
        session.deadlines,
        topics=session.consumer.topics,
    )
    DRAFT_GROUP.run(change, trigger, event)
    groups = session.draft_groups
    if change.group.state is not DraftState.NONE:
        groups = groups.set(group_id, change.group)
    elif group_id in groups:
        groups = groups.delete(group_id)
    decision.session = replace(session, draft_groups=groups, deadlines=change.deadlines)
    decision.records += change.records
    decision.replies += change.replies
    decision.observed += change.observed
    decision.draft_jobs += change.jobs


def load_finished(decision: ShardDecision, event: LoadFinished) -> None:
    """D15: bring every group that has consumers back to life."""
    for group_id, stored in sorted(decision.log.draft_groups.items()):
        if stored.consumers:
            run(decision, group_id, LoadFinished, event)


def unload(decision: ShardDecision, event: Unload) -> None:
    """D1: answer whoever waits."""
    for group_id in sorted(decision.session.draft_groups):
        run(decision, group_id, Unload, event)


def finish_job(decision: ShardDecision, done: DraftJobDone) -> None:
    """D5: the assignment of a group is made."""
    if done.job.group_id in decision.session.draft_groups:
        run(decision, done.job.group_id, DraftJobDone, done)


def look_at_topics(decision: ShardDecision, changed: TopicsChanged) -> None:
    """D14: let every group see whether its topics have changed."""
    for group_id in sorted(decision.session.draft_groups):
        run(decision, group_id, TopicsChanged, changed)
