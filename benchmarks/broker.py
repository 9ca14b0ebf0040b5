"""The embedded broker compared with a real Kafka: reading, producing, memory, start-up, idle
consumers.

Reading: a raw socket fetches 4 MiB at a time and checks only the batches' headers. Producing:
librdkafka, acks=all, values of 1 KiB. Both brokers do the same in turn. The rest is measured only
on ours; each figure is the factor by which it beats its target, so 1 is enough.

Java and `make test` are needed once, for Kafka's jars.

    python benchmarks/broker.py [--megabytes N] [--rounds N] [--json]
"""

from __future__ import annotations

import random
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.types import TopicPartition  # noqa: E402  # as above
from kohort.wire.codec import frame  # noqa: E402  # as above
from kohort.wire.codec.schema import Buffer  # noqa: E402  # as above
from kohort.wire.messages.fetch import FetchResponse  # noqa: E402  # as above
from kohort.wire.records import iter_batches  # noqa: E402  # as above
from tests.broker.peer import FETCH_BY_NAME, Peer, fetch_request  # noqa: E402  # as above
from tests.broker.processes import BrokerProcess  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

MB = 1_000_000
VALUE = random.Random(1).randbytes(1024)
FETCH_BYTES = 4 * 1024 * 1024
IDLE_CONSUMERS = 100
IDLE_SECONDS = 10.0
LARGE_MB = 1_000
READY_TARGET_S = 0.5
IDLE_TARGET_MB = 60
GROWTH_TARGET_MB = 40
IDLE_CPU_TARGET = 0.02
KAFKA_JVM = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")


