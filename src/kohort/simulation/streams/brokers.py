"""Logs of the simulated brokers beside those of the group: changelogs, outputs, control topic."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kohort.simulation.engine import Engine
from kohort.streams.runtime.interface import Pair
from kohort.types import TopicPartition

if TYPE_CHECKING:
    pass


class Log(Struct):
    """One partition.

    Attributes:
        pairs: Keys and values, by offset.
        times: When each of them arrived.
        state: The last value of each key.
        shown: The end that a new leader reports at first.
        shown_until: Until when.
    """

    pairs: list[Pair] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    state: dict[bytes, bytes] = field(default_factory=dict)
    shown: int = 0
    shown_until: int = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.pairs)

    def end_at(self, now: int) -> int:
        """Return the end that a reader gets at a time."""
        return min(self.shown, self.end) if now < self.shown_until else self.end

    def since(self, time: int) -> int:
        """Return how many records came after a time."""
        return self.end - bisect_right(self.times, time)

    def state_at(self, end: int) -> dict[bytes, bytes]:
        """Return the last value of each key before an offset."""
        found: dict[bytes, bytes] = {}
        for key, value in self.pairs[:end]:
            found[key] = value or b""
        return found


class Brokers:
    """All logs.

    Args:
        engine: The clock.

    Attributes:
        down_until: Until when no record arrives, because leaders change.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.logs: dict[TopicPartition, Log] = {}
        self.down_until = 0

    def log(self, place: TopicPartition) -> Log:
        """Return the log of a partition."""
        found = self.logs.get(place)
        if found is None:
            found = self.logs[place] = Log()
        return found

    def append(self, place: TopicPartition, pairs: list[Pair]) -> int:
        """Append records that arrive; return the offset of the first one."""
        log = self.log(place)
        first = log.end
        log.pairs += pairs
        log.times += [self._engine.now] * len(pairs)
        log.state.update((key, value or b"") for key, value in pairs)
        return first

    def change_leaders(self, lasts_ms: int, hidden: int) -> None:
        """Let other brokers lead the partitions; no record arrives meanwhile.

        Args:
            lasts_ms: How long that takes.
            hidden: How many of the last records the new leaders do not know to be stored at first.
        """
        now = self._engine.now
        self.down_until = max(self.down_until, now + lasts_ms)
        for log in self.logs.values():
            log.shown, log.shown_until = max(log.end_at(now) - hidden, 0), now + lasts_ms
