"""Kafka brokers for tests compared: time until a record is written and read, and memory.

Our broker in the process of the test, our broker as a process, Apache Kafka (one node, options for
a fast start) and librdkafka's mock cluster. Each round starts one of each, writes a record with
librdkafka to a new topic and reads it. Memory is the resident memory of separate processes
afterwards.

Java and `make test` are needed once, for Kafka's jars.

    python benchmarks/brokers_for_tests.py [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from kohort.broker import EmbeddedBroker  # noqa: E402  # the path is set above
from kohort.testing import KafkaProcess  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

PATIENCE_S = 60.0


@contextmanager
def embedded() -> Iterator[dict[str, str]]:
    """Run our broker in this process."""
    with EmbeddedBroker() as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


@contextmanager
def process() -> Iterator[dict[str, str]]:
    """Run our broker as a process."""
    with tempfile.TemporaryDirectory() as folder, KafkaProcess(Path(folder)) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


@contextmanager
def apache() -> Iterator[dict[str, str]]:
    """Run Apache Kafka."""
    with tempfile.TemporaryDirectory() as folder, RealKafka(Path(folder)) as kafka:
        yield {"bootstrap.servers": kafka.bootstrap_servers}


@contextmanager
def mock() -> Iterator[dict[str, str]]:
    """Run librdkafka's mock, which lives in the client that requests it."""
    yield {"test.mock.num.brokers": "1", "bootstrap.servers": "127.0.0.1:1"}


SIDES: dict[str, Callable[[], object]] = {
    "EmbeddedBroker": embedded,
    "kohort broker": process,
    "Apache Kafka": apache,
    "librdkafka mock": mock,
}


def written_and_read(settings: dict[str, str]) -> None:
    """Write a record and read it; with the mock, which has one client, only write it."""
    producer = Producer({**settings, "log_level": 0})
    producer.produce("topic", b"value")
    if producer.flush(PATIENCE_S):
        raise RuntimeError("the record was not written")
    if "test.mock.num.brokers" in settings:
        return
    reading = {"group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, **reading})
    consumer.subscribe(["topic"])
    message = consumer.poll(PATIENCE_S)
    if message is None or message.value() != b"value":
        raise RuntimeError("the record was not read")
    consumer.close()


def children_mb() -> float:
    """Return the resident memory, in megabytes, of all processes that this one started."""
    sizes = [each.memory_info().rss for each in psutil.Process().children(recursive=True)]
    return float(sum(sizes)) / 1e6


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Return medians: seconds until the record was read, and megabytes."""
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    memory: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, start in SIDES.items():
            begun = time.perf_counter()
            with start() as settings:  # type: ignore[attr-defined]  # all are context managers
                written_and_read(settings)
                seconds[name].append(time.perf_counter() - begun)
                memory[name].append(children_mb())
    return {
        name: {
            "seconds": statistics.median(seconds[name]),
            "megabytes": statistics.median(memory[name]),
        }
        for name in SIDES
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.rounds)
    if options.json:
        print(json.dumps({"benchmark": "brokers_for_tests", "medians": found}))
        return 0
    for name, values in found.items():
        print(f"{name:16} {values['seconds']:6.2f} s {values['megabytes']:7.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
