"""A log of calls to listeners and by listeners, and the error for unsupported calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kohort.errors import KohortError
from kohort.types import TopicPartition

_KEPT = 400
_SHOWN = 15


class NotSimulatedError(KohortError):
    """A listener does something valid that the simulation does not support.

    `simulate` raises it even if the listener catches it: the run is inconclusive.
    """


class CallLog:
    """The latest calls to listeners and by listeners, by virtual time."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=_KEPT)

    def note(self, now: int, name: str, text: str) -> None:
        """Record one call.

        Args:
            now: Virtual time in milliseconds.
            name: Name of the member.
            text: The call.
        """
        self._lines.append((now, name, text))

    def shown(self, name: str | None = None) -> str:
        """Return the last lines, of one member or of all; empty if there are none."""
        chosen = [line for line in self._lines if name in (None, line[1])][-_SHOWN:]
        rows = [f"  {now:>10,} ms  {who}: {text}" for now, who, text in chosen]
        return "\n".join(["last calls of listeners, and by listeners:", *rows]) if rows else ""


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as displayed by Kafka's tools."""
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def call_text(method: str, partitions: Iterable[TopicPartition]) -> str:
    """Return the log's text for a call to a listener."""
    return f"{method}({shown(partitions)})"
