"""The real Kafka that others are compared with works, as seen by clients that we did not write."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.real_kafka.broker import RealKafka


def produce(kafka: RealKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def read_one(kafka: RealKafka, topic: str) -> bytes | None:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"{topic}-readers",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def test_a_group_of_librdkafka_reads_what_it_produced(real_kafka: RealKafka) -> None:
    produce(real_kafka, "fixture", b"one")
    assert read_one(real_kafka, "fixture") == b"one"


def test_its_own_tool_reads_its_segments(real_kafka: RealKafka) -> None:
    produce(real_kafka, "dumped", b"seen by the tool")
    assert "payload: seen by the tool" in real_kafka.dump_log("dumped", 0, "--print-data-log")


def test_records_survive_a_crash_and_a_restart(tmp_path: Path) -> None:
    with RealKafka(tmp_path) as kafka:
        produce(kafka, "kept", b"still here")
        kafka.kill()
        kafka.start()
        kafka.restart()
        assert read_one(kafka, "kept") == b"still here"


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path, {"log.segment.bytes": "no number"})
    with pytest.raises(RuntimeError, match="Invalid value no number"):
        kafka.start()
