"""Small regions with two faults, at all pairs of moments of a grid.

Seeds draw many faults at any moment; here nothing is random. Two operators share two partitions,
each fault hits either of them, and every ordered pair of faults is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from kohort.simulation.regions.scenario import KINDS, PROTOCOLS, Fault, RegionScenario

OPERATORS = 2
PARTITIONS = 2
# The region has made its first checkpoint before, and is calm a while after.
FROM_MS = 2_000
TO_MS = 8_000
_SIZE = 50


def moments(every_ms: int) -> range:
    """Return when faults happen."""
    return range(FROM_MS, TO_MS, every_ms)


def pairs(
    every_ms: int, protocols: tuple[str, ...] = PROTOCOLS, kinds: tuple[str, ...] = KINDS
) -> Iterator[RegionScenario]:
    """Yield a scenario for each pair of faults.

    Args:
        every_ms: Distance of the moments, in milliseconds of the simulated clock.
        protocols: How the group moves partitions.
        kinds: Kinds of faults.
    """
    what = list(product(kinds, range(OPERATORS)))
    for protocol in protocols:
        for first_ms, second_ms in combinations_with_replacement(moments(every_ms), 2):
            for (first, of), (second, other) in product(what, repeat=2):
                yield small(
                    protocol,
                    Fault(first_ms, first, of, _SIZE),
                    Fault(second_ms, second, other, _SIZE),
                )


def small(protocol: str, *faults: Fault) -> RegionScenario:
    """Return a scenario of two operators and two partitions with these faults."""
    return RegionScenario(
        seed=1,
        operators=OPERATORS,
        partitions=PARTITIONS,
        protocol=protocol,
        duration_ms=TO_MS,
        faults=tuple(sorted(faults)),
    )
