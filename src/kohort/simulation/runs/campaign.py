"""Runs many seeds one after the other, and combines their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from kohort.errors import ConfigError
from kohort.observe.timeline import OwnershipTimeline
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.groups.protocols import CAMPAIGNS
from kohort.simulation.groups.world import World
from kohort.simulation.runs.drawing import PALETTE, draw, draw_faults
from kohort.simulation.runs.fleet import Summary
from kohort.simulation.runs.running import Outcome, Owners, run, run_world
from kohort.simulation.runs.scenario import MemberPlan, Scenario, Weather, nearest
from kohort.simulation.shrinking import shrink
from kohort.simulation.trace import Trace
from kohort.values import replace

ALL = "all"
REGION = "region"
"""Consistent regions, which are simulated by `kohort.simulation.regions`."""
STREAMS = "streams"
"""Stream applications, which are simulated by `kohort.simulation.streams`."""
TRANSACTIONS = "transactions"
"""Transactional producers, which are simulated by `kohort.simulation.transactions`."""
NONE = "none"
_FAULT = "fault "


class Choice(Struct, frozen=True, kw_only=True):
    """Choices that are given instead of drawn from the seed.

    Attributes:
        protocol: Group protocol of all members; "all": the seed decides.
        members: How many members; None: the seed decides.
        minutes: How long faults happen; None: the seed decides.
        faults: Kinds of faults; None: the seed decides, empty: no faults, and a fast network
            without loss.
    """

    protocol: str = ALL
    members: int | None = None
    minutes: int | None = None
    faults: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.protocol != ALL and self.protocol not in CAMPAIGNS:
            known = (*CAMPAIGNS, ALL, REGION, STREAMS, TRANSACTIONS)
            raise ConfigError(f"no protocol {self.protocol!r}{nearest(self.protocol, known)}")
        for kind in sorted(self.faults or ()):
            if kind not in PALETTE:
                raise ConfigError(f"no fault {kind!r}{nearest(kind, PALETTE)}")

    @property
    def options(self) -> str:
        """Return the command's options for this choice, without the protocol."""
        faults = None if self.faults is None else ",".join(sorted(self.faults)) or NONE
        given = {"members": self.members, "minutes": self.minutes, "faults": faults}
        return "".join(f" --{name} {value}" for name, value in given.items() if value is not None)

    def scenario(self, seed: int) -> Scenario:
        """Return the scenario of a seed."""
        protocol = self.protocol
        if protocol == ALL:
            protocol = CAMPAIGNS[seed % len(CAMPAIGNS)]
        scenario = draw(seed, protocol, self.minutes)
        if self.members is not None:
            scenario = _sized(scenario, self.members)
        if self.faults is not None:
            faults = draw_faults(
                seed, list(scenario.members), scenario.minutes, protocol, self.faults
            )
            calm = not self.faults
            weather = Weather() if calm else scenario.weather
            scenario = replace(scenario, faults=() if calm else faults, weather=weather)
        return scenario


def parse_faults(text: str) -> frozenset[str] | None:
    """Read the option for faults: "all", "none", or kinds separated by commas."""
    if text == ALL:
        return None
    return frozenset(each.strip() for each in text.split(",") if text != NONE)


def _sized(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with `count` members, by leaving some out or repeating them."""
    drawn = scenario.members
    members = [_numbered(drawn[number % len(drawn)], number + 1) for number in range(count)]
    return replace(
        scenario,
        members=tuple(members),
        group_max_size=max(scenario.group_max_size, count),
        faults=draw_faults(
            scenario.seed,
            members,
            scenario.minutes,
            scenario.protocol,
            frozenset(fault.kind for fault in scenario.faults),
        ),
    )


def _numbered(plan: MemberPlan, number: int) -> MemberPlan:
    instance = f"instance-{number}" if plan.instance else ""
    return replace(plan, name=f"member-{number}", instance=instance)


def faults_in(notes: Counter[str]) -> dict[str, int]:
    """Return the number of faults of each kind in the notes of one or more runs."""
    found = sorted(notes.items())
    return {note.removeprefix(_FAULT): n for note, n in found if note.startswith(_FAULT)}


class Finding(Struct, frozen=True):
    """A failed run, and its smallest form.

    Attributes:
        first: The run as it was drawn.
        smallest: The smallest run that fails with the same verdict, with its trace.
        tried: How many scenarios were run to find it.
        timeline: The owners of partitions over time in the smallest run.
    """

    first: Outcome
    smallest: Outcome
    tried: int
    timeline: OwnershipTimeline


def watch(scenario: Scenario) -> tuple[Outcome, OwnershipTimeline]:
    """Run a scenario, and keep its trace and the owners of partitions."""
    world = World(scenario, checkers=CHECKERS, trace=Trace(keep=True))
    owners = Owners(world)
    outcome = run_world(world)
    return outcome, owners.timeline()


def reduce(failed: Outcome, tell: Callable[[int], None]) -> Finding:
    """Find the smallest scenario that fails in the same way as a run.

    Args:
        failed: The run.
        tell: Called after each scenario, with the number tried so far.
    """
    tried = 0

    def fails(scenario: Scenario) -> bool:
        nonlocal tried
        tried += 1
        tell(tried)
        return run(scenario, trace=False).verdict == failed.verdict

    smallest, timeline = watch(shrink(failed.scenario, fails))
    return Finding(failed, smallest, tried, timeline)


def run_all(choice: Choice, seeds: Iterable[int], summary: Summary) -> Iterator[Outcome]:
    """Run seeds one after the other, and yield each outcome once it is counted."""
    for seed in seeds:
        outcome = run(choice.scenario(seed))
        summary.add(outcome)
        yield outcome
