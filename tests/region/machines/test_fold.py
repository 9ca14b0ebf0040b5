"""The fold, record by record: what each does, and by which rule it is passed over."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from immutables import Map

from kohort.region.machines import fold
from kohort.region.machines.records import (
    RESET,
    Ask,
    Claim,
    Complete,
    Contribution,
    Controller,
    Drain,
    Evict,
    Exhausted,
    Healthy,
    Leaving,
    Left,
    Lost,
    OperatorId,
    Published,
    RegionPartition,
    RegionRecord,
    RegionSettings,
    RegionSettled,
    Registered,
    Reset,
    ResetDone,
    Snapshot,
    Start,
    Unclaim,
    Unhealthy,
)
from kohort.region.machines.state import Phase, RegionState
from kohort.values import replace
from tests.simulation.planting.regions import rules

SETTINGS = RegionSettings(group_id="g", max_resets=2)
A, A2, B = OperatorId("a", "1"), OperatorId("a", "2"), OperatorId("b", "1")
P, Q = (RegionPartition("t", "id", number) for number in (0, 1))


def registered(who: OperatorId, after: int) -> Registered:
    return Registered(who, after, "host", "1", f"client-{who.name}")


def parts(*partitions: RegionPartition) -> frozenset[RegionPartition]:
    return frozenset(partitions)


def given(
    who: OperatorId,
    seq: int,
    offsets: dict[RegionPartition, int],
    released: Iterable[RegionPartition] = (),
    n: int = 1,
    attempt: int = 1,
    states: dict[RegionPartition, str] | None = None,
) -> Contribution:
    return Contribution(
        who,
        seq,
        n,
        attempt,
        Map(offsets),
        Map(states or {}),
        frozenset(released),
        f"{who.name}{n}",
    )


def folded(records: Iterable[RegionRecord], state: RegionState | None = None) -> RegionState:
    """Fold records, all of which have to count."""
    state = state or RegionState()
    for record in records:
        state, facts = fold.fold_in(state, state.offset, record)
        assert not [each for each in facts if each.is_refused], facts
    return state


def refusal(state: RegionState, record: RegionRecord) -> str:
    """Return the rule by which a record is passed over; it must change nothing but counters."""
    after, facts = fold.fold_in(state, state.offset, record)
    assert facts[0].is_refused
    assert facts[0].text
    assert after.partitions == state.partitions
    return facts[0].rule


TWO = (
    RegionSettled("w", SETTINGS),
    Controller(1, "c"),
    registered(A, 2),
    registered(B, 3),
    Claim(A, 1, parts(P)),
    Claim(B, 1, parts(Q)),
    Start(A, 2, P, 50),
    Start(B, 2, Q, 0),
)
DRAINED = (*TWO, Drain(1, "c", 1, 1))
GIVEN = (*DRAINED, given(A, 3, {P: 100}, [P]), given(B, 3, {Q: 7}))
DONE = (*GIVEN, Complete(1, "c", 1, 1))
RESET_ONCE = (*DONE, Ask("w", RESET, 2, 1), Reset(1, "c", 2, False, "asked"))

REFUSED: dict[str, tuple[Iterable[RegionRecord], RegionRecord, str]] = {
    "another region": (TWO, RegionSettled("x", RegionSettings(group_id="h")), "is_first_or_equal"),
    "a region of the same group with another setting": (
        TWO,
        RegionSettled("x", replace(SETTINGS, period_ms=7)),
        "is_first_or_equal",
    ),
    "a copy of a registration": (TWO, registered(A, 9), "is_no_copy"),
    "a late registration of one that is gone": (
        (*TWO, registered(A2, 8)),
        registered(A, 2),
        "knows_its_predecessor",
    ),
    "a registration that has not seen a burial": (
        (*TWO, Evict(1, "c", A, "")),
        registered(A2, 8),
        "knows_its_predecessor",
    ),
    "a claim of an evicted one": ((*TWO, Evict(1, "c", A, "")), Claim(A, 3, parts(Q)), "is_active"),
    "a claim that comes late": (TWO, Claim(A, 1, parts(Q)), "is_new"),
    "an unclaim of what is contributed": (
        (*DRAINED, given(A, 3, {P: 100})),
        Unclaim(A, 4, parts(P)),
        "gives_back_nothing_contributed",
    ),
    "a second start": (TWO, Start(B, 3, P, 9), "is_first_start"),
    "a stale contribution": (
        (*RESET_ONCE, ResetDone(B, 4, 2), Drain(1, "c", 2, 2)),
        given(B, 5, {Q: 9}, n=2),
        "is_of_present_attempt",
    ),
    "a contribution without a drain": (TWO, given(A, 3, {P: 100}), "is_of_open_drain"),
    "a contribution to an older checkpoint": (
        (*DONE, Drain(1, "c", 2, 1)),
        given(B, 4, {Q: 9}),
        "is_of_open_drain",
    ),
    "a contribution of one that owned nothing": (
        (*DONE, Drain(1, "c", 2, 1)),
        given(A, 4, {}, n=2),
        "is_of_participant",
    ),
    "a second contribution": (GIVEN, given(A, 4, {P: 120}), "is_first_contribution"),
    "a contribution without a partition": (DRAINED, given(A, 3, {}), "covers_what_it_owns"),
    "a contribution of another's partition": (
        DRAINED,
        given(A, 3, {P: 100, Q: 9}),
        "owns_what_it_covers",
    ),
    "a contribution before the start": (DRAINED, given(A, 3, {P: 49}), "goes_forward"),
    "a contribution behind the checkpoint": (
        (*DONE, Drain(1, "c", 2, 1)),
        given(B, 4, {Q: 6}, n=2),
        "goes_forward",
    ),
    "a release without an offset": (
        DRAINED,
        given(A, 3, {P: 100}, [Q]),
        "mentions_only_what_it_covers",
    ),
    "a reset done of an older attempt": (RESET_ONCE, ResetDone(B, 4, 1), "is_of_present_attempt"),
    "an ask that was done": (DONE, Ask("w", "drain", 1, 1), "is_still_wanted"),
    "an ask of an older attempt": (RESET_ONCE, Ask("w", RESET, 2, 1), "is_still_wanted"),
    "an epoch that is taken": (TWO, Controller(1, "d"), "is_next_epoch"),
    "an epoch too far": (TWO, Controller(3, "d"), "is_next_epoch"),
    "a drain of an older controller": (
        (*TWO, Controller(2, "d")),
        Drain(1, "c", 1, 1),
        "is_decided_by_the_controller",
    ),
    "a drain out of turn": (TWO, Drain(1, "c", 2, 1), "is_next_checkpoint"),
    "a drain of another attempt": (TWO, Drain(1, "c", 1, 2), "is_of_present_attempt"),
    "a drain during a drain": (DRAINED, Drain(1, "c", 2, 1), "may_drain"),
    "a drain before a reset": ((*TWO, Lost(A, 3, parts(P))), Drain(1, "c", 1, 1), "may_drain"),
    "a complete without a drain": (TWO, Complete(1, "c", 1, 1), "is_of_open_drain"),
    "a complete of another attempt": (GIVEN, Complete(1, "c", 1, 2), "is_of_present_attempt"),
    "a complete before a reset": (
        (*GIVEN, Lost(A, 4, parts(P))),
        Complete(1, "c", 1, 1),
        "needs_no_reset",
    ),
    "a complete with one missing": (
        (*DRAINED, given(A, 3, {P: 100})),
        Complete(1, "c", 1, 1),
        "has_all_contributions",
    ),
    "a publication out of order": (
        (*DONE, Drain(1, "c", 2, 1), given(B, 4, {Q: 8}, n=2), Complete(1, "c", 2, 1)),
        Published(1, "c", 2),
        "is_oldest_unpublished",
    ),
    "a reset that came already": (RESET_ONCE, Reset(1, "c", 2, False, ""), "is_next_attempt"),
    "a reset of the ill": ((*TWO, Unhealthy(A, 3, "")), Reset(1, "c", 2, False, ""), "is_healthy"),
    "a forced reset that nobody forced": (TWO, Reset(1, "c", 2, True, ""), "is_forced_with_reason"),
    "one reset too many": (
        (*TWO, Reset(1, "c", 2, False, ""), Reset(1, "c", 3, False, "")),
        Reset(1, "c", 4, False, ""),
        "is_within_budget",
    ),
    "an eviction of one that is gone": (
        (*TWO, Evict(1, "c", A, "")),
        Evict(1, "c", A, ""),
        "is_still_active",
    ),
    "giving up too early": (TWO, Exhausted(1, "c", 1, ""), "is_exhausted"),
    "an older snapshot": (
        (*TWO, Snapshot(1, "c", 5, "", "d")),
        Snapshot(1, "c", 4, "", "d"),
        "is_newer_snapshot",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_is_passed_over_by_name(name: str) -> None:
    before, record, rule = REFUSED[name]
    assert refusal(folded(before), record) == rule


@pytest.mark.parametrize("name", REFUSED)
def test_without_its_rule_the_record_would_count(name: str) -> None:
    """So each rule is needed: nothing else refuses the record."""
    before, record, rule = REFUSED[name]
    state, whole = folded(before), fold.RULES[type(record)]
    left = tuple(each for each in whole.conditions if each.__name__ != rule)
    with rules({type(record): replace(whole, conditions=left)}):
        try:
            _, facts = fold.fold_in(state, state.offset, record)
        except (AssertionError, KeyError):
            return  # what the rule kept away is not even possible
    assert not any(each.is_refused and each.rule == rule for each in facts)


def test_every_condition_of_every_record_has_a_case_or_follows_from_another() -> None:
    wanted = {
        (kind.__name__, each.__name__)
        for kind, rule in fold.RULES.items()
        for each in rule.conditions
    }
    cases = {(type(record).__name__, rule) for _, record, rule in REFUSED.values()}
    shared = {"is_active", "is_new", "is_decided_by_the_controller"}
    missing = {each for each in wanted - cases if each[1] not in shared}
    # An operator evicted while it takes part resets the region, which refuses the checkpoint
    # first.
    assert missing == {
        ("Complete", "has_active_participants"),
        ("Exhausted", "is_of_present_attempt"),
    }


def test_the_text_of_a_refusal_says_what_came_and_what_is() -> None:
    state = folded((*RESET_ONCE, ResetDone(B, 4, 2), Drain(1, "c", 2, 2)))
    _, facts = fold.fold_in(state, state.offset, given(B, 5, {Q: 9}, n=2))
    assert facts[0].text == (
        "contribution of attempt 1 for checkpoint 2 from operator b/1 is stale:"
        " the region is at attempt 2"
    )


def test_complete_overlays_positions_and_frees_what_was_released() -> None:
    state = folded(DONE)
    assert state.partition(P).position == 100
    assert state.partition(P).owner is None
    assert state.partition(Q).owner == B
    assert state.phase is Phase.CHECKPOINT_PENDING
    assert folded([Published(1, "c", 1)], state).phase is Phase.PROCESSING


def test_state_references_are_carried_forward() -> None:
    first = (*DRAINED, given(A, 3, {P: 60}, states={P: "s1"}), given(B, 3, {Q: 7}))
    state = folded((*first, Complete(1, "c", 1, 1), Drain(1, "c", 2, 1)))
    more = (given(A, 4, {P: 60}, n=2), given(B, 4, {Q: 8}, n=2, states={Q: "s2"}))
    state = folded((*more, Complete(1, "c", 2, 1)), state)
    assert (state.partition(P).state, state.partition(Q).state) == ("s1", "s2")


def test_a_reset_burns_the_open_checkpoint() -> None:
    state = folded((*GIVEN, Ask("w", RESET, 2, 1), Reset(1, "c", 2, False, "")))
    assert (state.drain, state.partition(P).position, state.checkpoint) == (None, None, 1)
    assert refusal(folded([ResetDone(A, 4, 2), ResetDone(B, 4, 2)], state), Drain(1, "c", 1, 2))


def test_a_reset_gives_a_partition_to_whom_it_belongs() -> None:
    lost = folded((*TWO, Lost(A, 3, parts(P)), Reset(1, "c", 2, True, "")))
    assert lost.partition(P).owner is None
    waits = folded((*TWO, Claim(B, 3, parts(P)), Reset(1, "c", 2, True, "")))
    assert waits.partition(P).owner == B
    stays = folded((*TWO, Reset(1, "c", 2, False, "")))
    assert (stays.partition(P).owner, stays.phase) == (A, Phase.RESETTING)
    again = folded((*TWO, Lost(A, 3, parts(P)), Claim(A, 4, parts(P)), Reset(1, "c", 2, True, "")))
    assert (again.partition(P).owner, again.partition(P).lost) == (A, False)


def test_a_waiting_claim_of_one_that_is_gone_is_worth_nothing() -> None:
    state = folded((*TWO, Claim(B, 3, parts(P)), Evict(1, "c", B, ""), Reset(1, "c", 2, True, "")))
    assert state.partition(P).owner == A


def test_the_phases() -> None:
    assert folded(TWO[:2]).phase is Phase.STARTED
    assert folded(TWO).phase is Phase.PROCESSING
    assert folded(DRAINED).phase is Phase.DRAINING
    assert folded(DONE).phase is Phase.CHECKPOINT_PENDING
    reset = folded(RESET_ONCE)
    assert reset.phase is Phase.RESETTING
    assert folded([ResetDone(B, 4, 2)], reset).phase is Phase.CHECKPOINT_PENDING
    ill = folded((*TWO, Unhealthy(A, 3, "disk")))
    assert (ill.phase, bool(ill.must_reset)) == (Phase.UNHEALTHY, True)
    assert folded([Healthy(A, 4)], ill).phase is Phase.PROCESSING


def test_a_budget_ends_and_a_forced_reset_begins_a_fresh_one() -> None:
    spent = (*TWO, Reset(1, "c", 2, False, ""), Reset(1, "c", 3, False, ""))
    state = folded((*spent, Exhausted(1, "c", 3, "enough")))
    assert state.phase is Phase.MAXIMUM_RESET_ATTEMPTS_REACHED
    assert refusal(state, Ask("w", RESET, 1, 3)) == "is_still_wanted"
    state = folded([Ask("w", RESET, 1, 3, force=True), Reset(1, "c", 4, True, "")], state)
    assert (state.phase, state.resets) == (Phase.RESETTING, 1)


def test_an_operator_that_leaves_in_order_resets_nothing() -> None:
    state = folded((*TWO, Unclaim(A, 3, parts(P)), Left(A, 4)))
    assert (state.must_reset, sorted(state.operators)) == ("", ["b"])
    assert folded((*TWO, Left(A, 3))).must_reset


def test_leaving_is_seen_until_the_partition_is_free() -> None:
    assert folded((*TWO, Leaving(A, 3, parts(P, Q)))).partition(P).leaving
    assert not folded((*TWO, Leaving(A, 3, parts(P, Q)))).partition(Q).leaving


def test_an_offset_is_folded_once() -> None:
    with pytest.raises(ValueError, match="folded already"):
        fold.fold_in(folded(TWO), 0, None)


def test_the_first_counts_say_which_partitions_were_added_later() -> None:
    first = Claim(A, 3, parts(P), Map({P.topic_id: 2}))
    second = Claim(B, 3, parts(Q), Map({P.topic_id: 4, "other": 1}))
    before = folded(TWO)
    assert not before.is_added(P._replace(partition=7)), "nobody knows what was there"
    state = folded((first, second), before)
    assert state.began == Map({P.topic_id: 2})
    added = [each for each in range(4) if state.is_added(P._replace(partition=each))]
    assert added == [2, 3]
    assert state.is_added(RegionPartition("matches-since", "other", 0))


def test_the_newest_checkpoint_that_the_output_shows_is_known() -> None:
    state = folded((*DONE, Published(1, "c", 1, True)))
    assert state.shown == 1
    silent = (Drain(1, "c", 2, 1), replace(given(B, 4, {Q: 8}, n=2), output=""))
    assert folded((*silent, Complete(1, "c", 2, 1), Published(1, "c", 2)), state).shown == 1
    assert folded((*DONE, Published(1, "c", 1))).shown == 0, "as a record of format 1 has it"
