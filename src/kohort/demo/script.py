"""The acts: joins and kills, and the conditions for the next act."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from kohort.demo.actors import Actor
from kohort.demo.replay import Replay
from kohort.demo.settings import PARTITIONS, Calendar
from kohort.errors import KohortError
from kohort.observe.rebalances import Rebalance
from kohort.observe.svg import Marker

_TICK_S = 0.05
_ACT_TIMEOUT_S = 90.0
_SOUTHS_SHARE = 0.8


class ActFailed(KohortError):
    """An act did not complete in time."""


class GroupView(Protocol):
    """The script's view of the group."""

    def owned_by(self, name: str) -> int:
        """Return how many partitions an application currently owns."""
        ...

    def gone(self, name: str) -> None:
        """Record that an application was killed: it owns nothing from now on."""

    def committed(self) -> int:
        """Return the sum of the group's committed offsets."""

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The completed rebalances."""

    def now_ms(self) -> int:
        """Return the time by the timeline's clock."""


class Script:
    """Plays the acts, calling `draw` while it waits."""

    def __init__(
        self,
        actors: dict[str, Actor],
        group: GroupView,
        replay: Replay,
        draw: Callable[[str], None],
        calendar: Calendar,
    ) -> None:
        """Prepare the script.

        Args:
            actors: The waiting applications by name: north, south and west.
            group: The view of the group.
            replay: The publisher of the flights, not yet started.
            draw: Displays the current state with a caption.
            calendar: The days on which the acts change.
        """
        self.markers: list[Marker] = []
        self.open_at_kill = 0
        self.moved_under_load = 0
        self.end_ms = 0
        self._actors = actors
        self._group = group
        self._replay = replay
        self._draw = draw
        self._calendar = calendar
        self._caption = ""

    def play(self) -> None:
        """Play all acts.

        Raises:
            ActFailed: An act did not complete in time.
        """
        self._north_alone()
        self._south_joins()
        self._south_is_killed()
        self._west_joins()
        self._drain()

    def _north_alone(self) -> None:
        self._act("north starts alone and takes all partitions")
        self._replay.start()
        self._replay.hold_at(self._calendar.south_joins)
        self._actors["north"].tell("go")
        self._until(lambda: self._group.owned_by("north") == PARTITIONS, "north owns all")
        self._until(lambda: self._actors["north"].state.read > 0, "north has read")
        self._until_day(self._calendar.south_joins)

    def _south_joins(self) -> None:
        self._act("south joins: four partitions each", "south joins")
        self._actors["south"].tell("go")
        self._until(lambda: self._halves("north", "south"), "north and south own half each")
        self._replay.hold_at(self._calendar.south_dies)
        self._until(lambda: self._actors["south"].state.read > 0, "south has read")
        self._until_day(self._calendar.south_dies - 5)
        self._until(self._most_is_committed, "south's share is committed")

    def _south_is_killed(self) -> None:
        south = self._actors["south"]
        self._replay.hold_at(self._calendar.west_joins)
        south.wait_for_open_batch(_ACT_TIMEOUT_S)
        south.kill()
        self._group.gone("south")
        self.open_at_kill = south.state.open_batch
        self._act("south is killed: it cannot leave, so its session has to expire", "south killed")
        self._until(lambda: self._group.owned_by("north") == PARTITIONS, "north owns all again")
        self._until_day(self._calendar.west_joins)

    def _west_joins(self) -> None:
        self._act("west joins and takes its share", "west joins")
        self._replay.hold_at(self._calendar.west_owns)
        self._actors["west"].tell("go")
        self._until(lambda: self._halves("north", "west"), "north and west own half each")
        self._replay.hold_at(None)
        self._until(lambda: self._actors["west"].state.read > 0, "west has read")
        self._until(lambda: self._replay.progress.done, "all flights are published")
        self.moved_under_load = self._moved_while_publishing()

    def _moved_while_publishing(self) -> int:
        """Count the partitions that have moved from one application to another.

        Called right after the last flight was published: all moves happened under load.
        """
        return sum(
            move.source is not None and move.target is not None
            for rebalance in self._group.rebalances
            for move in rebalance.moves
        )

    def _drain(self) -> None:
        self._act("the year is over: everything is drained", "drain")
        self._until(self._all_committed, "the group has committed everything")
        for name in ("west", "north"):
            self._actors[name].tell("drain")
            self._until(lambda name=name: self._has_drained(name), f"{name} has drained")  # type: ignore[misc]  # mypy does not infer a lambda's default
        self.end_ms = self._group.now_ms()

    def _most_is_committed(self) -> bool:
        """Whether south has done its share, even on a slow machine.

        In a region, others re-read the records it has read since the last checkpoint before its
        kill.
        """
        return self._group.committed() >= _SOUTHS_SHARE * self._replay.progress.published

    def _all_committed(self) -> bool:
        return self._group.committed() >= self._replay.progress.published

    def _has_drained(self, name: str) -> bool:
        return "drained" in self._actors[name].state.said

    def _halves(self, one: str, other: str) -> bool:
        half = PARTITIONS // 2
        return self._group.owned_by(one) == half and self._group.owned_by(other) == half

    def _act(self, caption: str, marker: str | None = None) -> None:
        self._caption = caption
        if marker:
            self.markers.append(Marker(self._group.now_ms(), marker))
        self._draw(caption)

    def _until_day(self, day: int) -> None:
        self._until(lambda: self._replay.progress.day >= day, f"the calendar reaches day {day}")

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _ACT_TIMEOUT_S
        while not reached():
            self._check_alive()
            if time.monotonic() > deadline:
                raise ActFailed(f"{what}: not within {_ACT_TIMEOUT_S:.0f} s ({self._caption})")
            self._draw(self._caption)
            time.sleep(_TICK_S)

    def _check_alive(self) -> None:
        if self._replay.progress.error is not None:
            raise ActFailed("the replay failed") from self._replay.progress.error
        for name, actor in self._actors.items():
            if actor.state.fatal:
                raise ActFailed(f"{name} failed: {actor.state.fatal}")
            if actor.has_failed:
                raise ActFailed(f"{name} ended by itself; see {actor.log_path}")
