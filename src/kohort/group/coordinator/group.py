"""What groups of members that all join at once have alike: classic ones, and those of the draft."""

from __future__ import annotations

from enum import Enum

from kohort.values import dataclass


@dataclass(frozen=True, slots=True)
class Parked:
    """A request that waits for its answer."""

    token: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group; a value.

    Attributes:
        group_id: Its id.
        state: Its state.
        generation: Number of its present generation; grows with each rebalance.
    """

    group_id: str
    state: Enum
    generation: int = 0
