"""One task: the order of its records, what it commits, and records that cannot be processed."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest

from kohort import ConsumerRecord
from kohort.errors import LocalProtocolError
from kohort.streams.app.api import App
from kohort.streams.app.plan import OnError
from kohort.streams.errors import BuildError, RecordFailedError, StateDiskFullError
from kohort.streams.runtime.interface import Output
from kohort.streams.runtime.task import StreamTask
from kohort.streams.stores import MemoryStore
from kohort.types import TopicPartition

IN = TopicPartition("in", 2)
OTHER = TopicPartition("other", 2)


def record(
    offset: int,
    value: bytes | None = b"1",
    *,
    key: bytes | None = b"k",
    time: int = 0,
    at: TopicPartition = IN,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ConsumerRecord:
    return ConsumerRecord(*at, offset, time, 0, key, value, headers, -1)


def task_of(app: App, sub_topology: int = 0, **chosen: Any) -> StreamTask:
    program = app.build()
    stores = {step.name: MemoryStore(step.name) for step in program.parts[sub_topology].stores}
    return StreamTask(program, sub_topology, 2, stores, **chosen)


def two_inputs() -> StreamTask:
    """Return a task that joins two topics, and writes what came in which order."""
    app = App("app")
    table = app.topic("other", key=bytes, value=bytes).table(name="t")
    app.topic("in", key=bytes, value=bytes).left_join(table, lambda mine, other: (mine, other)).map(
        lambda key, both: b"%b with %b" % (both[0], both[1] or b"nothing"), value=bytes
    ).to("out")
    return task_of(app, buffered=3)


# ------------------------------------------------------------------------------------------ order


def processed(task: StreamTask, *, wait: bool = True) -> list[tuple[str, int]]:
    done = []
    while (found := task.next(wait=wait)) is not None:
        assert task.process(found) is None
        done.append((found.topic, found.offset))
    return done


def test_records_are_processed_in_the_order_of_their_timestamps() -> None:
    task = two_inputs()
    task.add(IN, [record(0, time=5), record(1, time=20)])
    task.add(OTHER, [record(7, time=4, at=OTHER), record(8, time=6, at=OTHER)])
    # offset 1 waits: the next record of the other partition may be older
    assert processed(task) == [("other", 7), ("in", 0), ("other", 8)]
    assert task.awaited() == {OTHER}
    task.add(OTHER, [record(9, time=19, at=OTHER)])
    assert processed(task) == [("other", 9)]
    task.set_at_end(OTHER, True)
    assert processed(task) == [("in", 1)]


def test_the_order_within_a_partition_is_that_of_offsets() -> None:
    task = two_inputs()
    task.set_at_end(OTHER, True)
    task.add(IN, [record(0, time=9), record(1, time=3)])
    assert processed(task) == [("in", 0), ("in", 1)]


def test_nobody_waits_who_does_not_want_to() -> None:
    task = two_inputs()
    task.add(IN, [record(0)])
    assert processed(task) == []
    assert processed(task, wait=False) == [("in", 0)]
    assert task.next(wait=False) is None


def test_a_partition_that_has_enough_is_to_be_paused() -> None:
    task = two_inputs()
    task.add(IN, [record(0), record(1)])
    assert task.paused() == frozenset()
    task.add(IN, [record(2), record(3)])
    assert (sorted(task.paused()), task.buffered) == ([IN], 4)
    task.next(wait=False)
    task.next(wait=False)
    assert task.paused() == frozenset()


def test_offsets_do_not_go_back() -> None:
    task = two_inputs()
    task.add(IN, [record(4)])
    with pytest.raises(LocalProtocolError, match="in-2: offset 4 was added after 4"):
        task.add(IN, [record(4)])
    with pytest.raises(LocalProtocolError, match="not one of"):
        task.add(TopicPartition("in", 3), [])


def test_a_record_of_another_task_is_refused() -> None:
    task = two_inputs()
    with pytest.raises(LocalProtocolError, match="in-3@0 does not belong to this task"):
        task.process(record(0, at=TopicPartition("in", 3)))


# ---------------------------------------------------------------------------------------- commits


def counting(on_error: OnError = "stop", **chosen: Any) -> App:
    """Return an application that counts, then fails for the value `bad`, then writes."""
    app = App("app", on_error=on_error, **chosen)
    counts = app.topic("in", key=str, value=str).count(name="counts").stream()
    counts.to("before")
    counts.map(_fail_at_two, value=int, name="check").to("after")
    return app


def _fail_at_two(_: str, count: int) -> int:
    if count == 2:
        raise ValueError("two is too many")
    return count


def test_a_cut_has_all_of_one_moment() -> None:
    task = task_of(counting())
    assert task.process(record(5, headers=(("trace", b"1"),), time=9)) is None
    assert task.process(record(8, key=b"l")) is None
    assert task.pending == 6
    cut = task.cut()
    one = (1).to_bytes(8, "big")
    assert cut.positions == {IN: 9}
    assert cut.changes == {"app-counts-changelog": [(b"k", one), (b"l", one)]}
    assert cut.outputs[0] == Output("before", b"k", one, 9, (("trace", b"1"),))
    assert [each.topic for each in cut.outputs] == ["before", "after"] * 2
    assert task.cut().outputs == []
    assert task.cut().positions == {IN: 9}


def test_depth_first_in_the_order_of_the_program() -> None:
    seen: list[str] = []
    app = App("app")
    both = app.topic("in", key=bytes, value=bytes).flat_map(lambda key, value: ["a", "b"])
    both.for_each(lambda key, value: seen.append(f"{value}1"))
    both.map(lambda key, value: value).for_each(lambda key, value: seen.append(f"{value}2"))
    task_of(app).process(record(0))
    assert seen == ["a1", "a2", "b1", "b2"]


# ----------------------------------------------------------------------------------------- errors


def test_stop_names_partition_offset_and_step_and_leaves_no_trace() -> None:
    task = task_of(counting())
    task.process(record(0))
    with pytest.raises(
        RecordFailedError, match=r"in-2@1: the step check failed \(ValueError: t"
    ) as e:
        task.process(record(1))
    assert (e.value.partition, e.value.offset, e.value.step) == (IN, 1, "check")
    assert isinstance(e.value.__cause__, ValueError)
    with pytest.raises(LocalProtocolError, match="the task has failed"):
        task.process(record(2))
    cut = task.cut()
    assert cut.positions == {IN: 1}
    assert [each.topic for each in cut.outputs] == ["before", "after"]
    assert cut.changes == {"app-counts-changelog": [(b"k", (1).to_bytes(8, "big"))]}


def test_skip_counts_and_logs_and_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(counting("skip"))
    with caplog.at_level(logging.WARNING, "kohort.streams"):
        for offset in range(3):
            assert task.process(record(offset)) is None
    assert caplog.messages == [
        f"in-2@{offset}: the step check failed (ValueError: two is too many); the record is skipped"
        for offset in (1, 2)
    ]
    assert (task.processed, task.skipped) == (3, {"check": 2})
    cut = task.cut()
    assert cut.positions == {IN: 3}
    assert len(cut.outputs) == 2
    assert cut.changes == {"app-counts-changelog": [(b"k", (1).to_bytes(8, "big"))]}


def test_a_dead_letter_is_the_record_and_what_went_wrong() -> None:
    task = task_of(counting("dead-letter"))
    bad = record(4, b"\xff", time=77, headers=(("trace", b"1"),))
    task.process(bad)
    (letter,) = task.cut().outputs
    assert letter[:4] == ("app-dead-letters", b"k", b"\xff", 77)
    headers = dict(letter.headers)
    assert headers.pop("__streams.errors.message", b"")
    assert headers == {
        "trace": b"1",
        "__streams.errors.exception": b"UnicodeDecodeError",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"4",
        "__streams.errors.step": b"topic in",
    }


def test_a_serializer_that_raises_is_an_error_of_its_step() -> None:
    app = App("app")
    app.topic("in", key=str, value=str).to("out", value=int)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(RecordFailedError, match=r"the step to-1 failed .*expected an integer"):
        task_of(app).process(record(0))


def test_a_store_that_fails_is_not_the_fault_of_a_record() -> None:
    class Full(MemoryStore):
        def _read(self, key: bytes) -> bytes | None:
            raise StateDiskFullError("no room")

    program = counting("skip").build()
    task = StreamTask(program, 0, 2, {"counts": Full("counts")})
    with pytest.raises(StateDiskFullError):
        task.process(record(0))
    assert task.positions() == {}
    with pytest.raises(LocalProtocolError, match="the task has failed"):
        task.process(record(1))


def test_settings_of_errors_that_cannot_be_are_refused() -> None:
    with pytest.raises(BuildError, match="not one of stop, skip, dead-letter"):
        App("app", on_error="ignore")  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(BuildError, match='is for on_error="dead-letter"'):
        App("app", dead_letter_topic="letters")
    assert App("app", on_error="dead-letter", dead_letter_topic="x").dead_letter_topic == "x"


def test_what_a_step_passes_over_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(counting())
    with caplog.at_level(logging.WARNING, "kohort.streams"):
        for offset in range(5):
            task.process(record(offset, key=None))
        task.process(record(5, None))
    assert task.dropped == {("counts", "it has no key"): 5, ("counts", "it has no value"): 1}
    assert caplog.messages == [
        f"in-2@{offset}: step counts skips the record: {why} ({count} so far)"
        for offset, why, count in (
            (0, "it has no key", 1),
            (1, "it has no key", 2),
            (3, "it has no key", 4),
            (5, "it has no value", 1),
        )
    ]


# -------------------------------------------------------------------------------------- coroutines


async def _later(_: object, value: str) -> str:
    await asyncio.sleep(0)
    if value == "bad":
        raise ValueError("bad")
    return value * 2


async def _add(total: int, value: str) -> int:
    await asyncio.sleep(0)
    return total + int(value)


def with_coroutines(on_error: OnError = "stop") -> App:
    app = App("app", on_error=on_error)
    doubled = app.topic("in", key=str, value=str).map(functools.partial(_later), value=str)
    doubled.filter(lambda key, value: _is_good(value)).aggregate(
        int, _add, value=int, name="sums"
    ).to("out")
    return app


async def _is_good(value: str) -> bool:
    return value != "00"


def test_coroutine_functions_are_awaited() -> None:
    task = task_of(with_coroutines())

    async def run() -> None:
        for offset, value in enumerate([b"1", b"0", b"2"]):
            waiting = task.process(record(offset, value))
            assert waiting is not None
            await waiting

    asyncio.run(run())
    cut = task.cut()
    assert [int.from_bytes(each.value or b"", "big") for each in cut.outputs] == [11, 33]
    assert cut.positions == {IN: 3}


@pytest.mark.parametrize("on_error", ["stop", "skip", "dead-letter"])
def test_errors_of_coroutines_follow_the_policy(on_error: OnError) -> None:
    task = task_of(with_coroutines(on_error))

    async def run() -> None:
        waiting = task.process(record(3, b"bad"))
        assert waiting is not None
        await waiting

    if on_error == "stop":
        with pytest.raises(RecordFailedError, match="in-2@3: the step map-1 failed"):
            asyncio.run(run())
    else:
        asyncio.run(run())
        assert task.positions() == {IN: 4}
    assert len(task.outputs) == (on_error == "dead-letter")


def test_nothing_of_a_record_goes_on_after_its_coroutine_has_failed() -> None:
    app = App("app", on_error="skip")
    words = app.topic("in", key=str, value=str).flat_map(lambda key, value: value.split())
    words.map(_later, value=str).to("out")
    task = task_of(app)

    async def run() -> None:
        waiting = task.process(record(0, b"bad 1"))
        assert waiting is not None
        await waiting

    asyncio.run(run())
    assert task.outputs == []
    assert (task.positions(), task.skipped) == ({IN: 1}, {"map-2": 1})


def test_one_record_at_a_time() -> None:
    task = task_of(with_coroutines())

    async def run() -> None:
        waiting = task.process(record(0))
        assert waiting is not None
        with pytest.raises(LocalProtocolError, match="in-2@0 is not done yet"):
            task.process(record(1))
        with pytest.raises(LocalProtocolError, match="await it first"):
            task.cut()
        await waiting
        assert task.cut().positions == {IN: 1}

    asyncio.run(run())


def test_a_record_that_is_cancelled_is_not_done() -> None:
    task = task_of(with_coroutines("skip"))

    async def run() -> None:
        waiting = task.process(record(0))
        assert waiting is not None
        running = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert (task.positions(), task.skipped) == ({}, {})
    with pytest.raises(LocalProtocolError, match="the task has failed"):
        task.process(record(1))
