"""The time for which a partition is not processed when an instance is added, by state size.

On a real Kafka, an application counts by key, with its state in RocksDB, 8 partitions and constant
input. One instance counts all keys; then a second one is added. The pause of a partition is the
longest time between two of its live records. Three variants, each with each number of keys: kohort
with learners; kohort where a task moves first and is replayed by its new owner; Quix Streams, in
which the new owner replays. `--quix PYTHON` names a Python with Quix Streams (`pip install
quixstreams`).

    python benchmarks/learner.py [--keys 100000 4000000] [--rate 400] [--quix PYTHON] [--json]
"""

from __future__ import annotations

import argparse
import json
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
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.learner_worker import FILLING  # noqa: E402  # found only after the line above
from kohort.client import AdminClient, NewTopic, Producer  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

PARTITIONS = 8
BATCH = 100_000
TICK_S, LONG_S = 0.02, 1_200.0
CALM_S = 5.0
# Maximum time from sending a live record to recording it, once instances have caught up.
NEAR_S = 1.0
PAUSE_MS = 500.0
WORKER = ROOT / "benchmarks" / "learner_worker.py"


class Instances:
    """Processes of one application, and the live records that they have recorded."""

    def __init__(self, kind: str, python: str, address: str, topic: str, folder: Path) -> None:
        self._command = [python, str(WORKER), kind, address, topic, str(folder)]
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> None:
        """Add an instance."""
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([*self._command, name], stdout=log, stderr=log, cwd=ROOT)
            )

    def noted(self, name: str) -> list[tuple[float, int]]:
        """Return time and partition of each live record of an instance."""
        path = self._folder / f"{name}.live"
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = [line.split() for line in lines]
        return [(float(at), int(value)) for at, value in pairs if value != FILLING.decode()]

    def began(self, name: str) -> float | None:
        """Return when an instance counted its first record; None: not yet."""
        path = self._folder / f"{name}.live"
        words = path.read_text().split() if path.exists() else []
        return float(words[0]) if words else None

    def check(self) -> None:
        """Fail if an instance has ended by itself."""
        for each in self._processes:
            if each.poll() is not None:
                raise AssertionError(f"an instance has ended: see {self._folder}")

    def end(self) -> None:
        """End all of them."""
        for each in self._processes:
            each.terminate()
        for each in self._processes:
            try:
                each.wait(60)
            except subprocess.TimeoutExpired:
                each.kill()


def fill(address: str, topic: str, keys: int) -> None:
    """Send one record for each key."""
    with Producer(bootstrap_servers=address, linger_ms=50) as producer:
        for first in range(0, keys, BATCH):
            numbers = range(first, min(first + BATCH, keys))
            rows = pa.table(
                {
                    "key": pa.array([b"%d" % each for each in numbers], pa.binary()),
                    "value": pa.array([FILLING] * len(numbers), pa.binary()),
                    "partition": pa.array([each % PARTITIONS for each in numbers], pa.int32()),
                }
            )
            producer.send_arrow(topic, rows)
        producer.flush()


@contextmanager
def load(address: str, topic: str, keys: int, rate: int) -> Iterator[None]:
    """Send live records evenly to all partitions."""
    over = threading.Event()

    def send() -> None:
        due, number = time.monotonic(), 0
        with Producer(bootstrap_servers=address, linger_ms=5) as producer:
            while not over.wait(max(0.0, due - time.monotonic())):
                due += TICK_S
                for _ in range(int(rate * TICK_S)):
                    number = (number + 1) % keys
                    where = number % PARTITIONS
                    producer.send(topic, b"%d" % where, key=b"%d" % number, partition=where)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def until(holds: Callable[[], bool], what: str, instances: Instances) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LONG_S
    while not holds():
        instances.check()
        if time.monotonic() > end:
            raise AssertionError(f"not within {LONG_S:g} s: {what}")
        time.sleep(0.2)


def measure(kind: str, python: str, address: str, keys: int, rate: int) -> dict[str, float]:
    """Add an instance, and return the pauses in milliseconds and the records/s of the count."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    fill(address, topic, keys)
    with tempfile.TemporaryDirectory(prefix="learner-") as name:
        instances = Instances(kind, python, address, topic, Path(name))
        try:
            return added(instances, address, topic, keys, rate)
        finally:
            instances.end()


def added(instances: Instances, address: str, topic: str, keys: int, rate: int) -> dict[str, float]:
    instances.start("one")
    until(lambda: instances.began("one") is not None, "it counts", instances)
    with load(address, topic, keys, rate):
        until(lambda: len({p for _, p in instances.noted("one")}) == PARTITIONS, "all", instances)
        caught_up = time.time()
        time.sleep(CALM_S)
        start = time.time()
        instances.start("two")
        until(lambda: len({p for _, p in instances.noted("two")}) >= 3, "some move", instances)
        moved = time.time()
        time.sleep(CALM_S)
        noted = sorted([*instances.noted("one"), *instances.noted("two")])
    pauses = pauses_ms([each for each in noted if each[0] > start - 1])
    return {
        "longest_ms": max(pauses.values()),
        "median_ms": statistics.median(pauses.values()),
        "added_s": moved - start,
        "records_per_s": keys / (caught_up - (instances.began("one") or 0)),
    }


def pauses_ms(noted: list[tuple[float, int]]) -> dict[int, float]:
    """Return the longest time between two live records of each partition."""
    last: dict[int, float] = {}
    found: dict[int, float] = defaultdict(float)
    for at, partition in noted:
        found[partition] = max(found[partition], (at - last.get(partition, at)) * 1000)
        last[partition] = at
    return dict(found)


def main() -> int:
    """Measure all variants with all numbers of keys; exit with 1 if learners pause too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 4_000_000])
    parser.add_argument("--rate", type=int, default=400, help="live records per second")
    parser.add_argument("--quix", metavar="PYTHON", help="a Python with Quix Streams")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ways = {"kohort": sys.executable, "waits": sys.executable}
    ways |= {"quix": given.quix} if given.quix else {}
    found: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="learner-") as folder,
        RealKafka(Path(folder) / "kafka", jvm_options=("-Xmx1g",)) as kafka,
    ):
        for keys in given.keys:
            for kind, python in ways.items():
                result = measure(kind, python, kafka.bootstrap_servers, keys, given.rate)
                found[f"{kind} {keys}"] = result
                shown = ", ".join(f"{name} {value:,.0f}" for name, value in result.items())
                print(f"{kind} {keys:,} keys: {shown}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=None if given.json else 1))
    slow = [each for each in found if each.startswith("kohort")]
    return int(any(found[each]["longest_ms"] > PAUSE_MS for each in slow))


if __name__ == "__main__":
    sys.exit(main())