def create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def fill(servers: str, topic: str, count: int) -> int:
    """Produce `count` values; return how many were acknowledged."""
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "delivery.report.only.error": False,
            "log_level": 0,
            "on_delivery": delivered,
        }
    )
    for number in range(count):
        producer.produce(topic, VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise AssertionError("not everything was delivered")
    return acknowledged


def read(servers: str, topic: str, end: int) -> int:
    """Fetch a topic from its start; return the number of records."""
    records = offset = 0
    buffer = bytearray(FETCH_BYTES + 2 * MB)
    with Peer(servers) as peer:
        while offset < end:
            request = fetch_request(TopicPartition(topic, 0), offset, 500, FETCH_BYTES)
            peer.send(request, FETCH_BY_NAME)
            length = receive(peer.socket, buffer)
            answer = frame.decode_response(
                FetchResponse, FETCH_BY_NAME, memoryview(buffer)[:length]
            )
            part = answer.responses[0].partitions[0]
            whole = whole_batches(part.records or b"")
            for header, _ in iter_batches(whole):
                records += header.record_count
                offset = header.next_offset
    return records


def whole_batches(data: Buffer) -> memoryview:
    """Return the complete batches, without a partial one that Kafka may send at the end."""
    view, at = memoryview(data), 0
    while at + 12 <= len(view):
        size = 12 + int(struct.unpack_from(">i", view, at + 8)[0])
        if at + size > len(view):
            break
        at += size
    return view[:at]


def receive(source: socket.socket, buffer: bytearray) -> int:
    """Read one frame into the buffer; return its length."""
    head = bytearray(4)
    fill_buffer(source, memoryview(head))
    length: int = struct.unpack(">i", head)[0]
    fill_buffer(source, memoryview(buffer)[:length])
    return length


def fill_buffer(source: socket.socket, target: memoryview) -> None:
    at = 0
    while at < len(target):
        count = source.recv_into(target[at:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        at += count


def compare(ours: str, kafka: str, megabytes: int, rounds: int) -> harness.Result:
    """Read and produce on both brokers in turn."""
    count = megabytes * MB // len(VALUE)
    sides = {"kohort": ours, "Kafka": kafka}
    result = harness.Result("bytes", {})
    for name, servers in sides.items():
        create(servers, "read")
        if fill(servers, "read", count) != count:
            raise AssertionError(f"{name} did not take everything")
    for what, work in (("read", read_side), ("produce", produce_side)):
        pairs = [work(name, servers, count) for name, servers in sides.items()]
        rates = harness.measure(pairs, rounds, "bytes").rates
        result.rates.update({f"{what}, {name}": rate for name, rate in rates.items()})
    result.expect("read, times Kafka", result.ratio("read, kohort", "read, Kafka"), 1)
    produced = result.median("produce, kohort") / MB
    result.expect("produce, MB/s", produced, 100)
    return result


def equals(count: int) -> Callable[[object], None]:
    def check(answer: object) -> None:
        if answer != count:
            raise AssertionError(f"{answer} records instead of {count}")

    return check


def read_side(name: str, servers: str, count: int) -> harness.Side:
    return harness.Side(
        name, lambda: read(servers, "read", count), count * len(VALUE), equals(count)
    )


def produce_side(name: str, servers: str, count: int) -> harness.Side:
    create(servers, "produced")
    return harness.Side(
        name, lambda: fill(servers, "produced", count), count * len(VALUE), equals(count)
    )


def alone(result: harness.Result, folder: Path, rounds: int) -> None:
    """Measure figures without a comparison: start-up, memory, idle consumers."""
    ready, idle = [], []
    for number in range(rounds):
        broker = BrokerProcess(folder / f"start-{number}")
        begin = time.perf_counter()
        with broker:
            ready.append(time.perf_counter() - begin)
            idle.append(broker.rss() / MB)
    result.expect(
        f"ready, times under {READY_TARGET_S} s", READY_TARGET_S / statistics.median(ready), 1
    )
    result.expect(
        f"idle memory, times under {IDLE_TARGET_MB} MB", IDLE_TARGET_MB / statistics.median(idle), 1
    )
    with BrokerProcess(folder / "large") as broker:
        grown = (memory_after(broker, LARGE_MB) - memory_after(broker, 50)) / MB
        name = f"memory for {LARGE_MB} MB more, times under {GROWTH_TARGET_MB} MB"
        result.expect(name, GROWTH_TARGET_MB / max(grown, 1), 1)
    with BrokerProcess(folder / "polls") as broker:
        used = max(idle_cpu(broker), 1e-4)
        name = f"{IDLE_CONSUMERS} idle consumers, times under 2% of a core"
        result.expect(name, IDLE_CPU_TARGET / used, 1)


def memory_after(broker: BrokerProcess, megabytes: int) -> int:
    """Return the broker's memory in bytes after writing and reading a topic of the given size."""
    count, topic = megabytes * MB // len(VALUE), f"large-{megabytes}"
    create(broker.bootstrap_servers, topic)
    fill(broker.bootstrap_servers, topic, count)
    if read(broker.bootstrap_servers, topic, count) != count:
        raise AssertionError("records are missing")
    return broker.rss()


def idle_cpu(broker: BrokerProcess) -> float:
    """Return the share of a core used by consumers that fetch every 500 ms and get nothing."""
    peers = [Peer(broker.bootstrap_servers) for _ in range(IDLE_CONSUMERS)]
    try:
        peers[0].create("idle")
        request = fetch_request(TopicPartition("idle", 0), 0, 500, FETCH_BYTES)
        for peer in peers:
            peer.ask(request, FETCH_BY_NAME)
        cpu, begin = broker.cpu_s(), time.perf_counter()
        for peer in peers:
            peer.send(request, FETCH_BY_NAME)
        while time.perf_counter() - begin < IDLE_SECONDS:
            for peer in peers:
                peer.answer(FetchResponse, FETCH_BY_NAME)
                peer.send(request, FETCH_BY_NAME)
        return (broker.cpu_s() - cpu) / (time.perf_counter() - begin)
    finally:
        for peer in peers:
            peer.socket.close()


def main() -> int:
    """Run the benchmark."""
    parser = harness.arguments("The embedded broker beside a real Kafka.", rounds=5)
    parser.add_argument("--megabytes", type=int, default=200, help="per round and side")
    parser.add_argument("--without-kafka", action="store_true", help="only ours, for profiling")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder), options.megabytes, options.rounds, not options.without_kafka)
    return harness.report("broker", result, options.json)


def run(folder: Path, megabytes: int, rounds: int, with_kafka: bool) -> harness.Result:
    result = harness.Result("bytes", {})
    if with_kafka:
        kafka = RealKafka(folder / "kafka", jvm_options=KAFKA_JVM)
        with BrokerProcess(folder / "ours") as broker, kafka:
            result = compare(broker.bootstrap_servers, kafka.bootstrap_servers, megabytes, rounds)
    alone(result, folder, rounds)
    return result


if __name__ == "__main__":
    sys.exit(main())
