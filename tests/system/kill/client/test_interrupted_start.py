"""The handler of a signal raises, between any two bytecodes, while a client starts or closes."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

import pytest

from kohort import LocalProtocolError
from kohort.client.blocking.loop_thread import Gate, LoopThread
from tests.broker.processes import eventually
from tests.client.interrupting import interrupts

LONG_S = 20.0


async def number() -> int:
    await asyncio.sleep(0)
    return 7


def last_words(_: object) -> Coroutine[object, object, int]:
    return number()


async def say_so(is_in: threading.Event, _: object) -> None:
    is_in.set()
    for _ in range(20):
        await asyncio.sleep(0)


def close_after(client: LoopThread, is_in: threading.Event) -> None:
    is_in.wait(LONG_S)
    client.close()


def in_a_thread(function: Callable[[], object]) -> None:
    """Have another thread make a call, which must end, and well."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive(), "it hangs"
    assert found, "it failed"


def ended(name: str) -> bool:
    return all(each.name != name for each in threading.enumerate())


def test_whatever_interrupts_the_first_call_the_next_one_starts_the_client() -> None:
    name = f"started-{uuid.uuid4().hex}"
    count = 0
    for count, interrupt in enumerate(interrupts()):
        client = LoopThread(name)
        interrupt(partial(client.run, number))
        if count % 2:
            in_a_thread(partial(client.run, number))
        assert client.run(number) == 7
        client.close()
    assert count > 100
    eventually(lambda: ended(name), "no thread is left")


def test_a_start_that_nobody_waits_for_any_more_leaves_no_thread() -> None:
    name = f"dropped-{uuid.uuid4().hex}"
    for count, interrupt in enumerate(interrupts()):
        client = LoopThread(name)
        interrupt(partial(client.run, number))
        if count % 2:
            client.close()
        else:
            client.drop()
    eventually(lambda: ended(name), "no thread is left")


def test_whatever_interrupts_close_the_next_one_ends() -> None:
    name = f"closed-{uuid.uuid4().hex}"
    for count, interrupt in enumerate(interrupts()):
        client = LoopThread(name)
        client.run(number)
        close = partial(client.close, goes_on=count % 3 == 0)
        interrupt(partial(close, last_words))
        if count % 2:
            close(last_words)
        in_a_thread(partial(close, last_words))
        with pytest.raises(LocalProtocolError, match="closed"):
            client.run(number)
    eventually(lambda: ended(name), "no thread is left")


def test_a_thread_that_waits_takes_over_wherever_close_is_interrupted() -> None:
    """It waits for a close that has not said, and never will, that it is over."""
    name = f"awaited-{uuid.uuid4().hex}"
    for interrupt in interrupts():
        client, is_in = LoopThread(name), threading.Event()
        client.run(number)
        waiting = threading.Thread(target=close_after, args=(client, is_in), daemon=True)
        waiting.start()
        interrupt(partial(client.close, partial(say_so, is_in)))
        is_in.set()
        waiting.join(LONG_S)
        assert not waiting.is_alive(), "it hangs"
    eventually(lambda: ended(name), "no thread is left")


def test_calls_that_are_interrupted_leave_nothing_that_waits() -> None:
    client = LoopThread("waiting")
    client.run(number)
    for interrupt in interrupts():
        interrupt(lambda: client.run(number))
    assert client.run(number) == 7
    client.close()


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt(), OSError()])
def test_what_a_handler_raises_comes_out_as_it_is(error: BaseException) -> None:
    def raise_it() -> None:
        raise error

    for interrupt in interrupts(raise_it):
        client = LoopThread("raising")
        with suppress(type(error)):
            interrupt(partial(client.run, number))
            assert not interrupt.is_over, "the error was swallowed"
        assert client.run(number) == 7
        client.close()


def test_a_handler_may_make_the_first_call_itself() -> None:
    """In the middle of another first call, wherever that is."""
    name = f"within-{uuid.uuid4().hex}"
    found: list[int] = []

    def call() -> None:
        found.append(client.run(number))

    for interrupt in interrupts(call):
        client = LoopThread(name)
        interrupt(call)
        client.close()
    assert set(found) == {7}
    eventually(lambda: ended(name), "no thread is left")


def test_a_start_for_which_memory_is_short_fails_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also what says so may find no memory: opening the gate takes none."""

    def no_memory(_: LoopThread) -> None:
        raise MemoryError

    client = LoopThread(f"short-{uuid.uuid4().hex}")
    with monkeypatch.context() as short:
        short.setattr(LoopThread, "_start", no_memory)
        with pytest.raises(LocalProtocolError, match="cannot start"):
            client.run(number)
    assert client.run(number) == 7
    client.close()


def test_a_gate_says_how_it_was_opened() -> None:
    gate, error = Gate(), MemoryError()
    gate.open(error)
    gate.open(error)
    assert gate.wait() is error
