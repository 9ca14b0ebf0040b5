"""Reactions of a classic member to answers, calls and deadlines, derived from rules L2-L15.

Each function checks one event, independently of the member's table: the session before and after
it, and the effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.errors import ErrorCode
from kohort.group.effects import SubscriptionJob
from kohort.group.events import Ownership
from kohort.group.member.classic.session import ClassicMemberSession, ClassicMemberState
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    LOOKUP_DUE,
    POLL_OVERDUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    GroupMembershipOperation,
    HeartbeatDue,
    JobDone,
    LookupDue,
    LookupFailed,
    Polled,
    PollOverdue,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    RetryDue,
    SessionOverdue,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.group.subscription import decode_assignment, decode_subscription
from kohort.simulation.checkers.members import (
    MOVED,
    WAIT,
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
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

S = ClassicMemberState

_JOINED = (
    S.UNJOINED,
    S.REVOKING,
    S.PREPARING_REBALANCE,
    S.COMPLETING_REBALANCE,
    S.ASSIGNING,
    S.STABLE,
)
_BEATING = (S.REVOKING, S.COMPLETING_REBALANCE, S.ASSIGNING, S.STABLE, S.LEAVING)
# The states in which a rejoin has begun.
_ON_ITS_WAY = (S.REVOKING, S.PREPARING_REBALANCE, S.UNJOINED)
_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def _identity(was: ClassicMemberSession, after: ClassicMemberSession, code: int) -> str | None:
    """L10 (KAFKA-13419): an unknown member forgets its id, an outdated one its generation."""
    if after.generation != -1:
        return "keeps its generation"
    kept = after.member_id == was.member_id
    if code == ErrorCode.ILLEGAL_GENERATION:
        return None if kept else "forgets its id, and only its generation was wrong"
    return "keeps an id that the coordinator does not know" if after.member_id else None


# ------------------------------------------------------------------------------------- answers


def _joined(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L9, L10: the answer to JoinGroup."""
    answer = cast("JoinGroupResponse", cast("ResponseArrived", told.event).response)
    code = answer.error_code
    if was.state is S.LEAVING:
        return _named_too_late(told, was, answer)
    if code == ErrorCode.NONE:
        if answer.protocol_name not in {each.name for each in told.client.assignors}:
            ended = after.state is S.FATAL and raises(told, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return None if ended else "takes part with an assignor it never named"
        same = (after.member_id, after.generation) == (answer.member_id, answer.generation_id)
        if not same or after.state is not S.COMPLETING_REBALANCE:
            return f"is in generation {answer.generation_id} and goes to {after.state.name}"
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        works = bool(told.effects.jobs) if leads else sends(told, SyncGroupRequest)
        return None if works else "is in a new generation and does nothing"
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        again = after.member_id == answer.member_id and sends(told, JoinGroupRequest)
        return None if again else "does not come back with the id that it was given"
    return _not_joined(told, was, after, code)


def _named_too_late(told: Told, was: ClassicMemberSession, answer: JoinGroupResponse) -> str | None:
    """L7 (KIP-394): a member that gets an id while it leaves sends LeaveGroup with that id."""
    stays = was.operation is GroupMembershipOperation.REMAIN_IN_GROUP
    wanted = bool(answer.member_id) and was.coordinator_known and not stays
    returned = [
        each.member_id
        for send in told.effects.sends
        if isinstance(send.request, LeaveGroupRequest)
        for each in send.request.members
    ]
    return None if returned == [answer.member_id] * wanted else "does not give back its new id"


def _not_joined(
    told: Told, was: ClassicMemberSession, after: ClassicMemberSession, code: int
) -> str | None:
    """L10: errors common to JoinGroup and SyncGroup."""
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        kept = (after.member_id, after.generation) == (was.member_id, was.generation)
        again = kept and sends(told, JoinGroupRequest)
        return None if again else "is called to the next rebalance and does not join as who it is"
    if code in _GONE:
        wrong = _identity(was, after, code)
        if wrong is None and after.state not in _ON_ITS_WAY:
            wrong = "does not join again"
        return wrong
    if code in MOVED:
        right = after.state is S.UNJOINED and seeks(told, after) and not after.coordinator_known
        return None if right else "does not look for the coordinator that has moved"
    if code in WAIT:
        waits = after.state is S.UNJOINED and runs(after, RETRY_DUE)
        stays = after.coordinator_known == was.coordinator_known
        return None if waits and stays else "does not wait for the coordinator that is busy"
    ended = after.state is S.FATAL and raises(told, code)
    return None if ended else "does not end, by its code, with an error that nothing cures"


def _synced(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L5, L10: the answer to SyncGroup."""
    answer = cast("SyncGroupResponse", cast("ResponseArrived", told.event).response)
    if answer.error_code != ErrorCode.NONE:
        return _not_joined(told, was, after, answer.error_code)
    given = decode_assignment(answer.assignment)[0]
    if any(each.topic not in was.topics for each in given):
        return None if after.state is S.UNJOINED else "takes what it did not ask for"
    if after.state is not S.ASSIGNING or not told.effects.callbacks:
        return "was given partitions and does not tell the application"
    call = told.effects.callbacks[0]
    moving = was.owned - given
    wanted = (Ownership.REVOKED, moving) if moving else (Ownership.ASSIGNED, given - was.owned)
    return (
        None if (call.change, call.partitions) == wanted else "tells the application something else"
    )


def _membership(
    told: Told,
    was: ClassicMemberSession,
    after: ClassicMemberSession,
    code: int,
    *,
    is_commit: bool,
) -> str | None:
    """L10, L11: the errors in answers to heartbeats and commits."""
    state = was.state
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        if state is S.STABLE:
            return None if after.state in _ON_ITS_WAY else "does not follow the rebalance"
        if state is S.ASSIGNING and after.rejoin is None:
            return "forgets that the next rebalance has begun"
        return None if after.state is state else "leaves a rebalance that it takes part in"
    if code in _GONE:
        wrong = _identity(was, after, code)
        expects_move = state in (S.STABLE, S.COMPLETING_REBALANCE)
        if wrong is None and expects_move and after.state not in _ON_ITS_WAY:
            wrong = "does not join again"
        if wrong is None and state is S.STABLE and was.owned and after.state is not S.REVOKING:
            wrong = "does not tell the application what is lost"
        return wrong
    if code in MOVED:
        if state is S.LEAVING and was.request is not None:
            return None if after.state is not S.LEAVING else "waits for an answer in vain"
        right = seeks(told, after) and not after.coordinator_known
        return None if right else "does not look for the coordinator that has moved"
    if code in (ErrorCode.NONE, *WAIT):
        same = (after.state, after.owned) == (state, was.owned)
        return None if same else "changes its state though nothing has happened"
    fatal = code == ErrorCode.FENCED_INSTANCE_ID if is_commit else True
    if not fatal or state is S.LEAVING:
        return None if after.state is state else "ends because of a commit"
    return None if after.state is S.FATAL else "goes on after an error that nothing cures"


def _beaten(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L9, L10: the answer to a heartbeat."""
    event = cast("ResponseArrived", told.event)
    if was.heartbeat is None or was.heartbeat.token != event.token or was.state not in _BEATING:
        return None
    code = cast("HeartbeatResponse", event.response).error_code
    if (was.heartbeat.member_id, was.heartbeat.generation) != (was.member_id, was.generation):
        return "uses an answer that is not its own"
    complaint = _membership(told, was, after, code, is_commit=False)
    heard = code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    if complaint is None and heard and after.state is was.state:
        fresh = counts_anew(told, after, SESSION_OVERDUE, told.client.plan.session_timeout_ms)
        complaint = None if fresh else "was answered and does not restart its session"
    return complaint


def _committed(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L11: the answer to a commit."""
    event = cast("CommitAnswered", told.event)
    if was.state not in _BEATING or event.sent != CommitIdentity(was.member_id, was.generation):
        calm = after.state is was.state and not told.effects.sends
        return None if calm else "uses an answer that is not its own"
    return _membership(told, was, after, event.error_code, is_commit=True)


def _good_bye(_told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L7: the member has left, or rejoins as a new member."""
    out = after.state is not S.LEAVING and not (was.member_id and after.member_id)
    return None if out else "has said good-bye and stays"


_ANSWERS: dict[type, Look[ClassicMemberSession]] = {
    JoinGroupResponse: _joined,
    SyncGroupResponse: _synced,
    LeaveGroupResponse: _good_bye,
    HeartbeatResponse: _beaten,
}


def _answered(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    event = cast("ResponseArrived", told.event)
    is_beat = isinstance(event.response, HeartbeatResponse)
    if not is_beat and (was.request is None or was.request.token != event.token):
        return None
    return _ANSWERS[type(event.response)](told, was, after)


def _failed(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L10: a request failed, so the coordinator may have moved."""
    event = cast("RequestFailed", told.event)
    tokens = {each.token for each in (was.request, was.heartbeat) if each is not None}
    if event.token not in tokens:
        return None
    return _lost(told, was, after)


# ------------------------------------------------------------------------------------- calls


def _subscribed(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L2: a subscription makes the member join."""
    topics = cast("Subscribed", told.event).topics
    if was.state is S.CLOSED or (was.state is S.LEAVING and was.after_leaving is S.CLOSED):
        return None
    if after.topics != topics:
        return "ignores another subscription"
    if was.state is S.LEAVING:
        return None if after.after_leaving is S.UNJOINED else "will not come back"
    if was.state is S.UNSUBSCRIBED and not runs(after, POLL_OVERDUE):
        return "joins and does not count the time between polls"
    differs = topics != was.joined_topics
    if was.state is S.UNSUBSCRIBED or (was.state is S.STABLE and differs):
        return None if after.state in _ON_ITS_WAY else "has another subscription and does not join"
    return None if after.state is was.state else "does not finish what it is at"


def _left(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L7: unsubscribing and closing."""
    closes = isinstance(told.event, Closing)
    if was.state in (S.UNSUBSCRIBED, S.CLOSED):
        if says_it_leaves(told):
            return "has nothing to leave and says that it leaves"
        wanted = S.CLOSED if closes else was.state
        return None if after.state is wanted else "has nothing to leave and does not end"
    if after.topics and not closes:
        return "wants nothing and keeps its subscription"
    if was.state is S.LEAVING and after.state is not S.LEAVING:
        return "ends before it has left"
    if after.state is S.LEAVING:
        ends = (S.CLOSED,) if closes else (S.CLOSED, S.UNSUBSCRIBED)
        return None if after.after_leaving in ends else "leaves only to come back"
    return "does not leave" if after.state in (*_JOINED, S.STALE) else None


def _rejoined(_told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L15 (KIP-568): the application asks for a rebalance."""
    if was.state is S.STABLE:
        return None if after.state in _ON_ITS_WAY else "is asked for a rebalance and stays"
    later = (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE, S.ASSIGNING)
    if was.state in later and (after.rejoin is None or after.state is not was.state):
        return "forgets that it was asked for a rebalance"
    return None


def _polled(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """KIP-62, L7: a poll restarts the poll interval; a stale member rejoins."""
    if was.state is S.STALE:
        # A running call has to end first.
        back = after.state in _ON_ITS_WAY or was.callback is not None
        return None if back else "polls again and does not come back"
    if was.state not in _JOINED:
        counts = runs(after, POLL_OVERDUE)
        return "counts the time between polls, and is in no group" if counts else None
    fresh = counts_anew(told, after, POLL_OVERDUE, told.client.plan.max_poll_interval_ms)
    return None if fresh else "has polled and does not restart the poll interval"


def _returned(_told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L3-L7: a call into the application has ended."""
    event = cast("CallbackDone", _told.event)
    if was.callback is None or was.callback.token != event.token:
        return None
    gone = was.callback.partitions
    if was.callback.change is not Ownership.ASSIGNED and gone & after.owned:
        return "keeps what the application has given up"
    if was.state is S.REVOKING:
        joins = after.state in (S.PREPARING_REBALANCE, S.UNJOINED)
        # The group has removed the member meanwhile: first the other partitions are reported lost.
        loses = after.callback is not None and after.callback.change is Ownership.LOST
        return None if joins or loses else "has given up and does not join"
    if was.state is S.ASSIGNING and was.assignment is not None and was.is_member:
        calls = [each.change for each in _told.effects.callbacks]
        return None if Ownership.ASSIGNED in calls else "does not pass on what was added"
    if was.state is S.ASSIGNING and was.assignment is None:
        again = was.rejoin is not None or was.topics != was.joined_topics or not was.member_id
        rests = after.state is S.STABLE
        if rests == (again or was.generation < 0):
            return "rests though it has to join again" if rests else "joins again without need"
    if was.state is S.STALE and after.state is S.STALE and after.callback is None:
        return "is back in its poll and does not join"
    if was.state is S.FATAL and after.owned and after.callback is None:
        return "has ended and does not tell the application what is lost"
    return None


# ------------------------------------------------------------------------------------- coordinator


def _known(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L9: a member reports to a new coordinator."""
    if not after.coordinator_known or after.looking_up:
        return "has found the coordinator and does not know it"
    idle = was.state not in (*_JOINED, S.LEAVING)
    if idle or (was.state is S.UNJOINED and runs(was, RETRY_DUE)):
        return None if after.state is was.state else "joins before its time"
    if was.state is S.UNJOINED:
        joins = after.state in (S.PREPARING_REBALANCE, S.REVOKING)
        return None if joins else "has found the coordinator and does not join"
    if was.state in _BEATING and was.member_id and was.generation >= 0:
        due = after.deadlines.get(HEARTBEAT_DUE)
        soon = due is not None and due <= told.now
        return None if soon else "does not greet the new coordinator"
    return None


def _lost(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L10: the coordinator is lost."""
    if after.coordinator_known:
        return "has lost the coordinator and goes on using it"
    if was.state is S.LEAVING and was.request is not None:
        return None if after.state is not S.LEAVING else "waits for an answer in vain"
    if was.state in (*_JOINED, S.LEAVING) and not seeks(told, after):
        return "has lost the coordinator and does not look for it"
    if was.state in (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE):
        return None if after.state is S.UNJOINED else "waits for an answer that will not come"
    return None if after.state is was.state else "changes its state though it owns what it owned"


def _not_found(_told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L10, KIP-580: the look-up failed; another one follows after a back-off."""
    if after.looking_up:
        return "believes that the look-up is still running"
    code = cast("LookupFailed", _told.event).error_code
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and was.state in _JOINED:
        return None if after.state is S.FATAL else "goes on looking where it may not be"
    active = was.state in (*_JOINED, S.LEAVING)
    if active and not runs(after, LOOKUP_DUE):
        return "does not look for the coordinator again"
    return None if after.state is was.state else "changes its state though it is only not found"


def _shared_out(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L2, L8: the assignors have returned their user data, or the leader's assignment."""
    event = cast("JobDone", told.event)
    if was.job is None or was.job.token != event.token:
        return None
    if event.assignments is None:
        retries = after.state is S.UNJOINED and told.effects.raised
        return None if retries else "has no assignment and does not try again"
    if isinstance(was.job, SubscriptionJob):
        return None if sends(told, JoinGroupRequest) else "has asked, and does not join"
    return None if sends(told, SyncGroupRequest) else "keeps the assignment for itself"


# ------------------------------------------------------------------------------------- time


def _time(told: Told, was: ClassicMemberSession, after: ClassicMemberSession) -> str | None:
    """L7, L9, KIP-580: an expired deadline has its effect."""
    due, state, member = due_now(told, was), was.state, was.is_member
    if isinstance(due, HeartbeatDue) and member and was.coordinator_known:
        if was.heartbeat is None and not sends(told, HeartbeatRequest):
            return "does not send the heartbeat that is due"
        return None if runs(after, due) else "will send no more heartbeats"
    if isinstance(due, PollOverdue):
        return "is not polled and stays" if after.state is not S.STALE else None
    if isinstance(due, RetryDue):
        tries = after.state in (S.PREPARING_REBALANCE, S.REVOKING) or seeks(told, after)
        return None if tries else "does not try again"
    if isinstance(due, LookupDue) and not was.coordinator_known:
        return None if told.effects.find_coordinator else "does not look for the coordinator"
    if isinstance(due, SessionOverdue) and state is S.LEAVING and was.request is not None:
        return None if after.state is not S.LEAVING else "waits for an answer in vain"
    if isinstance(due, SessionOverdue) and member and state is not S.LEAVING:
        return (
            None
            if seeks(told, after)
            else "gets no answers and does not look for another coordinator"
        )
    return None


_LOOKS: dict[type, Look[ClassicMemberSession]] = {
    ResponseArrived: _answered,
    RequestFailed: _failed,
    CommitAnswered: _committed,
    Subscribed: _subscribed,
    Unsubscribed: _left,
    Closing: _left,
    RejoinAsked: _rejoined,
    Polled: _polled,
    CallbackDone: _returned,
    CoordinatorKnown: _known,
    CoordinatorLost: _lost,
    LookupFailed: _not_found,
    JobDone: _shared_out,
    Tick: _time,
}


@rule(
    "L3",
    "Classic: a member handles every answer, call and deadline by the rules (L2-L15).",
    Told,
    about=(ClassicMemberSession,),
)
def member_goes_on(_world: BaseWorld, told: Told) -> str | None:
    """Compare the member before and after an event."""
    return look_at(told, _LOOKS)


@rule(
    "L2",
    "Classic: a join has the application's subscription; a leaving member owns nothing.",
    Told,
    about=(ClassicMemberSession,),
)
def joins_with_its_topics(_world: BaseWorld, told: Told) -> str | None:
    """Check the subscription of a JoinGroup."""
    for send in told.effects.sends:
        after = cast("ClassicMemberSession", told.effects.session)
        # A member whose application does not poll leaves before the listener can run (KIP-62).
        if isinstance(send.request, LeaveGroupRequest) and after.state is S.LEAVING and after.owned:
            return f"{told.client.name} says good-bye before it has given everything up"
        if not isinstance(send.request, JoinGroupRequest):
            continue
        topics = after.topics
        for protocol in send.request.protocols:
            if decode_subscription(protocol.metadata).topics != topics:
                return f"{told.client.name} joins with another subscription"
    return None
