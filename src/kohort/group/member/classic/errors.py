"""What each error code of the coordinator means for a member (L10): the table, and its actions."""

from __future__ import annotations

from enum import Enum

from kohort.errors import ErrorCode
from kohort.group.member.classic import coordinator


class Remedy(Enum):
    """What to do about an error."""

    NONE = "no error"
    REJOIN = "join again at once, as who we are"
    RESET_GENERATION = "forget the generation, keep the member id, join again (KAFKA-13419)"
    RESET_MEMBER = "forget who we are, join again"
    KEEP_MEMBER_ID = "join again at once with the id in the answer (KIP-394)"
    FIND_COORDINATOR = "look for the coordinator"
    WAIT = "try again after a wait"
    FATAL = "give up"


_EVERYWHERE: dict[int, Remedy] = {
    ErrorCode.NONE: Remedy.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID: Remedy.RESET_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Remedy.RESET_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
    # Java's client gives up on this one after SyncGroup (C45); a wait cures it.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Remedy.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Remedy.WAIT,
    **dict.fromkeys(coordinator.LOST, Remedy.FIND_COORDINATOR),
}

_JOIN: dict[int, Remedy] = {
    **_EVERYWHERE,
    ErrorCode.MEMBER_ID_REQUIRED: Remedy.KEEP_MEMBER_ID,
}


def join_remedy(code: int) -> Remedy:
    """Return what to do about a JoinGroup answer; whatever is not known is fatal."""
    return _JOIN.get(code, Remedy.FATAL)


def remedy(code: int) -> Remedy:
    """Return what to do about the answer to a SyncGroup, Heartbeat or OffsetCommit."""
    return _EVERYWHERE.get(code, Remedy.FATAL)
