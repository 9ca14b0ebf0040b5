"""Scenarios as values: written, read, made smaller."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kohort.errors import ConfigError
from kohort.simulation.engine import Stream
from kohort.simulation.groups.protocols import CAMPAIGNS
from kohort.simulation.runs.drawing import draw
from kohort.simulation.runs.running import convergence_bound_ms, run
from kohort.simulation.runs.scenario import Scenario, from_toml, to_toml
from kohort.simulation.shrinking import minimal, shrink
from kohort.values import replace


@given(st.integers(0, 10_000), st.sampled_from(CAMPAIGNS))
@settings(max_examples=50)
def test_a_scenario_is_read_as_it_was_written(seed: int, protocol: str) -> None:
    scenario = draw(seed, protocol)
    assert from_toml(to_toml(scenario, "two\nlines")) == scenario


@pytest.mark.parametrize("text", ["no = [toml", "unknown = 1", "[[members]]\nnme = 'x'"])
def test_what_is_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"scenario|unknown|nme|key"):
        from_toml(text)


def test_a_protocol_that_is_not_known_is_refused() -> None:
    scenario = replace(draw(1), protocol="gossip")
    with pytest.raises(ConfigError, match="no protocol 'gossip'"):
        run(scenario)


def test_numbers_of_one_purpose_do_not_depend_on_those_of_another() -> None:
    alone = [Stream(7, "delay", "a").uniform()]
    Stream(7, "loss", "a").uniform()
    assert [Stream(7, "delay", "a").uniform()] == alone
    assert Stream(7, "delay", "b").uniform() != alone[0]


def test_leaving_a_fault_out_changes_nothing_before_it() -> None:
    """Randomness is keyed: the runs are the same up to the fault that is left out."""
    scenario = draw(5)
    last = scenario.faults[-1]
    whole = run(scenario, keep_lines=True)
    rest = run(replace(scenario, faults=scenario.faults[:-1]), keep_lines=True)
    before = sum(1 for line in whole.lines if int(line[:9]) < last.at_ms)
    assert before > 100
    assert whole.lines[:before] == rest.lines[:before]


@given(st.lists(st.integers(0, 30), unique=True, max_size=20), st.integers(0, 30))
def test_the_minimum_has_what_is_needed_and_nothing_else(items: list[int], other: int) -> None:
    needed = {item for item in items if item % 7 == other % 7}
    assert set(minimal(items, lambda kept: needed <= set(kept))) == needed


def test_shrinking_keeps_what_makes_it_fail() -> None:
    scenario = draw(11)

    def fails(smaller: Scenario) -> bool:
        return any(fault.kind == scenario.faults[2].kind for fault in smaller.faults)

    small = shrink(scenario, fails)
    assert len(small.faults) == 1
    assert len(small.members) == len(small.topics) == 1
    assert small.minutes <= scenario.minutes


def test_the_bound_of_convergence_follows_the_timeouts() -> None:
    scenario = draw(3)
    slower = tuple(replace(plan, max_poll_interval_ms=900_000) for plan in scenario.members)
    assert convergence_bound_ms(replace(scenario, members=slower)) > 2_700_000
