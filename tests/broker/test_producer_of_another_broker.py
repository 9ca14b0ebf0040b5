"""A producer that outlives its broker, and continues with a new one at the same address."""

from __future__ import annotations

from pathlib import Path

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer
from kohort.types import TopicPartition
from tests.real_kafka.broker import free_ports

BEFORE, NEW, AFTER = 5, 8, 6


def test_its_records_are_not_taken_for_those_of_a_new_producer(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with EmbeddedBroker(tmp_path / "first", port=port) as first:
        first.create_topic("t")
        old = Producer(bootstrap_servers=first.bootstrap_servers)
        for number in range(BEFORE):
            old.send("t", b"before-%d" % number).result(60)
    with old, EmbeddedBroker(tmp_path / "second", port=port) as second:
        second.create_topic("t")
        with Producer(bootstrap_servers=second.bootstrap_servers) as new:
            for number in range(NEW):
                new.send("t", b"new-%d" % number).result(60)
        for number in range(AFTER):
            old.send("t", b"old-%d" % number).result(60)
        found: list[bytes] = []
        with Consumer(
            bootstrap_servers=second.bootstrap_servers, auto_offset_reset="earliest"
        ) as reader:
            place = TopicPartition("t", 0)
            reader.assign([place])
            while len(found) < reader.end_offsets([place])[place]:
                found += [r.value for each in reader.poll(1000).values() for r in each]
    assert sorted(found) == sorted(
        [*(b"new-%d" % each for each in range(NEW)), *(b"old-%d" % each for each in range(AFTER))]
    )
