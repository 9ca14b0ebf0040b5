"""What changed in a group while somebody watches it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from kohort.cli.shared import printable

if TYPE_CHECKING:
    from kohort.client import GroupDescription

_KEPT = 10


class Changes:
    """Compares each look at a group with the one before: brokers tell no history."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._last: GroupDescription | None = None
        self._since = 0.0
        self._failure = ""

    def saw(self, described: GroupDescription, now: float) -> None:
        """Learn what a group is like.

        Args:
            described: The group.
            now: Seconds since the epoch.
        """
        last, self._last = self._last, described
        if self._failure:
            self._note(now, "the brokers answer again")
            self._failure = ""
        if last is None:
            self._since = now
            return
        before = {member.member_id: member.client_id for member in last.members}
        after = {member.member_id: member.client_id for member in described.members}
        for member_id in sorted(after.keys() - before.keys()):
            self._note(now, f"{after[member_id]} joined ({member_id})")
        for member_id in sorted(before.keys() - after.keys()):
            self._note(now, f"{before[member_id]} left or was removed ({member_id})")
        if described.epoch != last.epoch and described.epoch is not None:
            self._note(now, f"epoch {last.epoch} -> {described.epoch}")
        if described.state != last.state:
            self._since = now
            self._note(now, f"{last.state} -> {described.state}")

    def failed(self, why: str, now: float) -> None:
        """Learn that the group could not be looked at."""
        if why != self._failure:
            self._note(now, why)
        self._failure = why

    def since(self) -> str:
        """Return since when the state has been seen."""
        return time.strftime("%H:%M:%S", time.localtime(self._since))

    def lines(self) -> list[str]:
        """Return the last changes, newest first."""
        return list(self._lines)

    def _note(self, now: float, what: str) -> None:
        at = time.strftime("%H:%M:%S", time.localtime(now))
        self._lines.appendleft(f"{at}  {printable(what)}")
