"""Calls of listeners and of their consumers: how they are written down, and which there are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kohort.errors import KohortError
from kohort.types import TopicPartition

_KEPT = 400
_SHOWN = 15


class NotSimulatedError(KohortError):
    """A listener does something that is right, and that a simulation has not.

    It comes out of `simulate` even if the listener catches it: nothing is known about the listener.
    """


class CallLog:
    """What listeners were told, and what they called, by virtual time; the newest of it."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=_KEPT)

    def note(self, now: int, name: str, text: str) -> None:
        """Write down one call.

        Args:
            now: Virtual time in milliseconds.
            name: Whose it is.
            text: What was called.
        """
        self._lines.append((now, name, text))

    def shown(self, name: str | None = None) -> str:
        """Return the last lines, of one member or of all; empty when there are none."""
        chosen = [line for line in self._lines if name in (None, line[1])][-_SHOWN:]
        rows = [f"  {now:>10,} ms  {who}: {text}" for now, who, text in chosen]
        return "\n".join(["what listeners were told, and called, last:", *rows]) if rows else ""


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as Kafka's tools show them."""
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def call_text(method: str, partitions: Iterable[TopicPartition]) -> str:
    """Return a call of a listener as the log shows it."""
    return f"{method}({shown(partitions)})"
