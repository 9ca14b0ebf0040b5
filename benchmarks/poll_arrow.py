"""Consuming from a real Kafka: `poll_arrow` compared with aiokafka, kafka-python and Java.

Each reads the same topic from its start in a separate group, with Kafka's default settings, which
all of them share: one MiB of each partition in a response, CRC checked. Ours returns columns of
every record; `getmany` and `poll` return objects; Java's is Kafka's own `ConsumerPerformance`,
which counts records and measures itself without its start. kafka-python reads a tenth, because a
round would otherwise take a minute.

    python benchmarks/poll_arrow.py [--records N] [--partitions N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.client import Consumer  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka, java_command  # noqa: E402  # as above

TOPIC = "records"
VALUE_BYTES = 100
POLL_RECORDS = 100_000
THROUGHPUT_JVM = ("-Xmx1g", "-XX:+UseG1GC")
OURS, EMBEDDED = "kohort poll_arrow", "kohort, embedded broker"
AIOKAFKA, KAFKA_PYTHON, JAVA = "aiokafka getmany", "kafka-python poll", "Java ConsumerPerformance"
TARGETS = {AIOKAFKA: 8, KAFKA_PYTHON: 30, JAVA: 1.5}


@dataclass(frozen=True, slots=True)
class Total:
    """Number of records read, and of bytes in their values."""

    records: int
    value_bytes: int


def fill(bootstrap: str, records: int, partitions: int) -> None:
    """Produce the records, the same number into each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    value = bytes(range(VALUE_BYTES))
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the records could not be produced")


def ours(records: int, **settings: Any) -> Total:  # noqa: ANN401  # as `Consumer` takes them
    """Read columns."""
    import pyarrow.compute as pc

    count = value_bytes = 0
    with Consumer(
        TOPIC,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    ) as consumer:
        while count < records:
            batch = consumer.poll_arrow(timeout_ms=1_000)
            count += batch.num_rows
            value_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
    return Total(count, value_bytes)


def aiokafka(bootstrap: str, records: int) -> Total:
    """Read objects with aiokafka."""
    return asyncio.run(_aiokafka(bootstrap, records))


async def _aiokafka(bootstrap: str, records: int) -> Total:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    count = value_bytes = 0
    try:
        while count < records:
            found = await consumer.getmany(timeout_ms=1_000, max_records=POLL_RECORDS)
            for polled in found.values():
                count += len(polled)
                value_bytes += sum(len(record.value or b"") for record in polled)
    finally:
        await consumer.stop()
    return Total(count, value_bytes)


def kafka_python(bootstrap: str, records: int) -> Total:
    """Read objects with kafka-python."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    count = value_bytes = 0
    try:
        while count < records:
            wanted = min(POLL_RECORDS, records - count)
            for polled in consumer.poll(timeout_ms=1_000, max_records=wanted).values():
                count += len(polled)
                value_bytes += sum(len(record.value) for record in polled)
    finally:
        consumer.close()
    return Total(count, value_bytes)


def java(bootstrap: str, records: int, properties: Path) -> dict[str, float]:
    """Run Kafka's own measurement; return the figures of its last line by name."""
    command = java_command(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--num-records", str(records)),
        *("--command-config", str(properties), "--timeout", "60000"),
        jvm_options=THROUGHPUT_JVM,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    rows = [line.split(", ") for line in done.stdout.splitlines() if ", " in line]
    header, values = rows[-2], rows[-1]
    return {
        name: float(value)
        for name, value in zip(header, values, strict=True)
        if name.strip() not in ("start.time", "end.time")
    }


@contextmanager
def embedded_broker(data: Path) -> Iterator[str]:
    """Run our broker as a process, like the other one; yield its address."""
    command = [sys.executable, "-m", "kohort.broker", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def expect(total: Total) -> harness.Check:
    """Return a check that all records were read."""

    def check(answer: object) -> None:
        if answer != total:
            raise AssertionError(f"read {answer}, produced {total}")

    return check


def check_java(records: int) -> harness.Check:
    """Return a check that Java has read all records."""

    def check(answer: object) -> None:
        assert isinstance(answer, dict)
        if answer["data.consumed.in.nMsg"] < records:
            raise AssertionError(f"Java read {answer}")

    return check


def java_seconds(answer: object) -> float:
    """Return the seconds that Java read, without its start."""
    assert isinstance(answer, dict)
    return float(answer["fetch.time.ms"]) / 1000


def run(options: argparse.Namespace, folder: Path) -> harness.Result:
    """Measure all sides, on one broker or two."""
    records, tenth = options.records, options.records // 10
    everything = expect(Total(records, records * VALUE_BYTES))
    part = expect(Total(tenth, tenth * VALUE_BYTES))
    properties = folder / "java.properties"
    properties.write_text("auto.offset.reset=earliest\nenable.auto.commit=false\n")
    with (
        RealKafka(folder / "kafka", jvm_options=THROUGHPUT_JVM) as kafka,
        embedded_broker(folder / "embedded") as embedded,
    ):
        at = kafka.bootstrap_servers
        fill(at, records, options.partitions)
        fill(embedded, records, options.partitions)
        sides = [
            harness.Side(OURS, lambda: ours(records, bootstrap_servers=at), records, everything),
            harness.Side(
                EMBEDDED, lambda: ours(records, bootstrap_servers=embedded), records, everything
            ),
            harness.Side(AIOKAFKA, lambda: aiokafka(at, records), records, everything),
            harness.Side(KAFKA_PYTHON, lambda: kafka_python(at, tenth), tenth, part),
            harness.Side(
                JAVA,
                lambda: java(at, records, properties),
                records,
                check_java(records),
                java_seconds,
            ),
        ]
        return harness.measure(sides, options.rounds, "records")


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    # Warnings of other clients are irrelevant here.
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder))
    for peer, target in TARGETS.items():
        result.expect(f"times {peer}", result.ratio(OURS, peer), target)
    result.expect("embedded broker to real Kafka", result.ratio(EMBEDDED, OURS), 1)
    title = f"{options.records} records of {VALUE_BYTES} bytes in {options.partitions} partitions"
    return harness.report(title, result, options.json)


if __name__ == "__main__":
    sys.exit(main())
