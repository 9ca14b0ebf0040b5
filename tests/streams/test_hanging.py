"""Topics that are deleted while instances run, and an end that comes although something hangs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kohort import AdminClient, AsyncProducer
from kohort.broker import EmbeddedBroker
from kohort.streams import App
from kohort.streams.app.instance import ProgramInstance
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import MissingTopicError, NotRunningError, TaskFailedError
from kohort.streams.events import StreamsEvent, TaskFailed
from kohort.streams.runtime import growth, running
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.running import StreamsInstance
from kohort.types import TopicPartition
from tests.real_kafka.foreign import create_topic
from tests.streams.runtime.test_running import SETTINGS
from tests.streams.stubs import WAIT_S, Stand, record, until

pytestmark = pytest.mark.timeout(240)


class Case:
    """An instance of a program with two parts: one counts, one only writes."""

    def __init__(self, address: str) -> None:
        self.address = address
        name = f"app-{uuid.uuid4().hex[:10]}"
        self.events: list[StreamsEvent] = []
        self.changed = asyncio.Event()
        self.counted, self.plain, self.out, self.other = (
            create_topic(address, f"{name}-{each}", 2) for each in ("in", "plain", "out", "other")
        )
        self.changelog = f"{name}-n-changelog"
        app = App(name)
        app.topic(self.counted, key=str, value=str).count(name="n").stream().to(self.out)
        app.topic(self.plain, key=str, value=str).to(self.other)
        self.instance: ProgramInstance = app.instance(
            bootstrap_servers=address,
            store="memory",
            settings=SETTINGS,
            on_event=self._note,
        )

    def _note(self, event: StreamsEvent) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, holds: Callable[[], bool], job: asyncio.Task[None]) -> None:
        """Wait until an event has brought something about."""
        while not holds():
            self.changed.clear()
            waiting = asyncio.create_task(self.changed.wait())
            await asyncio.wait({waiting, job}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if job.done():
                job.result()

    def roles(self, role: Role) -> int:
        """Return how many tasks are in a role."""
        return list(self.instance.tasks.values()).count(role)


@pytest.mark.parametrize("what", ["changelog", "out"])
def test_a_topic_that_is_deleted_fails_its_part_soon_and_others_go_on(
    servers: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "_LOOK_S", 0.2)
    monkeypatch.setattr(running, "_SENDING_S", 2.0)  # what was sent to the topic is not delivered
    run(_deleted(Case(servers), what))


async def _deleted(case: Case, what: str) -> None:
    job = asyncio.create_task(case.instance.run())
    await running_all(case, job)
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await asyncio.to_thread(delete, case.address, getattr(case, what))
        _ = await producer.send(case.counted, b"x", b"k")
        await producer.flush()
        await case.until(lambda: case.roles(Role.FAILED) == 2, job)
        errors = [each.error for each in case.events if isinstance(each, TaskFailed)]
        assert {type(each) for each in errors} == {MissingTopicError}
        assert case.roles(Role.RUNNING) == 2
    case.instance.stop()
    with pytest.raises(TaskFailedError, match=getattr(case, what)):
        await job


def delete(address: str, topic: str) -> None:
    """Delete a topic."""
    with AdminClient(bootstrap_servers=address) as admin:
        admin.delete_topics([topic])


async def running_all(case: Case, job: asyncio.Task[None]) -> None:
    """Wait until the instance processes its four tasks."""
    await case.until(lambda: case.roles(Role.RUNNING) == 4, job)


def test_an_instance_ends_although_a_function_hangs(
    embedded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "_BREAK_OFF_S", 0.2)
    run(_hangs(embedded.bootstrap_servers))
    assert any("task 0_0 awaits a function of the program" in each for each in caplog.messages)


async def _hangs(address: str) -> None:
    name, begun = f"app-{uuid.uuid4().hex[:10]}", asyncio.Event()
    topic = create_topic(address, f"{name}-in", 1)

    async def wait(_key: str, _value: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    app = App(name)
    app.topic(topic, key=str, value=str).for_each(wait)
    instance = app.instance(bootstrap_servers=address, store="memory", settings=SETTINGS)
    job = asyncio.create_task(instance.run())
    async with AsyncProducer(bootstrap_servers=address) as producer:
        _ = await producer.send(topic, b"x", b"k")
        await producer.flush()
    await begun.wait()
    instance.stop()
    await job


def test_a_send_that_hangs_is_given_up_when_its_task_fails() -> None:
    run(_given_up())


async def _given_up() -> None:
    app = App("a")
    app.topic("in", key=str, value=str).to("out")
    place = TopicPartition("in", 0)
    async with Stand(app, [place]) as stand:
        stand.producer.full = 0
        held = stand.run(Task(0, 0))
        held.work.add(place, [record(place, 0)])
        job = asyncio.create_task(stand.process())
        await stand.producer.is_waiting.wait()
        stand.owning.refuse({0: MissingTopicError("out is gone")})
        await job
        assert held.is_idle.is_set()
        assert len([each for each in stand.events if isinstance(each, TaskFailed)]) == 1


def test_acknowledgements_are_not_awaited_once_a_task_has_failed() -> None:
    run(_not_awaited())


async def _not_awaited() -> None:
    app = App("a")
    app.topic("in", key=str, value=str).to("out")
    app.topic("other", key=str, value=str).to("elsewhere")
    first, second = TopicPartition("in", 0), TopicPartition("other", 0)
    async with Stand(app, [first, second]) as stand:
        stand.producer.is_slow = True
        for number, place in enumerate((first, second)):
            stand.run(Task(number, 0)).work.add(place, [record(place, 0)])
        await stand.process()
        job = asyncio.create_task(stand.commit())
        await until(lambda: len(stand.producer.delivering) == 2)
        stand.producer.delivering[1].set_result(None)
        await asyncio.sleep(0)
        assert not job.done()
        stand.owning.refuse({0: MissingTopicError("out is gone")})
        await job
        assert stand.consumer.offsets == {second: 1}
        lost = stand.producer.delivering[0]
        lost.set_exception(ValueError("not delivered"))
        await asyncio.sleep(0)
        assert not lost._log_traceback  # what asyncio logs when the future is dropped


def run(work: Coroutine[object, object, None]) -> None:
    """Run a test on a loop."""

    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await work

    asyncio.run(limited())


def test_a_query_of_another_thread_ends_with_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may end between the query and its turn; the thread would wait for ever."""
    app = App("ends")
    app.topic("in", key=str, value=str).count(name="n")
    instance = app.instance(bootstrap_servers="127.0.0.1:1", store="memory")

    async def run(_: object) -> None:
        asked = threading.Event()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *_: asked.set())
        answers.append(threads.submit(instance.query, "n", "key"))
        assert asked.wait(30)

    answers: list[Future[object]] = []
    monkeypatch.setattr(StreamsInstance, "run", run)
    with ThreadPoolExecutor(1) as threads:
        asyncio.run(instance.run())
        with pytest.raises(NotRunningError, match="ends is not running"):
            answers[0].result(30)
