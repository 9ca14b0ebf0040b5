"""The behaviours of the original, by the numbers of docs/internals/region-rules.md."""

from __future__ import annotations

import pytest
from immutables import Map

from kohort.region.errors import DifferentRegionError, OperatorFencedError
from kohort.region.machines.events import (
    Asked,
    Assigned,
    Chosen,
    CutMade,
    Delivered,
    Discarded,
    Folded,
    GroupDescribed,
    GroupMember,
    PartitionsLost,
    PublishFailed,
    Revoked,
    StartFound,
    Stopped,
    WentHealthy,
    WentUnhealthy,
)
from kohort.region.machines.operator import OperatorState
from kohort.region.machines.records import (
    OPERATOR_DRIVEN,
    RESET,
    STOP,
    Complete,
    Contribution,
    Drain,
    Evict,
    Lost,
    Registered,
    Reset,
    ResetDone,
    Start,
)
from kohort.region.machines.state import Phase
from kohort.values import replace
from tests.region.harness import SETTINGS, P, Process, Q, Region, one

PENDING = OperatorState.CR_RESET_PENDING


def described(*names: str) -> GroupDescribed:
    return GroupDescribed(tuple(GroupMember(f"m-{n}", f"client-{n}", f"host-{n}") for n in names))


def test_a1_members_outside_of_the_region_are_reported_by_name_and_host_once() -> None:
    region, _ = one()
    for _ in range(4):
        region.now += 6_000
        region.control(described("a", "stranger"))
    facts = [each for effects in region.decided for each in effects.observed]
    said = "client-stranger on host-stranger is in the group but not an operator of the region, "
    (fact,) = [each for each in facts if each.text.startswith(said)]
    assert fact.is_warning
    assert "another group.id" in fact.text


def test_a2_who_comes_first_makes_the_region_and_the_others_take_it_as_it_is() -> None:
    region = Region()
    region.process("a")
    region.process("b")
    assert region.kinds() == ["RegionSettled", "Registered", "Registered"]


def test_a3_an_operator_of_another_region_fails_by_name() -> None:
    region, _ = one()
    other = Process(region, "x", settings=replace(SETTINGS, group_id="other", max_resets=7))
    other.put(Folded(region.state))
    assert isinstance(other.failed, DifferentRegionError)
    differing = (
        f"group_id is other here and {SETTINGS.group_id} in the region, max_resets is 7 here"
    )
    assert str(other.failed).startswith(f"operator {other.id}: {differing}")
    assert "period_ms" not in str(other.failed)
    assert "give all its workers the same, or use a region of another name" in str(other.failed)


def test_a4_a_registration_that_got_lost_is_said_again() -> None:
    region = Region()
    region.loses = Registered
    a = region.process("a")
    assert region.state.active(a.id) is None
    region.give_up()
    assert region.state.active(a.id) is not None


def test_a5_an_operator_that_is_not_registered_contributes_nothing() -> None:
    region, a = one()
    stranger = Contribution(a.id._replace(name="x"), 1, 1, 1)
    region.write(Drain(1, "c", 1, 1), stranger)
    assert "is_active" in region.refused


def test_a21_after_registration_an_operator_has_no_partitions() -> None:
    region = Region()
    a = region.process("a")
    assert a.machine.state is OperatorState.SUBSCRIBED
    assert not a.reads


def test_a33_a_state_says_whether_anything_was_delivered_since_the_last_seek() -> None:
    region, a = one()
    states = [a.machine.state.name]
    region.control(Asked(RESET))
    region.run()
    states.append(a.machine.state.name)
    a.deliver(P, 3)
    states.append(a.machine.state.name)
    assert states == ["RECORDS_FETCHED", "RESET_COMPLETE", "RECORDS_FETCHED"]


@pytest.mark.parametrize("rebalance", ["checkpoint", "reset"])
def test_a34_a_partition_of_which_nothing_was_delivered_goes_without_a_reset(
    rebalance: str,
) -> None:
    region, a = one(rebalance)
    a.put(Revoked(frozenset({Q})))
    assert a.returned == 1
    assert region.state.partition(Q).owner is None
    assert region.state.attempt == 1


