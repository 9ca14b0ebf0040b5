"""The controller of the original, by the numbers RC1 to RC15 of docs/internals/region-rules.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from kohort.region import ParquetDirectory
from kohort.region.machines.events import (
    Asked,
    Chosen,
    CutMade,
    Discarded,
    WentUnhealthy,
)
from kohort.region.machines.records import DRAIN, RESET, Ask, Controller, Evict, Reset
from kohort.region.machines.state import Phase
from tests.region.harness import SETTINGS, P, Process, Q, Region, one
from tests.region.regions import worker


def two() -> tuple[Region, Process, Process]:
    """Return a region of which a owns P and b owns Q."""
    region = Region()
    region.elect()
    return region, region.process("a", owns=[P]), region.process("b", owns=[Q])


def test_rc1_a_region_has_the_seven_states_of_the_original() -> None:
    assert [each.name for each in Phase] == [
        "STARTED",
        "PROCESSING",
        "DRAINING",
        "CHECKPOINT_PENDING",
        "RESETTING",
        "UNHEALTHY",
        "MAXIMUM_RESET_ATTEMPTS_REACHED",
    ]


@pytest.mark.parametrize("ends", ["a checkpoint", "a reset"])
def test_rc3_the_period_counts_from_the_end_of_the_last_checkpoint_or_reset(ends: str) -> None:
    region, a, b = two()
    assert (region.state.checkpoint, region.state.completed) == (0, 0)
    region.pass_time(SETTINGS.period_ms)
    assert region.state.completed == 1
    b.answers = False
    if ends == "a checkpoint":
        region.pass_time(SETTINGS.period_ms)
    else:
        region.control(Asked(RESET))
        region.run()
    region.now += 900  # so long it takes
    b.answers = True
    resume(b)
    begun = region.state.checkpoint
    region.pass_time(SETTINGS.period_ms - 1)
    assert region.state.checkpoint == begun
    region.pass_time(1)
    assert region.state.checkpoint == begun + 1
    assert a.failed is None


def resume(process: Process) -> None:
    """Let a process do what it was asked for last."""
    last = [each for each in process.seen if each.cut or each.discard][-1]
    if last.discard is not None:
        process.put(Discarded(last.discard))
    elif last.cut is not None:
        at = Map(process.positions)
        reads = Map({each: process.reads[each].read for each in at})
        process.put(CutMade(last.cut.checkpoint, last.cut.attempt, at, reads))


def test_rc4_a_complete_checkpoint_begins_a_fresh_budget_of_resets() -> None:
    region, a = one()
    for _ in range(3):
        for _ in range(SETTINGS.max_resets):
            region.control(Asked(RESET))
            region.run()
        assert region.state.resets == SETTINGS.max_resets
        region.pass_time(SETTINGS.period_ms)
        assert region.state.resets == 0
    assert region.state.attempt == 1 + 3 * SETTINGS.max_resets
    assert a.failed is None


def test_rc5_who_has_contributed_goes_on_before_the_checkpoint_is_complete() -> None:
    region, a, b = two()
    b.answers = False
    region.pass_time(SETTINGS.period_ms)
    assert region.state.phase is Phase.DRAINING
    a.deliver(P, 70)
    assert a.machine.session.reading[P].next == 70
    assert not a.machine.session.reading[P].is_stopping


def test_rc6_a_checkpoint_that_takes_too_long_resets_the_region_and_names_who_is_slow() -> None:
    region, _, b = two()
    b.cuts = False
    region.pass_time(SETTINGS.period_ms)
    region.pass_time(SETTINGS.drain_timeout_ms - 1)
    assert region.state.attempt == 1
    region.pass_time(1)
    assert region.state.attempt == 2
    (reset,) = [each for each in region.log if isinstance(each, Reset)]
    assert f"{b.id} did not answer" in reset.why


def test_rc7_a_reset_uses_up_the_number_of_the_open_checkpoint() -> None:
    region, a = one()
    a.cuts = False
    region.pass_time(SETTINGS.period_ms)
    region.control(Asked(RESET))
    region.run()
    a.cuts = True
    region.pass_time(SETTINGS.period_ms)
    assert [each.checkpoint for each in region.published] == [2]


def test_rc9_a_reset_that_is_asked_for_while_nothing_runs_waits_for_an_operator() -> None:
    region = Region()
    region.elect()
    region.control(Asked(RESET))
    region.run()
    assert (region.state.attempt, region.state.phase) == (1, Phase.STARTED)
    assert region.state.must_reset
    region.process("a")
    assert (region.state.attempt, region.state.must_reset) == (2, "")


def test_rc9_what_was_killed_is_reset_by_the_controller_that_comes_next() -> None:
    region, a = one()
    region.control(Chosen(False))
    region.write(Evict(1, "c", a.id, "it is no longer in the group"))
    assert region.state.attempt == 1
    region.control(Chosen(True))
    region.process("a", "2", owns=[P])
    assert region.state.attempt == 2


def test_rc10_an_operator_that_is_ill_ends_the_checkpoint_that_waits_for_it() -> None:
    region, a, b = two()
    a.cuts = b.cuts = False
    region.pass_time(SETTINGS.period_ms)
    b.put(WentUnhealthy("disk full"))
    assert region.state.phase is Phase.UNHEALTHY
    region.pass_time(10 * SETTINGS.drain_timeout_ms)
    assert (region.state.attempt, region.state.completed) == (1, 0)


def test_rc11_the_time_of_a_checkpoint_that_is_over_is_not_that_of_the_next() -> None:
    region, a = one()
    region.pass_time(SETTINGS.period_ms)
    a.cuts = False
    region.pass_time(SETTINGS.drain_timeout_ms - 1)
    assert region.state.phase is Phase.DRAINING
    region.pass_time(SETTINGS.drain_timeout_ms - 1)
    assert region.state.attempt == 1
    region.pass_time(1)
    assert region.state.attempt == 2


def test_rc12_a_checkpoint_that_was_made_meanwhile_is_not_made_again() -> None:
    region, _ = one()
    region.pass_time(SETTINGS.period_ms)
    region.write(Ask("late", DRAIN, 1, 1))
    assert region.refused[-1] == "is_still_wanted"
    region.write(Ask("now", DRAIN, 2, 1))
    assert region.state.completed == 2


def test_rc12_another_controller_makes_the_checkpoint_that_was_asked_for() -> None:
    region, _ = one()
    region.controls = False
    region.write(Ask("now", DRAIN, 1, 1), Controller(2, "d"))
    assert region.state.asked_drain
    region.controls = True
    region.run()
    assert region.state.epoch == 3
    assert region.state.completed == 1


@pytest.mark.parametrize("name", ["period_ms", "drain_timeout_ms", "reset_timeout_ms"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, "1"])
def test_rc15_times_are_whole_and_positive(tmp_path: Path, name: str, value: object) -> None:
    refused(tmp_path, name, value)


@pytest.mark.parametrize("value", [0, -1, 2**31, 2.0, True])
def test_rc15_the_budget_of_resets_is_a_whole_number_from_one_on(
    tmp_path: Path, value: object
) -> None:
    refused(tmp_path, "max_resets", value)


def refused(path: Path, name: str, value: object) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises((TypeError, ValueError), match=name):
        worker("127.0.0.1:1", "t", ParquetDirectory(path), **settings)
