"""The plans of torture runs, and that their counting finds what it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.system.spark.torture.counting import Batch, Setback, problems, ranges
from tests.system.spark.torture.plan import QUERIES, make_plan

PRODUCED = {0: 4, 1: 2}
ALL = tuple((p, offset) for p, count in PRODUCED.items() for offset in range(count))
HALF = ALL[:3]
ONCE = [Batch("north-1", 0, HALF), Batch("north-1", 1, ALL[3:])]


def found(
    batches: Iterable[Batch],
    table: Iterable[tuple[int, int]] = ALL,
    unfinished: Iterable[str] = (),
    setbacks: Iterable[Setback] = (),
) -> list[str]:
    return list(problems(PRODUCED, Counter(table), batches, unfinished, setbacks))


def test_a_seed_makes_one_plan() -> None:
    assert str(make_plan(7)) == str(make_plan(7))
    assert str(make_plan(7)) != str(make_plan(8))


def test_plans_have_every_kind_of_step() -> None:
    steps = [step for seed in range(50) for step in make_plan(seed).steps]
    assert {step.action for step in steps} == {
        *("produce", "add", "start", "rows", "stop", "drain", "kill"),
        *("crash", "blackout", "back", "forget"),
    }
    assert {step.trigger for step in steps} == {"", "continuous", "everySecond", "availableNow"}
    assert {plan.protocol for plan in map(make_plan, range(50))} == {
        *("eager", "cooperative", "consumer")
    }


def test_a_plan_only_ends_what_runs_and_only_resets_an_empty_group() -> None:
    for seed in range(50):
        running: set[str] = set()
        for step in make_plan(seed).steps:
            if step.action == "start":
                assert step.query not in running
                running.add(step.query)
            elif step.action in ("rows", "stop", "drain", "kill"):
                assert step.query in running <= set(QUERIES)
                running -= {step.query} if step.action != "rows" else set()
            elif step.action in ("crash", "blackout"):
                running.clear()
            elif step.action in ("back", "forget"):
                assert not running


def test_each_record_once_is_right() -> None:
    assert found(ONCE) == []


@pytest.mark.parametrize(
    ("batches", "table", "says"),
    [
        (ONCE[:1], ALL, "the sink that appends: 3 records lost: 0: 3; 1: 0-1"),
        (ONCE, ALL[1:], "DeltaAppend: 1 records lost: 0: 0"),
        (ONCE, [*ALL, ALL[0]], "DeltaAppend: 1 records repeated: 0: 0"),
        ([*ONCE, Batch("south-1", 0, HALF)], ALL, "appends: 3 records repeated: 0: 0-2"),
        ([*ONCE, Batch("south-1", 0, ((0, 9),))], ALL, "1 records never produced: 0: 9"),
    ],
)
def test_what_is_wrong_is_found(
    batches: list[Batch], table: list[tuple[int, int]], says: str
) -> None:
    (problem,) = found(batches, table)
    assert says in problem


def test_only_the_last_batch_of_a_run_that_was_cut_off_may_come_again() -> None:
    last_again = [*ONCE, Batch("south-1", 0, ALL[3:])]
    first_again = [*ONCE, Batch("south-1", 0, HALF)]
    assert found(last_again, unfinished=["north-1"]) == []
    assert len(found(first_again, unfinished=["north-1"])) == 1
    assert len(found([*last_again, Batch("west-1", 0, ALL[3:])], unfinished=["north-1"])) == 1


def test_the_table_has_each_record_once_whatever_was_cut_off() -> None:
    assert len(found(ONCE, [*ALL, ALL[-1]], unfinished=["north-1"])) == 1


def test_what_the_group_was_set_back_over_may_come_once_more() -> None:
    again = [*ONCE, Batch("south-1", 0, ((0, 2), (0, 3)))]
    assert found(again, setbacks=[Setback({0: 2})]) == []
    assert len(found(again, setbacks=[Setback({0: 3})])) == 1
    assert len(found([*again, *again[-1:]], setbacks=[Setback({})])) == 1


def test_ranges_are_shown() -> None:
    assert ranges([(1, 7), (0, 3), (0, 4), (0, 6)]) == "0: 3-4, 6; 1: 7"
