"""What a member of a consumer group makes of answers, calls and time, by the rules L30-L37."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from kohort.errors import ErrorCode
from kohort.group.events import Ownership
from kohort.group.member.consumer.session import MemberSession, MemberState
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    LookupDue,
    LookupFailed,
    Polled,
    PollOverdue,
    RequestFailed,
    ResponseArrived,
    RetryDue,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.simulation.facts import Told
from kohort.simulation.rules import rule
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kohort.simulation.world import World

S = MemberState
Look: TypeAlias = Callable[[Told, MemberSession, MemberSession], "str | None"]
_JOINED = (S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE)
_LIVE = (*_JOINED, S.PREPARE_LEAVING)
_GONE = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_WAIT = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)


def _seeks(told: Told, after: MemberSession) -> bool:
    """Whether it looks for the coordinator, or will in a moment."""
    waits = after.deadlines.get(LookupDue()) is not None
    return told.effects.find_coordinator or after.looking_up or waits


def _beats(told: Told, after: MemberSession) -> bool:
    """Whether a heartbeat goes out now, is on its way, or will go out as soon as it can."""
    sent = any(isinstance(s.request, ConsumerGroupHeartbeatRequest) for s in told.effects.sends)
    return sent or after.is_due or after.heartbeat is not None


def _will_beat(told: Told, after: MemberSession) -> bool:
    """Whether there is a next heartbeat at all."""
    due = (HeartbeatDue(), RetryDue())
    timed = any(after.deadlines.get(each) is not None for each in due)
    return _beats(told, after) or timed or not after.coordinator_known


def _answered(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L32, L33, L35, L36: the answer to a heartbeat."""
    event = cast("ResponseArrived", told.event)
    current = was.heartbeat is not None and was.heartbeat.token == event.token
    answer = event.response
    if not current or not isinstance(answer, ConsumerGroupHeartbeatResponse):
        return None
    if was.state is S.LEAVING:
        good_bye = was.heartbeat is not None and was.heartbeat.epoch < 0
        return "has said good-bye and stays" if good_bye and after.state is S.LEAVING else None
    if was.heartbeat is not None and was.heartbeat.epoch < 0:
        return None  # a good-bye for which nobody waits any more
    if was.state not in _LIVE:
        return None if after.state is was.state else "listens to an answer for somebody else"
    code = answer.error_code
    if code == ErrorCode.GROUP_ID_NOT_FOUND and was.is_member:
        code = ErrorCode.UNKNOWN_MEMBER_ID
    if code == ErrorCode.NONE:
        if answer.member_epoch < max(was.epoch, 1):
            return None
        return _welcome(told, was, after, answer)
    if code in _GONE:
        return _removed(told, was, after)
    if code in _MOVED:
        return None if _seeks(told, after) else "does not look for the coordinator that has moved"
    if code in _WAIT:
        waits = after.deadlines.get(RetryDue()) is not None and not told.effects.raised
        same = after.state is was.state and after.epoch == was.epoch
        return None if waits and same else "does not wait for the coordinator that is busy"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    ended = after.state is S.FATAL and told.effects.raised
    return None if ended else "goes on after an error that nothing cures"


def _welcome(
    told: Told, was: MemberSession, after: MemberSession, answer: ConsumerGroupHeartbeatResponse
) -> str | None:
    if after.epoch != answer.member_epoch:
        return f"is told epoch {answer.member_epoch} and keeps {after.epoch}"
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
            return "does not take note of what it is given"
    if was.state is S.JOINING and after.state is S.JOINING:
        return "is a member and does not know it"
    differs = given is not None and given != {(p.topic_id, p.partition) for p in was.owned}
    if was.state is S.STABLE and differs and after.state is S.STABLE:
        return "is given other partitions and stays as it is"
    same = was.target == after.target and was.callback is not None
    if was.state is S.RECONCILING and same and after.state is not S.RECONCILING:
        return "does not finish what it tells the application"
    return None


