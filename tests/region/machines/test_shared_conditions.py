"""Conditions that many records share, for each of these records; and ends of the machines."""

from __future__ import annotations

import pytest

from kohort.region.errors import DifferentRegionError
from kohort.region.machines.events import (
    Assigned,
    Close,
    Folded,
    Revoked,
    Tick,
    WentUnhealthy,
)
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.records import (
    Claim,
    Complete,
    Controller,
    Drain,
    Evict,
    Exhausted,
    Healthy,
    Leaving,
    Left,
    Lost,
    OperatorRecord,
    Published,
    RegionRecord,
    Registered,
    Reset,
    ResetDone,
    Snapshot,
    Start,
    Unclaim,
    Unhealthy,
)
from kohort.values import replace
from tests.region import harness
from tests.region.machines.test_fold import A2, DONE, GIVEN, TWO, A, B, P, Q, folded, given, refusal

SAID: list[OperatorRecord] = [
    Left(A, 9),
    Claim(A, 9, frozenset({Q})),
    Unclaim(A, 9, frozenset({P})),
    Lost(A, 9, frozenset({P})),
    Leaving(A, 9, frozenset({P})),
    Start(A, 9, P._replace(partition=7), 5),
    given(A, 9, {P: 100}),
    ResetDone(A, 9, 1),
    Unhealthy(A, 9, "x"),
    Healthy(A, 9),
]
DECIDED: list[RegionRecord] = [
    Drain(1, "c", 2, 1),
    Complete(1, "c", 1, 1),
    Published(1, "c", 1),
    Reset(1, "c", 2, False, "x"),
    Evict(1, "c", A, "x"),
    Exhausted(1, "c", 1, "x"),
    Snapshot(1, "c", 3, "", "x"),
]


@pytest.mark.parametrize("record", SAID, ids=lambda each: type(each).__name__)
def test_what_one_says_that_is_gone_is_passed_over(record: RegionRecord) -> None:
    assert refusal(folded((*TWO, Evict(1, "c", A, "gone"))), record) == "is_active"


@pytest.mark.parametrize("record", SAID, ids=lambda each: type(each).__name__)
def test_what_was_said_before_is_passed_over(record: OperatorRecord) -> None:
    assert refusal(folded(TWO), replace(record, seq=2)) == "is_new"


@pytest.mark.parametrize("record", DECIDED, ids=lambda each: type(each).__name__)
def test_what_an_older_controller_decides_is_passed_over(record: RegionRecord) -> None:
    state = folded((*GIVEN, Controller(2, "d")))
    assert refusal(state, record) == "is_decided_by_the_controller"


def test_a_new_incarnation_makes_the_region_reset_if_the_older_one_owned_something() -> None:
    state = folded((*TWO, Registered(A2, 8, "host", "2", "client-a")))
    assert "took the place of a/1" in state.must_reset


def test_only_the_oldest_checkpoint_is_published_at_a_time() -> None:
    second = (Drain(1, "c", 2, 1), given(B, 4, {Q: 8}, n=2), Complete(1, "c", 2, 1))
    state = folded((*DONE, *second, Published(1, "c", 1)))
    assert [each.checkpoint for each in state.unpublished] == [2]


# ------------------------------------------------------------------------------ ends of operators


def test_an_operator_that_cannot_hand_over_leaves_in_time() -> None:
    region = harness.Region()
    a = region.process("a", owns=[harness.P])
    a.deliver(harness.P, 5)
    a.put(Close())
    assert not a.is_closed
    region.pass_time(5_000)
    assert a.is_closed


def test_an_operator_that_ends_before_it_is_registered_says_nothing() -> None:
    region = harness.Region()
    a = harness.Process(region, "a")
    a.tell(Close())
    a.put(Folded(region.state))
    assert a.is_closed
    assert region.log == []


def test_an_operator_of_the_same_group_with_another_setting_is_refused() -> None:
    """It would wait otherwise than the others do, and they would evict it."""
    region, _ = harness.one()
    settings = replace(harness.SETTINGS, reset_timeout_ms=7)
    other = harness.Process(region, "x", settings=settings)
    other.put(Folded(region.state))
    assert isinstance(other.failed, DifferentRegionError)
    assert f"reset_timeout_ms is 7 here and {harness.SETTINGS.reset_timeout_ms} in the" in str(
        other.failed
    )


def test_a_listener_of_an_operator_that_is_over_returns_at_once() -> None:
    region = harness.Region()
    region.elect()
    a = region.process("a")
    a.put(Close())
    assert a.tell(Revoked(frozenset({harness.P}))).ends_revocation


def test_an_illness_before_the_registration_is_told_after_it() -> None:
    region = harness.Region()
    a = harness.Process(region, "a")
    a.tell(WentUnhealthy("disk full"))
    region.processes.append(a)
    a.put(Folded(region.state))
    assert region.state.operators["a"].unhealthy == "disk full"


def test_a_fenced_operator_passes_everything_over() -> None:
    region = harness.Region()
    a = region.process("a")
    region.process("a", "2")
    assert a.machine.state is OperatorState.FENCED
    before = a.machine.session
    for event in (Tick(), Assigned(frozenset({harness.P})), Close(), WentUnhealthy("x")):
        a.tell(event)
    assert a.machine.session == before


def test_a_controller_writes_snapshots_and_then_removes_what_they_replace() -> None:
    region = harness.Region()
    region.controller.config = replace(region.controller.config, snapshot_every=10)
    region.elect()
    region.process("a", owns=[harness.P])
    for _ in range(4):
        region.pass_time(1_000)
    snapshots = [each.before for each in region.log if isinstance(each, Snapshot)]
    trims = [each.trim.before for each in region.decided if each.trim is not None]
    assert snapshots
    assert trims[:1] == snapshots[:1]
