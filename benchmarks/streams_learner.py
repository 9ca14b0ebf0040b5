"""The time for which a task is unavailable when instances join and leave, with and without
learners.

One application of 8 tasks with state, constant input, on an embedded broker. An instance has all
tasks; a second one is added (out); two more replace both (swap); one of those leaves (in). Without
learners (none) a task moves as soon as a newcomer could begin to learn it (no bound on
`acceptable_recovery_lag`), and the newcomer replays the state while no instance processes the task.
Instances are separate processes. Both variants are measured in the same run, in turn.

    python benchmarks/streams_learner.py [--keys 20000] [--rate 400] [--repeat 1] [--json]

With `--picture FILE` the moves with learners are drawn as SVG from the instances' reports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import to_builtins

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.streams_picture import Event, draw_moves  # noqa: E402  # found only after the line above
from kohort.broker import EmbeddedBroker  # noqa: E402  # as above
from kohort.client import AsyncProducer, NewTopic  # noqa: E402  # as above
from kohort.client.admin.aio import AsyncAdminClient  # noqa: E402  # as above
from kohort.streams.assignment.settings import LearnerSettings  # noqa: E402  # as above
from kohort.streams.events import StreamsEvent, TaskFailed, TaskStarted  # noqa: E402  # as above
from kohort.streams.runtime.running import StreamsInstance  # noqa: E402  # as above
from kohort.streams.settings import StreamSettings  # noqa: E402  # as above
from tests.streams.counting import counting  # noqa: E402  # as above

TASKS = 8
WAYS = {
    "learners": (LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=1_000), None),
    "none": (LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=2**62), 1),
}
"""What the group agrees on, and the most records per second that a learner replays."""
Run: TypeAlias = tuple[dict[str, list[Event]], list[list[Event]]]
_WAIT_S = 600.0
_TICK_S = 0.02


async def work(address: str, name: str, way: str) -> None:
    """Run an instance from the first line of standard input to its end, or to the line "leave"."""
    learners, rate = WAYS[way]
    settings = StreamSettings(
        commit_interval_ms=200, lag_interval_ms=100, learners=learners, learner_records_per_s=rate
    )
    clients = {"bootstrap_servers": address, "session_timeout_ms": 60_000}

    def tell(event: StreamsEvent) -> None:
        if isinstance(event, TaskFailed):
            raise SystemExit(f"task {event.task} has failed: {event.error}")
        found: dict[str, Any] = {"kind": event.kind, **to_builtins(event)}
        if isinstance(event, TaskStarted):
            found |= {"unavailable_ms": event.unavailable_ms}
            found |= {"records": instance.replayed, "busy_s": instance.replaying_s}
        print(json.dumps(found), flush=True)

    instance = StreamsInstance(counting(name, f"{name}-in", f"{name}-out"), settings, clients, tell)
    _ = await asyncio.to_thread(sys.stdin.readline)
    job = asyncio.create_task(instance.run())
    end = instance.leave_soon if await asyncio.to_thread(sys.stdin.readline) else instance.stop
    end()
    await job


class Instance:
    """An instance, as seen by the benchmark.

    Attributes:
        events: The events that it has printed so far.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[Event] = []
        self._heard = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def prepare(cls, address: str, name: str, way: str) -> Instance:
        """Start the process, which waits for `start`."""
        command = [sys.executable, __file__, "--work", address, name, way]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    def start(self) -> None:
        """Let it join the group."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
            self._heard.set()

    @property
    def started(self) -> list[Event]:
        """The task starts that it has reported."""
        return [each for each in self.events if each["kind"] == "TaskStarted"]

    @property
    def owned(self) -> int:
        """The number of tasks that it processes."""
        ended = sum(1 for each in self.events if each["kind"] == "TaskReleased")
        return len(self.started) - ended

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on its output holds."""
        async with asyncio.timeout(_WAIT_S):
            while not condition():
                if self._reading.done():
                    raise RuntimeError("an instance ended")
                self._heard.clear()
                heard = asyncio.create_task(self._heard.wait())
                await asyncio.wait(
                    {heard, self._reading}, return_when=asyncio.FIRST_COMPLETED, timeout=1
                )
                heard.cancel()

    async def leave(self, how: bytes = b"leave\n") -> None:
        """Let it leave once others have learned its tasks, and wait until it has left."""
        assert self.process.stdin is not None
        self.process.stdin.write(how)
        self.process.stdin.close()
        await self._reading
        await self.process.wait()

    async def stop(self) -> None:
        """Let it leave at once."""
        await self.leave(b"")


