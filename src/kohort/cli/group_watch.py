"""`kohort groups watch`: the current state of a group, and its recent changes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from kohort.cli.group_views import (
    DISPENSABLE_OF_OFFSETS,
    Position,
    as_dict,
    headline,
    offsets_table,
    positions_of,
)
from kohort.cli.shared import console, fitted, printable
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import AdminClient, GroupDescription

_KEPT = 10
# Number of changes shown in a small terminal.
_FEWEST = 3


class Changes:
    """Compares each description of a group with the previous one: brokers keep no history."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._last: GroupDescription | None = None
        self._since = 0.0
        self._failure = ""
        self._is_missing = False

    def saw(self, described: GroupDescription, now: float) -> None:
        """Add a description of the group.

        Args:
            described: The group.
            now: Seconds since the epoch.
        """
        last, self._last = self._last, described
        self._answered(now)
        if self._is_missing:
            self._note(now, f"group {described.group_id} is there")
            self._is_missing, last = False, replace(described, members=())
            self._since = now
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

    def missing(self, group: str, now: float) -> None:
        """Record that the group does not exist: not yet, or no longer."""
        self._answered(now)
        if not self._is_missing:
            self._note(now, f"there is no group {group} {'any more' if self._last else 'yet'}")
        self._is_missing, self._last = True, None

    def failed(self, why: str, now: float) -> None:
        """Record that the group could not be described."""
        if why != self._failure:
            self._note(now, why)
        self._failure = why

    def since(self) -> str:
        """Return when the state was first seen."""
        return time.strftime("%H:%M:%S", time.localtime(self._since))

    def lines(self) -> list[str]:
        """Return the last changes, newest first."""
        return list(self._lines)

    def _answered(self, now: float) -> None:
        if self._failure:
            self._note(now, "the brokers answer again")
        self._failure = ""

    def _note(self, now: float, what: str) -> None:
        at = time.strftime("%H:%M:%S", time.localtime(now))
        self._lines.appendleft(f"{at}  {printable(what)}")


async def seen(admin: AdminClient, group: str) -> dict[str, object]:
    """Return the output of `watch --json`."""
    return as_dict(*await asyncio.to_thread(_look, admin, group))


def view(admin: AdminClient, group: str, changes: Changes) -> RenderableType:
    """Return the output of `watch`; an unavailable broker or a missing group does not end it.

    Raises:
        KohortError: A permanent error, such as a wrong password.
    """
    from kohort.client.net.backoff import needs_help

    now = time.time()
    try:
        described, positions = _look(admin, group)
    except KohortError as error:
        if isinstance(error, KafkaError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            changes.missing(group, now)
        elif needs_help(error):
            raise
        else:
            changes.failed(str(error), now)
        return Group(*map(Text, changes.lines()))
    changes.saw(described, now)
    return shown_in(console(), described, positions, changes)


def shown_in(
    to: Console, described: GroupDescription, positions: Sequence[Position], changes: Changes
) -> RenderableType:
    """Return a group and its changes, placed before the part that a small terminal cuts off."""
    columns, rows = offsets_table(described, positions, verbose=False)
    made, _ = fitted(to, columns, rows, DISPENSABLE_OF_OFFSETS)
    head = f"{printable(headline(described))}  SINCE {changes.since()}"
    lines = changes.lines()[: max(_FEWEST, to.height // 4)]
    return Group(Text(head), *(Text(line, no_wrap=True) for line in lines), made)


def _look(admin: AdminClient, group: str) -> tuple[GroupDescription, list[Position]]:
    """Return a group; unknown ends are left out, and `describe` says why."""
    described = admin.describe_groups([group])[group]
    positions, _ = positions_of(admin, described)
    return described, positions
