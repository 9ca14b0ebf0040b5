"""Other clients with TLS and SCRAM on the embedded broker: produce, read in a group, commit."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kohort import AdminClient, TopicPartition
from kohort.broker import EmbeddedBroker, Security
from tests.real_kafka.broker import java_command
from tests.system.clients.group import DEADLINE_S, eventually, kafka

RECORDS = 20
VALUES = [b"%d" % number for number in range(RECORDS)]
Settings = dict[str, str]
USERS = {"alice": 'se"cret,=\\x'}
WAYS: dict[str, dict[str, Any]] = {
    "certificates": {"protocol": "SSL", "client_certificates": True},
    "SCRAM-SHA-256": {"protocol": "SASL_SSL", "users": USERS, "mechanisms": ["SCRAM-SHA-256"]},
    "SCRAM-SHA-512": {"protocol": "SASL_SSL", "users": USERS, "mechanisms": ["SCRAM-SHA-512"]},
}


@pytest.fixture(scope="module", params=list(WAYS))
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security(**WAYS[request.param])) as started:
        yield started


def with_librdkafka(broker: EmbeddedBroker, topic: str, protocol: str = "classic") -> list[bytes]:
    settings: dict[str, Any] = {**broker.librdkafka_settings()}
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    reading = {"group.id": topic, "auto.offset.reset": "earliest", "group.protocol": protocol}
    consumer = confluent_kafka.Consumer({**settings, **reading, "enable.auto.commit": False})
    consumer.subscribe([topic])
    seen: list[bytes] = []

    def read() -> bool:
        seen.extend(each.value() or b"" for each in consumer.consume(RECORDS, 0.5))
        return len(seen) >= RECORDS

    eventually(read, "all records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def with_consumer_protocol(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return with_librdkafka(broker, topic, "consumer")


def with_aiokafka(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return asyncio.run(_aiokafka(python_settings(broker), topic))


async def _aiokafka(settings: dict[str, Any], topic: str) -> list[bytes]:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    reading = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with aiokafka.AIOKafkaConsumer(topic, **reading, **settings) as consumer:
        seen = [(await consumer.getone()).value or b"" for _ in VALUES]
        await consumer.commit()
    return seen


def with_kafka_python(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    settings = python_settings(broker)
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(DEADLINE_S)
    producer.close()
    reading = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = kafka.KafkaConsumer(topic, **reading, **settings)
    seen: list[bytes] = []

    def read() -> bool:
        for found in consumer.poll(timeout_ms=500).values():
            seen.extend(each.value for each in found)
        return len(seen) >= RECORDS

    eventually(read, "all records")
    consumer.commit()
    consumer.close()
    return seen


def python_settings(broker: EmbeddedBroker) -> dict[str, Any]:
    """What kafka-python and aiokafka take."""
    known = broker.client_settings()
    context = ssl.create_default_context(cafile=known["ssl.ca.location"])
    if "ssl.key.location" in known:
        context.load_cert_chain(known["ssl.certificate.location"], known["ssl.key.location"])
    found: dict[str, Any] = {
        "bootstrap_servers": known["bootstrap.servers"],
        "security_protocol": known["security.protocol"],
        "ssl_context": context,
    }
    if "sasl.mechanism" in known:
        found["sasl_mechanism"] = known["sasl.mechanism"]
        found["sasl_plain_username"] = known["sasl.username"]
        found["sasl_plain_password"] = known["sasl.password"]
    return found


def check(broker: EmbeddedBroker, topic: str, read: Callable[[], list[bytes]]) -> None:
    """What was read, and the position that was committed."""
    broker.create_topic(topic, 1)
    assert read() == VALUES
    with AdminClient.from_config(broker.client_settings()) as admin:
        assert admin.list_group_offsets(topic)[TopicPartition(topic, 0)].offset == RECORDS


CLIENTS = (with_librdkafka, with_consumer_protocol, with_aiokafka, with_kafka_python)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
def test_produce_read_in_a_group_and_commit(
    client: Callable[[EmbeddedBroker, str], list[bytes]], broker: EmbeddedBroker
) -> None:
    topic = client.__name__
    check(broker, topic, lambda: client(broker, topic))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_produces_reads_in_a_group_and_commits(
    protocol: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"java-{protocol}"

    def read() -> list[bytes]:
        where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
        config = tmp_path / "client.properties"
        config.write_text(broker.java_properties())
        java("ConsoleProducer", *where, "--command-config", str(config), given=b"\n".join(VALUES))
        config.write_text(f"{broker.java_properties()}group.protocol={protocol}\n")
        reading = ["--group", topic, "--from-beginning", "--max-messages", str(RECORDS)]
        tool = "consumer.ConsoleConsumer"
        return java(tool, *where, "--command-config", str(config), *reading).splitlines()

    check(broker, topic, read)


def java(tool: str, *arguments: str, given: bytes = b"") -> bytes:
    command = java_command(f"org.apache.kafka.tools.{tool}", *arguments)
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