def _removed(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L35."""
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


def _committed(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L36, L37."""
    code = cast("CommitAnswered", told.event).error_code
    if code in _MOVED and was.state in _LIVE and was.coordinator_known:
        return None if _seeks(told, after) else "does not look for the coordinator that has moved"
    return None if after.state is was.state else "changes its state because of a commit"


def _failed(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L36."""
    event = cast("RequestFailed", told.event)
    if was.heartbeat is None or was.heartbeat.token != event.token:
        return None
    if was.state in _LIVE and was.heartbeat.epoch >= 0:
        return _lost(told, was, after)
    good_bye = was.state is S.LEAVING and was.heartbeat.epoch < 0
    return "waits for an answer in vain" if good_bye and after.state is S.LEAVING else None


def _lost(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L36, L37: the coordinator is gone."""
    if after.coordinator_known:
        return "has lost the coordinator and believes in it"
    if was.state is S.LEAVING:
        return "waits for an answer in vain" if after.state is S.LEAVING else None
    if was.state in _LIVE and not _seeks(told, after):
        return "has lost the coordinator and does not look for it"
    same = after.state is was.state and after.owned == was.owned
    return None if same else "changes its state though it owns what it owned"


def _known(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L31."""
    if not after.coordinator_known or after.looking_up:
        return "has found the coordinator and does not know it"
    if was.state in _LIVE and not _beats(told, after):
        waits = after.deadlines.get(RetryDue()) is not None
        return None if waits else "does not greet the new coordinator"
    return None


def _not_found(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L36, KIP-580."""
    if after.looking_up:
        return "believes that the look-up is still running"
    code = cast("LookupFailed", told.event).error_code
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED and was.state in _JOINED:
        return None if after.state is S.FATAL else "goes on looking where it may not be"
    if was.state in _LIVE and after.deadlines.get(LookupDue()) is None:
        return "does not look for the coordinator again"
    return None if after.state is was.state else "changes its state though it is only not found"


def _subscribed(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L31, L32."""
    topics = cast("Subscribed", told.event).topics
    if was.closing is not None or was.state is S.FATAL:
        return None
    if after.topics != topics:
        return "does not take note of another subscription"
    if was.state not in _JOINED:
        calm = after.state is was.state and not told.effects.sends and not after.is_due
        return None if calm or was.is_due else "tells the coordinator before it joins"
    if topics != was.topics and not _beats(told, after):
        waits = after.deadlines.get(RetryDue()) is not None or not after.coordinator_known
        return None if waits else "does not tell the coordinator of another subscription"
    return None


def _left(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L30."""
    if after.topics:
        return "wants nothing and keeps its subscription"
    if isinstance(told.event, Closing) and after.closing is None:
        return "is closed and does not know it"
    if was.state in _JOINED and after.state in _JOINED:
        return "does not leave"
    if was.state not in _JOINED and after.state is not was.state:
        return "leaves what it has left, or does not finish what it is at"
    return None


def _polled(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L32, L35, KIP-62."""
    if was.state is S.STALE:
        waits = was.callback is not None or not after.topics
        return None if after.state is S.JOINING or waits else "polls again and does not come back"
    if was.state is S.UNSUBSCRIBED and was.topics and was.closing is None:
        return None if after.state is S.JOINING else "has a subscription and does not join"
    if was.state in _JOINED:
        due = after.deadlines.get(PollOverdue())
        fresh = due is not None and due >= told.now + told.client.plan.max_poll_interval_ms
        return None if fresh else "has polled and counts from before"
    return None


def _returned(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L30, L32, L35: a call into the application has ended."""
    event = cast("CallbackDone", told.event)
    callback = was.callback
    if callback is None or callback.token != event.token:
        return None
    taken = callback.change is not Ownership.ASSIGNED and callback.partitions
    if taken and len(after.owned) == len(was.owned):
        return "keeps what the application has given up"
    if was.state is S.RECONCILING and callback.change is Ownership.REVOKED:
        missing = (was.target or frozenset()) - after.owned
        if missing and not told.effects.callbacks and after.state is S.ACKNOWLEDGING:
            named = {each for each in missing if each.topic_id in after.names}
            return "does not give the application what was added" if named else None
    if was.state is S.STALE and was.topics and after.callback is None:
        return None if after.state is S.JOINING else "is back in its poll and does not join"
    if was.state in (S.FATAL, S.FENCED) and after.owned and after.callback is None:
        return "does not tell the application what is lost"
    return None


def _time(told: Told, was: MemberSession, after: MemberSession) -> str | None:
    """L31, L35, KIP-580: what is due is done."""
    earliest = was.deadlines.next()
    if earliest is None or earliest[0] > told.now:
        return None
    due = earliest[1]
    if isinstance(due, PollOverdue):
        return "is not polled and stays" if after.state in _JOINED else None
    if isinstance(due, LookupDue):
        return None if told.effects.find_coordinator else "does not look for the coordinator"
    if isinstance(due, (HeartbeatDue, RetryDue)) and was.state in _LIVE:
        if not was.coordinator_known or was.deadlines.get(RetryDue()) not in (None, earliest[0]):
            return None
        return None if _beats(told, after) else "does not send the heartbeat that is due"
    return None


_LOOKS: dict[type, Look] = {
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
    "Consumer: a member makes of every answer, call and deadline what the rules say (L30-L37).",
    Told,
    about=(MemberSession,),
)
def consumer_member_goes_on(_world: World, told: Told) -> str | None:
    """Compare the member after an event with the one before."""
    was = told.before
    if not isinstance(was, MemberSession):
        return None
    look = _LOOKS.get(type(told.event))
    complaint = look(told, was, cast("MemberSession", told.effects.session)) if look else None
    if complaint is None:
        return None
    return f"{told.client.name}, {was.state.name}, {type(told.event).__name__}: {complaint}"
