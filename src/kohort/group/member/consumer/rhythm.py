"""When a member beats next: soon after a change, otherwise together with the whole group (L31).

A member hears of a change with its next heartbeat only, and a change is over when the last member
has heard of it. So the members whose hosts show the same wall clock beat at the same moments, which
are some fixed time after those of another group. Whose clock is wrong beats at other moments, as if
there were no such rule.
"""

from __future__ import annotations

from zlib import crc32

from kohort.group.member.consumer.session import MemberDraft
from kohort.group.member.events import HEARTBEAT_DUE
from kohort.values import replace

# From one common moment to the next passes a little more than the interval: the session of a member
# that was killed, and the time that a coordinator rests between two assignments, are over by then.
_LATER = 64
# Not all at once: each member has its place in this part of the interval.
_SPREAD = 32
# Who has just beaten leaves a moment out that is nearer than this part of the interval.
_TOO_NEAR = 16


def begin(draft: MemberDraft, *, is_change: bool) -> None:
    """Let the time to the next heartbeat run, from the coordinator's answer to the last one.

    Args:
        draft: The member; its interval is known.
        is_change: Whether it was given something else, so that more may follow.
    """
    session = draft.session
    common_ms = _until_common_moment(draft)
    if is_change:
        again_at = 0 if common_ms is None else draft.now + common_ms
        draft.session = replace(session, pause_ms=_first_pause(draft), again_at=again_at)
    pause_ms = min(draft.session.pause_ms, session.interval_ms)
    if common_ms is not None:
        pause_ms = common_ms if pause_ms == session.interval_ms else min(pause_ms, common_ms)
    draft.start(HEARTBEAT_DUE, pause_ms)


def end_pause(draft: MemberDraft) -> None:
    """Be due; the next pause is twice as long, up to the interval.

    At the first common moment after a change the others hear of it, so pauses are short once more.
    """
    session = draft.session
    again_at, pause_ms = session.again_at, min(2 * session.pause_ms, session.interval_ms)
    if 0 < again_at <= draft.now:
        again_at, pause_ms = 0, _first_pause(draft)
    draft.session = replace(session, is_due=True, pause_ms=pause_ms, again_at=again_at)


def _first_pause(draft: MemberDraft) -> int:
    return max(draft.session.interval_ms // draft.config.first_heartbeat_part, 1)


def _until_common_moment(draft: MemberDraft) -> int | None:
    """Return the time until the whole group beats, None if this member keeps its own time."""
    ahead_ms = draft.config.wall_clock_ahead_ms
    if ahead_ms is None:
        return None
    interval_ms = draft.session.interval_ms
    period_ms = interval_ms + interval_ms // _LATER
    place = crc32(draft.session.member_id.encode()) % max(interval_ms // _SPREAD, 1)
    moment = crc32(draft.config.group_id.encode()) + place
    wait_ms = (moment - draft.now - ahead_ms) % period_ms
    return wait_ms if wait_ms >= max(interval_ms // _TOO_NEAR, 1) else wait_ms + period_ms