def test_a35_in_the_original_mode_a_partition_that_delivered_resets_the_region() -> None:
    region, a = one("reset")
    a.put(Revoked(frozenset({P})))
    assert a.returned == 1
    assert region.state.attempt == 2
    assert region.state.partition(P).owner is None
    assert any(isinstance(each, Lost) for each in region.log)


def test_a36_reading_stops_before_the_region_resets() -> None:
    region, a = one("reset")
    region.controls = False
    a.put(Revoked(frozenset({P})))
    stopped = [bool(each.stops) for each in a.seen].index(True)
    lost = next(
        at
        for at, each in enumerate(a.seen)
        if each.append and isinstance(each.append.records[0], Lost)
    )
    assert stopped < lost
    assert all(each.is_stopping for each in a.machine.session.reading.values())


def test_a37_one_rebalance_asks_for_one_reset() -> None:
    region = Region()
    region.elect()
    a, b = (
        region.process("a", rebalance="reset", owns=[P]),
        region.process("b", rebalance="reset", owns=[Q]),
    )
    a.deliver(P, 5)
    b.deliver(Q, 5)
    region.controls = False
    a.put(Revoked(frozenset({P})))
    b.put(Revoked(frozenset({Q})))
    region.controls = True
    region.run()
    assert region.state.attempt == 2


def test_a38_a_reset_because_of_a_rebalance_begins_a_fresh_budget() -> None:
    region, a = one("reset")
    region.write(Reset(1, "c", 2, False, ""), Reset(1, "c", 3, False, ""))
    assert region.state.resets == 2
    a.deliver(P, 5)
    a.put(Revoked(frozenset({P})))
    assert (region.state.attempt, region.state.resets) == (4, 1)
    assert not region.state.exhausted


def test_a39_a_reset_that_could_not_be_asked_for_is_asked_for_again() -> None:
    region, a = one("reset")
    region.loses = Lost
    a.put(Revoked(frozenset({P})))
    assert region.state.attempt == 1
    region.give_up()
    assert region.state.attempt == 2


def test_a40_a_partition_that_is_lost_resets_the_region_if_it_is_read() -> None:
    region, a = one()
    a.put(PartitionsLost(frozenset({P})))
    assert region.state.attempt == 2
    assert region.state.partition(P).owner is None


def test_a42_a_partition_is_read_from_the_checkpoint_else_from_its_start() -> None:
    region, a = one()
    assert a.reads[Q].offset == 0
    region.pass_time(1_000)
    region.write(Evict(1, "c", a.id, "gone"))
    b = region.process("b")
    b.put(Assigned(frozenset({P, Q})))
    assert (b.reads[P].offset, b.reads[Q].offset) == (50, 0)


def test_a43_nothing_is_read_while_a_reset_is_pending() -> None:
    region, a = one("reset")
    region.controls = False
    a.put(Revoked(frozenset({P})))
    read = len(a.reads)
    a.put(Assigned(frozenset({P._replace(partition=3)})))
    assert a.machine.state is PENDING
    assert len(a.reads) == read


def test_a44_whatever_is_assigned_is_read_or_waits_for_a_reset() -> None:
    """There is no state in which an assignment is passed over."""
    region, a = one()
    for event in (WentUnhealthy("x"), Assigned(frozenset({P._replace(partition=3)}))):
        a.put(event)
    a.put(WentHealthy())
    a.put(StartFound(P._replace(partition=3), 7))
    assert a.reads[P._replace(partition=3)].offset == 7
    assert region.state.attempt == 2


def test_a45_what_is_delivered_late_changes_nothing() -> None:
    region, a = one()
    old = a.reads[P].read
    region.control(Asked(RESET))
    region.run()
    a.tell(Delivered(P, 99, old))
    region.pass_time(1_000)
    assert region.state.partition(P).position == 0


def test_a46_an_empty_assignment_is_legal() -> None:
    region, _ = one()
    b = region.process("b")
    b.put(Assigned(frozenset()))
    region.pass_time(1_000)
    assert region.state.completed == 1
    assert all(each.cut is None for each in b.seen)


