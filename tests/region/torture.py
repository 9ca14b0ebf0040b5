"""Kill, stop and start workers of a region at random, and count every record of its output.

`make torture ARGS="workers --minutes 10"` goes on with fresh seeds.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, NewTopic, Producer
from tests.region.regions import LONG_S, PROTOCOLS, eventually, name_of_topic, visible

PARTITIONS = 6
CHUNK = 100
# Between two chunks: workers keep up with the records, so that all are visible soon at the end.
PAUSE_S = 0.02
STAYING = 3
MOST = 5


class Torture:
    """One history on one broker.

    Args:
        address: The broker.
        path: A fresh directory for the output and for logs.
        protocol: Key of `PROTOCOLS`; "/reset" behind it is for the rule of the original.
        seed: Decides what happens when.
    """

    def __init__(self, address: str, path: Path, protocol: str, seed: int) -> None:
        self.kills = self.stops = self.joins = 0
        self._address = address
        self._out = path / "out"
        self._logs = path
        self._protocol = protocol
        self._chance = random.Random(seed)
        self._topic = name_of_topic()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, events: int) -> int:
        """Let so many things happen, and return how many records were processed.

        Raises:
            AssertionError: A reader saw a record twice, not at all, or with a wrong state; or the
                region does not come to an end.
        """
        with AdminClient(bootstrap_servers=self._address) as admin:
            admin.create_topics([NewTopic(self._topic, PARTITIONS)])
        try:
            return self._run(events)
        finally:
            for each in self._workers.values():
                each.kill()
                each.wait()

    def _run(self, events: int) -> int:
        for number in range(STAYING):
            self._start(number)
        produced, pause = 0, threading.Event()
        with Producer(bootstrap_servers=self._address) as producer:
            for _ in range(events):
                until = time.monotonic() + self._chance.uniform(1, 5)
                while time.monotonic() < until:
                    for _ in range(CHUNK):
                        producer.send(
                            self._topic, b"%d" % produced, partition=produced % PARTITIONS
                        )
                        produced += 1
                    producer.flush()
                    self._watch()
                    pause.wait(PAUSE_S)
                self._disturb()
        eventually(lambda: self._watch() == produced, "everything is visible", 2 * LONG_S)
        self._end()
        assert self.look() == produced
        return produced

    def look(self) -> int:
        """Read the output as anybody may at any moment."""
        return visible(self._out) if (self._out / "_region").is_dir() else 0

    def _disturb(self) -> None:
        number = self._chance.choice(sorted(self._workers))
        worker = self._workers[number]
        match self._chance.choice(("kill", "kill", "stop", "join")):
            case "kill":
                worker.kill()
                worker.wait()
                self.kills += 1
                self._start(number)
            case "stop":
                self._stop(worker)
                self.stops += 1
                self._start(number)
            case _ if len(self._workers) < MOST:
                self.joins += 1
                self._start(len(self._workers))

    def _start(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.region.process", self._address, self._topic]
        command += [str(self._out), f"worker-{number}", self._protocol]
        with (self._logs / f"worker-{number}.log").open("ab") as log:
            self._workers[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def _stop(self, worker: subprocess.Popen[bytes]) -> None:
        worker.terminate()
        self._check(worker.wait(LONG_S))

    def _check(self, code: int) -> None:
        """A worker ends well, unless it was stopped before it listened to signals."""
        good = (0, -signal.SIGTERM)
        assert code in good, f"a worker ended with {code}; see the logs in {self._logs}"

    def _watch(self) -> int:
        """Read the output while all workers live: none of them ends by itself."""
        for number, each in self._workers.items():
            code = each.poll()
            assert code is None, f"worker-{number} ended with {code}; see the logs in {self._logs}"
        return self.look()

    def _end(self) -> None:
        for each in self._workers.values():
            each.terminate()
        for each in self._workers.values():
            self._check(each.wait(LONG_S))


@contextmanager
def embedded() -> Iterator[str]:
    """Run an embedded broker; yield its address."""
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def main(arguments: Sequence[str]) -> int:
    """Torture regions until time is over."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--bootstrap-servers", help="an Apache Kafka; an embedded broker by default"
    )
    given = parser.parse_args(arguments)
    until = time.monotonic() + given.minutes * 60
    seed = given.seed
    while time.monotonic() < until:
        protocol = sorted(PROTOCOLS)[seed % len(PROTOCOLS)]
        path = Path(tempfile.mkdtemp(prefix=f"kohort-regions-{seed}-"))
        with embedded() as own:
            address = given.bootstrap_servers or own
            torture = Torture(address, path, protocol, seed)
            count = torture.run(8)
        told = f"{torture.kills} kills, {torture.stops} stops, {torture.joins} joins"
        sys.stdout.write(f"seed {seed} {protocol}: {count} records once each; {told}\n")
        sys.stdout.flush()
        seed += 1
    return 0
