"""Revoked and assigned partitions: numbers 34, 35 and 46 of docs/internals/region-rules.md."""

from __future__ import annotations

import pytest

from kohort.region.machines.events import Asked, Assigned, Close, Revoked, StartFound
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.records import RESET, Contribution, Lost, RegionPartition
from kohort.region.machines.state import Phase
from tests.region.harness import P, Q, R, Region, one

BOTH = frozenset({P, Q})


@pytest.mark.parametrize("rebalance", ["checkpoint", "reset"])
@pytest.mark.parametrize(
    "state", [OperatorState.SUBSCRIBED, OperatorState.RESET_COMPLETE], ids=lambda each: each.name
)
def test_a34_a_revocation_right_after_subscribe_or_reset_is_ignored(
    state: OperatorState, rebalance: str
) -> None:
    """What waits in the queue is given to the function no more; partitions go by themselves."""
    region = Region()
    region.elect()
    a = region.process("a", rebalance=rebalance, owns=BOTH)
    if state is OperatorState.RESET_COMPLETE:
        a.deliver(P, 50)
        region.control(Asked(RESET))
        region.run()
    attempt = region.state.attempt
    effects = a.put(Revoked(BOTH))
    assert effects.stops == BOTH
    assert a.machine.state is state
    assert a.returned == 1
    assert region.state.attempt == attempt
    assert {region.state.partition(each).owner for each in BOTH} == {None}
    assert not any(isinstance(each, Lost) for each in region.log)
    region.now += 1_000  # a claim is not repeated at once
    a.put(Assigned(frozenset({Q})))
    assert region.state.partition(Q).owner == a.id
    assert a.machine.state is state


def test_a35_a_revocation_after_records_were_fetched_stops_all_and_forces_a_reset() -> None:
    region, a = one("reset")
    b = region.process("b", rebalance="reset", owns=[R])
    b.deliver(R, 9)
    region.controls = False
    a.put(Revoked(frozenset({P})))
    # The function gets nothing more, not even of the partition that stays.
    assert frozenset[RegionPartition]().union(*(each.stops for each in a.seen)) == BOTH
    assert a.machine.state is OperatorState.CR_RESET_PENDING
    assert b.machine.state is OperatorState.RECORDS_FETCHED
    assert region.state.forced
    assert "a/1 lost numbers-0 after it had delivered from it" in region.state.must_reset
    assert a.returned == 1  # without waiting for the reset
    region.controls = True
    region.run()
    assert [each.discard for each in (*a.seen, *b.seen) if each.discard] == [2, 2]
    assert (b.reads[R].offset, region.state.attempt) == (0, 2)


@pytest.mark.parametrize("polls", [1, 2])
def test_a35_a43_both_callbacks_in_one_poll_or_in_two_end_at_the_same_positions(polls: int) -> None:
    """Kafka's clients once called both in one poll; since 2.0 the reset may come in between."""
    region, a = one("reset")
    region.pass_time(1_000)
    a.deliver(P, 80)
    region.controls = polls == 2
    reads = len(a.reads)
    a.put(Revoked(BOTH))
    assert (a.machine.state is OperatorState.RESET_COMPLETE) == (polls == 2)
    a.put(Assigned(frozenset({P, R})))
    if polls == 1:
        assert a.machine.state is OperatorState.CR_RESET_PENDING
        assert region.kinds().count("Lost") == 1
        assert (len(a.reads), a.wanted_starts) == (reads, frozenset())  # no seek
    region.controls = True
    region.run()
    assert a.wanted_starts == {R}
    a.put(StartFound(R, 7))
    assert (region.state.attempt, region.state.completed) == (2, 1)
    assert (a.reads[P].offset, a.reads[R].offset) == (50, 7)
    assert region.state.operators["a"].owned == {P, R}


def test_a41_offsets_of_a_partition_that_has_left_are_forgotten() -> None:
    region, a = one()
    a.put(Revoked(frozenset({P})))
    region.pass_time(1_000)
    handed_over, *_ = (each for each in region.log if isinstance(each, Contribution))
    assert handed_over.released == {P}
    *_, last = (each for each in region.log if isinstance(each, Contribution))
    assert (dict(handed_over.offsets), dict(last.offsets)) == ({P: 50, Q: 0}, {Q: 0})
    assert set(a.machine.session.reading) == {Q}
    a.put(Assigned(frozenset({P})))  # it is another read, from the checkpoint on
    region.pass_time(1_000)
    assert a.reads[P].offset == 50


def test_a46_an_operator_with_an_empty_assignment_takes_part_in_all_and_holds_up_nothing() -> None:
    region, a = one()
    b = region.process("b")
    b.put(Assigned(frozenset()))
    assert b.machine.state is OperatorState.SUBSCRIBED
    region.pass_time(1_000)
    assert region.state.completed == 1
    assert [each.operator for each in region.log if isinstance(each, Contribution)] == [a.id]
    b.answers = False
    region.control(Asked(RESET))
    region.run()
    assert region.state.phase is Phase.PROCESSING  # it waits for those that own something
    b.answers = True
    region.control(Asked(RESET))
    region.run()
    assert b.machine.state.name == "RESET_COMPLETE"
    assert region.state.attempt == 3
    a.put(Revoked(frozenset({Q})))
    b.put(Assigned(frozenset({Q})))
    b.deliver(Q, 9)
    region.pass_time(1_000)
    assert (region.state.completed, region.state.partition(Q).position) == (2, 9)
    b.put(Revoked(frozenset({Q})))
    b.put(Assigned(frozenset()))
    b.put(Close())
    assert b.is_closed
    assert region.state.attempt == 3
