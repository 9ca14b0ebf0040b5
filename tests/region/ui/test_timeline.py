"""What the page of a region tells of its records."""

from __future__ import annotations

from typing import Any

from kohort.region.machines.records import (
    Ask,
    Claim,
    Complete,
    Contribution,
    Controller,
    Drain,
    Evict,
    Exhausted,
    Leaving,
    Left,
    Lost,
    OperatorId,
    Published,
    RegionRecord,
    Registered,
    Reset,
    ResetDone,
    Unhealthy,
)
from kohort.region.ui.timeline import KEPT, Happening, Timeline
from tests.region.harness import P, Q

ONE, TWO = OperatorId("one", "1" * 32), OperatorId("two", "2" * 32)


def told(*records: tuple[int, RegionRecord]) -> list[Happening]:
    timeline = Timeline()
    for at, record in records:
        timeline.take(record, at)
    return timeline.since(0)


def seen(happening: Happening) -> tuple[Any, ...]:
    return (happening.title, happening.took, happening.outcome, happening.cause, happening.detail)


def contribution(who: OperatorId, checkpoint: int) -> Contribution:
    return Contribution(who, 1, checkpoint, 1)


def test_a_checkpoint_has_its_cause_its_slowest_operator_and_its_durations() -> None:
    (found,) = told(
        (900, Ask("anna.1", "drain", 7, 1, why="before lunch")),
        (1_000, Drain(1, "1", 7, 1)),
        (1_020, contribution(ONE, 7)),
        (1_200, contribution(TWO, 7)),
        (1_210, Complete(1, "1", 7, 1)),
        (1_250, Published(1, "1", 7)),
    )
    assert seen(found) == (
        "checkpoint 7", 210, "published", "asked for by anna.1: before lunch",
        "slowest: two (200 ms); visible 40 ms later",
    )  # fmt: skip


def test_a_reset_burns_the_open_checkpoint_and_ends_with_the_last_operator() -> None:
    drain, reset = told(
        (1_000, Drain(1, "1", 7, 1)),
        (1_100, Reset(1, "1", 2, True, "two lost numbers-1")),
        (1_150, ResetDone(ONE, 1, 2)),
        (1_400, ResetDone(TWO, 1, 2)),
        (1_500, ResetDone(TWO, 1, 1)),
    )
    assert seen(drain) == ("checkpoint 7", None, "burnt by a reset", "", "")
    assert seen(reset) == ("reset to attempt 2", 300, "done", "two lost numbers-1", "forced")


def test_a_reset_for_which_nobody_had_to_go_back_is_over_when_the_next_drain_begins() -> None:
    reset, _ = told((1, Reset(1, "1", 2, False, "why")), (900, Drain(1, "1", 8, 2)))
    assert (reset.took, reset.outcome) == (0, "done")


def test_what_belongs_together_is_one_rebalance() -> None:
    first, second = told(
        (1_000, Registered(TWO, 0, "h", "1", "c")),
        (1_500, Leaving(ONE, 1, frozenset({P}))),
        (3_000, Claim(TWO, 1, frozenset({P}))),
        (9_000, Lost(ONE, 2, frozenset({Q}))),
        (9_001, Evict(1, "1", ONE, "it left the group")),
        (9_002, Left(TWO, 2)),
    )
    assert seen(first) == ("partitions change hands", 2_000, "", "two joined", "one -1, two +1")
    assert (second.took, second.cause) == (
        2,
        "one lost partitions; one was evicted: it left the group; two left",
    )


def test_decisions_of_an_older_controller_are_passed_over() -> None:
    found = told(
        (1, Registered(ONE, 0, "h", "1", "c")),
        (2, Controller(4, ONE.incarnation)),
        (3, Controller(7, TWO.incarnation)),
        (4, Drain(3, "old", 9, 1)),
        (5, Controller(5, TWO.incarnation)),
    )
    assert [each.title for each in found[1:]] == [
        "one is the controller",
        f"{TWO.incarnation[:8]} is the controller",
    ]


def test_what_is_rare_is_told_too() -> None:
    found = told(
        (1, Ask("anna.1", "stop", 1, 1)),
        (2, Unhealthy(ONE, 1, "no disk")),
        (3, Exhausted(1, "1", 4, "10 resets in a row")),
    )
    assert [(each.kind, each.title, each.cause) for each in found] == [
        ("region", "the region is asked to stop", "asked for by anna.1"),
        ("region", "one is unhealthy", "no disk"),
        ("reset", "the region gave up", "10 resets in a row"),
    ]


def test_many_checkpoints_do_not_drive_out_a_reset_nor_fill_the_memory() -> None:
    timeline = Timeline()
    timeline.take(Reset(1, "1", 2, False, "why"), 1)
    for number in range(3 * KEPT):
        timeline.take(Drain(1, "1", number, 2), number)
        timeline.take(Complete(1, "1", number, 2), number)
    kept = timeline.since(0)
    assert (len(kept), kept[0].kind, kept[-1].title) == (
        KEPT + 1,
        "reset",
        f"checkpoint {3 * KEPT - 1}",
    )
    assert len(timeline._checkpoints) <= KEPT


def test_only_what_changed_is_told_again() -> None:
    timeline = Timeline()
    timeline.take(Drain(1, "1", 1, 1), 1)
    timeline.take(Drain(1, "1", 2, 1), 2)
    seen = timeline.version
    timeline.take(Complete(1, "1", 1, 1), 3)
    assert [each.title for each in timeline.since(seen)] == ["checkpoint 1"]
