"""Reactions of a consumer group's member to answers, calls and deadlines (L30-L37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kohort.errors import ErrorCode
from kohort.group.events import Ownership
from kohort.group.member.consumer.session import ConsumerMemberSession, ConsumerMemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    LOOKUP_DUE,
    POLL_OVERDUE,
    RETRY_DUE,
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    JobDone,
    LookupDue,
    LookupFailed,
    Polled,
    PollOverdue,
    RequestFailed,
    ResponseArrived,
    RetryDue,
    Subscribed,
    Tick,
    TopicsNamed,
    Unsubscribed,
)
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
from kohort.wire.messages.client_assignors import ConsumerGroupInstallAssignmentRequest
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

S = ConsumerMemberState
_JOINED = (S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE)
_LIVE = (*_JOINED, S.PREPARE_LEAVING)
_GONE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


def _beats(told: Told, after: ConsumerMemberSession) -> bool:
    """Return whether a heartbeat is sent now, in flight, or due as soon as possible."""
    sent = sends(told, ConsumerGroupHeartbeatRequest)
    return sent or after.is_due or after.heartbeat is not None


def _will_beat(told: Told, after: ConsumerMemberSession) -> bool:
    """Return whether any further heartbeat is due."""
    timed = runs(after, HEARTBEAT_DUE) or runs(after, RETRY_DUE)
    return _beats(told, after) or timed or not after.coordinator_known


def _stirs(was: ConsumerMemberSession, after: ConsumerMemberSession) -> bool:
    """Return whether the event made a heartbeat due or in flight."""
    waits = runs(after, RETRY_DUE) and not runs(was, RETRY_DUE)
    return waits or (after.is_due and not was.is_due)


def _answered(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L32, L33, L35, L36: the answer to a heartbeat."""
    event = cast("ResponseArrived", told.event)
    if _is_of_computation(was, event.token):
        return _computes(told, after)
    current = was.heartbeat is not None and was.heartbeat.token == event.token
    answer = event.response
    if not current or not isinstance(answer, ConsumerGroupHeartbeatResponse):
        return None
    says_good_bye = was.heartbeat is not None and was.heartbeat.generation < 0
    if was.state is S.LEAVING and says_good_bye:
        return "has said good-bye and stays" if after.state is S.LEAVING else None
    if was.state not in _LIVE or says_good_bye:
        # A leaving member can send its leave request only now; then it has left.
        same = after.state is was.state or was.state is S.LEAVING
        deaf = same and (says_good_bye or not _stirs(was, after))
        return None if deaf else "uses an answer that is not its own"
    code = answer.error_code
    if code != ErrorCode.NONE:
        return _refused(told, was, after, code)
    if answer.member_epoch >= max(was.epoch, 1):
        return _welcome(told, was, after, answer)
    same = (after.state, after.epoch) == (was.state, was.epoch)
    tries_again = runs(after, RETRY_DUE) or not after.coordinator_known
    return None if same and tries_again else "accepts an epoch that is over"


