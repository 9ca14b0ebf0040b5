"""The time of a member's next heartbeat: soon after a change, else in step with the group (L31).

A member learns of a change only with its next heartbeat, and a change is complete when the last
member has learned of it. So members with synchronized wall clocks send heartbeats at the same
moments. Each group has its own fixed offset. A member on a host with a wrong clock sends its
heartbeats at other moments, as it would without this rule.
"""

from __future__ import annotations

from zlib import crc32

from kohort.group.member.consumer.session import ConsumerMemberDecision
from kohort.group.member.events import HEARTBEAT_DUE, RETRY_DUE, HeartbeatDue
from kohort.values import replace

# Common moments are a little more than one interval apart, so that a killed member's session, and a
# coordinator's pause between two assignments, end before the next one.
_LATER = 64
# Members spread their heartbeats: each has its own offset within this part of the interval.
_SPREAD = 32
# The number of common moments after a change at which pauses are short again. At the first, the
# other members learn of it and release partitions. They learn of a new member at the second if
# the coordinator was pausing between two assignments during the first.
AFTER_CHANGE = 1
AFTER_JOIN = 2
# A heartbeat that would precede a common moment by this part of the interval waits for it.
_NEAR = 16
# A member that has just sent a heartbeat skips a moment only if it is imminent: in between,
# another member's heartbeat may have triggered a decision.
_TOO_NEAR = 64


def beat_soon(decision: ConsumerMemberDecision) -> None:
    """Send a heartbeat as soon as possible."""
    decision.session = replace(decision.session, is_due=True)


def beat_later(decision: ConsumerMemberDecision, _answer: object = None) -> None:
    """L36: after an error or an invalid answer, wait, then send a full heartbeat (KIP-580)."""
    decision.session = replace(decision.session, sent=None, is_due=True)
    decision.cancel(HEARTBEAT_DUE)
    decision.back_off(RETRY_DUE)


def can_beat(decision: ConsumerMemberDecision) -> bool:
    """Return whether a due heartbeat can be sent: none is in flight, and no wait is running."""
    session = decision.session
    return session.coordinator_known and session.heartbeat is None and not decision.runs(RETRY_DUE)


def begin(decision: ConsumerMemberDecision, *, moments: int) -> None:
    """Start the pause before the next heartbeat, at the answer to the last one.

    Args:
        decision: The member; its heartbeat interval is known.
        moments: The number of common moments at which this change may continue; 0: no change.
    """
    session = decision.session
    common_ms = _until_common_moment(decision)
    pause_ms, heard_at = session.pause_ms, session.change_heard_at
    if common_ms is None:
        pause_ms = _first_pause(decision) if moments else pause_ms
    elif moments:
        first = decision.now + common_ms
        heard_at = tuple(first + number * _period(decision) for number in range(moments))
        pause_ms = _first_pause(decision)
    else:
        heard_at = tuple(moment for moment in heard_at if moment >= decision.now + common_ms)
        pause_ms = pause_ms if heard_at == session.change_heard_at else _first_pause(decision)
    decision.session = replace(session, pause_ms=pause_ms, change_heard_at=heard_at)
    decision.start(HEARTBEAT_DUE, _in_step(decision, pause_ms, common_ms))


def end_pause(decision: ConsumerMemberDecision, _due: HeartbeatDue) -> None:
    """L31: the heartbeat is due; the next pause is twice as long, up to the interval."""
    session = decision.session
    pause_ms = min(2 * session.pause_ms, session.interval_ms)
    decision.session = replace(session, is_due=True, pause_ms=pause_ms)


def _in_step(decision: ConsumerMemberDecision, pause_ms: int, common_ms: int | None) -> int:
    """Return the pause, adjusted to end at the next common moment if it would pass it."""
    interval_ms = decision.session.interval_ms
    if common_ms is None:
        return min(pause_ms, interval_ms)
    if pause_ms >= interval_ms or common_ms < pause_ms + interval_ms // _NEAR:
        return common_ms
    return pause_ms


def _first_pause(decision: ConsumerMemberDecision) -> int:
    return max(decision.session.interval_ms // decision.config.first_heartbeat_part, 1)


def _period(decision: ConsumerMemberDecision) -> int:
    return decision.session.interval_ms + decision.session.interval_ms // _LATER


def _until_common_moment(decision: ConsumerMemberDecision) -> int | None:
    """Return the time to the group's next common moment, None if this member uses none."""
    ahead_ms = decision.config.wall_clock_ahead_ms
    if ahead_ms is None:
        return None
    interval_ms = decision.session.interval_ms
    period_ms = _period(decision)
    place = crc32(decision.session.member_id.encode()) % max(interval_ms // _SPREAD, 1)
    moment = crc32(decision.config.group_id.encode()) + place
    wait_ms = (moment - decision.now - ahead_ms) % period_ms
    return wait_ms if wait_ms >= max(interval_ms // _TOO_NEAR, 1) else wait_ms + period_ms
