"""What came of one run of a simulator whose scenario is drawn from a seed, and what ends it."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

from msgspec import Struct, field

from kohort.errors import Portable

OK = "ok"

S = TypeVar("S")


class SeededOutcome(Struct, Generic[S]):
    """The result of a run.

    Attributes:
        scenario: The run.
        verdict: "ok", the name of the rule that was broken, or that a machine raised.
        complaint: The rule's complaint.
        events: Number of events.
        took_ms: Simulated time; each simulator defines what it measures.
        notes: How often each kind of event happened.
        digest: Hash of the trace; empty if there is none.
        lines: The trace, if requested.
    """

    scenario: S
    verdict: str
    complaint: str
    events: int
    took_ms: int
    notes: Counter[str]
    digest: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether no rule was broken."""
        return self.verdict == OK


class RuleBrokenError(Portable, Exception):
    """A rule of a simulated region, or of simulated transactions, was broken.

    Attributes:
        checker: Name of the rule.
    """

    def __init__(self, checker: str, text: str) -> None:
        """Create the error."""
        self.checker = checker
        super().__init__(f"{checker}: {text}")
