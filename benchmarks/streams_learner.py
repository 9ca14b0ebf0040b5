"""For how long a task is unavailable when an instance is added, with learners and without.

One application of 8 tasks with state, constant input, on an embedded broker: an instance has all of
them, and a second one is added. "Without learners" is an unbounded `acceptable_recovery_lag`: a
task moves as soon as the newcomer has begun, which then replays the state while nobody processes.
Instances are processes of their own. Both ways are measured in the same run, in turn.

    python benchmarks/streams_learner.py [--keys 20000] [--rate 400] [--repeat 1] [--json]
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from kohort.broker import EmbeddedBroker  # noqa: E402  # found only after the line above
from kohort.client import AsyncProducer, NewTopic  # noqa: E402  # as above
from kohort.client.async_admin import AsyncAdminClient  # noqa: E402  # as above
from kohort.streams.assignment.settings import LearnerSettings  # noqa: E402  # as above
from kohort.streams.events import StateRestored, StreamsEvent, TaskStarted  # noqa: E402  # as above
from kohort.streams.running import StreamsInstance  # noqa: E402  # as above
from kohort.streams.settings import StreamSettings  # noqa: E402  # as above
from tests.streams.counting import counting  # noqa: E402  # as above

TASKS = 8
WAYS = {"learners": 1_000, "none": 2**62}
_WAIT_S = 600.0
_TICK_S = 0.02


async def work(address: str, name: str, lag: int) -> None:
    """Be an instance until standard input ends; print what happens."""
    settings = StreamSettings(
        commit_interval_ms=200,
        lag_interval_ms=100,
        learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=lag),
    )
    clients = {"bootstrap_servers": address, "session_timeout_ms": 60_000}

    def tell(event: StreamsEvent) -> None:
        found: dict[str, object] = {"kind": event.kind}
        if isinstance(event, TaskStarted):
            found |= {"unavailable_ms": event.unavailable_ms, "restored": event.restored}
            found |= {"records": instance.replayed, "busy_s": instance.replaying_s}
        elif isinstance(event, StateRestored):
            found |= {"records": event.records, "seconds": event.seconds}
        print(json.dumps(found), flush=True)

    instance = StreamsInstance(counting(name, f"{name}-in", f"{name}-out"), settings, clients, tell)
    job = asyncio.create_task(instance.run())
    await asyncio.to_thread(sys.stdin.read)
    instance.stop()
    await job


class Instance:
    """An instance as the benchmark sees it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.started: list[dict[str, Any]] = []

    @classmethod
    async def start(cls, address: str, name: str, lag: int) -> Instance:
        """Start the process."""
        command = [sys.executable, __file__, "--work", address, name, str(lag)]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read what it prints until something holds."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_WAIT_S):
            while not condition():
                line = await self.process.stdout.readline()
                if not line:
                    raise RuntimeError("an instance ended")
                event = json.loads(line)
                if event["kind"] == "TaskStarted":
                    self.started.append(event)

    async def stop(self) -> None:
        """Have it leave."""
        await self.process.communicate(b"")  # closes its standard input


async def measure(address: str, way: str, keys: int, rate: int) -> list[dict[str, Any]]:
    """Return what was measured for each task that moved."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    async with AsyncAdminClient(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(f"{name}-{end}", TASKS) for end in ("in", "out")])
    async with AsyncProducer(bootstrap_servers=address, linger_ms=5) as producer:
        for number in range(keys * TASKS):
            _ = await producer.send(f"{name}-in", b"", b"key-%d" % number)
        await producer.flush()
        first = await Instance.start(address, name, WAYS[way])
        await first.until(lambda: len(first.started) == TASKS)
        await _until_processed(address, name)
        feeding = asyncio.create_task(_feed(producer, f"{name}-in", keys * TASKS, rate))
        second = await Instance.start(address, name, WAYS[way])
        await second.until(lambda: len(second.started) >= TASKS // 2)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    await second.stop()
    await first.stop()
    return second.started


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


def summary(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return the numbers of one way."""
    times = sorted(each["unavailable_ms"] for each in found if each["unavailable_ms"] is not None)
    cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
    busy_s = sum(each["busy_s"] for each in found)
    return {
        "tasks": len(times),
        "p50_ms": cuts[49],
        "p99_ms": cuts[98],
        "restored_after_grant": sum(each["restored"] for each in found),
        "replayed_per_s": round(sum(e["records"] for e in found) / busy_s) if busy_s else 0,
    }


async def bench(keys: int, rate: int, repeat: int) -> dict[str, Any]:
    """Measure both ways in turn."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        for _ in range(repeat):
            for way, moved in found.items():
                moved += await measure(broker.bootstrap_servers, way, keys, rate)
    result: dict[str, Any] = {way: summary(moved) for way, moved in found.items()}
    for cut in ("p50_ms", "p99_ms"):
        result[f"ratio_{cut}"] = round(result["none"][cut] / max(1, result["learners"][cut]), 2)
    return {"keys_per_task": keys, "rate_per_s": rate, **result}


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20_000, help="keys of each task")
    parser.add_argument("--rate", type=int, default=400, help="records per second, all tasks")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = asyncio.run(bench(given.keys, given.rate, given.repeat))
    if given.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
