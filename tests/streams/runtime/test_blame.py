"""Exceptions that are no `Exception`: a function's own fail its record, those of the run do not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import RecordFailedError
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.task import StreamTask
from kohort.types import TopicPartition
from tests.streams.runtime.test_tasks import task_of
from tests.streams.stubs import Stand, record, until

INPUT = TopicPartition("in", 2)
KINDS = [asyncio.CancelledError, SystemExit, GeneratorExit, KeyboardInterrupt]
Function = Callable[[bytes, bytes], object]


def task(function: Function, on_error: str = "stop") -> StreamTask:
    """Return a task that calls a function, and writes its record."""
    app = App("a", on_error=on_error)  # type: ignore[arg-type]  # one of its values
    app.topic("in", key=bytes, value=bytes).filter(function).to("out")  # type: ignore[arg-type]  # any result
    return task_of(app)


@contextmanager
def handled(number: signal.Signals, handler: Callable[..., object]) -> Iterator[None]:
    """Have a signal handled so."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.fixture(autouse=True)
def _as_in_a_run() -> Iterator[None]:
    """No handler of SIGINT raises, as while `App.run` runs."""
    with handled(signal.SIGINT, lambda *_: None):
        yield


def called(kind: type[BaseException]) -> Function:
    """Return a function that raises for the first record."""

    def fail(_key: bytes, _value: bytes) -> bool:
        if not seen:
            seen.append(True)
            raise kind
        return True

    seen: list[bool] = []
    return fail


def awaited(kind: type[BaseException]) -> Function:
    """Return the same as a coroutine function."""
    fail = called(kind)

    async def wait(key: bytes, value: bytes) -> object:
        await asyncio.sleep(0)
        return fail(key, value)

    return wait


async def process(one: StreamTask, offset: int) -> None:
    """Process a record."""
    waiting = one.process(record(INPUT, offset))
    if waiting is not None:
        await waiting


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", [called, awaited])
def test_what_a_function_raises_by_itself_fails_its_record(
    kind: type[BaseException], made: Callable[[type[BaseException]], Function]
) -> None:
    async def skip() -> None:
        one = task(made(kind), "skip")
        await process(one, 0)
        await process(one, 1)
        assert one.positions() == {INPUT: 2}
        assert sum(one.skipped.values()) == len(one.outputs) == 1

    async def stop() -> None:
        with pytest.raises(RecordFailedError, match=f"in-2@0: the step.*{kind.__name__}"):
            await process(task(made(kind)), 0)

    asyncio.run(skip())
    asyncio.run(stop())


def test_a_future_that_somebody_cancelled_fails_its_record() -> None:
    async def wait(_key: bytes, _value: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(RecordFailedError, match="CancelledError"):
        asyncio.run(process(task(wait), 0))


def test_the_cancellation_of_a_run_is_not_the_records() -> None:
    async def cancelled() -> None:
        async def wait(_key: bytes, _value: bytes) -> None:
            await asyncio.Event().wait()

        job = asyncio.create_task(process(task(wait, "skip"), 0))
        await asyncio.sleep(0)
        job.cancel()
        await asyncio.wait([job])
        assert job.cancelled()

    asyncio.run(cancelled())


def test_a_coroutine_that_is_closed_is_not_the_records() -> None:
    async def wait(_key: bytes, _value: bytes) -> None:
        await asyncio.Event().wait()

    one = task(wait, "skip")
    running = process(one, 0)

    async def begin() -> None:
        running.send(None)

    asyncio.run(begin())
    running.close()  # as when a loop ends before it
    assert one.skipped == {}


def exit_now(*_: object) -> None:
    """Handle a signal."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("number", "handler", "kind"),
    [
        (signal.SIGTERM, exit_now, SystemExit),
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    ],
)
def test_what_a_signal_raises_is_not_the_records(
    number: signal.Signals, handler: Callable[..., object], kind: type[BaseException]
) -> None:
    def fail(_key: bytes, _value: bytes) -> None:
        os.kill(os.getpid(), number)

    with handled(number, handler), pytest.raises(kind):
        task(fail, "skip").process(record(INPUT, 0))


def test_a_function_that_cancels_its_own_task_fails_that_alone() -> None:
    asyncio.run(_cancels_itself())


async def _cancels_itself() -> None:
    async def cancel(_key: str, _value: str) -> None:
        running = asyncio.current_task()
        assert running is not None
        running.cancel()
        await asyncio.sleep(0)

    app = App("a")
    app.topic("in", key=str, value=str).for_each(cancel)
    place = TopicPartition("in", 0)
    async with Stand(app, [place]) as stand:
        held = stand.run(Task(0, 0))
        held.work.add(place, [record(place, 0)])
        await stand.process()
        await until(held.is_idle.is_set)
        assert held.role is Role.FAILED
