"""What each error code of a heartbeat means for a member (L35, L36)."""

from __future__ import annotations

from enum import Enum

from kohort.errors import ErrorCode


class Remedy(Enum):
    """What to do about an error."""

    NONE = "no error"
    REJOIN = "what is owned is lost: say so, and join again as who we are"
    FIND_COORDINATOR = "look for the coordinator"
    WAIT = "try again after a wait"
    TELL_AND_WAIT = "the application is told; it may be allowed later"
    FATAL = "give up"


_REMEDIES: dict[int, Remedy] = {
    ErrorCode.NONE: Remedy.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH: Remedy.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Remedy.REJOIN,
    ErrorCode.NOT_COORDINATOR: Remedy.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Remedy.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Remedy.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Remedy.WAIT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Remedy.TELL_AND_WAIT,
}


def remedy(code: int, *, is_member: bool) -> Remedy:
    """Return what to do about the answer to a heartbeat; whatever is not known is fatal.

    Args:
        code: Its error code.
        is_member: Whether the heartbeat came from a member, and not from one that joins. A group
            that is gone was deleted while the member was away: it comes back by joining again.
    """
    if code == ErrorCode.GROUP_ID_NOT_FOUND and is_member:
        return Remedy.REJOIN
    return _REMEDIES.get(code, Remedy.FATAL)
