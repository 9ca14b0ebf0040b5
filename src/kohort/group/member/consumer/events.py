"""What the table of a consumer member calls by other names than the shell."""

from __future__ import annotations

from kohort.values import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatReady:
    """A heartbeat is due, and can go out."""


@dataclass(frozen=True, slots=True)
class GoodByeAnswered:
    """The good-bye was answered, or there will be no answer."""
