"""How a producer handles outcomes of requests that no broker can be made to produce."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from kohort.client.net.backoff import Deadline
from kohort.client.producer.aio import AsyncProducer
from kohort.client.producer.sender import Sender
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    LocalProtocolError,
    RequestTimedOutError,
    TlsError,
)
from kohort.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.loops import on_a_loop

Answer = Callable[[ProduceRequest], Awaitable[ProduceResponse]]


def stored(request: ProduceRequest) -> ProduceResponse:
    """An answer that confirms all batches."""
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(index=each.index, error_code=0, base_offset=0)
                    for each in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


async def unanswered(_: ProduceRequest) -> ProduceResponse:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


@asynccontextmanager
async def producing(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, **settings: Any
) -> AsyncIterator[tuple[AsyncProducer, Sender]]:
    """A producer that knows the topic `t` with 100 partitions, all on one broker.

    Args:
        monkeypatch: Used to replace the broker.
        answer: Called with each request.
        settings: Settings of the producer.
    """
    given = {"enable_idempotence": False, "acks": 1, "retry_backoff_ms": 1, **settings}
    producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", **given)
    sender = producer._internals.sender()
    sender.batches.set_partitions("t", 100)

    async def send(_: int, request: ProduceRequest, **options: int) -> ProduceResponse:
        assert options["timeout_ms"] == given.get("request_timeout_ms", 30_000)
        return await answer(request)

    monkeypatch.setattr(sender, "_leader_of", lambda _: 1)
    monkeypatch.setattr(sender._cluster, "send", send)
    monkeypatch.setattr(sender._cluster, "request_refresh", lambda: None)
    try:
        yield producer, sender
    finally:
        await producer.close(0)


@pytest.mark.parametrize(
    "refusal",
    [
        AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the token is too old"),
        TlsError("the certificate is too old"),
    ],
)
@pytest.mark.parametrize(("failures", "is_unsure"), [(0, False), (1, True)])
@on_a_loop
async def test_who_is_refused_before_records_are_sent_again_knows_that_they_may_be_written(
    monkeypatch: pytest.MonkeyPatch, failures: int, is_unsure: bool, refusal: AuthenticationError
) -> None:
    """The connection broke, so they may have been; the next connection is refused."""
    left = failures

    async def answer(_: ProduceRequest) -> ProduceResponse:
        nonlocal left
        left -= 1
        if left >= 0:
            raise BrokerUnavailableError("closed the connection")
        raise refusal

    async with producing(monkeypatch, answer) as (producer, _):
        with pytest.raises(type(refusal), match="too old") as caught:
            await (await producer.send("t", b"v"))
    assert (caught.value.code, caught.value.fatal) == (refusal.code, True)
    assert ("may have been written" in str(caught.value)) == is_unsure


@on_a_loop
async def test_a_topic_is_asked_for_as_long_as_records_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later `send` that gives up must not remove it: they wait for it to come back."""
    async with producing(monkeypatch, unanswered, max_block_ms=50) as (producer, sender):
        cluster = sender._cluster
        monkeypatch.setattr(sender, "_leader_of", lambda _: None)
        cluster.watch_topics({"t"})
        waiting = await producer.send("t", b"1")
        sender.batches.set_partitions("t", 0)
        for topic in "u", "t":
            with pytest.raises(BrokerUnavailableError):
                _ = await producer.send(topic, b"2")
        assert cluster.unwatched({"t", "u"}) == {"u"}
        sender._abandon(BrokerUnavailableError("gone"))
        with pytest.raises(BrokerUnavailableError, match="gone"):
            await waiting
        for topic in "t", "u":
            with pytest.raises(BrokerUnavailableError):
                _ = await producer.send(topic, b"2")
        assert cluster.unwatched({"t", "u"}) == {"t", "u"}


@on_a_loop
async def test_a_table_whose_sending_is_cancelled_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Added rows are sent, and the number of the others is logged: no one has the future."""
    table = pa.table({"value": [b"v" * 1_000] * 500})
    async with producing(monkeypatch, unanswered, buffer_memory=200_000) as (producer, sender):
        is_full = asyncio.Event()

        async def wait(*_: object) -> bool:
            is_full.set()
            return await asyncio.Event().wait()

        monkeypatch.setattr(sender.buffer_pool, "wait_on_loop", wait)
        call = asyncio.create_task(producer.send_arrow("t", table))
        await is_full.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            _ = await call
        added = sum(batch.builder.count for batch in sender.undone())
        assert 0 < added < 500
        lost = f"{500 - added} of 500 rows for t were not added, the others are sent: send_arrow"
        assert f"{lost} was ended by CancelledError" in caplog.text
    assert "send_arrow was interrupted: 0 of 500 rows were delivered" in caplog.text


@pytest.mark.parametrize("waits_in_a_thread", [False, True])
@on_a_loop
async def test_a_full_memory_has_all_records_sent(
    monkeypatch: pytest.MonkeyPatch, waits_in_a_thread: bool
) -> None:
    """They wait for more records, for which there is no room: nothing would ever be sent."""

    async def answer(request: ProduceRequest) -> ProduceResponse:
        return stored(request)

    async with producing(monkeypatch, answer, linger_ms=10_000_000, buffer_memory=100_000) as (
        producer,
        sender,
    ):
        sent = [await producer.send("t", b"v" * 7_000, partition=number) for number in range(14)]
        if waits_in_a_thread:
            assert await asyncio.to_thread(sender.buffer_pool.wait, 7_000, Deadline(60_000))
        else:
            _ = await producer.send("t", b"v" * 7_000, partition=14)
        await asyncio.gather(*sent)


@on_a_loop
async def test_a_batch_that_becomes_too_old_does_not_end_the_request_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor its connection, on which other requests wait for answers."""
    is_told = asyncio.Event()

    async def answer(request: ProduceRequest) -> ProduceResponse:
        await is_told.wait()
        return stored(request)

    async with producing(
        monkeypatch, answer, request_timeout_ms=50_000, delivery_timeout_ms=60_000
    ) as (producer, sender):
        old, young = [await producer.send("t", b"v", partition=number) for number in range(2)]
        sender.undone()[0].created -= 59_900
        with pytest.raises(RequestTimedOutError, match=r"delivery\.timeout.*may have been written"):
            await old
        assert not young.done()
        is_told.set()
        assert (await young).offset == 0


@on_a_loop
async def test_a_turn_that_breaks_down_twice_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with producing(monkeypatch, unanswered) as (producer, sender):
        monkeypatch.setattr(sender, "_leader_of", lambda _: None)
        waiting = await producer.send("t", b"v")
        sender.undone()

        def fail() -> None:
            raise RuntimeError("a surprise")

        with monkeypatch.context() as broken:
            broken.setattr(sender, "_collect", fail)
            sender._wake.set()
            with pytest.raises(LocalProtocolError, match="a bug in the producer"):
                await waiting
        with pytest.raises(LocalProtocolError, match="a surprise"):
            _ = await producer.send("t", b"v")
        assert sender._loop_task is not None
        assert not sender._loop_task.done()
    assert "or remain without an answer" in caplog.text