def _refused(
    told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession, code: int
) -> str | None:
    """L35, L36: the error in the answer to a heartbeat."""
    is_deleted = code == ErrorCode.GROUP_ID_NOT_FOUND and was.is_member
    if code in _GONE or is_deleted:
        return _removed(told, was, after)
    if code in MOVED:
        return None if seeks(told, after) else "does not look for the coordinator that has moved"
    if code in (*WAIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        same = (after.state, after.epoch) == (was.state, was.epoch)
        says_so = raises(told, code) == (code not in WAIT)
        right = same and says_so and runs(after, RETRY_DUE)
        return None if right else "does not wait for what will pass"
    ended = after.state is S.FATAL and raises(told, code)
    return None if ended else "does not end, by its code, with an error that nothing cures"


def _welcome(
    told: Told,
    was: ConsumerMemberSession,
    after: ConsumerMemberSession,
    answer: ConsumerGroupHeartbeatResponse,
) -> str | None:
    if after.epoch != answer.member_epoch:
        return f"gets epoch {answer.member_epoch} and keeps {after.epoch}"
    if not _will_beat(told, after):
        return "sends no more heartbeats"
    if was.state is S.PREPARE_LEAVING:
        return None if after.state is S.PREPARE_LEAVING else "does not go on leaving"
    given = None
    if answer.assignment is not None:
        given = {
            (topic.topic_id, number)
            for topic in answer.assignment.topic_partitions
            for number in topic.partitions
        }
        if after.target is None or {(p.topic_id, p.partition) for p in after.target} != given:
            return "ignores its assignment"
    if was.state is S.JOINING and after.state is S.JOINING:
        return "is a member and does not know it"
    differs = given is not None and given != {(p.topic_id, p.partition) for p in was.owned}
    if was.state is S.STABLE and differs and after.state is S.STABLE:
        return "is given other partitions and stays as it is"
    same = was.target == after.target and was.callback is not None
    if was.state is S.RECONCILING and same and after.state is not S.RECONCILING:
        return "does not finish what it tells the application"
    return None


def _removed(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L35: a removed member reports its partitions lost, and joins again."""
    if after.epoch > 0:
        return "keeps an epoch that the coordinator does not know"
    if was.state is S.PREPARE_LEAVING:
        return None if after.state is not S.JOINING else "comes back though it was leaving"
    if after.state not in (S.FENCED, S.JOINING):
        return "was removed and goes on"
    if was.owned and was.callback is None:
        lost = any(each.change is Ownership.LOST for each in told.effects.callbacks)
        return None if lost else "does not tell the application what is lost"
    return None


def _committed(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L36, L37: the answer to a commit."""
    code = cast("CommitAnswered", told.event).error_code
    if code in MOVED and was.state in _LIVE and was.coordinator_known:
        return None if seeks(told, after) else "does not look for the coordinator that has moved"
    same = (after.state, after.coordinator_known) == (was.state, was.coordinator_known)
    return None if same else "changes more than the commit's answer says"


def _failed(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L36: a heartbeat failed."""
    event = cast("RequestFailed", told.event)
    if _is_of_computation(was, event.token):
        return _computes(told, after)
    if was.heartbeat is None or was.heartbeat.token != event.token:
        return None
    if was.state in _LIVE and was.heartbeat.generation >= 0:
        return _lost(told, was, after)
    good_bye = was.state is S.LEAVING and was.heartbeat.generation < 0
    return "waits for an answer in vain" if good_bye and after.state is S.LEAVING else None


def _lost(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L36, L37: the coordinator is lost."""
    if after.coordinator_known:
        return "has lost the coordinator and goes on using it"
    if was.state is S.LEAVING:
        return "waits for an answer in vain" if after.state is S.LEAVING else None
    if was.state in _LIVE and not seeks(told, after):
        return "has lost the coordinator and does not look for it"
    if was.state not in _LIVE and _stirs(was, after):
        return "is in no group and wants to beat"
    same = after.state is was.state and after.owned == was.owned
    return None if same else "changes its state though it owns what it owned"


def _known(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L31: the coordinator is known, and gets a heartbeat."""
    if not after.coordinator_known or after.looking_up:
        return "has found the coordinator and does not know it"
    if was.state in _LIVE and not _beats(told, after):
        waits = runs(after, RETRY_DUE)
        return None if waits else "does not greet the new coordinator"
    return None


def _not_found(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L36, KIP-580: the look-up failed; another one follows after a back-off."""
    if after.looking_up:
        return "believes that the look-up is still running"
    code = cast("LookupFailed", told.event).error_code
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and was.state in _JOINED:
        return None if after.state is S.FATAL else "goes on looking where it may not be"
    if was.state in _LIVE and not runs(after, LOOKUP_DUE):
        return "does not look for the coordinator again"
    return None if after.state is was.state else "changes its state though it is only not found"


def _subscribed(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L31, L32: a new subscription goes to the coordinator."""
    topics = cast("Subscribed", told.event).topics
    if was.closing is not None or was.state is S.FATAL:
        return None
    if after.topics != topics:
        return "ignores another subscription"
    if was.state not in _JOINED:
        calm = after.state is was.state and not told.effects.sends and not after.is_due
        return None if calm or was.is_due else "tells the coordinator before it joins"
    if topics != was.topics and not _beats(told, after):
        waits = runs(after, RETRY_DUE) or not after.coordinator_known
        return None if waits else "does not tell the coordinator of another subscription"
    return None


def _left(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L30: unsubscribing and closing leave the group."""
    if after.topics:
        return "wants nothing and keeps its subscription"
    if isinstance(told.event, Closing) and after.closing is None:
        return "is closed and does not know it"
    if was.state in _JOINED and after.state in _JOINED:
        return "does not leave"
    if was.state not in _JOINED and says_it_leaves(told):
        return "has nothing to leave and says that it leaves"
    if was.state not in _JOINED and after.state is not was.state:
        return "leaves what it has left, or does not finish what it is at"
    return None


def _polled(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L32, L35, KIP-62: a poll joins, and restarts the poll interval."""
    if was.state is S.STALE:
        waits = was.callback is not None or not after.topics
        return None if after.state is S.JOINING or waits else "polls again and does not come back"
    if was.state is S.UNSUBSCRIBED and was.wants and was.closing is None:
        return None if after.state is S.JOINING else "has a subscription and does not join"
    if was.state in _JOINED:
        fresh = counts_anew(told, after, POLL_OVERDUE, told.client.plan.max_poll_interval_ms)
        return None if fresh else "has polled and does not restart the poll interval"
    return None if after.state is was.state else "changes its state because of a poll"


def _returned(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L30, L32, L35: a call into the application has ended."""
    event = cast("CallbackDone", told.event)
    callback = was.callback
    if callback is None or callback.token != event.token:
        return None
    taken = callback.change is not Ownership.ASSIGNED and callback.partitions
    if taken and len(after.owned) == len(was.owned):
        return "keeps what the application has given up"
    if was.state is S.RECONCILING and taken:
        calls = [each.change for each in told.effects.callbacks]
        right = after.state is S.RECONCILING and calls == [Ownership.ASSIGNED]
        return None if right else "has given up and is not told what it gets"
    if was.state is S.STALE and was.wants and after.callback is None:
        return None if after.state is S.JOINING else "is back in its poll and does not join"
    if was.state in (S.FATAL, S.FENCED) and after.owned and after.callback is None:
        return "does not tell the application what is lost"
    if was.state is S.FENCED and was.wants and after.callback is None:
        return None if after.state is S.JOINING else "was removed and does not join again"
    if was.state is S.LEAVING and (told.effects.callbacks or after.state is not S.LEAVING):
        return "goes on before its good-bye is said"
    return None


def _named(told: Told, _was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L32: topic names were looked up."""
    names = cast("TopicsNamed", told.event).names
    missing = {each.topic_id for each in after.claimed if each.topic_id not in after.names}
    return "ignores the names of its topics" if missing & names.keys() else None


# ------------------------------------------------------------------------------------ computing


def _is_of_computation(was: ConsumerMemberSession, token: int) -> bool:
    return was.computation is not None and was.computation.token == token


def _computes(told: Told, after: ConsumerMemberSession) -> str | None:
    """K61: the computation of the group's assignment continues or ends."""
    goes_on = told.effects.jobs or sends(told, ConsumerGroupInstallAssignmentRequest)
    waits = after.computation is not None and not goes_on
    return "waits for an assignment that is not being made" if waits else None


def _computed(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """K61: the assignor has finished."""
    known = _is_of_computation(was, cast("JobDone", told.event).token)
    return _computes(told, after) if known else None


def _time(told: Told, was: ConsumerMemberSession, after: ConsumerMemberSession) -> str | None:
    """L31, L35, KIP-580: an expired deadline has its effect."""
    due = due_now(told, was)
    if isinstance(due, PollOverdue):
        return "is not polled and stays" if after.state in _JOINED else None
    if isinstance(due, LookupDue) and not was.coordinator_known:
        return None if told.effects.find_coordinator else "does not look for the coordinator"
    if isinstance(due, (HeartbeatDue, RetryDue)) and was.state in _LIVE:
        if not was.coordinator_known or (not isinstance(due, RetryDue) and runs(was, RETRY_DUE)):
            return None
        return None if _beats(told, after) else "does not send the heartbeat that is due"
    return None


_LOOKS: dict[type, Look[ConsumerMemberSession]] = {
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
    TopicsNamed: _named,
    JobDone: _computed,
    Tick: _time,
}


@rule(
    "L3",
    "Consumer: a member handles every answer, call and deadline by the rules (L30-L37).",
    Told,
    about=(ConsumerMemberSession,),
)
def consumer_member_goes_on(_world: BaseWorld, told: Told) -> str | None:
    """Compare the member before and after an event."""
    return look_at(told, _LOOKS)
