"""The trace of a run: one line for each event, in fixed columns, and a hash of all lines.

Columns (docs/simulation.md explains them): time in milliseconds; entity; event; the state and the
generation afterwards; effects.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from kohort.group.events import Ownership
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.group.coordinator.events import ShardEvent
    from kohort.group.coordinator.state import ShardSession
    from kohort.group.effects import Effects
    from kohort.group.member.events import MemberEvent
    from kohort.simulation.groups.protocols import Machine


class Trace:
    """Collects lines, or only their hash.

    Args:
        keep: Whether the lines are kept.
    """

    def __init__(self, keep: bool) -> None:
        self.lines: list[str] = []
        self._keep = keep
        self._hash = blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """Return the hash of all lines so far."""
        return self._hash.hexdigest()

    def line(self, now: int, who: str, what: str, text: str = "") -> None:
        """Add a line."""
        line = f"{now:>9} {who:<10} {what:<22} {text}"
        self._hash.update(line.encode())
        if self._keep:
            self.lines.append(line)

    def coordinator(
        self, now: int, name: str, event: ShardEvent, effects: Effects[ShardSession]
    ) -> None:
        """Add a line for an event of the coordinator."""
        request = getattr(event, "request", None)
        if request is None:
            what, who = type(event).__name__, ""
        else:
            what = type(request).__name__.removesuffix("Request")
            who = getattr(event, "client_id", "")
        replies = " ".join(_code(reply.response) for reply in effects.replies)
        facts = " ".join(fact.kind for fact in effects.observed)
        text = f"{who:<10} records={len(effects.records)} answers=[{replies}] {facts}"
        self.line(now, name, what, text)

    def member(
        self, now: int, name: str, machine: Machine, event: MemberEvent, effects: Effects[object]
    ) -> None:
        """Add a line for an event of a member."""
        response = getattr(event, "response", None)
        what = type(event).__name__
        if response is not None:
            what = f"{type(response).__name__.removesuffix('Response')}={_code(response)}"
        sends = " ".join(type(s.request).__name__.removesuffix("Request") for s in effects.sends)
        calls = " ".join(f"{c.change.value}({len(c.partitions)})" for c in effects.callbacks)
        text = f"{machine.state.name:<21} g{machine.generation_id} sends=[{sends}] calls=[{calls}]"
        self.line(now, name, what, text)

    def call(
        self,
        now: int,
        name: str,
        change: Ownership,
        partitions: frozenset[TopicPartition],
        verb: str,
    ) -> None:
        """Add a line for a call into an application."""
        names = ",".join(f"{topic}-{number}" for topic, number in sorted(partitions))
        self.line(now, name, f"{change.value} {verb}", names)

    def records(self, now: int, name: str, partition: TopicPartition, first: int, end: int) -> None:
        """Add a line for records that an application got."""
        where = f"{partition.topic}-{partition.partition}"
        self.line(now, name, "records", f"{where} [{first}, {end})")


def _code(response: object) -> str:
    code = getattr(response, "error_code", None)
    return "-" if code is None else str(int(code))
