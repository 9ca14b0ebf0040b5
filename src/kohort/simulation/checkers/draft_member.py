"""Reactions of a draft group's consumer to answers, calls and deadlines (D1-D25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.errors import ErrorCode
from kohort.group.events import Ownership
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.draft.session import DraftMemberSession, DraftMemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    LOOKUP_DUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    LookupDue,
    LookupFailed,
    Polled,
    RequestFailed,
    ResponseArrived,
    RetryDue,
    SessionOverdue,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.simulation.checkers.members import (
    Look,
    counts_anew,
    due_now,
    look_at,
    raises,
    runs,
    says_it_leaves,
    seeks,
    sends,
)
from kohort.simulation.groups.facts import Told
from kohort.simulation.rules import rule
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
)

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

S = DraftMemberState
Session = DraftMemberSession
_CONSUMING = (S.PART_OF_GROUP, S.REDISCOVER_COORDINATOR)
_JOINING = (S.DISCOVER_COORDINATOR, S.STOPPED_CONSUMPTION)
_BEATING = (*_CONSUMING, S.STOPPED_CONSUMPTION, S.LEAVING)
_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_WAIT = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)


def _goes_on(told: Told, after: Session) -> bool:
    """Return whether a call is running, a join is in flight, or a retry is scheduled."""
    planned = runs(after, RETRY_DUE)
    return after.callback is not None or after.request is not None or planned or seeks(told, after)


def _joined(told: Told, was: Session, after: Session) -> str | None:
    """D3, D7, D22: the answer to a join."""
    answer = cast("DraftJoinGroupResponse", cast("ResponseArrived", told.event).response)
    code = answer.error_code
    if code == ErrorCode.NONE and not answer.consumer_id:
        return None if after.state is S.FATAL else "is part of a group that gave it no id"
    if code == ErrorCode.NONE:
        part = (after.member_id, after.generation) == (
            answer.consumer_id,
            answer.group_generation_id,
        )
        call = any(each.change is Ownership.ASSIGNED for each in told.effects.callbacks)
        return None if part and call else "is part of the group and does not know it"
    if code == ErrorCode.UNKNOWN_MEMBER_ID and was.member_id:
        new = not after.member_id and after.generation == -1
        return None if new and _goes_on(told, after) else "does not join as a new consumer"
    if code in _MOVED:
        right = seeks(told, after) and not after.coordinator_known
        return None if right else "does not look for the coordinator that has moved"
    if code in _WAIT:
        waits = runs(after, RETRY_DUE) and after.state is was.state
        return None if waits else "does not try to join again"
    ended = after.state is S.FATAL and raises(told, code)
    return None if ended else "does not end, by its code, with an error that nothing cures"


def _membership(
    told: Told, was: Session, after: Session, code: int, *, is_commit: bool
) -> str | None:
    """D1, D3, D4, D6: the errors in answers to heartbeats and commits."""
    state = was.state
    if code == ErrorCode.ILLEGAL_GENERATION and state in _CONSUMING:
        return None if after.state is S.STOPPED_CONSUMPTION else "does not follow the rebalance"
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        if after.member_id or after.generation != -1:
            return "keeps an id that the coordinator does not know"
        stops = state not in _CONSUMING or after.state is S.STOPPED_CONSUMPTION
        return None if stops else "was given up and goes on"
    if code in _MOVED:
        if state in _CONSUMING:
            right = seeks(told, after) and not after.coordinator_known
            there = after.state is S.REDISCOVER_COORDINATOR
            return None if right and there else "does not look for the coordinator that has moved"
        if not is_commit and (after.coordinator_known or not seeks(told, after)):
            return "does not look for the coordinator that has moved"
        return None if after.state is state else "changes its state while it gives up"
    calm = (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, *_WAIT)
    if state is S.LEAVING and runs(after, SESSION_OVERDUE):
        return "counts its session though it leaves"
    if code in calm or is_commit or state is S.LEAVING:
        same = (after.state, after.owned) == (state, was.owned)
        return None if same else "changes its state though nothing has happened"
    return None if after.state is S.FATAL else "goes on after an error that nothing cures"


def _answered(told: Told, was: Session, after: Session) -> str | None:
    event = cast("ResponseArrived", told.event)
    if isinstance(event.response, DraftJoinGroupResponse):
        current = was.request is not None and was.request.token == event.token
        return _joined(told, was, after) if current and was.state in _JOINING else None
    if was.heartbeat is None or was.heartbeat.token != event.token or was.state not in _BEATING:
        return None
    if (was.heartbeat.member_id, was.heartbeat.generation) != (was.member_id, was.generation):
        return "uses an answer that is not its own"
    code = cast("DraftHeartbeatResponse", event.response).error_code
    complaint = _membership(told, was, after, code, is_commit=False)
    heard = code in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION)
    if complaint is None and heard and after.state is was.state and was.state is not S.LEAVING:
        fresh = counts_anew(told, after, SESSION_OVERDUE, told.client.plan.session_timeout_ms)
        complaint = None if fresh else "was answered and does not restart its session"
    return complaint


def _committed(told: Told, was: Session, after: Session) -> str | None:
    event = cast("CommitAnswered", told.event)
    current = event.sent == CommitIdentity(was.member_id, was.generation)
    joining = was.state is S.STOPPED_CONSUMPTION and was.request is not None
    if was.state not in _BEATING or not current or joining:
        same = (after.state, after.member_id) == (was.state, was.member_id)
        return None if same else "uses an answer that is not its own"
    return _membership(told, was, after, event.error_code, is_commit=True)


def _failed(told: Told, was: Session, after: Session) -> str | None:
    event = cast("RequestFailed", told.event)
    tokens = {each.token for each in (was.request, was.heartbeat) if each is not None}
    return _lost(told, was, after) if event.token in tokens else None


def _lost(told: Told, was: Session, after: Session) -> str | None:
    """D21, D23: the coordinator is lost."""
    if after.coordinator_known:
        return "has lost the coordinator and goes on using it"
    if was.state in _CONSUMING:
        right = after.state is S.REDISCOVER_COORDINATOR and seeks(told, after)
        return None if right else "does not read on and look for the coordinator"
    if was.state in _JOINING and not seeks(told, after):
        return "has lost the coordinator and does not look for it"
    if was.state in _JOINING and was.callback is None:
        planned = runs(after, RETRY_DUE) and after.request is None
        return None if planned else "waits for an answer that will not come"
    if was.state not in _JOINING and (runs(after, RETRY_DUE) or told.effects.find_coordinator):
        return "wants nothing of the coordinator and looks for it"
    return None if after.state is was.state else "changes its state for nothing"


def _known(told: Told, was: Session, after: Session) -> str | None:
    """D21, D23: the coordinator is known: join, or go on consuming."""
    if not after.coordinator_known or after.looking_up:
        return "has found the coordinator and does not know it"
    if was.state in _CONSUMING:
        due = after.deadlines.get(HEARTBEAT_DUE)
        greets = after.state is S.PART_OF_GROUP and due is not None and due <= told.now
        return None if greets or after.state is S.STOPPED_CONSUMPTION else "does not greet it"
    if was.state in _JOINING and not _goes_on(told, after):
        return "has found the coordinator and does not join"
    if was.state not in _JOINING and told.effects.sends:
        return "wants nothing of the coordinator and joins"
    return None if after.state is was.state else "changes its state for nothing"


def _not_found(told: Told, was: Session, after: Session) -> str | None:
    """D23, KIP-580: the look-up failed; another one follows after a back-off."""
    if after.looking_up:
        return "believes that the look-up is still running"
    active = was.state in (*_CONSUMING, *_JOINING)
    code = cast("LookupFailed", told.event).error_code
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and active:
        return None if after.state is S.FATAL else "goes on looking where it may not be"
    if active and not runs(after, LOOKUP_DUE):
        return "does not look for the coordinator again"
    return None if after.state is was.state else "changes its state though it is only not found"


def _subscribed(told: Told, was: Session, after: Session) -> str | None:
    """D21, D24: a new subscription: stop consumption, and join."""
    topics = cast("Subscribed", told.event).topics
    closes = was.state is S.LEAVING and was.after_leaving is S.CLOSED
    if was.state in (S.CLOSED, S.FATAL) or closes:
        return None
    if after.topics != topics:
        return "ignores another subscription"
    if was.state is S.LEAVING:
        back = after.after_leaving is S.DISCOVER_COORDINATOR
        return None if back else "will not come back"
    if was.state is S.DOWN:
        begins = after.state is S.DISCOVER_COORDINATOR and _goes_on(told, after)
        return None if begins else "has a subscription and does not join"
    differs = topics != was.joined_topics
    wanted = S.STOPPED_CONSUMPTION if was.state is S.PART_OF_GROUP and differs else was.state
    return None if after.state is wanted else "has another subscription and does not join"


def _left(told: Told, was: Session, after: Session) -> str | None:
    """D20: unsubscribing and closing: the consumer stops its heartbeats."""
    closes = isinstance(told.event, Closing)
    if was.state in (S.DOWN, S.CLOSED):
        if says_it_leaves(told):
            return "has nothing to leave and says that it leaves"
        wanted = S.CLOSED if closes else was.state
        return None if after.state is wanted else "has nothing to leave and does not end"
    if after.topics and not closes:
        return "wants nothing and keeps its subscription"
    if was.state is S.LEAVING and after.state is not S.LEAVING:
        return "ends before it has given everything up"
    if after.state is S.LEAVING:
        ends = (S.CLOSED,) if closes else (S.CLOSED, S.DOWN)
        return None if after.after_leaving in ends else "leaves only to come back"
    gone = (S.CLOSED,) if closes else (S.DOWN,)
    return None if after.state in gone else "does not leave"


def _polled(told: Told, was: Session, after: Session) -> str | None:
    """D25: a poll restarts the poll interval."""
    if after.polled_at != told.now:
        return "has polled and does not restart the poll interval"
    return None if after.state is was.state else "changes its state because of a poll"


def _returned(told: Told, was: Session, after: Session) -> str | None:
    """D20, D22, D24: a call into the application has ended."""
    event = cast("CallbackDone", told.event)
    callback = was.callback
    if callback is None or callback.token != event.token:
        return None
    taken = callback.change is not Ownership.ASSIGNED
    if taken and (after.owned or after.consuming):
        return "keeps what the application has given up"
    if was.state is S.STOPPED_CONSUMPTION and not _goes_on(told, after):
        return "has given up and does not join"
    if was.state in (S.LEAVING, S.FATAL) and after.consuming and after.callback is None:
        return "does not tell the application what it has to give up"
    if was.state is S.LEAVING and after.callback is None and after.state is S.LEAVING:
        return "has given everything up and does not end"
    same = was.state not in _CONSUMING or after.state is was.state
    return None if same else "changes its state for nothing"


def _time(told: Told, was: Session, after: Session) -> str | None:
    """D23, D25, KIP-580: an expired deadline has its effect."""
    due = due_now(told, was)
    silent = told.now - was.polled_at > told.client.plan.max_poll_interval_ms
    if isinstance(due, HeartbeatDue) and was.is_member:
        if after.deadlines.get(due) is None:
            return "will send no more heartbeats"
        can = was.coordinator_known and was.heartbeat is None and not silent
        beats = sends(told, DraftHeartbeatRequest)
        return None if beats == can else "does not send the heartbeat that is due"
    if isinstance(due, RetryDue) and was.state in _JOINING:
        return None if _goes_on(told, after) else "does not try again"
    if isinstance(due, LookupDue) and not was.coordinator_known:
        return None if seeks(told, after) else "does not look for the coordinator"
    if isinstance(due, SessionOverdue) and not silent:
        wanted = S.STOPPED_CONSUMPTION if was.state in _JOINING else S.REDISCOVER_COORDINATOR
        right = after.state is wanted and seeks(told, after)
        return None if right else "gets no answers and does not look for another coordinator"
    return None


_LOOKS: dict[type, Look[Session]] = {
    ResponseArrived: _answered,
    RequestFailed: _failed,
    CommitAnswered: _committed,
    Subscribed: _subscribed,
    Unsubscribed: _left,
    Closing: _left,
    Polled: _polled,
    CallbackDone: _returned,
    CoordinatorKnown: _known,
    CoordinatorLost: _lost,
    LookupFailed: _not_found,
    Tick: _time,
}


@rule(
    "L3",
    "Draft: a consumer handles every answer, call and deadline by the design (D1-D25).",
    Told,
    about=(DraftMemberSession,),
)
def draft_member_goes_on(_world: BaseWorld, told: Told) -> str | None:
    """Compare the consumer before and after an event."""
    return look_at(told, _LOOKS)


@rule(
    "L2",
    "Draft: a join has the application's subscription (D8).",
    Told,
    about=(DraftMemberSession,),
)
def draft_joins_with_its_topics(_world: BaseWorld, told: Told) -> str | None:
    """Check the subscription of a join."""
    topics = cast("DraftMemberSession", told.effects.session).topics
    for send in told.effects.sends:
        request = send.request
        if isinstance(request, DraftJoinGroupRequest) and set(request.topics) != set(topics):
            return f"{told.client.name} joins with another subscription"
    return None
