"""Run planted bugs, and say which checker caught each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from kohort.simulation.drawing import draw
from kohort.simulation.planting import consumer_bugs, coordinator_bugs, member_bugs
from kohort.simulation.planting.bug import BUGS, Bug
from kohort.simulation.planting.mutation import Mutant
from kohort.simulation.running import CRASHED, OK, Outcome, run_world
from kohort.simulation.scenario import Scenario
from kohort.simulation.world import World

MINUTES = 10


@dataclass(frozen=True, slots=True)
class Catch:
    """What became of a planted bug.

    Attributes:
        name: The bug.
        checker: Name of the checker that caught it; empty: it survived.
        seed: With which seed.
        seeds: How many seeds were tried.
    """

    name: str
    checker: str
    seed: int
    seeds: int


def bugs() -> list[Bug]:
    """Return the bugs that were written by hand."""
    if not BUGS:
        coordinator_bugs.plant_all()
        member_bugs.plant_all()
        consumer_bugs.plant_all()
    return BUGS


def catch_bug(planted: Bug, seeds: Iterable[int]) -> Catch:
    """Try seeds until a checker catches a bug."""
    runs = (
        (seed, _run(draw(seed, planted.protocol, MINUTES), planted.plant(), planted))
        for seed in seeds
    )
    return _first_catch(planted.name, runs)


def catch_mutant(mutant: Mutant, scenarios: Iterable[Scenario]) -> Catch:
    """Try scenarios until a checker catches a changed row."""
    runs = ((each.seed, _run(each, mutant.planted(), None)) for each in scenarios)
    return _first_catch(mutant.name, runs)


def _first_catch(name: str, runs: Iterator[tuple[int, Outcome | None]]) -> Catch:
    count = 0
    for seed, outcome in runs:
        count += 1
        if outcome is not None and outcome.verdict not in (OK, CRASHED):
            return Catch(name, outcome.verdict, seed, count)
    return Catch(name, "", -1, count)


def _run(
    scenario: Scenario, context: AbstractContextManager[None], planted: Bug | None
) -> Outcome | None:
    from kohort.simulation.checkers import CHECKERS

    scenario = replace(scenario, group_max_size=max(scenario.group_max_size, 100))
    with context:
        world = World(
            scenario,
            checkers=CHECKERS,
            assignors=planted.assignors if planted else None,
            survives_failures=True,
        )
        if planted is not None and planted.application is not None:
            world.application = planted.application
        return _survived(world)


def _survived(world: World) -> Outcome | None:
    """Run a world; None: a call was refused or something raised, which is no catch."""
    try:
        return run_world(world)
    except Exception:  # noqa: BLE001  # a bug may raise anything, anywhere
        return None
