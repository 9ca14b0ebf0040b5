"""A broker that dies and comes back while clients use it."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer
from kohort.errors import BrokerUnavailableError
from tests.real_kafka.broker import RealKafka, free_ports

LONG_MS = 20_000


def read(client: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for records in client.poll(500).values():
            found += [record.value for record in records]
    return found


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
        **settings,
    )


def test_clients_go_on_when_the_broker_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    bootstrap = f"127.0.0.1:{port}"
    with (
        consumer(bootstrap) as reader,
        Producer(bootstrap_servers=bootstrap) as writer,
        caplog.at_level(logging.WARNING, "kohort.client"),
    ):
        with EmbeddedBroker(tmp_path / "data", port=port):
            reader.subscribe(["t"])
            writer.send("t", b"before").result(20)
            assert read(reader, 1) == [b"before"]
        while reader.poll(300):
            pass
        sent = writer.send("t", b"while it is away")
        with EmbeddedBroker(tmp_path / "data", port=port):
            assert sent.result(20).offset == 1
            assert read(reader, 1) == [b"while it is away"]
            reader.close()
    assert len(caplog.records) <= 4, "an outage is not a flood of lines"


@pytest.fixture
def real_kafka() -> None:
    """Mark a test that needs a live Kafka of its own."""


def test_a_real_broker_restarts_under_a_group(real_kafka: None, tmp_path: Path) -> None:
    with (
        RealKafka(tmp_path / "kafka") as kafka,
        consumer(kafka.bootstrap_servers) as reader,
        Producer(bootstrap_servers=kafka.bootstrap_servers) as writer,
    ):
        reader.subscribe(["t"])
        writer.send("t", b"before").result(20)
        assert read(reader, 1) == [b"before"]
        reader.commit()
        kafka.restart()
        writer.send("t", b"after").result(60)
        assert read(reader, 1) == [b"after"]
        reader.commit()


def test_a_call_ends_in_time_when_the_broker_is_gone(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        reader = consumer(broker.bootstrap_servers, enable_auto_commit=False)
        reader.subscribe(["t"])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as writer:
            writer.send("t", b"value").result(20)
        read(reader, 1)
        address = broker.bootstrap_servers
    with pytest.raises(BrokerUnavailableError, match=address):
        reader.commit(timeout_ms=3_000)
    reader.close(timeout_s=0.5)
