"""The merged checkpoint: how long it is waited for, when it is forgotten (numbers 56 and 64)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.region.machines.events import Asked, PublishDone, Revoked, WentUnhealthy
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.operator_session import MERGE_MAX_MS
from kohort.region.machines.records import RESET, Lost, RegionSettings
from kohort.region.machines.snapshot import dump
from kohort.region.settings import merge_timeout_ms
from tests.region.harness import P, Process, R, Region, one


@pytest.mark.parametrize(
    ("reset_ms", "polls_ms", "expected"),
    [
        (30_000, None, 15_000),
        (4_000, None, 2_000),
        (200_000, 600_000, 15_000),
        (9_001, 30_000, 4_500),
    ],
)
def test_a64_the_time_out_of_the_merge_is_the_least_of_three(
    reset_ms: int, polls_ms: int | None, expected: int
) -> None:
    region = RegionSettings(group_id="g", reset_timeout_ms=reset_ms)
    given = {} if polls_ms is None else {"max_poll_interval_ms": polls_ms}
    assert merge_timeout_ms(given, region) == expected


def loses_what_it_says(region: Region, a: Process) -> None:
    region.loses = Lost
    a.put(Revoked(frozenset({P})))


def has_no_controller(region: Region, a: Process) -> None:
    region.controls = False
    a.put(Revoked(frozenset({P})))


def has_a_slow_function(region: Region, a: Process) -> None:
    a.answers = False
    region.control(Asked(RESET))
    region.run()


def is_ill(_region: Region, a: Process) -> None:
    a.put(WentUnhealthy("disk full"))


def told(a: Process) -> list[str]:
    facts = [fact for effects in a.seen for fact in effects.observed]
    return [fact.text for fact in facts if fact.is_warning and fact.rule == "merge timed out"]


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (loses_what_it_says, "the control topic does not show the reset that it asked for"),
        (has_no_controller, "no controller has begun the reset; the region: must reset: a/1 lost"),
        (
            has_a_slow_function,
            "the function or the sink is still busy with work from before the reset",
        ),
        (is_ill, "it cannot continue: disk full"),
    ],
)
def test_a64_a_merge_that_is_waited_for_too_long_is_told_once(
    begin: Callable[[Region, Process], None], why: str
) -> None:
    region, a = one("reset")
    begin(region, a)
    assert a.machine.state is OperatorState.CR_RESET_PENDING
    assert min(each.deadline or 0 for each in a.seen[-1:]) <= region.now + MERGE_MAX_MS
    region.pass_time(MERGE_MAX_MS - 1)
    assert told(a) == []
    for _ in range(3):
        region.pass_time(1)
    (text,) = told(a)
    assert text.startswith("a/1 has not gone back to the beginning within 15000 ms, the time-out")
    assert why in text


def test_a64_a_reset_that_ends_in_time_is_not_told() -> None:
    region, a = one("reset")
    a.put(Revoked(frozenset({P})))
    assert a.machine.state is OperatorState.RESET_COMPLETE
    region.pass_time(2 * MERGE_MAX_MS)
    assert told(a) == []


def test_a56_what_retired_checkpoints_held_is_forgotten() -> None:
    region, a = one()
    region.publishes = False
    for position in (60, 70, 80):
        a.deliver(P, position)
        region.pass_time(1_000)
    assert [each.checkpoint for each in region.state.unpublished] == [1, 2, 3]
    assert all(f"a/1@{each}" in dump(region.state) for each in (1, 2, 3))
    region.publishes = True
    region.control(PublishDone(1))
    region.run()
    assert [each.checkpoint for each in region.published] == [1, 2, 3]
    assert (region.state.unpublished, region.state.drain) == ((), None)
    assert "a/1@" not in dump(region.state)
    assert (a.machine.session.cut, a.machine.session.contribution) == (None, None)
    assert region.state.partition(P).position == 80


def test_a56_contributions_to_a_checkpoint_that_a_reset_burns_are_forgotten() -> None:
    region, a = one()
    b = region.process("b", owns=[R])
    b.deliver(R, 5)
    b.cuts = False
    region.pass_time(1_000)
    assert "a/1@1" in dump(region.state)
    region.control(Asked(RESET))
    region.run()
    assert "a/1@1" not in dump(region.state)
    assert (a.machine.session.cut, a.machine.session.contribution) == (None, None)
    b.cuts = True
    region.pass_time(1_000)
    assert (region.state.completed, region.state.partition(P).position) == (2, 0)
