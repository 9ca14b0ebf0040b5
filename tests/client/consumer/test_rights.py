"""A consumer whose user lacks a permission: its errors, and its recovery once it is granted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import Producer
from kohort.broker import Acl, EmbeddedBroker, Operation, Resource, Security
from kohort.client.consumer.aio import AsyncConsumer
from kohort.errors import KafkaError
from tests.client.loops import on_a_loop

READS = Acl("User:bob", Operation.READ, Resource.TOPIC, "flights")
JOINS = Acl("User:bob", Operation.READ, Resource.GROUP, "g")
QUICK: dict[str, Any] = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 50}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    users = {"root": "root-secret", "bob": "bob-secret"}
    security = Security("SASL_PLAINTEXT", users=users, super_users=["root"])
    with EmbeddedBroker(security=security) as started:
        started.create_topic("flights", 1)
        yield started


def bob(broker: EmbeddedBroker, **settings: Any) -> AsyncConsumer:
    given = {"group.id": "g", "auto.offset.reset": "earliest", **QUICK}
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return AsyncConsumer.from_config({**broker.client_settings("bob"), **given, **more})


async def refused(consumer: AsyncConsumer, times: int) -> None:
    """Wait until the brokers have refused the topic this often; 0 until they allow it."""
    assert consumer._core is not None
    cluster = consumer._core.cluster
    answered, codes = asyncio.Event(), list[int]()

    def note() -> None:
        codes.append(cluster.metadata.topics["flights"].error_code)
        if len(codes) == times or (times == 0 and codes[-1] == 0):
            answered.set()

    cluster.on_metadata.append(note)
    async with asyncio.timeout(30):
        await answered.wait()
    cluster.on_metadata.remove(note)
    assert all(codes) or not times


@on_a_loop
async def test_errors_do_not_outlast_their_cause(broker: EmbeddedBroker) -> None:
    """While the application does not poll, each answer of the brokers is the same."""
    broker.create_acls([JOINS])
    with Producer.from_config(broker.client_settings("root")) as producer:
        producer.send("flights", b"v").result(60)
    async with bob(broker) as consumer:
        consumer.subscribe(["flights"])
        with pytest.raises(KafkaError, match="flights: allow the client's user to READ this topic"):
            await consumer.poll(60_000)
        await refused(consumer, 3)
        broker.create_acls([READS])
        await refused(consumer, 0)
        assert [len(each) for each in (await consumer.poll(60_000)).values()] == [1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@on_a_loop
async def test_a_pattern_without_a_right_to_the_group_is_refused(
    broker: EmbeddedBroker, protocol: str
) -> None:
    """The user sees no topic, so none matches, and no broker is asked about the group."""
    async with bob(broker, group_protocol=protocol) as consumer:
        consumer.subscribe(pattern=re.compile("fl.*"))
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"to READ .*this group$"):
                await consumer.poll(10_000)
        await consumer.unsubscribe()
        broker.create_acls([JOINS])
        consumer.subscribe(pattern=re.compile("fl.*"))
        assert await consumer.poll(100) == {}


@on_a_loop
async def test_a_missing_topic_needs_another_right(broker: EmbeddedBroker) -> None:
    """The broker refuses it like a topic that may not be read; the text must name both causes."""
    broker.create_acls([JOINS, Acl("User:bob", Operation.READ, Resource.TOPIC, "new")])
    async with bob(broker) as consumer:
        consumer.subscribe(["new"])
        needs = r"to READ this topic \(if it does not exist: also to CREATE it\)$"
        with pytest.raises(KafkaError, match=needs):
            await consumer.poll(10_000)
