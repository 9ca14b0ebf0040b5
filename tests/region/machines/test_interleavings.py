"""The interleavings that decided how a region works (docs/decisions/0026), each on its own."""

from __future__ import annotations

from immutables import Map

from kohort.region.machines.events import (
    Assigned,
    Close,
    CutMade,
    Folded,
    PartitionsLost,
    Revoked,
    StartFound,
)
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.records import (
    Claim,
    Complete,
    Contribution,
    Controller,
    Drain,
    Evict,
    Leaving,
    Lost,
    Registered,
    Reset,
    ResetDone,
    Unclaim,
)
from kohort.region.machines.state import Phase
from tests.region.harness import P, Process, Q, Region


def two() -> tuple[Region, Process, Process]:
    """Return a region of which a owns P and b owns Q; both have delivered."""
    region = Region()
    region.elect()
    a, b = region.process("a", owns=[P]), region.process("b", owns=[Q])
    a.deliver(P, 50)
    b.deliver(Q, 7)
    return region, a, b


def checkpoint(region: Region) -> None:
    region.pass_time(1_000)


def test_1_a_contribution_of_one_that_is_fenced_before_complete_does_not_count() -> None:
    region, a, b = two()
    checkpoint(region)
    assert region.state.partition(P).position == 50
    a.deliver(P, 100)
    b.answers = False
    checkpoint(region)
    assert a.id in region.state.drain.contributions  # type: ignore[union-attr]  # b has not answered
    a.follows = False  # it was thrown out of the group, and does not know
    c = region.process("c")
    region.controls = False
    c.put(Assigned(frozenset({P})))
    contribution = Contribution(b.id, 99, 2, 1)
    region.write(contribution, Complete(1, "c", 2, 1))
    assert region.state.completed == 1
    assert "needs_no_reset" in region.refused
    b.answers = region.controls = True
    region.run()
    assert c.reads[P].offset == 50


def test_1_after_complete_the_new_owner_starts_behind_it() -> None:
    region, a, _ = two()
    checkpoint(region)
    a.deliver(P, 100)
    checkpoint(region)
    region.write(Evict(1, "c", a.id, "gone"))
    c = region.process("c")
    c.put(Assigned(frozenset({P})))
    assert c.reads[P].offset == 100


def test_2_of_two_controllers_the_older_one_decides_nothing() -> None:
    region, a, _ = two()
    region.controls = False
    region.write(Controller(2, "d"), Drain(1, "c", 1, 1), Reset(1, "c", 2, False, "mine"))
    assert region.refused[-2:] == ["is_decided_by_the_controller"] * 2
    assert region.state.attempt == a.machine.session.attempt == 1


def test_3_a_controller_whose_append_came_to_nothing_reads_before_it_decides_anew() -> None:
    region, _, _ = two()
    region.loses = Drain
    checkpoint(region)
    lost = [each.append for each in region.decided if each.append is not None]
    assert isinstance(lost[-1].records[0], Drain)
    assert region.state.checkpoint == 0
    region.loses = None
    region.write(Drain(1, "c", 1, 1))  # it arrives after all
    assert region.state.completed == 0  # nothing is decided before that is known
    region.give_up()
    assert region.state.completed == 1
    assert region.kinds().count("Drain") == 1


def test_4_one_that_claims_after_the_drain_takes_no_part() -> None:
    region, _, b = two()
    b.answers = False
    checkpoint(region)
    c = region.process("c", owns=[])
    c.put(Assigned(frozenset({PARTITION})))
    assert region.state.partition(PARTITION).owner == c.id
    assert c.id not in region.state.drain.participants  # type: ignore[union-attr]  # it is open
    assert all(each.cut is None for each in c.seen)


PARTITION = P._replace(partition=9)


def test_5_complete_frees_what_was_released_and_nothing_else() -> None:
    region = Region()
    region.elect()
    a = region.process("a", owns=[P, Q])
    a.deliver(P, 50)
    a.deliver(Q, 60)
    a.put(Revoked(frozenset({P})))
    assert region.state.partition(P).owner is None
    assert region.state.partition(Q).owner == a.id
    assert (region.state.partition(P).position, region.state.partition(Q).position) == (50, 60)
    assert a.returned == 1
    assert Q in a.machine.session.reading


def test_6_a_zombie_goes_on_and_nothing_of_it_counts() -> None:
    region, a, _ = two()
    a.follows = False
    c = region.process("a", "2")
    c.put(Assigned(frozenset({P})))
    assert c.reads[P].offset == 0
    zombie = Contribution(a.id, 90, region.state.checkpoint, 1)
    region.write(zombie)
    assert region.refused[-1] == "is_active"
    a.follows = True
    a.put(Folded(region.state))
    assert a.machine.state is OperatorState.FENCED
    assert "has its name" in str(a.failed)


# --------------------------------------------------------- those that were found on the way


def test_7_a_late_copy_of_a_registration_does_not_bring_a_dead_one_back() -> None:
    region, a, _ = two()
    copy = next(each for each in region.log if isinstance(each, Registered))
    assert copy.operator == a.id
    region.process("a", "2")
    region.write(copy)
    assert region.refused[-1] == "knows_its_predecessor"
    assert region.state.active(a.id) is None


