"""Deadlines compared with a plain dictionary."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from kohort.group.machine import Deadlines

KEYS = st.sampled_from([("a",), ("b",), ("c",), ("d",)])
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9)), max_size=60)


@given(STEPS)
def test_they_say_what_is_due_next_like_a_dictionary(
    steps: list[tuple[tuple[str], int | None]],
) -> None:
    """C74: a postponed or cancelled deadline never fires at its former time."""
    deadlines: Deadlines[tuple[str]] = Deadlines()
    model: dict[tuple[str], int] = {}
    for key, due in steps:
        if due is None:
            deadlines = deadlines.cancel(key)
            model.pop(key, None)
        else:
            deadlines = deadlines.set(key, due)
            model[key] = due
        assert deadlines.due_times() == model
        expected = min(((due, key) for key, due in model.items()), default=None)
        assert deadlines.next() == expected


@given(STEPS)
def test_an_older_version_stays_what_it_was(steps: list[tuple[tuple[str], int | None]]) -> None:
    empty: Deadlines[tuple[str]] = Deadlines()
    base = empty.set(("a",), 5).set(("b",), 3)
    for key, due in steps:
        later = base.cancel(key) if due is None else base.set(key, due)
        assert base.due_times() == {("a",): 5, ("b",): 3}
        assert base.next() == (3, ("b",))
        assert (later == base) == (later.due_times() == base.due_times())


def test_putting_off_forever_does_not_fill_the_heap() -> None:
    """A heartbeat changes only the map: the heap has one node per key."""
    deadlines: Deadlines[tuple[str]] = Deadlines()
    for now in range(1_000):
        for name in "abc":
            deadlines = deadlines.set((name,), now + 10)
    assert _size(deadlines._heap) == 3


def _size(node: Any) -> int:
    return 0 if node is None else 1 + _size(node[3]) + _size(node[4])
