"""Two faults at once in a small region: each ordered pair of kinds, at moments that differ."""

from __future__ import annotations

from itertools import product

import pytest

from kohort.simulation.engine import Stream
from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import (
    FROM_MS,
    KINDS,
    OPERATORS,
    PROTOCOLS,
    TO_MS,
    Fault,
    moments,
    pairs,
    small,
)


@pytest.mark.timeout(600)
def test_no_pair_of_faults_breaks_a_rule() -> None:
    """R1 to R17; `make sweep-regions` plays all pairs of moments, too."""
    chance = Stream(1, "moments of faults")
    broken = []
    for number, kinds in enumerate(product(KINDS, repeat=2)):
        faults = (
            Fault(chance.between(FROM_MS, TO_MS), kind, chance.between(0, OPERATORS - 1), 50)
            for kind in kinds
        )
        scenario = small(PROTOCOLS[number % len(PROTOCOLS)], *faults)
        outcome = run(scenario)
        if not outcome.is_ok:
            broken.append((outcome.scenario.faults, outcome.complaint))
    assert broken == []


def test_a_sweep_has_every_pair() -> None:
    kinds, every = ("kill", "compact"), 2_000
    swept = list(pairs(every, ("eager",), kinds))
    times = len(moments(every))
    assert len(swept) == len({each.faults for each in swept}) + times * 12 // 2
    assert len(swept) == times * (times + 1) // 2 * (len(kinds) * OPERATORS) ** 2
