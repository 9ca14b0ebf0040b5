"""A waiting poll gets the records that the loop sets aside, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kohort.client.consumer.poll_waiter import PollWaiter
from kohort.client.net.backoff import Deadline


class Loop:
    """Plays the consumer: reports available records, and counts how often they were set aside."""

    def __init__(self) -> None:
        self.there: bool | None = None
        self.taken = 0
        self.looked = threading.Event()
        self.poll_waiter = PollWaiter(self.set_aside, self.found)

    def found(self) -> bool | None:
        self.looked.set()
        return self.there

    def set_aside(self) -> bool | None:
        self.taken += 1
        return self.there

    def come(self, what: bool | None) -> None:
        self.there = what
        self.poll_waiter.offer()


def poll(loop: Loop, meanwhile: Callable[[], None], timeout_ms: int = 60_000) -> bool:
    """Wait in another thread until `meanwhile` is done; return the result of the poll."""
    told: list[bool] = []
    waiting = threading.Thread(
        target=lambda: told.append(loop.poll_waiter.wait(Deadline(timeout_ms))), daemon=True
    )
    loop.looked.clear()
    waiting.start()
    assert loop.looked.wait(20)
    meanwhile()
    waiting.join(20)
    return told[0]


def test_who_waits_is_given_records() -> None:
    loop = Loop()
    assert poll(loop, lambda: loop.come(True))
    assert loop.taken == 1


@pytest.mark.parametrize("there", [True, False])
def test_who_finds_something_asks_for_it(there: bool) -> None:
    loop = Loop()
    loop.there = there
    assert not loop.poll_waiter.wait(Deadline(60_000))
    assert loop.taken == 0


def test_who_waits_asks_for_what_is_no_record() -> None:
    loop = Loop()
    assert not poll(loop, lambda: loop.come(False))


def test_who_waits_is_not_woken_by_nothing() -> None:
    loop = Loop()

    def come() -> None:
        loop.come(None)
        loop.come(None)
        loop.come(True)

    assert poll(loop, come)
    assert loop.taken == 3


def test_who_waits_asks_when_nothing_comes() -> None:
    loop = Loop()
    assert not loop.poll_waiter.wait(Deadline(20))
    assert not loop.poll_waiter.wait(Deadline(0))
    assert not loop.poll_waiter.wait(Deadline(None))
    loop.come(True)
    assert loop.taken == 0


def test_nothing_more_is_set_aside_for_who_was_given_something() -> None:
    loop = Loop()

    def come() -> None:
        loop.come(True)
        loop.come(True)  # perhaps before the application's thread runs again: it may be reading

    assert poll(loop, come)
    loop.come(True)
    assert loop.taken == 1


def test_what_setting_aside_leads_to_is_not_set_aside_twice() -> None:
    loop = Loop()
    taken = loop.set_aside

    def again() -> bool | None:
        loop.poll_waiter.offer()
        return taken()

    loop.poll_waiter = PollWaiter(again, loop.found)
    assert poll(loop, lambda: loop.come(True))
    assert loop.taken == 1


def test_an_error_while_setting_aside_leaves_who_waits_waiting() -> None:
    loop = Loop()
    taken = loop.set_aside

    def fails() -> bool | None:
        if not loop.taken:
            taken()
            raise ZeroDivisionError
        return taken()

    loop.poll_waiter = PollWaiter(fails, loop.found)

    def come() -> None:
        with pytest.raises(ZeroDivisionError):
            loop.come(True)
        loop.come(True)

    assert poll(loop, come)
