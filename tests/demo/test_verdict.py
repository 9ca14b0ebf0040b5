"""The verdict of the demo: it must be able to fail, for every reason it names."""

from __future__ import annotations

import pytest

from kohort.demo.flights import CarrierFigures, figures_of, in_order, load_table
from kohort.demo.verdict import TableFacts, judge
from kohort.values import replace

EXPECTED = {"AA": CarrierFigures(60, 55, 300), "UA": CarrierFigures(40, 40, -20)}
GOOD = TableFacts(100, 100, EXPECTED, {"north": 60, "south": 20, "west": 20})
APPLICATIONS = ("north", "south", "west")


def test_a_table_equal_to_the_data_set_passes() -> None:
    assert judge(EXPECTED, GOOD, APPLICATIONS, 8).passed


@pytest.mark.parametrize(
    ("facts", "moved", "reason"),
    [
        (replace(GOOD, rows=99, distinct=99), 8, "1 flights are not in the table"),
        (replace(GOOD, rows=101), 8, "1 rows repeat a flight"),
        (
            replace(GOOD, figures={**EXPECTED, "UA": CarrierFigures(40, 40, -19)}),
            8,
            "figures differ for carriers UA",
        ),
        (replace(GOOD, figures={"AA": EXPECTED["AA"]}), 8, "figures differ for carriers UA"),
        (
            replace(GOOD, read_by={"north": 91, "west": 9}),
            8,
            "south read 0.0% of the flights, below 10%",
        ),
        (GOOD, 0, "no partition moved while records were flowing"),
    ],
)
def test_each_thing_that_can_be_wrong_is_named(facts: TableFacts, moved: int, reason: str) -> None:
    verdict = judge(EXPECTED, facts, APPLICATIONS, moved)
    assert not verdict.passed
    assert reason in verdict.reasons


def test_the_data_set_is_whole_and_in_order() -> None:
    table = load_table()
    figures = figures_of(table)
    assert table.num_rows == 336_776
    assert len(figures) == 16
    assert sum(one.flights for one in figures.values()) == table.num_rows
    assert sum(one.departed for one in figures.values()) == table.num_rows - 8_255
    days = [flight.day for flight in in_order(table.slice(0, 5_000))]
    assert days == sorted(days)
    assert days[0] == 0