def test_8_what_an_operator_said_in_vain_cannot_come_true_later() -> None:
    """An unclaim that arrives after the partition is read again would give it away."""
    region, a, _ = two()
    checkpoint(region)
    region.loses = Unclaim
    a.put(Revoked(frozenset({P})))
    region.pass_time(5_000)
    assert a.returned == 1
    said = [record for each in a.seen if each.append for record in each.append.records]
    late = [each for each in said if isinstance(each, Unclaim)][-1]
    a.put(Assigned(frozenset({P})))
    reads = a.machine.session.reads
    region.give_up()
    assert a.machine.session.reads == reads + 1
    owner = region.state.partition(P).owner
    region.write(late)
    assert region.refused[-1] == "is_new"
    assert region.state.partition(P).owner == owner == a.id


def test_9_a_partition_is_given_back_only_when_its_last_delivery_is_known() -> None:
    """Its function may have records that the machine has not heard of."""
    region, a, _ = two()
    checkpoint(region)
    a.answers = False
    a.put(Revoked(frozenset({P})))
    assert region.state.partition(P).owner == a.id
    assert a.returned == 0


def test_10_a_listener_returns_in_time_although_the_log_is_silent() -> None:
    region, a, _ = two()
    region.loses = Leaving
    a.put(Revoked(frozenset({P})))
    a.follows = region.controls = False
    region.pass_time(5_000)
    assert a.returned == 1
    assert a.machine.state is OperatorState.CR_RESET_PENDING


def test_11_a_hand_over_ends_at_once_when_a_participant_is_gone() -> None:
    region, a, b = two()
    b.answers = False
    a.put(Revoked(frozenset({P})))
    assert a.returned == 0
    region.controls = False
    region.write(Evict(1, "c", b.id, "gone"))
    assert a.returned == 1
    assert any(isinstance(each, Lost) for each in region.log)


def test_12_a_contribution_that_is_refused_makes_the_operator_go_back() -> None:
    """Else what its cut held would be in no checkpoint, and the next one goes on behind it."""
    region, a, b = two()
    b.answers = False
    region.loses = Contribution
    region.controls = False
    region.write(Drain(1, "c", 1, 1))
    region.write(Contribution(a.id, 10**6, 1, 1))
    assert region.refused[-1] == "covers_what_it_owns"
    region.give_up()
    assert a.machine.state is OperatorState.CR_RESET_PENDING
    assert "refused" in region.state.must_reset


def test_13_one_that_loses_a_partition_and_gets_it_again_reads_it_from_the_checkpoint() -> None:
    region, a, _ = two()
    checkpoint(region)
    a.deliver(P, 80)
    a.put(PartitionsLost(frozenset({P})))
    a.put(Assigned(frozenset({P})))
    assert region.state.attempt == 2
    assert a.reads[P].offset == 50
    assert region.state.phase in (Phase.PROCESSING, Phase.CHECKPOINT_PENDING)


def test_14_an_operator_that_closes_hands_over_first() -> None:
    region, a, _ = two()
    a.put(Close())
    assert a.is_closed
    assert region.state.partition(P).position == 50
    assert region.state.partition(P).owner is None
    assert region.state.attempt == 1


def test_15_a_copy_of_a_claim_that_was_released_is_given_back() -> None:
    region, a, _ = two()
    claim = next(e for e in region.log if isinstance(e, Claim) and e.operator == a.id)
    a.put(Revoked(frozenset({P})))
    assert region.state.partition(P).owner is None
    region.write(claim)
    assert region.refused[-1] == "is_new"
    region.write(Claim(a.id, 10**6, frozenset({P})))
    assert region.state.partition(P).owner is None
    assert region.state.attempt == 1
    assert not any(isinstance(each, ResetDone) for each in region.log)


def test_a_cut_does_not_hold_a_partition_as_it_was_before_others_had_it() -> None:
    """The shell still has what was given back with nothing new in it, and the cut names it."""
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    a.deliver(P, 50)
    region.pass_time(1_000)
    before = a.machine.session.reading[P].read
    a.put(Revoked(frozenset({P})))
    b = region.process("b", owns=[P])
    b.deliver(P, 80)
    b.put(Revoked(frozenset({P})))
    a.put(Assigned(frozenset({P})))
    a.cuts = False
    region.pass_time(1_000)
    cut = next(each.cut for each in reversed(a.seen) if each.cut)
    a.put(CutMade(cut.checkpoint, cut.attempt, Map({P: 50}), Map({P: before})))
    assert region.refused == []
    assert region.state.partition(P).position == 80


def test_a_cut_does_not_hold_what_was_delivered_after_it() -> None:
    """A partition is read while the cut is on its way: its records are in the next checkpoint."""
    region = Region()
    region.elect()
    a = region.process("a", owns=[P])
    a.deliver(P, 50)
    a.cuts = False
    region.pass_time(1_000)
    cut = next(each.cut for each in reversed(a.seen) if each.cut)
    a.put(Assigned(frozenset({Q})))
    a.put(StartFound(Q, 5))
    a.deliver(Q, 30)
    a.put(CutMade(cut.checkpoint, cut.attempt, Map({P: 50}), Map({P: a.reads[P].read})))
    assert region.state.completed == 1
    assert (region.state.partition(P).position, region.state.partition(Q).position) == (50, 5)
    a.cuts = True
    region.pass_time(1_000)
    assert region.state.partition(Q).position == 30


def test_a_contribution_that_got_lost_is_said_again() -> None:
    """The log does not show it, so it was not refused, and nothing has to go back."""
    region, a, _ = two()
    region.loses = Contribution
    checkpoint(region)
    assert a.id not in region.state.drain.contributions  # type: ignore[union-attr]  # it is open
    region.give_up()
    assert region.state.completed == 1
    assert (region.state.attempt, region.state.must_reset) == (1, "")
    assert region.state.partition(P).position == 50
