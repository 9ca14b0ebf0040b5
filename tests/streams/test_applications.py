"""Programs on both brokers, end to end: instances come and go, records fail, processes stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, AsyncConsumer, AsyncProducer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.errors import ConfigError, LocalProtocolError
from kohort.streams import App, WindowedKey
from kohort.streams.app.instance import ProgramInstance
from kohort.streams.app.plan import OnError
from kohort.streams.assignment import leader
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.errors import (
    DifferentProgramError,
    KeyElsewhereError,
    MissingTopicError,
    NoSuchStoreError,
    NotRunningError,
    RecordFailedError,
    TaskFailedError,
)
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ControlState
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.flights import (
    AIRCRAFT,
    FLIGHTS,
    PARTITIONS,
    PLANES,
    TOTALS,
    WAIT_S,
    WINDOW_MS,
    Fleet,
    build,
    in_time,
    maker_of,
    model,
    some_flights,
)

TASKS = 2 * PARTITIONS
SETTINGS = StreamSettings(
    commit_interval_ms=100,
    lag_interval_ms=100,
    purge_interval_ms=200,
    learners=LearnerSettings(max_warmup_learners=None),
)
pytestmark = pytest.mark.timeout(240)


class Running:
    """An instance in the background of a test."""

    def __init__(self, fleet: Fleet, state_dir: Path | None, **given: Any) -> None:
        self.changed = asyncio.Event()
        self.instance: ProgramInstance = (given.pop("app", None) or fleet.app()).instance(
            bootstrap_servers=fleet.address,
            state_dir=state_dir,
            store="memory" if state_dir is None else "rocksdb",
            settings=given.pop("settings", SETTINGS),
            on_event=lambda _: self.changed.set(),
            heartbeat_interval_ms=1_000,
            **given,
        )
        self.job = asyncio.create_task(self.instance.run())

    def count(self, role: Role = Role.RUNNING) -> int:
        return list(self.instance.tasks.values()).count(role)

    async def until(self, count: int, role: Role = Role.RUNNING) -> None:
        """Wait until so many tasks have a role."""
        async with in_time(lambda: (role, count, self.instance.tasks)):
            while self.count(role) != count:
                self.changed.clear()
                waiting = asyncio.create_task(self.changed.wait())
                await asyncio.wait(
                    {waiting, self.job}, return_when=asyncio.FIRST_COMPLETED, timeout=0.2
                )
                waiting.cancel()
                if self.job.done():
                    self.job.result()

    async def stop(self) -> None:
        self.instance.stop()
        async with asyncio.timeout(WAIT_S):
            await self.job


@asynccontextmanager
async def running(
    fleet: Fleet, state_dir: Path | None = None, **given: Any
) -> AsyncIterator[Running]:
    one = Running(fleet, state_dir, **given)
    try:
        yield one
    finally:
        if not one.job.done():
            await one.stop()


def test_instances_join_under_load_and_leave_and_results_are_the_model_s(
    servers: str, tmp_path: Path
) -> None:
    asyncio.run(_two_instances(Fleet(servers), tmp_path))


async def _two_instances(fleet: Fleet, folder: Path) -> None:
    await fleet.send_planes()
    over = asyncio.Event()

    async def feed() -> None:
        async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
            flights = some_flights(100_000, 1)
            for start in range(0, len(flights), 20):
                await fleet.send(producer, flights[start : start + 20])
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await over.wait()
                    return

    feeding = asyncio.create_task(feed())
    async with running(fleet, folder / "a") as first:
        await first.until(TASKS)
        async with running(fleet, folder / "b") as second:
            await second.until(TASKS // 2)
            await first.until(TASKS // 2)
            await fleet.results()
            await _each_key_is_here_or_there(first, second)
            await first.stop()
            await second.until(TASKS)
            over.set()
            await feeding
            await fleet.check_exact()


async def _each_key_is_here_or_there(first: Running, second: Running) -> None:
    owners = {first: set[str](), second: set[str]()}
    for plane in PLANES:
        for one, other in ((first, second), (second, first)):
            async with asyncio.timeout(WAIT_S):
                while (found := await _asked(one, plane)) == "":
                    pass  # that the other one has started is not heard yet
            if isinstance(found, int):
                owners[one].add(plane)
            else:
                assert found == other.instance.member_id
    assert owners[first] | owners[second] == set(PLANES)
    assert not owners[first] & owners[second]


async def _asked(one: Running, plane: str) -> object:
    """Return the total of a plane, or the member that has it; from another thread."""
    try:
        return await asyncio.to_thread(one.instance.query, "total", plane)
    except KeyElsewhereError as error:
        return error.member


# ---------------------------------------------------------------------- records that cannot be read


def committed(fleet: Fleet, topic: str) -> dict[TopicPartition, int]:
    """Return the offsets that the application has committed of a topic."""
    with AdminClient(bootstrap_servers=fleet.address) as admin:
        found = admin.list_group_offsets(fleet.name)
    return {place: each.offset for place, each in found.items() if place.topic == topic}


@pytest.mark.parametrize("on_error", ["skip", "dead-letter"])
def test_a_bad_record_is_passed_over(
    servers: str, on_error: OnError, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_passed_over(Fleet(servers, on_error)))
    (warned,) = [each for each in caplog.messages if "JSONDecodeError" in each]
    assert "-flights-" in warned


async def _passed_over(fleet: Fleet) -> None:
    await _around_a_bad_record(fleet)
    # Few at a time: not all partitions have records at hand when the first could be processed.
    async with running(fleet, max_poll_records=5):
        await fleet.check_exact()
        if fleet.on_error == "dead-letter":
            await _check_dead_letter(fleet)
    ends = await fleet.ends(fleet.topic(FLIGHTS))
    assert committed(fleet, fleet.topic(FLIGHTS)) == ends


async def _around_a_bad_record(fleet: Fleet) -> None:
    async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
        await fleet.send(producer, some_flights(100, 1))
        await producer.flush()
        await fleet.send_bad()
        await fleet.send(producer, some_flights(100, 2))
    await fleet.send_planes()  # written last, and first by their timestamps


async def _check_dead_letter(fleet: Fleet) -> None:
    topic = f"{fleet.name}-dead-letters"
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer = AsyncConsumer(bootstrap_servers=fleet.address)
    async with consumer, asyncio.timeout(WAIT_S):
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        while not (found := await consumer.poll(1_000)):
            pass
    ((letter,),) = found.values()
    assert (letter.key, letter.value) == (b"N000", b"not JSON")
    headers = dict(letter.headers)
    assert headers["__streams.errors.topic"] == fleet.topic(FLIGHTS).encode()


def test_a_bad_record_stops_its_task_and_no_other(servers: str) -> None:
    asyncio.run(_stopped(Fleet(servers)))


async def _stopped(fleet: Fleet) -> None:
    await _around_a_bad_record(fleet)
    one = Running(fleet, None)
    await one.until(1, Role.FAILED)
    await one.until(TASKS - 1)
    one.instance.stop()
    with pytest.raises(TaskFailedError) as caught:
        await one.job
    cause = caught.value.__cause__
    assert isinstance(cause, RecordFailedError)
    assert cause.partition.topic == fleet.topic(FLIGHTS)
    offsets = committed(fleet, fleet.topic(FLIGHTS))
    assert offsets.get(cause.partition, 0) <= cause.offset


# ------------------------------------------------------------------------------- ends and restarts


def test_sigterm_ends_a_process_with_everything_committed(servers: str, tmp_path: Path) -> None:
    asyncio.run(_terminated(Fleet(servers), tmp_path))


async def process_of(fleet: Fleet, folder: Path, commit_interval_ms: int) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.streams.program_process"),
        *(fleet.address, fleet.name, str(folder), str(commit_interval_ms)),
        stderr=asyncio.subprocess.PIPE,
    )


async def _terminated(fleet: Fleet, folder: Path) -> None:
    await fleet.send_planes()
    async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
        await fleet.send(producer, some_flights(300, 1))
    process = await process_of(fleet, folder, 3_600_000)  # no commit but the last one
    try:
        await fleet.results()
        for _ in range(2):  # as `timeout` does: to the process, and then to its group
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    assert "run has returned" in said.decode()
    for topic in (FLIGHTS, AIRCRAFT, "by-maker-repartition"):
        assert committed(fleet, fleet.topic(topic)) == await fleet.ends(fleet.topic(topic))
    async with running(fleet, folder) as again:
        await again.until(TASKS)
        assert again.instance.replayed == 0  # all of the state was on disk
        await fleet.check_exact()


def test_a_killed_process_loses_nothing(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    asyncio.run(_killed(Fleet(embedded.bootstrap_servers), tmp_path))


async def _killed(fleet: Fleet, folder: Path) -> None:
    await fleet.send_planes()
    async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
        process = await process_of(fleet, folder, 50)
        try:
            await fleet.send(producer, some_flights(300, 1))
            await fleet.results()
            await fleet.send(producer, some_flights(300, 2))
        finally:
            process.kill()
            await process.communicate()
        await fleet.send(producer, some_flights(300, 3))
    async with running(fleet, folder) as last:
        await last.until(TASKS)
        await fleet.results()
        totals, hourly = model(fleet.sent)
        for plane, total in totals.items():
            assert last.instance.query("total", plane) >= total
        for (maker, start), count in hourly.items():
            window = WindowedKey(maker, start, start + WINDOW_MS)
            assert last.instance.query("flights", window) >= count


def test_what_a_running_instance_is_asked(servers: str) -> None:
    asyncio.run(_asked_and_purged(Fleet(servers)))


async def _asked_and_purged(fleet: Fleet) -> None:
    await fleet.send_planes()
    async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
        await fleet.send(producer, some_flights(100, 1))
    app = fleet.app()
    job = asyncio.create_task(
        app.run_async(bootstrap_servers=fleet.address, store="memory", settings=SETTINGS)
    )
    await fleet.check_exact()
    totals, hourly = model(fleet.sent)
    assert {plane: app.query("total", plane) for plane in totals} == totals
    for (maker, start), count in hourly.items():
        assert app.query("flights", WindowedKey(maker, start, start + WINDOW_MS)) == count
    assert app.query("aircraft", "N001") == {"maker": maker_of("N001")}
    with pytest.raises(NoSuchStoreError, match=r"no store 'x'; it has aircraft, flights, total"):
        app.query("x", "N001")
    await _refused(fleet)
    await _purged(fleet)
    app.stop()
    async with asyncio.timeout(WAIT_S):
        await job
    with pytest.raises(NotRunningError):
        app.query("total", "N001")
    other = another(fleet)
    async with running(fleet, app=other) as one:  # nobody runs the first program any more
        await one.until(TASKS + PARTITIONS)


def another(fleet: Fleet) -> App:
    app = fleet.app()
    app.topic(fleet.topic(TOTALS), key=str, value=int).for_each(lambda _key, _value: None)
    return app


async def _refused(fleet: Fleet) -> None:
    one = Running(fleet, None, app=another(fleet))
    with pytest.raises(DifferentProgramError, match=f"under the name {fleet.name}"):
        async with asyncio.timeout(WAIT_S):
            await one.job


def test_of_two_programs_that_start_at_once_one_is_refused(embedded: EmbeddedBroker) -> None:
    asyncio.run(_at_once(Fleet(embedded.bootstrap_servers)))


async def _at_once(fleet: Fleet) -> None:
    both = [Running(fleet, None), Running(fleet, None, app=another(fleet))]
    async with asyncio.timeout(WAIT_S):
        (refused,), _ = await asyncio.wait(
            [each.job for each in both], return_when=asyncio.FIRST_COMPLETED
        )
    with pytest.raises(DifferentProgramError):
        refused.result()
    (other,) = (each for each in both if each.job is not refused)
    await other.until(TASKS + (PARTITIONS if other is both[1] else 0))
    await other.stop()


class HeldBack(ControlLog):
    """A control topic whose reader joins the group when the test says so.

    It reads on when the test says so, or when it has to once no plan could be made.
    """

    def __init__(self, no_plan: asyncio.Event, *given: Any) -> None:
        super().__init__(*given)
        self._no_plan = no_plan
        self.has_noted, self.may_join, self.may_read = (asyncio.Event() for _ in range(3))

    async def identify(self) -> None:
        self.has_noted.set()
        await self.may_join.wait()
        await super().identify()

    async def follow(self) -> None:
        await self.may_read.wait()
        await super().follow()

    async def caught_up(self) -> ControlState:
        if self._no_plan.is_set():
            self.may_read.set()
        return await super().caught_up()


@pytest.mark.parametrize("leads", [0, 1])
def test_of_two_programs_the_one_noted_last_goes_on_whichever_leads_before_that_is_read(
    embedded: EmbeddedBroker, leads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_led_too_early(Fleet(embedded.bootstrap_servers), leads, monkeypatch))


async def _led_too_early(fleet: Fleet, leads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[HeldBack] = []
    made = asyncio.Event()
    no_plan = _when_topics_differ(monkeypatch)

    def make(*given: Any) -> HeldBack:
        logs.append(HeldBack(no_plan, *given))
        made.set()
        return logs[-1]

    monkeypatch.setattr("kohort.streams.runtime.running.ControlLog", make)
    both: list[Running] = []
    async with asyncio.timeout(WAIT_S):
        for app in (fleet.app(), another(fleet)):
            made.clear()
            both.append(Running(fleet, None, app=app))
            await made.wait()
            await logs[-1].has_noted.wait()
        logs[1].may_read.set()
        logs[leads].may_join.set()
        await both[leads].until(
            *((TASKS, Role.RESTORING), (TASKS + PARTITIONS, Role.RUNNING))[leads]
        )
        logs[1 - leads].may_join.set()
        await no_plan.wait()
        if leads == 1:  # the other one has no reason of its own to read
            logs[0].may_read.set()
        with pytest.raises(DifferentProgramError):
            await both[0].job
    await both[1].until(TASKS + PARTITIONS)
    await both[1].stop()


def _when_topics_differ(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set once a leader has met a member that reads other topics."""
    met, loop, check = asyncio.Event(), asyncio.get_running_loop(), leader._check_subscriptions

    def checked(*given: Any) -> None:
        try:
            check(*given)
        except LocalProtocolError:
            loop.call_soon_threadsafe(met.set)
            raise

    monkeypatch.setattr(leader, "_check_subscriptions", checked)
    return met


async def _purged(fleet: Fleet) -> None:
    """Wait until the repartition topic is empty."""
    topic = fleet.topic("by-maker-repartition")
    ends = await fleet.ends(topic)
    assert sum(ends.values()) == len(fleet.sent)
    async with asyncio.timeout(WAIT_S):
        while await fleet.ends(topic, is_beginning=True) != ends:
            pass


def test_a_topic_to_write_that_is_missing(embedded: EmbeddedBroker) -> None:
    fleet = Fleet(embedded.bootstrap_servers)
    app = fleet.app()
    app.topic(fleet.topic(TOTALS), key=str, value=int).to("nobody-made-this")

    async def refused() -> None:
        await Running(fleet, None, app=app).job

    with pytest.raises(MissingTopicError, match="writes topics that do not exist: nobody-made"):
        asyncio.run(refused())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "has state: give state_dir"),
        ({"store": "memory", "state_dir": "x"}, "leave it out"),
        ({"store": "disk"}, "neither"),
        ({"store": "memory", "auto_offset_reset": "latest"}, "repartition topics"),
        ({"store": "memory", "group_id": "g"}, "sets group_id itself"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build("fleet").instance(bootstrap_servers="localhost:1", **given)
