"""Run planted bugs, and say which checker caught each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from msgspec import Struct

from kohort.simulation.checkers import CHECKERS
from kohort.simulation.coverage import counted
from kohort.simulation.groups.protocols import CAMPAIGNS
from kohort.simulation.groups.world import NO_CHECKERS, World
from kohort.simulation.runs.drawing import draw
from kohort.simulation.runs.running import CRASHED, OK, Outcome, run_world
from kohort.simulation.runs.scenario import Scenario
from kohort.values import replace
from tests.simulation.planting import (
    consumer_bugs,
    coordinator_bugs,
    known_bugs,
    member_bugs,
    moments,
)
from tests.simulation.planting.bug import BUGS, Bug
from tests.simulation.planting.mutation import Mutant, mutants
from tests.simulation.planting.nuisance import annoy

MINUTES = 10
# How long positions are kept in the runs that are aimed at their expiry.
_SHORT_RETENTION_MS = 30_000


class Try(Struct, frozen=True, order=True):
    """One run: a seed of a protocol; `aim` says what else is special about it."""

    protocol: str
    seed: int
    aim: str = ""

    def __str__(self) -> str:
        return f"{self.protocol} {self.seed} {self.aim}".strip()

    @classmethod
    def read(cls, words: str) -> Try:
        """Return the run that `str` has written down."""
        protocol, seed, *aim = words.split()
        return cls(protocol, int(seed), *aim)

    @property
    def scenario(self) -> Scenario:
        """The scenario of the run. A full group would refuse members, which hides their bugs."""
        drawn = draw(self.seed, self.protocol, MINUTES)
        size = max(drawn.group_max_size, 100)
        if self.aim == "retention":
            return replace(drawn, group_max_size=size, retention_ms=_SHORT_RETENTION_MS)
        return replace(drawn, group_max_size=size)


class Catch(Struct, frozen=True):
    """The result of the search for a planted bug.

    Attributes:
        name: The bug.
        checker: Name of the checker that caught it; empty: it survived.
        by: The run that caught it; None: none.
        tries: How many runs there were.
        crashes: How many of them raised an exception, which does not count as a catch.
    """

    name: str
    checker: str
    by: Try | None
    tries: int
    crashes: int = 0


def bugs() -> list[Bug]:
    """Return the bugs that were written by hand."""
    if not BUGS:
        coordinator_bugs.plant_all()
        member_bugs.plant_all()
        consumer_bugs.plant_all()
        known_bugs.plant_all()
    return BUGS


def every() -> dict[str, Bug | Mutant]:
    """Return all that can be planted, by name: what was written by hand first."""
    by_hand: dict[str, Bug | Mutant] = {each.name: each for each in bugs()}
    return {**by_hand, **{each.name: each for each in mutants()}}


def catch(planted: Bug | Mutant, tries: Iterable[Try]) -> Catch:
    """Try runs until a checker catches a bug, in a run that passes without the bug."""
    count = crashes = 0
    for each in tries:
        count += 1
        outcome = _run(each, planted)
        if outcome is None or outcome.verdict in (OK, CRASHED) or _only_crashes(outcome):
            crashes += outcome is None or outcome.notes["machine failed"] > 0
        elif is_sound(each):
            return Catch(planted.name, outcome.verdict, each, count, crashes)
    return Catch(planted.name, "", None, count, crashes)


def _only_crashes(outcome: Outcome) -> bool:
    """Whether the only complaint is that a process keeps dying of an exception."""
    raised = outcome.notes["machine failed"] > 0
    return raised and "again and again" in outcome.complaint


@cache
def is_sound(each: Try) -> bool:
    """Whether nothing is wrong in a run without a bug."""
    return run_world(_aimed(World(each.scenario, checkers=CHECKERS), each)).is_ok


# The additional events of an aimed run, by its aim.
_AIMS: dict[str, Callable[[World], None]] = {
    "retention": lambda _world: None,
    "visits": moments.visit,
    "failovers": moments.fail_over,
    "answers": annoy,
}


def _aimed(world: World, each: Try) -> World:
    aim = _AIMS.get(each.aim)
    if aim is not None:
        aim(world)
    return world


def _run(each: Try, planted: Bug | Mutant) -> Outcome | None:
    """Run a bug; None: something raised where no machine is."""
    is_bug = isinstance(planted, Bug)
    context = planted.plant() if isinstance(planted, Bug) else planted.planted()
    with context:
        world = World(
            each.scenario,
            checkers=CHECKERS,
            assignors=planted.assignors if isinstance(planted, Bug) else None,
            survives_failures=True,
        )
        if is_bug and isinstance(planted, Bug) and planted.application is not None:
            world.application = planted.application
        try:
            return run_world(_aimed(world, each))
        except Exception:  # noqa: BLE001  # a bug may raise anything, anywhere
            return None


# ------------------------------------------------------------------------------------- which runs


def all_tries(seeds: int) -> list[Try]:
    """Return `seeds` runs of each protocol, the protocols in turn; four of seven are aimed."""
    aims = ("", "", "", *_AIMS)
    return [
        Try(protocol, seed, aims[seed % len(aims)])
        for seed in range(seeds)
        for protocol in CAMPAIGNS
    ]


def rows_taken(each: Try) -> list[str]:
    """Return the rows that a run takes: a bug in a row that is not taken cannot show."""
    with counted() as taken:
        world = World(each.scenario, checkers=NO_CHECKERS, survives_failures=True)
        run_world(_aimed(world, each))
    return sorted(taken)


def tries_of(planted: Bug | Mutant, taking: dict[str, list[Try]], most: int) -> list[Try]:
    """Return the runs that can show a bug, those likely to do so first.

    Args:
        planted: The bug.
        taking: For each row the runs that take it.
        most: How many runs at most.
    """
    if isinstance(planted, Bug):
        return [Try(planted.protocol, seed) for seed in range(most)]
    found = dict.fromkeys(each for row in planted.rows_asked for each in taking.get(row, ()))
    return list(found)[:most]