def test_a49_an_operator_driven_region_drains_only_when_asked() -> None:
    region = Region(replace(SETTINGS, mode=OPERATOR_DRIVEN))
    region.elect()
    a = Process(region, "a", settings=replace(SETTINGS, mode=OPERATOR_DRIVEN))
    region.processes.append(a)
    a.put(Folded(region.state))
    a.put(Assigned(frozenset({P})))
    a.put(StartFound(P, 0))
    region.pass_time(100_000)
    assert region.state.checkpoint == 0
    region.control(Asked("drain"))
    region.run()
    assert region.state.completed == 1


def test_a53_a_contribution_names_its_operator_and_all_offsets() -> None:
    region, a = one()
    region.pass_time(1_000)
    given = next(each for each in region.log if isinstance(each, Contribution))
    assert (given.operator, given.offsets) == (a.id, Map({P: 50, Q: 0}))


def test_a56_a_checkpoint_that_is_published_is_forgotten() -> None:
    region, _ = one()
    region.pass_time(1_000)
    assert [each.checkpoint for each in region.published] == [1]
    assert region.state.unpublished == ()


def test_a57_a_reset_discards_first_and_reads_from_the_checkpoint() -> None:
    region, a = one()
    region.pass_time(1_000)
    a.deliver(P, 80)
    a.answers = False
    region.control(Asked(RESET))
    region.run()
    assert a.machine.state is PENDING
    assert not any(isinstance(each, ResetDone) for each in region.log)
    a.answers = True
    a.put(Discarded(2))
    assert a.reads[P].offset == 50
    assert region.state.phase is Phase.PROCESSING


def test_a58_a_reset_before_the_first_checkpoint_goes_to_the_start_positions() -> None:
    region, a = one()
    region.control(Asked(RESET))
    region.run()
    assert a.reads[P].offset == 0


def test_a59_a_partition_that_left_meanwhile_is_not_read_after_a_reset() -> None:
    _, a = one("reset")
    reads = a.machine.session.reads
    a.put(Revoked(frozenset({P})))
    assert [each.partition for e in a.seen for each in e.reads if each.read > reads] == [Q]


def test_a61_a_contribution_of_an_earlier_attempt_never_counts() -> None:
    region, a = one()
    a.answers = False
    region.pass_time(1_000)
    cut = next(each.cut for each in a.seen if each.cut)
    region.control(Asked(RESET))
    region.run()
    a.answers = True
    a.put(Discarded(2))
    a.put(CutMade(cut.checkpoint, cut.attempt, Map({P: 50}), Map({P: 1})))
    assert not any(isinstance(each, Contribution) for each in region.log)
    region.pass_time(1_000)
    assert region.state.completed == 2


def test_a64_a_reset_that_takes_too_long_goes_on_without_the_slow() -> None:
    region, a = one()
    b = region.process("b", owns=[P._replace(partition=3)])
    b.answers = False
    region.control(Asked(RESET))
    region.run()
    region.control(described("a", "b"))
    region.pass_time(30_000)
    evicted = [each for each in region.log if isinstance(each, Evict)]
    assert [each.operator for each in evicted] == [b.id]
    assert "did not finish a reset within 30000 ms" in evicted[0].why
    assert isinstance(b.failed, OperatorFencedError)
    assert [e.remove_from_group for e in region.decided if e.remove_from_group] == [("m-b",)]
    assert a.machine.state is not PENDING


def test_a66_an_operator_contributes_only_for_itself() -> None:
    region, a = one()
    b = region.process("b", owns=[P._replace(partition=3)])
    region.controls = a.answers = b.answers = False
    region.write(Drain(1, "c", 1, 1), Contribution(b.id, 99, 1, 1, Map({P: 7, **b.positions})))
    assert region.refused[-1] == "owns_what_it_covers"


def test_a67_a_relaunched_operator_delivers_nothing_before_its_reset() -> None:
    region, a = one()
    region.controls = False
    again = region.process("a", "2")
    again.put(Assigned(frozenset({P})))
    assert not again.reads
    region.controls = True
    region.run()
    assert again.reads[P].offset == 0
    assert isinstance(a.failed, OperatorFencedError)


def test_a69_a_partition_in_neither_place_gets_its_start_position_once() -> None:
    region, a = one()
    new = P._replace(partition=3)
    a.put(Assigned(frozenset({new})))
    assert new in a.wanted_starts
    a.put(StartFound(new, 17))
    assert (a.reads[new].offset, region.state.partition(new).start) == (17, 17)


