"""Reduction of a failing scenario to the smallest one that fails in the same way.

Faults are dropped in halves, quarters and so on (delta debugging); then members, topics, the
weather and the length. Randomness is keyed, so the rest behaves as it did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kohort.simulation.runs.scenario import MemberPlan, Scenario, Weather
from kohort.values import replace

T = TypeVar("T")
Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """Return a smallest scenario for which `fails` is still true.

    Args:
        scenario: A scenario for which it is true.
        fails: Whether a scenario fails in the same way.
    """
    while True:
        before = scenario
        scenario = _without_faults(scenario, fails)
        for smaller in _smaller(scenario):
            if fails(smaller):
                scenario = smaller
                break
        if scenario == before:
            return scenario


def _without_faults(scenario: Scenario, fails: Fails) -> Scenario:
    faults = minimal(scenario.faults, lambda kept: fails(replace(scenario, faults=tuple(kept))))
    return replace(scenario, faults=tuple(faults))


def minimal(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Drop ever smaller chunks until no item can be dropped, and return the rest."""
    size = max(len(items) // 2, 1)
    while items:
        start = 0
        while start < len(items):
            rest = [*items[:start], *items[start + size :]]
            if fails(rest):
                items = rest
            else:
                start += size
        if size == 1:
            return items
        size = max(size // 2, 1)
    return items


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little simpler."""
    if scenario.weather != Weather():
        yield replace(scenario, weather=Weather())
    last = max((fault.at_ms for fault in scenario.faults), default=0) // 60_000 + 1
    if last < scenario.minutes:
        yield replace(scenario, minutes=last)
    for index in range(len(scenario.members)):
        members = (*scenario.members[:index], *scenario.members[index + 1 :])
        if members:
            yield replace(scenario, members=members)
    for index in range(len(scenario.topics)):
        topics = (*scenario.topics[:index], *scenario.topics[index + 1 :])
        if topics:
            yield replace(scenario, topics=topics)
    for index, plan in enumerate(scenario.members):
        for plainer in _plainer(plan):
            members = (*scenario.members[:index], plainer, *scenario.members[index + 1 :])
            yield replace(scenario, members=members)


def _plainer(plan: MemberPlan) -> Iterator[MemberPlan]:
    plain = MemberPlan(name=plan.name)
    for change in (
        {"drift_ppm": plain.drift_ppm},
        {"listener_ms": plain.listener_ms},
        {"process_ms": plain.process_ms},
        {"commit": plain.commit},
        {"start_ms": plain.start_ms},
        {"instance": ""},
        {"pattern": ""},
    ):
        plainer = replace(plan, **change)
        if plainer != plan:
            yield plainer
