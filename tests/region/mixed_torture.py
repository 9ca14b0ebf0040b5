"""Kill everything that a region consists of: its operators, a controller alone, and the broker.

`make torture ARGS="region --kills 20"` plays one history of three workers on each kind of broker;
with `region-spark` the operators are two Spark applications and a worker.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from kohort.client import AdminClient, NewTopic, Producer
from tests.killing import Killable, passed, play_on_each
from tests.region.regions import LONG_S, eventually, name_of_topic, visible

PARTITIONS = 6
WORKERS = {"worker-1": "worker", "worker-2": "worker", "worker-3": "worker"}
"""Operators of a region without Spark: what each is, by its name."""
APPLICATIONS = {"north": "application", "south": "application", "worker": "worker"}
"""Operators of a region with Spark."""
CHUNK = 50
PAUSE_S = 0.05
# An application of Spark takes long to start, and a dead member's session has to end.
CALM_S = (4.0, 15.0)


class Reader:
    """Reads the output all the time, as anybody may; keeps the first thing that is wrong."""

    def __init__(self, path: Path) -> None:
        self.rows = self.looks = 0
        self.wrong: AssertionError | None = None
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.3) and self.wrong is None:
            try:
                self.rows = visible(self._path) if (self._path / "_region").is_dir() else 0
                self.looks += 1
            except AssertionError as error:
                self.wrong = error

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join(LONG_S)


class MixedTorture:
    """One history.

    Args:
        broker: The broker; it is killed, too.
        operators: What each operator is, by its name.
        path: A fresh directory for output, checkpoints and logs.
        seed: Decides what is killed when.
    """

    def __init__(
        self, broker: Killable, operators: Mapping[str, str], path: Path, seed: int
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.restarts = self.looks = 0
        self._broker = broker
        self._operators = operators
        self._path = path
        self._out = path / "out"
        self._chance = random.Random(seed)
        self._topic = name_of_topic()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._produced = 0

    def run(self, kills: int) -> int:
        """Kill so many times, and return how many records were processed.

        Raises:
            AssertionError: A reader saw a record twice, not at all, or with a wrong state; or the
                region does not come to an end.
        """
        with AdminClient(bootstrap_servers=self._broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(self._topic, PARTITIONS)])
        reader = Reader(self._out)
        try:
            for name in self._operators:
                self._start(name)
            with Producer(bootstrap_servers=self._broker.bootstrap_servers) as producer:
                self._produce(producer, lambda: reader.rows > 0, LONG_S)
                self._start("controller")
                for _ in range(kills):
                    self._produce(producer, passed(self._chance.uniform(*CALM_S)), 2 * LONG_S)
                    self._kill()
                    assert reader.wrong is None, reader.wrong
            eventually(lambda: self._is_all_seen(reader), "everything is visible", 4 * LONG_S)
        finally:
            reader.close()
            self.looks = reader.looks
            for each in self._processes.values():
                kill_tree(each)
        assert visible(self._out) == self._produced
        return self._produced

    def _is_all_seen(self, reader: Reader) -> bool:
        assert reader.wrong is None, reader.wrong
        self._revive()
        return reader.rows == self._produced

    def _produce(self, producer: Producer, is_over: Callable[[], bool], within_s: float) -> None:
        pause, end = threading.Event(), time.monotonic() + within_s
        while not is_over():
            assert time.monotonic() < end, "the region does not begin"
            for _ in range(CHUNK):
                at = self._produced % PARTITIONS
                producer.send(self._topic, b"%d" % self._produced, partition=at)
                self._produced += 1
            producer.flush()
            self._revive()
            pause.wait(PAUSE_S)

    def _kill(self) -> None:
        victim = self._chance.choice(self._victims())
        self.kills[victim] += 1
        if victim == "broker":
            self._broker.kill()
            self._broker.start()
        elif victim == "controller":
            kill_tree(self._processes[victim])
        elif victim == "worker":
            kill_tree(self._processes[self._chance.choice(self._named("worker"))])
        else:
            self._kill_part(
                self._processes[self._chance.choice(self._named("application"))], victim
            )
        self._revive()

    def _victims(self) -> Sequence[str]:
        parts = ("application", "jvm", "source", "task") if self._named("application") else ()
        return (*parts, "worker", "controller", "broker")

    def _named(self, kind: str) -> Sequence[str]:
        return [name for name, each in self._operators.items() if each == kind]

    def _kill_part(self, application: subprocess.Popen[bytes], part: str) -> None:
        """Kill all of an application, its JVM, or one of its Python processes."""
        if part == "application" or application.poll() is not None:
            kill_tree(application)
            return
        below = psutil.Process(application.pid).children(recursive=True)
        wanted = [each for each in below if part_of(each) == part]
        for each in wanted[-1:]:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue

    def _revive(self) -> None:
        """Start again what has ended, as an operator or Kubernetes would."""
        for name, each in list(self._processes.items()):
            if each.poll() is not None:
                self.restarts += 1
                kill_tree(each)
                self._start(name)

    def _start(self, name: str) -> None:
        with (self._path / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name),
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )

    def _command(self, name: str) -> list[str]:
        address, out = self._broker.bootstrap_servers, str(self._out)
        python = [sys.executable, "-m"]
        kind = self._operators.get(name, "controller")
        if kind == "application":
            checkpoint = str(self._path / f"checkpoint-{name}")
            module = "tests.spark.region_queries"
            return [*python, module, address, self._topic, out, checkpoint, name]
        if kind == "worker":
            module, group = "tests.region.process", f"group-of-{self._topic}"
            return [*python, module, address, self._topic, out, name, "cooperative", group]
        command = [*python, "kohort", "region", "start", f"region-{self._topic}", "-b", address]
        return [*command, "--sink", f"parquet:{out}", "--group-id", f"group-of-{self._topic}"]


def part_of(process: psutil.Process) -> str:
    """Return which part of a Spark application a process is, empty when it ended."""
    try:
        name, command = process.name(), " ".join(process.cmdline())
    except psutil.Error:
        return ""
    if "java" in name:
        return "jvm"
    return "source" if "streaming" in command else "task"


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    for each in below:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.kill()
    process.wait()


def main(operators: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Play one history on each kind of broker, or on one."""

    def play(broker: Killable, path: Path, seed: int, kills: int) -> tuple[str, Counter[str]]:
        torture = MixedTorture(broker, operators, path, seed)
        count = torture.run(kills)
        told = f"{count} records once each in {torture.looks} looks, {torture.restarts} restarts"
        return told, torture.kills

    return play_on_each("mixed", play, __doc__, arguments)