async def measure(address: str, way: str, keys: int, rate: int) -> Run:
    """Return the measurements of each task that moved, and the output of all instances."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    async with AsyncAdminClient(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(f"{name}-{end}", TASKS) for end in ("in", "out")])
    async with AsyncProducer(bootstrap_servers=address, linger_ms=5) as producer:
        for number in range(keys * TASKS):
            _ = await producer.send(f"{name}-in", b"", b"key-%d" % number)
        await producer.flush()
        every = [await Instance.prepare(address, name, way) for _ in range(4)]
        first = every[0]
        first.start()
        await first.until(lambda: first.owned == TASKS)
        await _until_processed(address, name)
        feeding = asyncio.create_task(_feed(producer, f"{name}-in", keys * TASKS, rate))
        found = await _moves(*every)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return found


async def _moves(first: Instance, second: Instance, third: Instance, fourth: Instance) -> Run:
    """Add an instance, replace both, and let one of the new ones leave."""
    second.start()
    await second.until(lambda: second.owned == TASKS // 2)
    new = third, fourth
    for each in new:
        each.start()
    for each in new:
        await each.until(partial(bool, each.events))
    await asyncio.gather(first.leave(), second.leave())
    await third.until(lambda: third.owned + fourth.owned == TASKS)
    swapped = len(third.started)
    moved = {"out": second.started, "swap": [*third.started, *fourth.started]}
    await fourth.leave()
    await third.until(lambda: third.owned == TASKS)
    moved["in"] = third.started[swapped:]
    await third.stop()
    return moved, [each.events for each in (first, second, third, fourth)]


async def _feed(producer: AsyncProducer, topic: str, keys: int, rate: int) -> None:
    number = 0
    while True:
        for _ in range(max(1, int(rate * _TICK_S))):
            _sent = await producer.send(topic, b"", b"key-%d" % (number % keys))
            number += 1
        await asyncio.sleep(_TICK_S)


async def _until_processed(address: str, name: str) -> None:
    async with AsyncAdminClient(bootstrap_servers=address) as admin, asyncio.timeout(_WAIT_S):
        while True:
            done = await admin.list_group_offsets(name)
            ends = await admin.list_offsets(dict.fromkeys(done, -1)) if done else {}
            if len(done) == TASKS and all(done[each].offset == ends[each] for each in ends):
                return
            await asyncio.sleep(0.2)


def summary(found: list[Event]) -> dict[str, float]:
    """Return the figures of one kind of move."""
    times = sorted(each["unavailable_ms"] for each in found if each["unavailable_ms"] is not None)
    return {
        "tasks": len(times),
        "p50_ms": round(statistics.median(times)),
        "max_ms": times[-1],
        "replayed_after_grant": sum(each["restored"] for each in found),
    }


async def bench(keys: int, rate: int, repeat: int, picture: Path | None) -> dict[str, Any]:
    """Measure both variants in turn."""
    found: dict[str, dict[str, list[Event]]] = {way: {} for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        for _ in range(repeat):
            for way, moves in found.items():
                moved, events = await measure(broker.bootstrap_servers, way, keys, rate)
                for move, tasks in moved.items():
                    moves.setdefault(move, []).extend(tasks)
                if way == "learners" and picture is not None:
                    svg = draw_moves(events)
                    await asyncio.to_thread(picture.write_text, svg, encoding="utf-8")
    numbers = {
        f"{move}, {way}": summary(tasks)
        for way, moves in found.items()
        for move, tasks in moves.items()
    }
    return {"keys_per_task": keys, "rate_per_s": rate, **numbers, "replayed_per_s": _speed(found)}


def _speed(found: dict[str, dict[str, list[Event]]]) -> int:
    """Return the changelog records that the second instance applies per second of work."""
    last = found["none"]["out"][-1]
    return int(last["records"] / last["busy_s"])


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(sys.argv[2], *sys.argv[3:5]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20_000, help="keys of each task")
    parser.add_argument("--rate", type=int, default=400, help="records per second, all tasks")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="where to draw the moves with learners")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = asyncio.run(bench(given.keys, given.rate, given.repeat, given.picture))
    if given.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
