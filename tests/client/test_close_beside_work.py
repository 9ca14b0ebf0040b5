"""What `close` counts as processed: beside other threads or tasks, and after an exception."""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AdminClient, AsyncConsumer, Consumer
from kohort.client.consumer.poll_waiter import PollWaiter
from tests.broker.processes import eventually
from tests.client.consumer.reading_cases import COUNT
from tests.client.loops import on_a_loop

BATCH = 10


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex}"


def settings(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "max_poll_records": BATCH,
    }


def committed(bootstrap: str, group: str, topic: str) -> int:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_group_offsets(group)
    return sum(each.offset for where, each in offsets.items() if where.topic == topic)


def batch_of(consumer: Consumer) -> int:
    while True:
        count = sum(map(len, consumer.poll(1_000).values()))
        if count:
            return count


class Worker:
    """A thread that runs functions one after another."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._todo.get()) is not None:
            try:
                self._done.put(call())
            except Exception as error:  # noqa: BLE001  # the test looks at it
                self._done.put(error)

    def begin(self, call: Callable[[], object]) -> None:
        self._todo.put(call)

    def result(self) -> Any:
        return self._done.get(timeout=60)

    def do(self, call: Callable[[], object]) -> Any:
        self.begin(call)
        return self.result()

    def end(self) -> None:
        self._todo.put(None)
        self._thread.join()


def test_what_another_thread_works_on_is_not_committed(
    bootstrap: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    consumer, worker = Consumer(topic, **settings(bootstrap, group)), Worker()
    try:
        first = worker.do(lambda: batch_of(consumer))
        worker.do(lambda: batch_of(consumer))
        consumer.close()
    finally:
        worker.end()
    assert committed(bootstrap, group, topic) == first
    assert (
        "as another thread polled last and may still be working; they are read again" in caplog.text
    )


def test_with_ends_while_another_thread_works(bootstrap: str, topic: str, group: str) -> None:
    worker = Worker()
    try:
        with Consumer(topic, **settings(bootstrap, group)) as consumer:
            worker.do(lambda: next(consumer))
            worker.do(lambda: next(consumer))
    finally:
        worker.end()
    assert committed(bootstrap, group, topic) == 1


def test_unsubscribe_while_another_thread_works(bootstrap: str, topic: str, group: str) -> None:
    worker = Worker()
    try:
        with Consumer(topic, **settings(bootstrap, group)) as consumer:
            worker.do(lambda: batch_of(consumer))
            consumer.unsubscribe()
    finally:
        worker.end()
    assert committed(bootstrap, group, topic) == 0


def test_a_keep_alive_of_another_thread_changes_nothing(
    bootstrap: str, topic: str, group: str
) -> None:
    worker = Worker()
    try:
        with Consumer(topic, **settings(bootstrap, group)) as consumer:
            count = batch_of(consumer)
            worker.do(lambda: consumer.poll_membership(0))
    finally:
        worker.end()
    assert committed(bootstrap, group, topic) == count


def test_what_a_thread_had_that_has_ended_is_committed(
    bootstrap: str, topic: str, group: str
) -> None:
    with Consumer(topic, **settings(bootstrap, group)) as consumer:
        worker = Worker()
        count = worker.do(lambda: batch_of(consumer))
        worker.end()
    assert committed(bootstrap, group, topic) == count


def test_a_poll_that_waits_has_handed_out_nothing_new(
    bootstrap: str, topic: str, group: str
) -> None:
    worker = Worker()
    consumer = Consumer(topic, **settings(bootstrap, group))
    try:
        read = 0
        while read < COUNT:
            read += worker.do(lambda: batch_of(consumer))
        worker.begin(lambda: consumer.poll(600_000))
        began = consumer._last
        eventually(lambda: began.ident is None, "the poll begins")
        consumer.close()
        worker.result()
    finally:
        worker.end()
    assert committed(bootstrap, group, topic) == COUNT


@pytest.mark.parametrize("end", ["with", "close", "unsubscribe"])
def test_an_exception_in_a_waiting_poll_leaves_what_earlier_polls_returned(
    bootstrap: str, topic: str, group: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises before the poll has asked the loop for more."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupted(consumer: Consumer) -> None:
        read = 0
        while read < COUNT:
            read += batch_of(consumer)
        with monkeypatch.context() as context:
            context.setattr(PollWaiter, "wait", press)
            consumer.poll(600_000)

    def ended(consumer: Consumer) -> None:
        if end == "with":
            with consumer:
                interrupted(consumer)
        try:
            interrupted(consumer)
        finally:
            getattr(consumer, end)()

    consumer = Consumer(topic, **settings(bootstrap, group))
    with pytest.raises(KeyboardInterrupt):
        ended(consumer)
    consumer.close()
    assert committed(bootstrap, group, topic) == COUNT


def test_an_exception_that_is_handled_outside_is_told(
    bootstrap: str, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.client")

    async def service() -> None:
        consumer = AsyncConsumer(topic, **settings(bootstrap, group))
        while not await consumer.poll(1_000):
            pass
        await consumer.close()

    try:
        raise OSError("the primary cluster is away")
    except OSError:
        asyncio.run(service())
    assert committed(bootstrap, group, topic) == 0
    assert (
        "leaves out the records of the last poll, as an exception is being handled" in caplog.text
    )


@pytest.mark.parametrize(
    ("shape", "stored"), [("caught_before", 3), ("close_in_except", 2), ("leaves_with", 2)]
)
def test_what_an_exception_in_the_third_record_does(
    bootstrap: str, topic: str, group: str, shape: str, stored: int
) -> None:
    """As in docs/clients.md: `close` cannot see an exception that was caught earlier."""
    consumer = Consumer(topic, **settings(bootstrap, group))

    def work() -> None:
        for count, _ in enumerate(consumer, 1):
            if count == 3:
                raise KeyboardInterrupt

    def work_within() -> None:
        with consumer:
            work()

    try:
        work_within() if shape == "leaves_with" else work()
    except KeyboardInterrupt:
        if shape == "close_in_except":
            consumer.close()
    finally:
        consumer.close()
    assert committed(bootstrap, group, topic) == stored


# ------------------------------------------------------------------------------------- tasks


async def async_batch(consumer: AsyncConsumer) -> int:
    while True:
        count = sum(map(len, (await consumer.poll(1_000)).values()))
        if count:
            return count


async def until_closed_by(consumer: AsyncConsumer, work: asyncio.Event) -> int:
    """Read two batches in another task, which then works; return the size of the first."""
    sizes: list[int] = []
    handed_out = asyncio.Event()

    async def run() -> None:
        sizes.append(await async_batch(consumer))
        sizes.append(await async_batch(consumer))
        handed_out.set()
        await work.wait()

    task = asyncio.create_task(run())
    await handed_out.wait()
    await consumer.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return sizes[0]


@on_a_loop
async def test_what_another_task_works_on_is_not_committed(
    bootstrap: str, topic: str, group: str
) -> None:
    consumer = AsyncConsumer(topic, **settings(bootstrap, group))
    first = await until_closed_by(consumer, asyncio.Event())
    assert await asyncio.to_thread(committed, bootstrap, group, topic) == first


@on_a_loop
@pytest.mark.parametrize("end", ["well", "by_an_exception", "cancelled"])
async def test_what_a_task_had_that_has_ended(
    bootstrap: str, topic: str, group: str, end: str
) -> None:
    async with AsyncConsumer(topic, **settings(bootstrap, group)) as consumer:
        sizes: list[int] = []

        async def run() -> None:
            async for _ in consumer:
                break
            sizes.append(await async_batch(consumer))
            if end == "by_an_exception":
                raise OSError("no disk")
            if end == "cancelled":
                raise asyncio.CancelledError

        task = asyncio.create_task(run())
        await asyncio.wait([task])
    found = await asyncio.to_thread(committed, bootstrap, group, topic)
    assert found == (1 + sizes[0] if end == "well" else 1)
    assert task.cancelled() or (task.exception() is None) == (end == "well")


@on_a_loop
async def test_a_waiting_poll_of_another_task_has_handed_out_nothing(
    bootstrap: str, topic: str, group: str
) -> None:
    consumer = AsyncConsumer(topic, **settings(bootstrap, group))
    read = 0
    all_read = asyncio.Event()

    async def run() -> None:
        nonlocal read
        async for _ in consumer:
            read += 1
            if read == COUNT:
                all_read.set()  # this task continues first, until it waits for more

    task = asyncio.create_task(run())
    await all_read.wait()
    await consumer.close()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(committed, bootstrap, group, topic) == COUNT


@on_a_loop
async def test_a_task_that_polled_keeps_no_consumer_and_is_not_kept(
    bootstrap: str, topic: str, group: str
) -> None:
    consumer = AsyncConsumer(topic, **settings(bootstrap, group))
    task = asyncio.create_task(async_batch(consumer))
    await task
    seen = weakref.ref(task)
    del task
    while seen() is not None:
        await asyncio.sleep(0)  # the task's callbacks still have to run
        gc.collect()
    await async_batch(consumer)  # in the current task, which continues
    here, kept = weakref.ref(consumer), [consumer]
    del consumer
    with pytest.warns(ResourceWarning):
        kept.clear()
    assert here() is None
    while len(asyncio.all_tasks()) > 1:  # it is still leaving the group
        await asyncio.sleep(0)
        gc.collect()


@on_a_loop
async def test_a_close_in_a_task_of_the_task_that_polled(
    bootstrap: str, topic: str, group: str
) -> None:
    """`asyncio.wait_for` does this before Python 3.12."""
    consumer = AsyncConsumer(topic, **settings(bootstrap, group))
    other = AsyncConsumer(topic, **settings(bootstrap, f"{group}-other"))
    count = await async_batch(consumer)
    await async_batch(other)
    await asyncio.create_task(consumer.close())
    await asyncio.create_task(other.close())
    assert await asyncio.to_thread(committed, bootstrap, group, topic) == count