def test_a70_the_first_start_in_the_log_counts_for_whoever_lost_the_race() -> None:
    region, a = one()
    new = P._replace(partition=3)
    a.put(Assigned(frozenset({new})))
    region.write(Start(a.id, 10**6, new, 5))
    a.put(StartFound(new, 17))
    assert a.reads[new].offset == 5


def test_a71_after_ten_resets_in_a_row_only_a_forced_one_goes_on() -> None:
    assert type(SETTINGS)(group_id="g").max_resets == 10
    region, a = one()
    a.cuts = False
    for _ in range(12):
        region.pass_time(5_000)
    assert region.state.phase is Phase.MAXIMUM_RESET_ATTEMPTS_REACHED
    assert "did not answer" in region.state.exhausted
    region.control(Asked(RESET))
    region.run()
    assert region.state.exhausted
    region.control(Asked(RESET, force=True))
    region.run()
    assert (region.state.phase.name, region.state.exhausted) == ("PROCESSING", "")


# ------------------------------------------------------------------------- faults of the original


def test_a6_a_checkpoint_number_beyond_999_is_no_different() -> None:
    region, _ = one()
    for _ in range(1_100):
        region.pass_time(1_000)
    assert region.state.completed == 1_100


def test_a6_a_cut_between_assignment_and_seek_holds_the_partition() -> None:
    region, a = one()
    region.pass_time(1_000)
    a.answers = False
    region.write(Drain(1, "c", 2, 1))
    a.answers = True
    cut = next(each.cut for each in reversed(a.seen) if each.cut)
    a.put(CutMade(cut.checkpoint, cut.attempt, Map(), Map()))
    assert region.state.partition(P).position == 50
    assert region.state.completed == 2


def test_a6_two_that_claim_one_partition_make_the_region_reset() -> None:
    region, a = one()
    b = region.process("b")
    region.controls = False
    b.put(Assigned(frozenset({P})))
    assert "which a/1 has not released" in region.state.must_reset
    region.write(Complete(1, "c", 1, 1))
    assert region.state.completed == 0
    assert a.id != b.id


def test_a6_the_control_topic_cannot_be_reached_in_a_revocation() -> None:
    region, a = one()
    a.follows = False
    region.controls = False
    a.put(Revoked(frozenset({P})))
    region.pass_time(5_000)
    assert a.returned == 1
    assert a.machine.state is PENDING


# ------------------------------------------------------------------------------------ controller


def test_a_publication_that_fails_is_repeated_and_the_next_checkpoint_goes_on() -> None:
    region, _ = one()
    region.publishes = False
    region.pass_time(1_000)
    region.control(PublishFailed(1, "disk full"))
    region.pass_time(1_000)
    assert [each.checkpoint for each in region.published] == [1, 1]
    assert region.state.completed == 2
    assert [each.checkpoint for each in region.state.unpublished] == [1, 2]


def test_an_operator_that_is_gone_from_the_group_is_evicted() -> None:
    region, a = one()
    region.control(described("a"))
    region.control(described())
    region.now += 2_000
    region.control(described())
    region.run()
    assert isinstance(a.failed, OperatorFencedError)


def test_a_candidate_that_is_not_chosen_decides_nothing() -> None:
    region, _ = one()
    region.control(Chosen(False))
    region.pass_time(60_000)
    assert region.state.checkpoint == 0


def test_a_region_that_is_stopped_hands_over_and_ends() -> None:
    region, a = one()
    region.control(Asked(STOP))
    region.run()
    assert a.is_closed
    assert region.state.partition(P).position == 50
    assert region.state.phase is Phase.STARTED
    assert not region.state.stopping  # a worker that starts later works


def test_an_ill_operator_holds_the_region_until_it_is_healthy() -> None:
    region, a = one()
    a.put(WentUnhealthy("disk full"))
    assert region.state.phase.name == "UNHEALTHY"
    region.pass_time(60_000)
    assert region.state.attempt == 1
    a.put(WentHealthy())
    assert region.state.attempt == 2
    a.tell(Stopped(frozenset()))
    assert region.state.phase is Phase.PROCESSING
