"""The scenario of a simulated region: drawn from a seed, or small with two faults.

Seeds draw many faults at any moment. In the small ones nothing is random: two operators share two
partitions, each fault hits either of them, and every ordered pair of faults is run at all pairs of
moments of a grid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from msgspec import Struct
from msgspec.structs import asdict

from kohort.errors import ConfigError
from kohort.simulation.engine import Stream
from kohort.values import replace

PROTOCOLS = ("eager", "cooperative", "consumer")
REBALANCES = ("checkpoint", "reset")

KINDS = (
    "kill",
    "kill at append",
    "kill after append",
    "kill in publish",
    "pause",
    "split log",
    "split group",
    "split all",
    "clock",
    "leave",
    "throw out",
    "grow",
    "recreate",
    "compact",
    "two controllers",
    "no controller",
    "reread",
    "unhealthy",
    "ask drain",
    "ask reset",
    "force reset",
    "publish fails",
    "slow",
    "foreign record",
    "parrot",
)
"""The faults, by name."""

# An operator that is in the group, and does not come back from a reset.
_SLOW = ("split log", "ask reset", "force reset", "slow")

OPERATORS = 2
PARTITIONS = 2
# The region has made its first checkpoint before the faults, and is calm for a while after them.
FROM_MS = 2_000
TO_MS = 8_000
_SIZE = 50


class Fault(Struct, frozen=True, order=True):
    """A fault, or an action of an operator.

    Attributes:
        at_ms: When it happens.
        kind: Its kind, of `KINDS`.
        node: Number of the operator that it hits.
        size: Its duration or amount, in a unit of the kind.
    """

    at_ms: int
    kind: str
    node: int
    size: int


class RegionScenario(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        seed: Seed of all random choices.
        operators: How many operators start at once.
        joiners: When further ones join, in milliseconds.
        partitions: How many the topic has.
        protocol: How the group moves partitions.
        rebalance: How operators hand over: "checkpoint", "reset", or "mixed".
        latest: Whether partitions start at their end when they are first seen.
        duration_ms: How long there are faults.
        lost_requests: Share of appends that never arrive.
        lost_answers: Share of appends whose result is lost.
        late_requests: Share of appends that arrive after they were given up.
        repeated: Share of appends that arrive twice.
        delay_ms: Usual delay of the network.
        snapshot_every: Offsets between snapshots.
        faults: The faults.
    """

    seed: int
    operators: int = 2
    joiners: tuple[int, ...] = ()
    partitions: int = 3
    protocol: str = "cooperative"
    rebalance: str = "checkpoint"
    latest: bool = False
    duration_ms: int = 40_000
    lost_requests: float = 0.0
    lost_answers: float = 0.0
    late_requests: float = 0.0
    repeated: float = 0.0
    delay_ms: int = 5
    snapshot_every: int = 40
    faults: tuple[Fault, ...] = ()

    @property
    def is_orderly(self) -> bool:
        """Whether there are no faults, and partitions are handed over by checkpoints."""
        rough = self.lost_requests or self.lost_answers or self.late_requests or self.repeated
        return not (self.faults or rough) and self.rebalance == "checkpoint"


def draw(seed: int) -> RegionScenario:
    """Return the scenario of a seed; each draws its own mix."""
    scenario = _draw(seed)
    if seed % 8:
        return scenario
    # Now and then there are no faults, and operators only join.
    return replace(
        scenario,
        lost_requests=0.0,
        lost_answers=0.0,
        late_requests=0.0,
        repeated=0.0,
        rebalance="checkpoint",
        faults=(),
    )


def _draw(seed: int) -> RegionScenario:
    chance = Stream(seed, "region scenario")
    duration = chance.between(20, 40) * 1_000
    operators = chance.between(1, 3)
    joiners = tuple(
        chance.between(2, duration // 1_000) * 1_000 for _ in range(chance.between(0, 2))
    )
    kinds = chance.sample(KINDS, chance.between(2, 8))
    if seed % 8 == 4:
        kinds = list(_SLOW)
    rough = chance.happens(0.6)
    return RegionScenario(
        seed=seed,
        operators=operators,
        joiners=tuple(sorted(joiners)),
        partitions=chance.between(1, 5),
        protocol=chance.choice(PROTOCOLS),
        rebalance=chance.choice((*REBALANCES, "mixed")),
        latest=chance.happens(0.2),
        duration_ms=duration,
        lost_requests=0.05 if rough and chance.happens(0.6) else 0.0,
        lost_answers=0.08 if rough and chance.happens(0.6) else 0.0,
        late_requests=0.05 if rough and chance.happens(0.6) else 0.0,
        repeated=0.08 if rough and chance.happens(0.6) else 0.0,
        delay_ms=chance.choice((2, 10, 40)),
        snapshot_every=chance.choice((10, 25, 60, 100_000)),
        faults=_draw_faults(seed, kinds, duration, operators + len(joiners)),
    )


def _draw_faults(seed: int, kinds: list[str], duration: int, nodes: int) -> tuple[Fault, ...]:
    chance = Stream(seed, "region faults")
    count = chance.between(2, 9)
    faults = [
        Fault(
            chance.between(3_000, duration),
            chance.choice(kinds),
            chance.between(0, nodes - 1),
            chance.between(1, 100),
        )
        for _ in range(count)
    ]
    return tuple(sorted(faults))


def to_json(scenario: RegionScenario) -> str:
    """Return a scenario as text, for a file that a run can be repeated from."""
    plain = asdict(scenario)
    plain["faults"] = [[f.at_ms, f.kind, f.node, f.size] for f in scenario.faults]
    return json.dumps(plain, indent=1)


def from_json(text: str) -> RegionScenario:
    """Return the scenario of a text.

    Raises:
        ConfigError: It is not one.
    """
    try:
        plain = json.loads(text)
        plain["faults"] = tuple(Fault(*each) for each in plain["faults"])
        plain["joiners"] = tuple(plain["joiners"])
        return RegionScenario(**plain)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"not a scenario of a region: {error}") from None


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
