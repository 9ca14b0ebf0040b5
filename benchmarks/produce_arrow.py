"""Producing columns to the embedded broker: `send_arrow` beside ready batches over a raw socket.

Everything goes to our broker in a process of its own, to a new topic each time. The raw socket sends
requests that were made before, five of them under way as `send_arrow` has: what the broker takes.
confluent-kafka gets its records one by one and sends a tenth, or a round would take a minute.

`send_arrow` counts twice: by the clock, and by the processor time of this process, which is how many
records one core of a client manages while the broker has the other.

    python benchmarks/produce_arrow.py [--records N] [--partitions N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer as ConfluentProducer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.client import AdminClient, NewTopic, Producer  # noqa: E402  # as above
from kohort.types import TopicPartition  # noqa: E402  # as above
from kohort.wire import frame  # noqa: E402  # as above
from kohort.wire.messages.produce import (  # noqa: E402  # as above
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.wire.records._encode_columns import Groups  # noqa: E402  # as above
from kohort.wire.records.columns import open_columns  # noqa: E402  # as above

VALUE_BYTES = 100
BATCH_BYTES = 1024 * 1024 - 61
IN_FLIGHT = 5
VERSION = 9
ARROW, KEYED, CPU = "send_arrow", "send_arrow, keyed", "send_arrow, one core"
KEYED_CPU, RAW, CONFLUENT = "send_arrow, keyed, one core", "raw socket", "confluent-kafka produce"


@dataclass(frozen=True, slots=True)
class Done:
    """What a run took.

    Attributes:
        topic: Where the records went.
        seconds: By the clock, or of processor time where that is what counts.
        records: How many were acknowledged.
    """

    topic: str
    seconds: float
    records: int


def send_arrow(servers: str, topic: str, table: pa.RecordBatch, clock: Callable[[], float]) -> Done:
    """Send the table with one call."""
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_arrow(topic, table.slice(0, 1)).result(60)
        start = clock()
        rows = producer.send_arrow(topic, table.slice(1)).result(60).rows
        return Done(topic, clock() - start, rows + 1)


def requests_of(table: pa.RecordBatch, partitions: int) -> list[tuple[int, bytes]]:
    """Return a batch of each request, and its partition."""
    columns = open_columns(table, 0)
    groups = Groups(columns, 0, table.num_rows, partitions, 0, BATCH_BYTES)
    batches = []
    while pending := groups.pending():
        for partition in pending:
            encoded = groups.encode(partition, BATCH_BYTES)
            batches.append((partition, bytes(encoded.build())))
    return batches


def replay(servers: str, topic: str, batches: list[tuple[int, bytes]], records: int) -> Done:
    """Send requests that are ready, and look at nothing of the answers but their errors."""
    frames = [
        frame.encode_request(
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=(
                    TopicProduceData(
                        name=topic,
                        partition_data=(PartitionProduceData(index=partition, records=batch),),
                    ),
                ),
            ),
            VERSION,
            number,
            "raw",
        )
        for number, (partition, batch) in enumerate(batches)
    ]
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb") as answers:
        start = time.perf_counter()
        for number, each in enumerate(frames):
            if number >= IN_FLIGHT:
                _check_answer(answers.read(struct.unpack(">i", answers.read(4))[0]))
            sock.sendall(each)
        for _ in range(min(IN_FLIGHT, len(frames))):
            _check_answer(answers.read(struct.unpack(">i", answers.read(4))[0]))
        return Done(topic, time.perf_counter() - start, records)


def _check_answer(answer: bytes) -> None:
    response = frame.decode_response(ProduceResponse, VERSION, memoryview(answer))
    if response.responses[0].partition_responses[0].error_code:
        raise AssertionError(response)


def confluent(servers: str, topic: str, records: int) -> Done:
    """Send objects with librdkafka."""
    producer = ConfluentProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(range(VALUE_BYTES))
    start = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise AssertionError("records were not acknowledged")
    return Done(topic, time.perf_counter() - start, records)


@contextmanager
def embedded_broker(data: Path) -> Iterator[str]:
    """Run our broker as a process; yields where it listens."""
    command = [sys.executable, "-m", "kohort.broker", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def seconds_of(answer: object) -> float:
    """Return what a run took."""
    assert isinstance(answer, Done)
    return answer.seconds


def run(options: argparse.Namespace, folder: Path) -> harness.Result:
    """Measure everybody on one broker."""
    records, tenth = options.records, options.records // 10
    values = pa.array([bytes(range(VALUE_BYTES))] * records, pa.binary())
    keys = pa.array([b"%08d" % (number % 100_000) for number in range(records)])
    plain = pa.record_batch({"value": values})
    keyed = pa.record_batch({"key": keys, "value": values})
    batches = requests_of(plain, options.partitions)
    with (
        embedded_broker(folder / "embedded") as at,
        AdminClient(bootstrap_servers=at) as admin,
    ):

        def topic() -> str:
            name = uuid.uuid4().hex
            admin.create_topics([NewTopic(name, options.partitions)])
            return name

        def check(wanted: int) -> harness.Check:
            def count(answer: object) -> None:
                assert isinstance(answer, Done)
                partitions = range(options.partitions)
                at_end = {TopicPartition(answer.topic, each): -1 for each in partitions}
                ends = admin.list_offsets(at_end)
                admin.delete_topics([answer.topic])
                if not sum(ends.values()) == answer.records == wanted:
                    raise AssertionError(f"{answer}, in the topic {ends}")

            return count

        def side(name: str, work: Callable[[], Done], units: int) -> harness.Side:
            return harness.Side(name, work, units, check(units), seconds_of)

        wall, cpu = time.perf_counter, time.process_time
        sides = [
            side(ARROW, lambda: send_arrow(at, topic(), plain, wall), records),
            side(CPU, lambda: send_arrow(at, topic(), plain, cpu), records),
            side(KEYED, lambda: send_arrow(at, topic(), keyed, wall), records),
            side(KEYED_CPU, lambda: send_arrow(at, topic(), keyed, cpu), records),
            side(RAW, lambda: replay(at, topic(), batches, records), records),
            side(CONFLUENT, lambda: confluent(at, topic(), tenth), tenth),
        ]
        return harness.measure(sides, options.rounds, "records")


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder))
    # whichever is less: five million records, or six tenths of what is ready before
    target = min(5_000_000, 0.6 * result.median(RAW)) / 1e6
    result.expect("million records/s, one core", result.median(CPU) / 1e6, target)
    result.expect("keyed, one core", result.median(KEYED_CPU) / 1e6, target)
    result.expect("by the clock, times raw socket", result.ratio(ARROW, RAW), 0.6)
    title = f"{options.records} records of {VALUE_BYTES} bytes to {options.partitions} partitions"
    return harness.report(title, result, options.json)


if __name__ == "__main__":
    sys.exit(main())
