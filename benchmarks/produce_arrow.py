"""The part of produce.py about `send_arrow`, compared with ready batches over a raw socket.

Everything goes to the embedded broker in a separate process, to a new topic each time. The raw
socket sends ready-made requests, five of them in flight like `send_arrow`: this is the maximum that
the broker can take.

`send_arrow` is measured twice: in wall-clock time, and in CPU time of this process, which shows how
many records one core of a client handles while the broker has the other core.

    python benchmarks/produce.py --part send_arrow
"""

from __future__ import annotations

import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.client import Producer  # noqa: E402  # as above
from kohort.wire.codec import frame  # noqa: E402  # as above
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
PARTITIONS = 6
ARROW, CPU, RAW = "send_arrow", "send_arrow, by processor time", "ready batches, raw socket"
KEYED, KEYED_CPU = "send_arrow keyed", "send_arrow keyed, by processor time"


class Place(Protocol):
    """A broker to produce to."""

    @property
    def servers(self) -> str:
        """Its address."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a run.

    Attributes:
        topic: Where the records went.
        seconds: Wall-clock time, or CPU time if that is measured.
        records: Number of acknowledged records.
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


def requests_of(table: pa.RecordBatch) -> list[tuple[int, bytes]]:
    """Return a batch for each request, and its partition."""
    columns = open_columns(table, 0)
    groups = Groups(columns, 0, table.num_rows, PARTITIONS, 0, BATCH_BYTES)
    batches = []
    while pending := groups.pending():
        for partition in pending:
            encoded = groups.encode(partition, BATCH_BYTES)
            batches.append((partition, bytes(encoded.build())))
    return batches


def replay(servers: str, topic: str, batches: list[tuple[int, bytes]], records: int) -> Done:
    """Send ready-made requests, and check only the errors in the responses."""
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


class FreshTopics:
    """Creates a topic for each run, counts its records and deletes it.

    Args:
        servers: The broker.
    """

    def __init__(self, servers: str) -> None:
        """Connect."""
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "counter"})

    def new(self) -> str:
        """Return the name of an empty topic."""
        name = uuid.uuid4().hex
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name

    def check(self, done: Done, count: int) -> None:
        """Raise unless the topic has this many records."""
        ends = [
            self._consumer.get_watermark_offsets(TopicPartition(done.topic, number), timeout=30)[1]
            for number in range(PARTITIONS)
        ]
        self._admin.delete_topics([done.topic])[done.topic].result(30)
        if not sum(ends) == done.records == count:
            raise AssertionError(f"{done}, and in the topic {ends}")


def arrow_part(result: harness.Result, places: Sequence[Place], count: int, rounds: int) -> None:
    """Measure `send_arrow`, with one call for twice as many records."""
    servers = places[-1].servers
    rows = 2 * count
    values = pa.array([bytes(VALUE_BYTES)] * rows, pa.binary())
    keys = pa.array([b"key-%d" % (number % 10_007) for number in range(rows)])
    plain = pa.record_batch({"value": values})
    keyed = pa.record_batch({"key": keys, "value": values})
    batches = requests_of(plain)
    topics = FreshTopics(servers)

    def side(name: str, work: Callable[[str], Done]) -> harness.Side:
        return harness.Side(
            name,
            lambda: work(topics.new()),
            rows,
            lambda it: topics.check(_done(it), rows),
            _seconds,
        )

    wall, cpu = time.perf_counter, time.process_time
    sides = [
        side(ARROW, lambda topic: send_arrow(servers, topic, plain, wall)),
        side(CPU, lambda topic: send_arrow(servers, topic, plain, cpu)),
        side(KEYED, lambda topic: send_arrow(servers, topic, keyed, wall)),
        side(KEYED_CPU, lambda topic: send_arrow(servers, topic, keyed, cpu)),
        side(RAW, lambda topic: replay(servers, topic, batches, rows)),
    ]
    measured = harness.measure(sides, rounds, "records")
    result.rates.update(measured.rates)
    # whichever is less: five million records, or six tenths of the ready batches
    target = min(5.0, 0.6 * measured.median(RAW) / 1e6)
    result.expect("send_arrow, million/s of a core", measured.median(CPU) / 1e6, target)
    result.expect("send_arrow keyed, million/s of a core", measured.median(KEYED_CPU) / 1e6, target)
    result.expect("send_arrow, times raw socket", measured.ratio(ARROW, RAW), 0.6)


def _done(answer: object) -> Done:
    assert isinstance(answer, Done)
    return answer


def _seconds(answer: object) -> float:
    return _done(answer).seconds
