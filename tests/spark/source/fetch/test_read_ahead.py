"""A generator that is read ahead gives the same items, and ends with whoever reads it."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.source.fetch.read_ahead import read_ahead


def numbers(count: int) -> Generator[int, None, None]:
    yield from range(count)


@given(st.integers(0, 30), st.integers(1, 5))
def test_items_come_in_order(count: int, depth: int) -> None:
    assert list(read_ahead(lambda: numbers(count), depth)) == list(range(count))


def test_the_next_item_is_made_before_it_is_asked_for() -> None:
    made = [threading.Event() for _ in range(5)]

    def items() -> Generator[int, None, None]:
        for number, event in enumerate(made):
            event.set()
            yield number

    ahead = read_ahead(items)
    assert next(ahead) == 0
    assert made[1].wait(30)
    assert made[2].wait(30)  # it is in hand, as the one before it waits
    assert not made[3].is_set()
    ahead.close()


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        raise OSError("the cable is cut")

    ahead = read_ahead(items)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the cable is cut"):
        next(ahead)


def test_the_generator_is_closed_with_its_reader() -> None:
    closed = threading.Event()

    def items() -> Generator[int, None, None]:
        try:
            yield from range(10**9)
        finally:
            closed.set()

    ahead = read_ahead(items)
    assert next(ahead) == 0
    ahead.close()
    assert closed.is_set()
    assert "kohort-read-ahead" not in {thread.name for thread in threading.enumerate()}
