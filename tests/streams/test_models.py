"""Programs yield what plain Python computes from the same records, wherever their tasks move.

Each test draws records, sends them through a program whose tasks are made anew from their
changelogs at drawn places, and compares with a model of a few lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.streams import App, WindowedKey
from kohort.streams.app.testing import TestDriver

KEYS = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(-5, 5)
RESTARTS = st.sets(st.integers(0, 30), max_size=3)
PARTITIONS = st.integers(1, 3)

Sent: TypeAlias = tuple[str, int]
Timed: TypeAlias = tuple[str, int, int]


def play(driver: TestDriver, sends: list[Callable[[], None]], restarts: set[int]) -> None:
    for number, send in enumerate(sends):
        if number in restarts:
            driver.restart()
        send()


def sending(driver: TestDriver, topic: str, records: list[Sent]) -> list[Callable[[], None]]:
    return [lambda each=each: driver.send(topic, *each) for each in records]  # type: ignore[misc]  # mypy wants a type of `each`


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=30), RESTARTS, PARTITIONS)
def test_aggregates(records: list[Sent], restarts: set[int], partitions: int) -> None:
    app = App("app")
    numbers = app.topic("numbers", key=str, value=int)
    numbers.aggregate(list, lambda seen, each: [*seen, each], value="json", name="all")
    numbers.reduce(max, name="max").to("best")
    numbers.filter(lambda key, value: value > 0).count(name="positive")
    driver = app.test(partitions)
    play(driver, sending(driver, "numbers", records), restarts)

    everything: dict[str, list[int]] = {}
    for key, value in records:
        everything.setdefault(key, []).append(value)
    assert driver.table("all") == everything
    assert driver.table("max") == {key: max(values) for key, values in everything.items()}
    positive = {key: sum(each > 0 for each in values) for key, values in everything.items()}
    assert driver.table("positive") == {key: count for key, count in positive.items() if count}
    best = [
        max(value for k, value in records[: n + 1] if k == key)
        for n, (key, _) in enumerate(records)
    ]
    assert driver.read("best") == [
        (key, each) for (key, _), each in zip(records, best, strict=True)
    ]


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=30), RESTARTS, PARTITIONS)
def test_records_with_a_new_key(records: list[Sent], restarts: set[int], partitions: int) -> None:
    app = App("app")
    numbers = app.topic("numbers", key=str, value=int)
    numbers.key_by(lambda key, value: value or None, key=int, name="by-value").count(name="counts")
    driver = app.test(partitions)
    play(driver, sending(driver, "numbers", records), restarts)
    wanted: defaultdict[int, int] = defaultdict(int)
    for _, value in records:
        if value:
            wanted[value] += 1
    assert driver.table("counts") == wanted


# ----------------------------------------------------------------------------------------- windows

TIMED = st.lists(st.tuples(KEYS, NUMBERS, st.integers(0, 60)), max_size=30)
SIZES = st.integers(1, 20)
GRACES = st.integers(0, 20)


def windowed(app: App, size: int, grace: int) -> None:
    numbers = app.topic("numbers", key=str, value=int)
    numbers.window(size, grace).aggregate(
        int, lambda total, each: total + each, value=int, name="sums"
    ).to("updates")
    numbers.window(size, grace, emit="final").count(name="counts").to("finals")


def play_timed(driver: TestDriver, records: list[Timed], restarts: set[int]) -> None:
    for number, (key, value, time) in enumerate(records):
        if number in restarts:
            driver.restart()
        driver.send("numbers", key, value, timestamp=time)


def in_windows(records: list[Timed], size: int) -> dict[WindowedKey[str], list[int]]:
    """Compute as a batch: every record is in the window of its timestamp."""
    found: dict[WindowedKey[str], list[int]] = {}
    for key, value, time in records:
        start = time // size * size
        found.setdefault(WindowedKey(key, start, start + size), []).append(value)
    return found


@given(TIMED, SIZES, RESTARTS, PARTITIONS)
def test_windows_with_enough_grace(
    records: list[Timed], size: int, restarts: set[int], partitions: int
) -> None:
    """No record is late, so the order of records does not matter."""
    app = App("app")
    windowed(app, size, 100)
    driver = app.test(partitions)
    play_timed(driver, records, restarts)
    wanted = in_windows(records, size)
    assert driver.table("sums") == {key: sum(values) for key, values in wanted.items()}
    assert driver.table("counts") == {key: len(values) for key, values in wanted.items()}
    assert dict(driver.read("updates")) == driver.table("sums")
    assert driver.read("finals") == []


@given(TIMED, SIZES, GRACES, PARTITIONS)
def test_windows_of_records_in_order(
    records: list[Timed], size: int, grace: int, partitions: int
) -> None:
    """In order of time nothing is late, whatever the grace; each window is final once."""
    records = sorted(records, key=lambda each: each[2])
    app = App("app")
    windowed(app, size, grace)
    driver = app.test(partitions)
    play_timed(driver, records, set())
    for partition in range(partitions):  # close all windows
        driver.send("numbers", "end", 0, timestamp=1_000, partition=partition)
    wanted = in_windows(records, size)
    finals = driver.read("finals")
    assert len(finals) == len(dict(finals))
    assert dict(finals) == {key: len(values) for key, values in wanted.items()}
    updates = [(key, total) for key, total in driver.read("updates") if key.key != "end"]
    assert dict(updates) == {key: sum(values) for key, values in wanted.items()}
    assert driver.table("sums").keys() == {
        WindowedKey("end", 1_000 // size * size, 0)._replace(end_ms=1_000 // size * size + size)
    }


@given(TIMED, SIZES, GRACES, RESTARTS)
def test_late_records_are_counted_and_left_out(
    records: list[Timed], size: int, grace: int, restarts: set[int]
) -> None:
    app = App("app")
    windowed(app, size, grace)
    driver = app.test()
    late = 0
    open_windows: dict[WindowedKey[str], int] = {}
    finals = []
    stream_time = 0
    for number, (key, value, time) in enumerate(records):
        if number in restarts:
            assert driver.tasks.popitem()[1].dropped.total() == 2 * late
            late = 0
            driver.restart()
        driver.send("numbers", key, value, timestamp=time)
        start = time // size * size
        window = WindowedKey(key, start, start + size)
        if window.end_ms + grace <= stream_time:
            late += 1
            continue
        open_windows[window] = open_windows.get(window, 0) + 1
        stream_time = max(stream_time, time)
        closed = [each for each in open_windows if each.end_ms + grace <= stream_time]
        finals += [(each, open_windows.pop(each)) for each in closed]
    assert driver.table("counts") == open_windows
    assert sorted(driver.read("finals")) == sorted(finals)
    (task,) = driver.tasks.values()
    assert task.dropped.total() == 2 * late


def test_a_record_without_a_timestamp_is_in_no_window() -> None:
    app = App("app", on_error="skip")
    windowed(app, 10, 0)
    driver = app.test()
    driver.send("numbers", "a", 1, timestamp=-1)
    assert driver.table("sums") == {}
    (task,) = driver.tasks.values()
    assert task.skipped.total() == 1


# ------------------------------------------------------------------------------------------- joins

CHANGES = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), KEYS, st.none() | NUMBERS), max_size=30
)


@given(CHANGES, RESTARTS, PARTITIONS, st.booleans())
def test_a_stream_joined_with_a_table(
    records: list[tuple[str, str, int | None]],
    restarts: set[int],
    partitions: int,
    is_left: bool,
) -> None:
    app = App("app")
    table = app.topic("right", key=str, value=int).table(name="t")
    stream = app.topic("left", key=str, value=int)
    join = stream.left_join if is_left else stream.join
    join(table, lambda mine, other: [mine, other], value="json").to("out")
    driver = app.test(partitions)
    now: dict[str, int] = {}
    wanted = []
    for number, (side, key, value) in enumerate(records):
        if number in restarts:
            driver.restart()
        driver.send(side, key, value)
        if side == "right" and value is None:
            now.pop(key, None)
        elif side == "right" and value is not None:
            now[key] = value
        elif value is not None and (is_left or key in now):
            wanted.append((key, [value, now.get(key)]))
    assert driver.read("out") == wanted
    assert driver.table("t") == now


@given(CHANGES, RESTARTS, PARTITIONS, st.booleans())
def test_tables_joined(
    records: list[tuple[str, str, int | None]],
    restarts: set[int],
    partitions: int,
    is_left: bool,
) -> None:
    """The result is the join of the two tables as they are in the end, and the topic says so."""
    app = App("app")
    left = app.topic("left", key=str, value=int).table(name="l")
    right = app.topic("right", key=str, value=int).table(name="r")
    join = left.left_join if is_left else left.join
    join(right, lambda mine, other: [mine, other], value="json", name="both").to("out")
    driver = app.test(partitions)
    play(
        driver,
        [lambda each=each: driver.send(*each) for each in records],  # type: ignore[misc]  # mypy wants a type of `each`
        restarts,
    )
    tables: dict[str, dict[str, int]] = {"left": {}, "right": {}}
    for side, key, value in records:
        if value is None:
            tables[side].pop(key, None)
        else:
            tables[side][key] = value
    wanted = {
        key: [value, tables["right"].get(key)]
        for key, value in tables["left"].items()
        if is_left or key in tables["right"]
    }
    assert driver.table("both") == wanted
    told = dict(driver.read("out"))
    assert {key: value for key, value in told.items() if value is not None} == wanted


def test_a_table_joined_with_itself() -> None:
    app = App("app")
    table = app.topic("in", key=str, value=int).table(name="t")
    table.join(table, lambda one, other: one + other, value=int, name="twice").to("out")
    driver = app.test()
    driver.send("in", "a", 2)
    driver.send("in", "a", None)
    assert driver.read("out") == [("a", 4), ("a", None)]


# ------------------------------------------------------------------------------- skipped records


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=30), RESTARTS)
def test_skipped_records_leave_no_trace(records: list[Sent], restarts: set[int]) -> None:
    """A program that fails late, after it changed state, is one that never saw the record."""

    def check(_: str, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value

    def program(app: App) -> None:
        numbers = app.topic("numbers", key=str, value=int)
        numbers.window(10, 0).count(name="w")
        numbers.table(name="last").to("last")
        numbers.count(name="counts").to("counts")
        numbers.map(check, value=int).to("good")

    skipping, plain = App("app", on_error="skip"), App("app")
    program(skipping)
    program(plain)
    with skipping.test() as one, plain.test() as other:
        play(one, sending(one, "numbers", records), restarts)
        for key, value in records:
            if value >= 0:
                other.send("numbers", key, value)
        for topic in ("last", "counts", "good"):
            assert one.read(topic) == other.read(topic)
        for store in ("last", "counts", "w"):
            assert one.table(store) == other.table(store)


def test_all_that_is_restored_is_what_was_there() -> None:
    """Restoring from the changelog gives the same bytes, deleted keys and closed windows gone."""
    app = App("app")
    windowed(app, 10, 5)
    driver = app.test()
    for time in (0, 3, 12, 40, 41):
        driver.send("numbers", "a", time, timestamp=time)
    (task,) = driver.tasks.values()
    before = {name: list(task.store(name).items()) for name in ("sums", "counts")}
    driver.restart()
    (task,) = driver.tasks.values()
    assert {name: list(task.store(name).items()) for name in ("sums", "counts")} == before
    assert any(value is None for _, value in driver.changelog("sums"))


def test_coroutines_run_in_the_driver() -> None:
    async def double(_: str, value: int) -> int:
        return value * 2

    app = App("app")
    app.topic("in", key=str, value=int).map(double, value=int).to("out")
    with app.test() as driver:
        driver.send("in", "a", 2)
        driver.send("in", "a", 3)
        assert driver.read("out") == [("a", 4), ("a", 6)]


@pytest.mark.parametrize("call", ["send", "table"])
def test_what_the_program_has_not_is_named(call: str) -> None:
    app = App("app")
    app.topic("in", key=str, value=int).count(name="c")
    driver = app.test()
    if call == "send":
        with pytest.raises(Exception, match=r"reads \['in'\], not out"):
            driver.send("out", "a", 1)
    else:
        with pytest.raises(Exception, match=r"no store 'x'; there are \['c'\]"):
            driver.table("x")
