"""The cost of a consistent region on a real Kafka: Python workers in separate processes.

Throughput is compared with the same pipeline without a region, in turn. Java, Maven and `make test`
are needed once.

    python benchmarks/region.py [--part throughput|drains|handover|recovery] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.client import AdminClient, ConsumerRecord, NewTopic, Producer  # noqa: E402  # as above
from kohort.region.log.control import ControlLog  # noqa: E402  # as above
from kohort.region.machines.coding import decode  # noqa: E402  # as above
from kohort.region.machines.records import Complete, Drain  # noqa: E402  # as above
from kohort.region.machines.state import RegionState  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

VALUE = b"v" * 100
PARTS = ("throughput", "drains", "handover", "recovery")
PERIOD_MS = 5_000
LOAD = 4_000
SESSION_S = 6
LONG_S = 120.0


class Worker:
    """A process of `region_worker`; its output is kept, with the number of the worker."""

    def __init__(self, kind: str, *arguments: str, **settings: object) -> None:
        command = [sys.executable, "-m", "benchmarks.region_worker", kind, *arguments]
        self.process = subprocess.Popen(
            [*command, json.dumps(settings)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self.said: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def stop(self) -> None:
        """Shut it down properly."""
        self.process.send_signal(signal.SIGTERM)
        self.join()

    def join(self) -> None:
        """Wait for its end."""
        if self.process.wait(LONG_S) not in (0, -signal.SIGTERM, -signal.SIGKILL):
            raise AssertionError(f"a worker ended with {self.process.returncode}")
        self._thread.join()


class Watch:
    """Follows the control topic of a region in a separate thread."""

    def __init__(self, address: str, region: str) -> None:
        self.state: RegionState | None = None
        self.drains: list[float] = []
        self.completed: list[tuple[float, RegionState]] = []
        self._began: dict[int, int] = {}
        self._ends = threading.Event()
        self._log = (address, region)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True)
        self._thread.start()

    async def _follow(self) -> None:
        address, region = self._log
        control = ControlLog(region, {"bootstrap_servers": address})
        await control.open()
        control.on_record(self._hear)
        control.on_state(self._told)
        following = asyncio.create_task(control.follow())
        ended = asyncio.create_task(asyncio.to_thread(self._ends.wait))
        await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await control.close()

    def _hear(self, record: ConsumerRecord) -> None:
        known = decode(record.key, record.value) if record.value is not None else None
        if isinstance(known, Drain):
            self._began[known.checkpoint] = record.timestamp
        elif isinstance(known, Complete) and known.checkpoint in self._began:
            self.drains.append(record.timestamp - self._began[known.checkpoint])

    def _told(self, state: RegionState) -> None:
        before, self.state = self.state, state
        if before is None or before.completed < state.completed:
            self.completed.append((time.monotonic(), state))

    def close(self) -> None:
        """Stop following."""
        self._ends.set()
        self._thread.join()


class Load:
    """Writes a number of records per second, evenly to all partitions, until stopped."""

    def __init__(self, address: str, topic: str, partitions: int, a_second: int = LOAD) -> None:
        self._ends = threading.Event()
        self._given = (address, topic, partitions, a_second)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        address, topic, partitions, a_second = self._given
        step_s, due = 0.02, time.monotonic()
        with Producer(bootstrap_servers=address, linger_ms=5) as producer:
            while not self._ends.wait(max(0.0, due - time.monotonic())):
                due += step_s
                for number in range(int(a_second * step_s)):
                    producer.send(topic, VALUE, partition=number % partitions)

    def close(self) -> None:
        """Stop writing."""
        self._ends.set()
        self._thread.join()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LONG_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LONG_S:g} s: {what}")
        time.sleep(0.02)


class Bench:
    """One Kafka, and regions on it.

    Args:
        address: Kafka's address.
        folder: For the output.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._folder = folder

    def topic(self, partitions: int) -> str:
        """Make a topic."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        with AdminClient(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(name, partitions)])
        return name

    def out(self) -> str:
        """Make a directory."""
        return tempfile.mkdtemp(dir=self._folder)

    def worker(self, topic: str, out: str, operator: str, **settings: object) -> Worker:
        """Start an operator of the region named after the topic."""
        usual = {"region": topic, "group_id": topic, "period_ms": PERIOD_MS}
        return Worker("region", self.address, topic, out, operator, **(usual | settings))

    @contextmanager
    def loaded(self, partitions: int, count: int, **settings: object) -> Iterator[Loaded]:
        """Run a region with a number of workers under constant load."""
        topic = self.topic(partitions)
        running = Loaded(self, topic, partitions, settings)
        try:
            for _ in range(count):
                running.join()
            until(lambda: running.is_shared(count), "the region works")
            yield running
        finally:
            running.close()


class Loaded:
    """A region under constant load."""

    def __init__(
        self, bench: Bench, topic: str, partitions: int, settings: dict[str, object]
    ) -> None:
        self.workers: list[Worker] = []
        self.topic = topic
        self.partitions = partitions
        self._bench = bench
        self._settings = settings
        self._out = bench.out()
        self.load = Load(bench.address, topic, partitions)
        self.watch = Watch(bench.address, topic)

    def join(self) -> Worker:
        """Add a worker."""
        name = f"worker-{len(self.workers)}"
        worker = self._bench.worker(self.topic, self._out, name, **self._settings)
        self.workers.append(worker)
        return worker

    def is_shared(self, count: int) -> bool:
        """Whether this many operators own all partitions, in a complete checkpoint."""
        state = self.watch.completed[-1][1] if self.watch.completed else None
        if state is None:
            return False
        owned = [len(each.owned) for each in state.operators.values() if each.owned]
        return len(owned) == count and sum(owned) == self.partitions

    def close(self) -> None:
        """End it."""
        for each in self.workers:
            if each.process.poll() is None:
                each.stop()
        self.load.close()
        self.watch.close()


# ------------------------------------------------------------------------------------------- parts


def throughput(bench: Bench, options: argparse.Namespace, result: harness.Result) -> None:
    """Measure the same pipeline with and without a region, in turn."""
    topic = bench.topic(4)
    with Producer(bootstrap_servers=bench.address) as producer:
        for number in range(options.records):
            producer.send(topic, VALUE, partition=number % 4)

    def run(kind: str) -> float:
        name = uuid.uuid4().hex[:8]
        given: dict[str, Any] = {"group_id": name, "period_ms": PERIOD_MS}
        given["count"] = options.records
        if kind == "plain":
            worker = Worker(kind, bench.address, topic, bench.out(), **given)
        else:
            worker = Worker(kind, bench.address, topic, bench.out(), "one", region=name, **given)
        until(lambda: worker.said or worker.process.poll(), "all records are processed")
        if kind == "region":
            worker.stop()
        worker.join()
        return float(worker.said[0]["rate"])

    result.rates |= {"region": [], "plain": []}
    for number in range(options.rounds):
        for kind in ("region", "plain") if number % 2 else ("plain", "region"):
            result.rates[kind].append(run(kind))
    pairs = zip(result.rates["region"], result.rates["plain"], strict=True)
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    result.note("least share of a pair", ratios[0])
    result.note("greatest share of a pair", ratios[-1])
    result.expect("share of the rate without", statistics.median(ratios), 0.95)


def drains(bench: Bench, options: argparse.Namespace, result: harness.Result) -> None:
    """Measure checkpoints of two operators and eight partitions, one per second."""
    with bench.loaded(8, 2, period_ms=1_000) as running:
        first = len(running.watch.drains)
        end = time.monotonic() + options.checkpoints * 2.0
        while len(running.watch.drains) < first + options.checkpoints:
            if time.monotonic() > end:
                raise AssertionError("checkpoints take twice as long as they should")
            time.sleep(0.2)
        took = sorted(running.watch.drains[first:])
    result.note("checkpoints", len(took))
    result.note("drain, median, s", statistics.median(took) / 1000)
    result.limit("drain, 99th percentile, s", took[int(len(took) * 0.99) - 1] / 1000, 1.0)


def handover(bench: Bench, options: argparse.Namespace, result: harness.Result) -> None:
    """Let a worker join and leave: the rest keeps reading, and no record is passed twice."""
    longest = 0.0
    with bench.loaded(8, 2, gaps=True, session_timeout_ms=SESSION_S * 1000) as running:
        for _ in range(options.moves):
            mark = time.time()
            joined = running.join()
            until(lambda: running.is_shared(3), "three share")
            joined.stop()
            until(lambda: running.is_shared(2), "two share")
            longest = max(longest, _pause(running, mark, time.time()))
    calls = [each for worker in running.workers for each in worker.said]
    result.limit("records given twice", _repeated(calls), 0)
    result.limit("pause of partitions that stay, s", longest, 1.0)


def _pause(running: Loaded, since: float, to: float) -> float:
    """Return the longest pause of a partition that only one of the first two has read."""
    at: dict[int, list[float]] = defaultdict(list)
    readers: dict[int, set[int]] = defaultdict(set)
    for number, worker in enumerate(running.workers):
        for each in list(worker.said):
            if since <= each["at"] <= to:
                at[each["partition"]].append(each["at"])
                readers[each["partition"]].add(number)
    stayed = [sorted(at[each]) for each in at if len(readers[each]) == 1]
    return max(b - a for times in stayed for a, b in pairwise(times))


def _repeated(calls: list[dict[str, Any]]) -> int:
    """Return the number of records that were in two calls."""
    count = 0
    next_of: dict[int, int] = defaultdict(int)
    for each in sorted(calls, key=lambda each: (each["partition"], each["first"])):
        count += max(0, next_of[each["partition"]] - each["first"])
        next_of[each["partition"]] = max(next_of[each["partition"]], each["last"] + 1)
    return count


def recovery(bench: Bench, options: argparse.Namespace, result: harness.Result) -> None:
    """Kill workers, and wait for the first checkpoint of the remaining ones."""
    took = []
    for _ in range(options.moves):
        with bench.loaded(8, 2, session_timeout_ms=SESSION_S * 1000, period_ms=1_000) as running:
            running.workers[0].process.kill()
            killed = time.monotonic()
            until(lambda: running.is_shared(1), "one has all")
            took.append(running.watch.completed[-1][0] - killed)
    result.limit("kill to checkpoint, longest, s", max(took), SESSION_S + 5.0)


def main() -> int:
    """Run the parts; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=9)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--checkpoints", type=int, default=300)
    parser.add_argument("--moves", type=int, default=5, help="joins and leaves, and kills")
    options = parser.parse_args()
    result = harness.Result("records", {})
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder, "kafka"), jvm_options=("-Xmx1g",)) as kafka,
    ):
        Path(folder, "out").mkdir()
        bench = Bench(kafka.bootstrap_servers, Path(folder, "out"))
        for part in options.part or PARTS:
            {
                "throughput": throughput,
                "drains": drains,
                "handover": handover,
                "recovery": recovery,
            }[part](bench, options, result)
    return harness.report("a region of Python workers", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
