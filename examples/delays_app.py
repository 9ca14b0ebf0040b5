"""Delays per aircraft, in an application whose instances join and leave while it runs.

Two instances share the flights of 2013. A third one joins: it learns the state of some tasks and
takes them over once it has caught up. Then the first one leaves properly, once others have learned
its tasks. In the end the totals must match the flights sent; with `--spark` (Java 17) Spark reads
them from the changelog. Every instance is a separate process. Use your own broker or the embedded
one:

    python examples/delays_app.py [--bootstrap-servers HOST:PORT] [--quick] [--spark] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from story import StoryError, command_line, parsed, run, tell

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.client import NewTopic
from kohort.demo.flights import in_order, load_table
from kohort.streams import JSON, App
from kohort.streams.events import StreamsEvent, TasksChanged, TaskStarted
from kohort.streams.settings import StreamSettings

PARTITIONS, FLIGHTS, QUICK_FLIGHTS = 6, 60_000, 3_000
A_TURN, QUICK_A_TURN, TURN_S, PATIENCE_S = 100, 20, 0.05, 90.0
STORE = "delays"


# ---------------------------------------------------------------------------------- the application


def build(name: str) -> App:
    """Return the application: the total delay of each aircraft so far, in minutes."""
    app = App(name)
    flights = app.topic(f"{name}-flights", key=str, value=JSON)
    flights.aggregate(
        int,
        lambda minutes, flight: minutes + (flight["dep_delay"] or 0),
        value=int,
        name=STORE,
    ).to(f"{name}-totals")
    return app


async def be_instance(given: argparse.Namespace) -> None:
    """Run an instance: SIGTERM has others learn its tasks first, SIGINT ends it at once."""
    instance = build(given.run).instance(
        bootstrap_servers=given.bootstrap_servers,
        state_dir=given.out / given.role,
        settings=StreamSettings(commit_interval_ms=200, lag_interval_ms=100),
        on_event=report,
        heartbeat_interval_ms=1_000,
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, instance.leave_soon)
    loop.add_signal_handler(signal.SIGINT, instance.stop)
    await instance.run()


def report(event: StreamsEvent) -> None:
    """Print the events that the story needs, each as a line of JSON."""
    if isinstance(event, TasksChanged):
        active, learning = sorted(map(str, event.active)), sorted(map(str, event.learning))
        print(json.dumps({"active": active, "learning": learning}), flush=True)
    elif isinstance(event, TaskStarted):
        print(json.dumps({"task": str(event.task), "pause": event.unavailable_ms}), flush=True)


# ---------------------------------------------------------------------------------------- the story


class Instance:
    """A process of the application, and its output.

    Attributes:
        active: The tasks that it processes.
        learning: The tasks that it learns.
        pauses: Milliseconds for which each task that it took over was not processed.
    """

    def __init__(self, name: str, address: str, run: str, out: Path) -> None:
        self.name = name
        self.active, self.learning = list[str](), list[str]()
        self.pauses: list[int] = []
        self.log = out / f"{name}.log"
        command = [sys.executable, __file__, "--role", name, "--run", run]
        command += ["--bootstrap-servers", address, "--out", str(out)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  # starts itself
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            told = json.loads(line)
            if "active" in told:
                self.active, self.learning = told["active"], told["learning"]
            elif told["pause"] is not None:
                self.pauses.append(told["pause"])


class Story:
    """The sequence of events, run by one thread that sends flights while it waits."""

    def __init__(self, address: str, out: Path, a_turn: int) -> None:
        self.run = f"delays-{uuid.uuid4().hex[:8]}"
        self.truth: Counter[bytes] = Counter()
        self.sent = 0
        self.instances: dict[str, Instance] = {}
        self._address, self._out, self._a_turn = address, out, a_turn
        self._flights = in_order(load_table())
        self._producer = Producer(bootstrap_servers=address)

    def play(self, flights: int) -> None:
        """Run all steps, one after the other, while flights are sent."""
        topics = (f"{self.run}-flights", f"{self.run}-totals")
        with AdminClient(bootstrap_servers=self._address) as admin:
            admin.create_topics([NewTopic(each, PARTITIONS) for each in topics])
        self._start("one", "two")
        self._wait(self._is_shared_by("one", "two"), "two instances share the tasks")
        self._wait(lambda: self.sent >= flights // 3, "some flights are sent")
        self._start("three")
        self._wait(self._is_shared_by("one", "two", "three"), "the third has taken tasks over")
        self._wait(lambda: self.sent >= 2 * flights // 3, "more flights are sent")
        self._end(signal.SIGTERM, "one")
        self._wait(self._is_shared_by("two", "three"), "the others have the tasks of the first")
        self._wait(lambda: self.sent >= flights, "all flights are sent")
        self._a_turn = 0
        self._producer.flush()

    def end(self) -> None:
        """Have the remaining instances commit and leave."""
        self._end(signal.SIGINT, *(each for each in self.instances if self._lives(each)))

    def close(self) -> None:
        """End all remaining processes."""
        for each in self.instances.values():
            each.process.kill()
            each.process.wait()
        self._producer.close()

    def _lives(self, name: str) -> bool:
        return self.instances[name].process.poll() is None

    def _start(self, *names: str) -> None:
        tell(f"instances start: {', '.join(names)}")
        for name in names:
            self.instances[name] = Instance(name, self._address, self.run, self._out)

    def _end(self, how: signal.Signals, *names: str) -> None:
        tell(f"instances leave: {', '.join(names)}")
        for name in names:
            self.instances[name].process.send_signal(how)
        processes = [self.instances[name].process for name in names]
        self._wait(lambda: all(each.poll() == 0 for each in processes), "they have left")

    def _is_shared_by(self, *names: str) -> Callable[[], bool]:
        def is_shared() -> bool:
            having = [self.instances[name] for name in names]
            tasks = [task for each in having for task in each.active]
            is_calm = not any(each.learning for each in having)
            return is_calm and all(each.active for each in having) and len(tasks) == PARTITIONS

        return is_shared

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            for each in self.instances.values():
                if each.process.poll():
                    last = each.log.read_text(errors="replace").splitlines()[-15:]
                    raise StoryError("\n".join([f"instance {each.name} has failed:", *last]))
            if time.monotonic() > end:
                raise StoryError(f"waited {PATIENCE_S:g} s in vain for: {what}; see {self._out}")
            self._send()
            time.sleep(TURN_S)
        tell(f"{self.sent:,} flights: {what}")

    def _send(self) -> None:
        for _, flight in zip(range(self._a_turn), self._flights, strict=False):
            key = flight.key or b"unknown"
            self._producer.send(f"{self.run}-flights", flight.value, key=key)
            self.truth[key] += json.loads(flight.value)["dep_delay"] or 0
            self.sent += 1

    def totals(self) -> dict[bytes, int]:
        """Read the totals until they match the flights sent, or time runs out."""
        found: dict[bytes, int] = {}
        end = time.monotonic() + PATIENCE_S
        with Consumer(bootstrap_servers=self._address, auto_offset_reset="earliest") as consumer:
            consumer.assign(TopicPartition(f"{self.run}-totals", n) for n in range(PARTITIONS))
            while found != self.truth and time.monotonic() < end:
                for records in consumer.poll(500).values():
                    found |= {each.key: number(each.value) for each in records}
        return found


def totals_of_spark(address: str, run: str) -> dict[bytes, int]:
    """Read the application's state with Spark: the latest value of each key in its changelog."""
    from pyspark.sql import SparkSession

    from kohort.spark import KohortDataSource, session_config

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in {**session_config(), "spark.driver.bindAddress": "127.0.0.1"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark.dataSource.register(KohortDataSource)
        reader = spark.read.format("kohort").option("kafka.bootstrap.servers", address)
        table = reader.option("table", f"{run}-{STORE}-changelog").load()
        return {bytes(row.key): number(row.value) for row in table.collect()}
    finally:
        spark.stop()


def number(value: bytes | None) -> int:
    """Return a number in the format of the serde `int`."""
    return int.from_bytes(value or b"", "big", signed=True)


def played(given: argparse.Namespace, address: str) -> dict[str, int]:
    """Run the story, and compare the totals with the expected ones."""
    began = time.monotonic()
    story = Story(address, given.out, QUICK_A_TURN if given.quick else A_TURN)
    try:
        story.play(QUICK_FLIGHTS if given.quick else FLIGHTS)
        found = story.totals()
        story.end()
    finally:
        story.close()
    if given.spark:
        tell("Spark reads the changelog")
        found = totals_of_spark(address, story.run)
    pauses = [pause for each in story.instances.values() for pause in each.pauses]
    keys = story.truth.keys() | found.keys()
    return {
        "flights": story.sent,
        "aircraft": len(story.truth),
        "wrong_totals": sum(story.truth[key] != found.get(key) for key in keys),
        "tasks_handed_over": len(pauses),
        "longest_pause_ms": max(pauses, default=0),
        "seconds": round(time.monotonic() - began),
    }


def main() -> int:
    """Run the story, or be one of its processes."""
    parser = command_line(__doc__, quick="fewer flights")
    parser.add_argument("--spark", action="store_true", help="have Spark read the totals")
    given = parsed(parser)
    return run(
        given,
        lambda address: played(given, address),
        lambda given: asyncio.run(be_instance(given)),
        wrong=("wrong_totals",),
    )


if __name__ == "__main__":
    sys.exit(main())
