"""Producing small records, compared with librdkafka, kafka-python and Java's ProducerPerformance.

Each side sends keyed records of 100 bytes to a separate topic: idempotent, acks=all, linger 5 ms,
everything else at its defaults; the time runs from the first record to the last acknowledgement.
After every run the topic's end offsets show whether each record was stored once. Java's tool can
only send records without keys, and measures itself. kafka-python sends fewer records, because it is
slow.

Java and `make test` are needed once, for Kafka's jars; without Java only the embedded broker is
measured.

    python benchmarks/produce.py [--records N] [--rounds N] [--json]
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.produce_arrow import arrow_part  # noqa: E402  # as above
from kohort.client import Producer  # noqa: E402  # as above
from tests.broker.processes import BrokerProcess  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka, java_command  # noqa: E402  # as above

PARTITIONS = 6
VALUE = bytes(100)
KEYS = [b"key-%d" % number for number in range(10_007)]
KAFKA_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
KAFKA, EMBEDDED = "Kafka", "embedded"
# kafka-python sends fewer records by this factor.
FEWER = 20
_JAVA_RATE = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")

Send = Callable[[str, str, int], object]


@dataclass(frozen=True, slots=True)
class Place:
    """A broker to produce to.

    Attributes:
        name: Its name in the report.
        servers: Its address.
    """

    name: str
    servers: str


def with_kohort(servers: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(count):
            producer.send(topic, VALUE, key=KEYS[number % len(KEYS)])
        producer.flush()


def with_librdkafka(servers: str, topic: str, count: int) -> None:
    producer = LibrdkafkaProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, key=KEYS[number % len(KEYS)])
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120):
        raise AssertionError("not everything was delivered")


def with_kafka_python(servers: str, topic: str, count: int) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all", linger_ms=5
    )
    for number in range(count):
        producer.send(topic, VALUE, key=KEYS[number % len(KEYS)])
    producer.flush(120)
    producer.close()


def with_java(servers: str, topic: str, count: int) -> float:
    """Return the seconds that the tool reports."""
    settings = [f"bootstrap.servers={servers}", "acks=all", "linger.ms=5"]
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(len(VALUE))),
        *("--throughput", "-1", "--producer-props", *settings),
        jvm_options=("-Xmx512m",),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    for line in reversed(done.stdout.splitlines()):
        found = _JAVA_RATE.match(line)
        if found and int(found[1]) == count:
            return count / float(found[2])
    raise AssertionError(f"no result: {done.stdout}{done.stderr}")


class Counted:
    """A topic whose records are counted after each run.

    Args:
        place: Where it is.
        topic: Its name.
    """

    def __init__(self, place: Place, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": place.servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": place.servers, "group.id": "counter"})
        self._seen = 0

    def grew_by(self, count: int) -> None:
        """Raise unless this many records were added since the last call."""
        end = sum(
            self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=30)[1]
            for number in range(PARTITIONS)
        )
        before, self._seen = self._seen, end
        if end - before != count:
            raise AssertionError(f"{end - before} records in {self._topic} instead of {count}")


def side(place: Place, name: str, send: Send, count: int) -> harness.Side:
    """Return the side for one client at one broker."""
    topic = re.sub(r"\W", "-", f"{name}-{place.name}")
    counted = Counted(place, topic)
    return harness.Side(
        f"{name}, {place.name}",
        lambda: send(place.servers, topic, count),
        count,
        lambda _: counted.grew_by(count),
        (lambda answer: float(str(answer))) if send is with_java else None,
    )


def send_part(result: harness.Result, places: list[Place], count: int, rounds: int) -> None:
    """Measure `send` with one record per call."""
    for place in places:
        sides = [
            side(place, "kohort", with_kohort, count),
            side(place, "librdkafka", with_librdkafka, count),
        ]
        if place.name == KAFKA:
            sides.append(side(place, "kafka-python", with_kafka_python, count // FEWER))
            sides.append(side(place, "Java", with_java, count))
        result.rates.update(harness.measure(sides, rounds, "records").rates)
        if place.name == KAFKA:
            ratio = result.ratio(f"kohort, {KAFKA}", f"librdkafka, {KAFKA}")
            result.expect("send, times librdkafka", ratio, 1)


# The parts of the benchmark, functions with the same arguments.
PARTS = {"send": send_part, "send_arrow": arrow_part}


@contextlib.contextmanager
def places(folder: Path) -> Iterator[list[Place]]:
    """Start the brokers."""
    with contextlib.ExitStack() as stack:
        found = []
        if shutil.which(java_command("")[0]):
            kafka = stack.enter_context(RealKafka(folder / "kafka", jvm_options=KAFKA_JVM))
            found.append(Place(KAFKA, kafka.bootstrap_servers))
        else:
            print("no java: Apache Kafka and ProducerPerformance are left out", file=sys.stderr)
        broker = stack.enter_context(BrokerProcess(folder / "ours"))
        found.append(Place(EMBEDDED, broker.bootstrap_servers))
        yield found


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments("Producing small records, beside other clients.", rounds=5)
    parser.add_argument("--records", type=int, default=1_000_000, help="per round and side")
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="by default all")
    options = parser.parse_args()
    result = harness.Result("records", {})
    with tempfile.TemporaryDirectory() as folder, places(Path(folder)) as brokers:
        for name in options.part or PARTS:
            PARTS[name](result, brokers, options.records, options.rounds)
    return harness.report("produce", result, options.json)


if __name__ == "__main__":
    raise SystemExit(main())
