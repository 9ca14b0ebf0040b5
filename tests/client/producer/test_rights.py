"""A producer whose user lacks a permission: its errors, and its recovery once it is granted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kohort import Producer
from kohort.broker import Acl, EmbeddedBroker, Operation, Resource, Security
from kohort.client import AclBindingFilter, AsyncAdminClient
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer.aio import AsyncProducer
from kohort.client.producer.batch import Identity
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.client.loops import on_a_loop
from tests.client.producer.test_sender import producing, stored

WRITES = Acl("User:bob", Operation.WRITE, Resource.TOPIC, "flights")
DESCRIBES = Acl("User:bob", Operation.DESCRIBE, Resource.TOPIC, "flights")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    users = {"root": "root-secret", "bob": "bob-secret"}
    security = Security("SASL_PLAINTEXT", users=users, super_users=["root"])
    with EmbeddedBroker(security=security) as started:
        started.create_topic("flights", 1)
        yield started


def refused(producer: Producer) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        producer.send("flights", b"v").result(60)
    return caught.value


@pytest.mark.parametrize("is_described", [False, True])
def test_a_producer_goes_on_once_it_may_write(broker: EmbeddedBroker, is_described: bool) -> None:
    """It has no producer id before, and requests one again."""
    if is_described:
        broker.create_acls([DESCRIBES])
    with Producer.from_config(broker.client_settings("bob")) as producer:
        errors = [refused(producer) for _ in range(2)]
        broker.create_acls([WRITES])
        offsets = [producer.send("flights", b"v").result(60).offset for _ in range(2)]
    assert offsets == [0, 1]
    assert {error.fatal for error in errors} == {False}
    assert all("allow the client's user to WRITE" in str(error) for error in errors)


@on_a_loop
async def test_a_refusal_from_before_a_record_does_not_fail_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The permission may have been granted between the request and the record: it asks again."""
    is_sent, begun = asyncio.Event(), asyncio.Event()

    async def asked(_: Cluster) -> Identity:
        if not begun.is_set():
            begun.set()
            await is_sent.wait()
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return Identity(7, 0)

    async def answer(request: ProduceRequest) -> ProduceResponse:
        return stored(request)

    monkeypatch.setattr("kohort.client.producer.init_producer_id._asked", asked)
    settings = {"enable_idempotence": True, "acks": "all"}
    async with producing(monkeypatch, answer, **settings) as (producer, sender):
        await begun.wait()
        future = await producer.send("t", b"v")
        assert sender.undone()  # the added record waits now
        is_sent.set()
        assert (await future).offset == 0


@on_a_loop
async def test_records_that_wait_fail_once_the_right_is_gone(broker: EmbeddedBroker) -> None:
    """They were added before the client knew; they must not wait until they expire."""
    broker.create_acls([WRITES])
    patient = {"linger.ms": 5_000, "request.timeout.ms": 4_000, "delivery.timeout.ms": 9_000}
    async with (
        AsyncProducer.from_config({**broker.client_settings("bob"), **patient}) as producer,
        AsyncAdminClient.from_config(broker.client_settings("root")) as admin,
    ):
        written = await producer.send("flights", b"0")
        await producer.flush()
        waiting = await producer.send("flights", b"1")
        await admin.delete_acls([AclBindingFilter(principal="User:bob")])
        await producer._internals.sender()._cluster.refresh(Deadline(30_000))
        await producer.flush()
        broker.create_acls([WRITES])
        later = await producer.send("flights", b"2")
        await producer.flush()
    assert [written.result().offset, later.result().offset] == [0, 1]
    text = "TOPIC_AUTHORIZATION_FAILED: flights-0: allow the client's user to WRITE this topic"
    assert str(waiting.exception()) == text


def test_a_missing_topic_needs_another_right(broker: EmbeddedBroker) -> None:
    """The broker refuses it like a topic that may not be written to; the text names both causes."""
    broker.create_acls([Acl("User:bob", Operation.WRITE, Resource.TOPIC, "new")])
    with Producer.from_config(broker.client_settings("bob")) as producer:
        needs = r"to WRITE this topic \(if it does not exist: also to CREATE it\)$"
        with pytest.raises(KafkaError, match=needs):
            producer.send("new", b"v")
        broker.create_acls([Acl("User:bob", Operation.CREATE, Resource.TOPIC, "new")])
        assert producer.send("new", b"v").result(60).offset == 0
