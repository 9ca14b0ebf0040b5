"""The scenarios of `scenarios.txt`: what changes, when, how our group agrees, where rows go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# A run of all of them takes ten minutes.
PARTS = 4


@dataclass(frozen=True)
class Scenario:
    """A line of the table.

    Attributes:
        change: What happens: a name of `changes.CHANGES`.
        moment: When: before, during (a batch), between (batches), down, replay.
        protocol: How our group agrees.
        sink: Where the rows go.
    """

    change: str
    moment: str
    protocol: str
    sink: str

    @property
    def id(self) -> str:
        """Its name as a test, which topics can have."""
        words = f"{self.change} {self.moment} {self.protocol} {self.sink}"
        return re.sub("[^A-Za-z0-9.]+", "-", words)


def parsed(line: str) -> Scenario:
    change, moment, protocol, sink = map(str.strip, line.split("|"))
    return Scenario(change, moment, protocol, sink)


def part(number: int) -> tuple[Scenario, ...]:
    """Return what one run of the tests plays: all batch reads, and a part of the streams.

    Args:
        number: Chooses the part; each following number another one.
    """
    streams = [each for each in SCENARIOS if each.sink != "batch"]
    return (
        *(each for each in SCENARIOS if each.sink == "batch"),
        *streams[number % PARTS :: PARTS],
    )


LINES = Path(__file__).with_name("scenarios.txt").read_text(encoding="utf-8").splitlines()
SCENARIOS = tuple(parsed(line) for line in LINES if not line.startswith("#"))
