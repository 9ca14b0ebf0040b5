"""Bugs planted into a region: every row of both tables, every condition of the fold, and by hand.

A bug is caught when a run that passes without it breaks a rule. A machine that raises is a catch of
R8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from kohort.region.machines import fold
from kohort.region.machines.controller import CONTROLLER
from kohort.region.machines.fold import RULES, Rule
from kohort.region.machines.operator import OPERATOR
from kohort.region.machines.records import (
    Claim,
    Complete,
    Contribution,
    Drain,
    Evict,
    Healthy,
    Lost,
    Published,
    RegionRecord,
    Registered,
    Reset,
    ResetDone,
    Start,
    Unclaim,
    Unhealthy,
)
from kohort.simulation.coverage import AnyTable
from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import RegionScenario
from kohort.simulation.seeded import OK
from kohort.values import replace
from tests.simulation.planting.rows import Bug, Plant, row_bugs

# The fold's own actions take the record of their kind; here any of them.
_Action: TypeAlias = Callable[[Any, Any], None]

TABLES = cast("tuple[AnyTable, ...]", (OPERATOR, CONTROLLER))
_HARMLESS = frozenset({"pass_over", "rest", "ignore"})


def bugs() -> Iterator[Bug]:
    """Yield all bugs."""
    for table in TABLES:
        for index in range(len(table.rows)):
            yield from row_bugs(table, index, _HARMLESS)
    for kind, rule in RULES.items():
        for condition in rule.conditions:
            left = tuple(each for each in rule.conditions if each is not condition)
            name = f"fold: {kind.__name__} without {condition.__name__}"
            yield Bug(name, _folds(kind, replace(rule, conditions=left)))
    yield from _by_hand()


def _folds(kind: type[RegionRecord], rule: Rule) -> Plant:
    return lambda: rules({kind: rule})


@contextmanager
def rules(changes: Mapping[type[RegionRecord], Rule]) -> Iterator[None]:
    """Fold by other rules for a while."""
    kept = {kind: RULES[kind] for kind in changes}
    RULES.update(changes)
    try:
        yield
    finally:
        RULES.update(kept)


# ------------------------------------------------------------------------------------ by hand


def _after(kind: type[RegionRecord], spoil: _Action) -> Plant:
    """Plant: the record does what it should, and then breaks something."""
    rule = RULES[kind]

    def both(folding: Any, record: Any) -> None:
        rule.action(folding, record)
        spoil(folding, record)

    return _folds(kind, replace(rule, action=both))


def _instead(kind: type[RegionRecord], action: _Action) -> Plant:
    return _folds(kind, replace(RULES[kind], action=action))


def _set(**changes: object) -> _Action:
    return lambda folding, _record: folding.set(**changes)


def _grants_all(folding: Any, record: Any) -> None:
    for each in sorted(record.partitions):
        folding.grant(each, record.operator)


def _frees_nothing(folding: Any, record: Any) -> None:
    given = folding.state.drain.contributions
    for who, each in given.items():
        kept = given.set(who, replace(each, released=frozenset()))
        folding.set(drain=replace(folding.state.drain, contributions=kept))
        given = kept
    RULES_BEFORE[Complete].action(folding, record)


def _frees_all(folding: Any, _record: Any) -> None:
    for each in sorted(folding.state.partitions):
        folding.free(each)


def _forgets_state(folding: Any, _record: Any) -> None:
    for each in sorted(folding.state.partitions):
        folding.change(each, state="")


def _moves_on(folding: Any, _record: Any) -> None:
    for each, known in sorted(folding.state.partitions.items()):
        if known.position is not None:
            folding.change(each, position=known.position + 1)


def _moves_back(folding: Any, _record: Any) -> None:
    for each in sorted(folding.state.partitions):
        folding.change(each, position=None, state="")


def _keeps_drain(folding: Any, record: Any) -> None:
    drain = folding.state.drain
    RULES_BEFORE[Reset].action(folding, record)
    folding.set(drain=drain)


def _ignores_waiting(folding: Any, _record: Any) -> None:
    for each in sorted(folding.state.partitions):
        folding.change(each, waiting=None)


def _keeps_lost(folding: Any, record: Any) -> None:
    for each, known in sorted(folding.state.partitions.items()):
        if known.lost and known.waiting is None:
            folding.change(each, lost=False)
    RULES_BEFORE[Reset].action(folding, record)


def _drops_output(folding: Any, _record: Any) -> None:
    last = folding.state.unpublished[-1]
    emptied = replace(last, outputs=type(last.outputs)())
    folding.set(unpublished=(*folding.state.unpublished[:-1], emptied))


RULES_BEFORE = dict(RULES)


def _by_hand() -> Iterator[Bug]:
    no_reset = _set(must_reset="", forced=False)
    planted: Iterable[tuple[str, Plant]] = (
        ("a claim takes the partition from its owner", _instead(Claim, _grants_all)),
        ("a claim that waits needs no reset", _after(Claim, no_reset)),
        ("a lost partition needs no reset", _after(Lost, no_reset)),
        ("an eviction needs no reset", _after(Evict, no_reset)),
        ("a new incarnation needs no reset", _after(Registered, no_reset)),
        ("an unhealthy operator needs no reset", _after(Unhealthy, no_reset)),
        ("a healthy operator needs no reset", _after(Healthy, no_reset)),
        ("complete frees nothing", _instead(Complete, _frees_nothing)),
        ("complete frees everything", _after(Complete, _frees_all)),
        ("complete forgets state references", _after(Complete, _forgets_state)),
        ("complete is one record too far", _after(Complete, _moves_on)),
        ("complete drops the output", _after(Complete, _drops_output)),
        ("complete clears the need for a reset", _after(Complete, no_reset)),
        ("a reset goes back to the start", _after(Reset, _moves_back)),
        ("a reset keeps the open checkpoint", _instead(Reset, _keeps_drain)),
        ("a reset keeps what was lost with its owner", _instead(Reset, _keeps_lost)),
        ("a reset forgets state references", _after(Reset, _forgets_state)),
        ("a reset frees everything", _after(Reset, _frees_all)),
        ("claims never wait", _after(Claim, _ignores_waiting)),
        ("a contribution counts at once", _after(Contribution, _counts_at_once)),
        ("a drain has no participants", _after(Drain, _without_participants)),
        ("a drain forgets an owner", _after(Drain, _with_fewer)),
        ("a start moves the partition", _after(Start, _starts_later)),
        ("published forgets all that waits", _after(Published, _set(unpublished=()))),
        ("an unclaim frees nothing", _instead(Unclaim, fold.pass_over)),
        ("reset-done is not remembered", _instead(ResetDone, fold.pass_over)),
    )
    for name, plant in planted:
        yield Bug(f"by hand: {name}", plant)


def _counts_at_once(folding: Any, record: Any) -> None:
    for each, offset in sorted(record.offsets.items()):
        folding.change(each, position=offset, state=record.states.get(each, ""))


def _without_participants(folding: Any, _record: Any) -> None:
    drain = folding.state.drain
    folding.set(drain=replace(drain, participants=type(drain.participants)()))


def _with_fewer(folding: Any, _record: Any) -> None:
    drain = folding.state.drain
    if drain.participants:
        fewer = drain.participants.delete(min(drain.participants))
        folding.set(drain=replace(drain, participants=fewer))


def _starts_later(folding: Any, record: Any) -> None:
    folding.change(record.partition, start=record.offset + 1)


def caught_by(bug: Bug, scenarios: Iterable[RegionScenario]) -> tuple[str, int]:
    """Run scenarios until a rule is broken; return the rule, and the number of runs.

    The rule is empty when the bug survives.
    """
    tried = 0
    with bug.plant():
        for each in scenarios:
            tried += 1
            outcome = run(each)
            if outcome.verdict != OK:
                return outcome.verdict, tried
    return "", tried
