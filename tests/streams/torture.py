"""Kill owners and learners of a stream application during hand-overs, and look for each record.

`make torture ARGS="streams --kills 20"` plays one history on each kind of broker. A record may be
in the state twice, as what followed a task's last commit is processed again, but none is missing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kohort import AsyncConsumer, AsyncProducer, TopicPartition
from kohort.client import AsyncAdminClient, NewTopic
from kohort.streams import JSON, App
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.events import StreamsEvent, TasksChanged
from kohort.streams.settings import StreamSettings
from tests.killing import Killable, passed, play_on_each

NAME, INPUT, OUTPUT, STORE = "torture", "torture-in", "torture-out", "seen"
TASKS, KEYS, INSTANCES = 8, 800, 3
# So slowly a learner replays, for kills to fall into it.
LEARNED_PER_S = 600
# Records before the first kill, for there to be something to learn.
FIRST = 8_000
AT_ONCE, PAUSE_S = 5, 0.02
WAIT_S = 120.0
# How often an instance that was killed comes back on an empty disk.
EMPTIED = 0.6
# So long it waits for a hand-over; one that has its state on disk may need none.
CALM_S = 20.0
ROLES = {"owner": "owns", "learner": "learns"}
"""What an instance that is killed must have, by the role it is killed in."""


def build() -> App:
    """Return a program whose state has, for each key, the numbers that it came with."""
    app = App(NAME)
    numbers = app.topic(INPUT, key=str, value=int)
    numbers.aggregate(list, lambda seen, one: [*seen, one], value=JSON, name=STORE).to(OUTPUT)
    return app


# ------------------------------------------------------------------------ an instance in a process


def run_instance(address: str, folder: str) -> None:
    """Run an instance until SIGTERM; print what it owns and learns whenever that changes."""
    settings = StreamSettings(
        commit_interval_ms=200,
        lag_interval_ms=100,
        checkpoint_interval_ms=500,
        learner_records_per_s=LEARNED_PER_S,
        learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=200),
    )
    build().run(
        bootstrap_servers=address,
        state_dir=folder,
        settings=settings,
        on_event=tell,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )


def tell(event: StreamsEvent) -> None:
    """Print the numbers of tasks that an instance has and learns."""
    if isinstance(event, TasksChanged):
        sys.stdout.write(json.dumps([len(event.active), len(event.learning)]) + "\n")
        sys.stdout.flush()


class Instance:
    """A process that runs an instance.

    Attributes:
        owns: How many tasks it processes.
        learns: How many it learns.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.owns = self.learns = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, address: str, folder: Path) -> Instance:
        """Start an instance with its state in a folder; its log is beside that."""
        command = [sys.executable, "-m", "tests.torture", "instance", address, str(folder)]
        with folder.with_suffix(".log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.owns, self.learns = json.loads(line)

    async def end(self, signal: Callable[[Process], None]) -> int:
        """Send it a signal, and return its exit status."""
        if self.process.returncode is None:
            signal(self.process)
        async with asyncio.timeout(WAIT_S):
            status = await self.process.wait()
        self.owns = self.learns = 0
        await self._reading
        return status


# ---------------------------------------------------------------------------------------- a history


class StreamsTorture:
    """One history on one broker.

    Args:
        address: The broker.
        path: A fresh directory for states and logs.
        seed: Decides what is killed when.

    Attributes:
        kills: How many instances were killed while they owned and while they learned.
        emptied: How many of them started again without their state.
        repeated: How many records are in the state more than once.
    """

    def __init__(self, address: str, path: Path, seed: int) -> None:
        self.kills: Counter[str] = Counter()
        self.emptied = self.repeated = 0
        self._address = address
        self._path = path
        self._chance = random.Random(seed)
        self._instances: dict[int, Instance] = {}
        self._sent = 0

    async def run(self, kills: int) -> int:
        """Kill so many times, and return how many records were processed.

        Raises:
            AssertionError: A record is missing in the state, or an instance ended by itself.
        """
        async with AsyncAdminClient(bootstrap_servers=self._address) as admin:
            await admin.create_topics([NewTopic(INPUT, TASKS), NewTopic(OUTPUT, TASKS)])
        try:
            for number in range(INSTANCES):
                await self._start(number)
            async with AsyncProducer(bootstrap_servers=self._address) as producer:
                await self._disturb(kills, producer)
                await self._settle(producer)
        finally:
            for each in self._instances.values():
                await each.end(Process.kill)
        return self._sent

    async def _disturb(self, kills: int, producer: AsyncProducer) -> None:
        for _ in range(FIRST):
            await self._send(producer)
        for _ in range(kills):
            await self._feed_until(producer, self._is_handing_over_or(passed(CALM_S)), "")
            await self._feed_until(producer, passed(self._chance.uniform(0, 3)), "")
            await self._kill(self._chance.choice(("owner", "learner")))

    async def _settle(self, producer: AsyncProducer) -> None:
        """Stop all in order; one that has only the changelogs sees each key once more."""
        await self._feed_until(producer, self._is_all_owned, "not all tasks are owned")
        for number, each in self._instances.items():
            status = await each.end(Process.terminate)
            assert status == 0, f"instance {number} ended with {status}; see {self._path}"
        self._instances.clear()
        await self._start(INSTANCES)
        for _ in range(KEYS):
            await self._send(producer)
        await producer.flush()
        self._count(await self._states())

    async def _feed_until(
        self, producer: AsyncProducer, is_so: Callable[[], bool], what: str
    ) -> None:
        """Send records until something is so; `what` says what is wrong if it never is."""
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end, f"{what} after {WAIT_S:.0f} s; see {self._path}"
            for number, each in self._instances.items():
                status = each.process.returncode
                assert status is None, f"instance {number} ended with {status}; see {self._path}"
            for _ in range(AT_ONCE):
                await self._send(producer)
            await producer.flush()
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await asyncio.Event().wait()

    async def _send(self, producer: AsyncProducer) -> None:
        key, value = b"%d" % (self._sent % KEYS), self._sent.to_bytes(8, "big")
        _ = await producer.send(INPUT, value, key)
        self._sent += 1

    def _is_handing_over_or(self, is_over: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: is_over() or any(each.learns for each in self._instances.values())

    def _is_all_owned(self) -> bool:
        return sum(each.owns for each in self._instances.values()) == TASKS

    async def _kill(self, role: str) -> None:
        numbers = sorted(self._instances)
        wanted = [n for n in numbers if getattr(self._instances[n], ROLES[role])]
        number = self._chance.choice(wanted or numbers)
        self.kills[role] += 1
        await self._instances.pop(number).end(Process.kill)
        if self._chance.random() < EMPTIED:
            self.emptied += 1
            shutil.rmtree(self._folder(number), ignore_errors=True)
        await self._start(number)

    async def _start(self, number: int) -> None:
        self._instances[number] = await Instance.start(self._address, self._folder(number))

    def _folder(self, number: int) -> Path:
        return self._path / f"instance-{number}"

    async def _states(self) -> Mapping[str, list[int]]:
        """Return the last state of each key, once each has the last number it was sent with."""
        found: dict[str, list[int]] = {}
        parts = [TopicPartition(OUTPUT, number) for number in range(TASKS)]
        consumer = AsyncConsumer(bootstrap_servers=self._address, auto_offset_reset="earliest")
        last = range(self._sent - KEYS, self._sent)
        async with consumer, asyncio.timeout(WAIT_S):
            consumer.assign(parts)
            while any(found.get(str(each % KEYS), [-1])[-1] != each for each in last):
                for records in (await consumer.poll(1_000)).values():
                    found |= {each.key.decode(): json.loads(each.value) for each in records}
        return found

    def _count(self, states: Mapping[str, list[int]]) -> None:
        seen = Counter(number for each in states.values() for number in each)
        missing = [number for number in range(self._sent) if not seen[number]]
        assert not missing, f"{len(missing)} records are missing, the first {missing[:10]}"
        self.repeated = sum(1 for count in seen.values() if count > 1)


def main(arguments: Sequence[str]) -> int:
    """Play one history on each kind of broker, or on one."""

    def play(broker: Killable, path: Path, seed: int, kills: int) -> tuple[str, Counter[str]]:
        torture = StreamsTorture(broker.bootstrap_servers, path, seed)
        count = asyncio.run(torture.run(kills))
        told = (
            f"{count} records, none missing, {torture.repeated} in the state twice,"
            f" {torture.emptied} instances lost their disk"
        )
        return told, torture.kills

    return play_on_each("streams", play, __doc__, arguments)


def main_of_instance(arguments: Sequence[str]) -> int:
    """Be an instance: `instance ADDRESS FOLDER`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run_instance(*arguments)
    return 0
