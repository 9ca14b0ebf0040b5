"""A user without rights on a broker with ACLs: each error names what is missing, at once."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.client import NewTopic
from kohort.errors import ErrorCode, KafkaError
from kohort.spark.source.fetch.ranges import RangeReader
from tests.real_kafka.broker import java_command
from tests.real_kafka.secured import (
    POWERLESS,
    POWERLESS_PASSWORD,
    Secured,
    SecuredEmbedded,
    SecuredKafka,
)

ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
NEVER_MS = 3_600_000
TOPIC = "closed"
PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredEmbedded], ids=["kafka", "embedded"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    with request.param(tmp_path_factory.mktemp("denying")) as started:
        with AdminClient(**started.as_user("SASL_SSL", "SCRAM-SHA-256")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
        yield started


@pytest.fixture
def powerless(kafka: Secured) -> dict[str, Any]:
    user = {"sasl_username": POWERLESS, "sasl_password": POWERLESS_PASSWORD}
    return kafka.as_user("SASL_SSL", "SCRAM-SHA-256", **user)


def denied(call: Callable[[], object], code: ErrorCode, resource: str, operation: str) -> None:
    """Whether a call says so, without a wait."""
    with pytest.raises(KafkaError) as caught:
        call()
    kind = code.name.removesuffix("_AUTHORIZATION_FAILED").lower().replace("_", " ")
    text = str(caught.value)
    assert caught.value.code == code
    assert not caught.value.retriable
    creates = r"( \(if it does not exist: also to CREATE it\))?"
    needs = f"allow the client's user to {operation}.* this {kind}{creates}"
    assert re.search(rf"{resource}.*: {needs}$", text)


def test_topics(powerless: dict[str, Any]) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    waiting = {**powerless, "default_api_timeout_ms": NEVER_MS}
    with AdminClient(**waiting) as admin:
        denied(lambda: admin.create_topics([NewTopic("u", 1)]), code, "u", "CREATE")
        denied(lambda: admin.delete_topics([TOPIC]), code, TOPIC, "DELETE")
        denied(lambda: admin.create_partitions({TOPIC: 2}), code, TOPIC, "ALTER")
        denied(lambda: admin.describe_topics([TOPIC]), code, TOPIC, "DESCRIBE")
    with Producer(**powerless, max_block_ms=NEVER_MS) as producer:
        denied(lambda: producer.send(TOPIC, b"value"), code, TOPIC, "WRITE")
    with Consumer(**waiting) as consumer:
        denied(lambda: consumer.end_offsets([PLACE]), code, TOPIC, "DESCRIBE")
    own = {name.replace("_", "."): str(value) for name, value in powerless.items()}
    reader = RangeReader(powerless["bootstrap_servers"], own)
    denied(lambda: list(reader.read(TOPIC, 0, 0, 1)), code, TOPIC, "READ")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(protocol: Any, powerless: dict[str, Any]) -> None:
    code, group = ErrorCode.GROUP_AUTHORIZATION_FAILED, f"g-{uuid.uuid4().hex}"
    waiting = {**powerless, "default_api_timeout_ms": NEVER_MS}
    with AdminClient(**waiting) as admin:
        for call in (admin.list_group_offsets, lambda g: admin.describe_groups([g])):
            denied(lambda: call(group), code, group, "READ")  # noqa: B023  # called at once
        denied(lambda: admin.delete_groups([group]), code, group, "READ")
    consumer = Consumer(TOPIC, group_id=group, group_protocol=protocol, **waiting)
    denied(lambda: polled(consumer), code, group, "READ")
    with suppress(KafkaError):  # it says once more what it could not do
        consumer.close()


def polled(consumer: Consumer) -> None:
    """Poll past the error about the topic, which may come first, and once."""
    try:
        consumer.poll(NEVER_MS)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        consumer.poll(NEVER_MS)


def test_transactional_ids(powerless: dict[str, Any]) -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer = Producer(**powerless, transactional_id="tx", max_block_ms=NEVER_MS)
    with pytest.raises(KafkaError, match=r"transactional id tx.* WRITE") as caught:
        producer.begin_transaction()
    assert caught.value.code == code
    with suppress(KafkaError):
        producer.close()


def test_a_right_is_enough_once_it_is_there(
    kafka: Secured, powerless: dict[str, Any], tmp_path: Path
) -> None:
    """What the errors ask for is what the authorizer wants: Kafka's tool grants each in turn."""
    properties = tmp_path / "client.properties"
    properties.write_text(kafka.java_properties("SASL_SSL", "SCRAM-SHA-256"))
    topic, group = f"t-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex}"
    with AdminClient(**kafka.as_user("SASL_SSL", "SCRAM-SHA-256")) as admin:
        admin.create_topics([NewTopic(topic, 1)])

    def allow(operation: str, *resource: str) -> None:
        where = ["--bootstrap-server", kafka.addresses["SASL_SSL"], "--add"]
        where += ["--command-config", str(properties)]
        who = ["--allow-principal", f"User:{POWERLESS}", "--operation", operation]
        command = java_command(ACL_COMMAND, *where, *who, *resource)
        subprocess.run(command, timeout=60, check=True, capture_output=True)

    allow("WRITE", "--topic", topic)
    with Producer(**powerless) as producer:
        producer.send(topic, b"value").result(60)
    allow("READ", "--topic", topic)
    allow("READ", "--group", group)
    with Consumer(topic, group_id=group, auto_offset_reset="earliest", **powerless) as consumer:
        while not consumer.poll(1_000):
            pass
        consumer.commit()
