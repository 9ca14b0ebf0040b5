"""Transactions of 100 records, one after the other, compared with librdkafka.

Each side repeatedly sends 100 keyed records of 100 bytes and commits, to a separate topic on one
Apache Kafka; everything is at its defaults except `linger.ms`, which is 0 on both sides, because a
commit sends the pending records anyway. After every run a reader of committed records counts them.

Java and `make test` are needed once, for Kafka's jars.

    python benchmarks/transactions.py [--transactions N] [--rounds N] [--json]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.client import Consumer, Producer  # noqa: E402  # as above
from kohort.types import TopicPartition  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

RECORDS = 100
PARTITIONS = 6
VALUE = bytes(100)
KEYS = [b"key-%d" % number for number in range(RECORDS)]
KAFKA_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
TIMEOUT_S = 60

Send = Callable[[int], None]
Make = Callable[[str, str, ExitStack], Send]


def with_kohort(servers: str, topic: str, stack: ExitStack) -> Send:
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 0}
    producer = stack.enter_context(Producer.from_config(settings))
    producer.init_transactions()

    def send(count: int) -> None:
        for _ in range(count):
            with producer.transaction():
                for key in KEYS:
                    producer.send(topic, VALUE, key=key)

    return send


def with_librdkafka(servers: str, topic: str, _stack: ExitStack) -> Send:
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 0}
    producer = LibrdkafkaProducer({**settings, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)

    def send(count: int) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for key in KEYS:
                producer.produce(topic, VALUE, key=key)
            producer.commit_transaction(TIMEOUT_S)

    return send


SIDES = {"kohort": with_kohort, "librdkafka": with_librdkafka}


class Counted:
    """A side's topic, whose committed records are counted after each run.

    Args:
        servers: The broker.
        topic: The topic, which is made.
        make: Makes what sends.
        stack: Closes the clients.
    """

    def __init__(self, servers: str, topic: str, make: Make, stack: ExitStack) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
        self._send = make(servers, topic, stack)
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        reader = Consumer.from_config({"bootstrap.servers": servers, **settings})
        self._reader = stack.enter_context(reader)
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._reader.assign(self._places)

    def run(self, count: int) -> None:
        """Send so many transactions."""
        self._send(count)

    def check(self, count: int, _: object) -> None:
        """Raise unless each record of a run is there once."""
        ends = self._reader.end_offsets(self._places)
        found = 0
        while any(self._reader.position(place) < ends[place] for place in self._places):
            found += self._reader.poll_arrow(timeout_ms=100).num_rows
        if found != count * RECORDS:
            raise AssertionError(f"{found} records of {count * RECORDS} are committed")


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments("Transactions of 100 records, beside librdkafka.", rounds=5)
    parser.add_argument("--transactions", type=int, default=200)
    given = parser.parse_args()
    count = given.transactions
    with (
        tempfile.TemporaryDirectory() as folder,
        RealKafka(Path(folder), jvm_options=KAFKA_JVM) as kafka,
        ExitStack() as stack,
    ):
        sides = []
        for name, make in SIDES.items():
            counted = Counted(kafka.bootstrap_servers, name, make, stack)
            run, check = partial(counted.run, count), partial(counted.check, count)
            sides.append(harness.Side(name, run, count * RECORDS, check))
        result = harness.measure(sides, given.rounds, "records")
        result.note("kohort to librdkafka", result.ratio(*SIDES))
        for name in SIDES:
            result.note(f"transactions per second, {name}", result.median(name) / RECORDS)
    return harness.report("transactions", result, given.json)


if __name__ == "__main__":
    sys.exit(main())
