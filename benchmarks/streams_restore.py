"""The speed at which a task's state is restored from its changelog into RocksDB, on one core.

On a real Kafka, an application counts by key until each key is in its changelog. Then an instance
with an empty directory restores everything before it processes records. Its rate is the number of
replayed records divided by the CPU time of its process, including RocksDB's threads, which is the
rate on one core. It also reports the rate by wall-clock time, from the grant of the tasks to the
start of the last one.

    python benchmarks/streams_restore.py [--keys N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.learner import PARTITIONS, fill  # noqa: E402  # found only after the line above
from kohort.client import AdminClient, NewTopic  # noqa: E402  # as above
from kohort.streams import App  # noqa: E402  # as above
from kohort.streams.events import StreamsEvent, TaskStarted  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

TOPIC = "restored"
TARGET = 200_000
LONG_S = 600


def application(count: Callable[[int, bytes], int] = lambda total, _: total + 1) -> App:
    """Return the keyed count."""
    app = App("restore")
    app.topic(TOPIC, key=bytes, value=bytes).aggregate(int, count, value=int, name="counts")
    return app


async def fill_changelog(address: str, folder: Path, keys: int) -> None:
    """Count until the changelog has every key, and commit."""
    done, left = asyncio.Event(), keys

    def count(total: int, _: bytes) -> int:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        return total + 1

    instance = application(count).instance(bootstrap_servers=address, state_dir=folder)
    running = asyncio.create_task(instance.run())
    await asyncio.wait_for(done.wait(), LONG_S)
    instance.stop()
    await running


async def restore(address: str, folder: Path, keys: int) -> dict[str, float]:
    """Start an instance without state, and measure until it processes all of its tasks."""
    started: list[TaskStarted] = []
    all_started = asyncio.Event()

    def hear(event: StreamsEvent) -> None:
        if isinstance(event, TaskStarted):
            started.append(event)
            if len(started) == PARTITIONS:
                all_started.set()

    instance = application().instance(bootstrap_servers=address, state_dir=folder, on_event=hear)
    processor = time.process_time()
    running = asyncio.create_task(instance.run())
    await asyncio.wait_for(all_started.wait(), LONG_S)
    processor = time.process_time() - processor
    instance.stop()
    await running
    restored = sum(each.restored for each in started)
    if restored != keys:
        raise AssertionError(f"{restored} records were restored, not {keys}")
    clock = max(each.at for each in started) - min(each.granted_at for each in started)
    return {"of_a_core": restored / processor, "by_the_clock": restored / (clock / 1000)}


def main() -> int:
    """Run the benchmark; exit with 1 if the median is below the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="restore-") as name,
        RealKafka(Path(name) / "kafka", jvm_options=("-Xmx1g",)) as kafka,
    ):
        address = kafka.bootstrap_servers
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        fill(address, TOPIC, given.keys)
        asyncio.run(fill_changelog(address, Path(name) / "first", given.keys))
        for number in range(given.rounds):
            found.append(asyncio.run(restore(address, Path(name) / str(number), given.keys)))
            shown = ", ".join(f"{key} {value:,.0f}" for key, value in found[-1].items())
            print(f"{given.keys:,} keys, records/s: {shown}", file=sys.stderr, flush=True)
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    print(json.dumps(medians, indent=None if given.json else 1))
    return int(medians["of_a_core"] < TARGET)


if __name__ == "__main__":
    sys.exit(main())
