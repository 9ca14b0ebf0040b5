"""A transactional producer and a scripted coordinator; and brokers without transactions."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kohort import (
    AbortableTransactionError,
    AsyncProducer,
    ConfigError,
    ConsumerGroupMetadata,
    KafkaError,
    LocalProtocolError,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from kohort.client.net.coordinator import Coordinator
from kohort.client.producer.sender import Sender
from kohort.errors import BrokerUnavailableError, ErrorCode, RequestTimedOutError
from kohort.wire.messages.produce import ProduceRequest, ProduceResponse
from kohort.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.loops import on_a_loop
from tests.client.producer.test_sender import stored

GROUP = ConsumerGroupMetadata("group", 3, "member")
PLACE = TopicPartition("t", 0)


class Coordinating:
    """A coordinator that handles requests, unless a test sets its answers.

    Attributes:
        asked: Names of its requests, in order.
        heard: Set once it has received a request of that name.
        says: The codes of its next answers, by request class; an exception is raised.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.asked: list[str] = []
        self.says: dict[type, list[int | Exception]] = {}
        self.heard: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._epoch = 0

    async def send(self, _: Coordinator, request: Any, **_options: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append(name)
        self.heard[name].set()
        said = self.says.get(type(request), [])
        code = said.pop(0) if said else 0
        if isinstance(code, Exception):
            raise code
        return self._answer(request, code)

    def _answer(self, request: Any, code: int) -> Any:
        if isinstance(request, InitProducerIdRequest):
            self._epoch += not code
            return InitProducerIdResponse(
                error_code=code, producer_id=7, producer_epoch=self._epoch
            )
        if isinstance(request, EndTxnRequest):
            if self.version == 1 or code:
                return EndTxnResponse(error_code=code)
            self._epoch += 1
            return EndTxnResponse(error_code=0, producer_id=7, producer_epoch=self._epoch)
        if isinstance(request, AddPartitionsToTxnRequest):
            return added(request, code)
        if isinstance(request, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=code)
        assert isinstance(request, TxnOffsetCommitRequest)
        return offsets_stored(request, code)


def added(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    """A refusal affects the last partition of each topic; the others are not tried then."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number,
                        partition_error_code=code
                        if number == topic.partitions[-1]
                        else code and ErrorCode.OPERATION_NOT_ATTEMPTED,
                    )
                    for number in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        )
    )


def offsets_stored(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


@asynccontextmanager
async def producing(
    monkeypatch: pytest.MonkeyPatch, version: int = 2, **settings: Any
) -> AsyncIterator[tuple[AsyncProducer, Coordinating]]:
    """A producer that knows the topic `t` with 100 partitions, and its coordinator."""
    coordinating = Coordinating(version)

    async def level(*_: object) -> int:
        return version

    async def produce(_: int, request: ProduceRequest, **_options: object) -> ProduceResponse:
        assert request.transactional_id == "id"
        coordinating.asked.append("Produce")
        return stored(request)

    async def send(each: Coordinator, request: Any, **options: Any) -> Any:
        return await coordinating.send(each, request, **options)

    monkeypatch.setattr(Coordinator, "send", send)
    monkeypatch.setattr(Coordinator, "level", level)
    monkeypatch.setattr(Sender, "_leader_of", lambda *_: 1)
    given = {"retry_backoff_ms": 1, "linger_ms": 0, "max_block_ms": 5_000, **settings}
    producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", transactional_id="id", **given)
    sender = producer._internals.sender()
    sender.batches.set_partitions("t", 100)
    monkeypatch.setattr(sender._cluster, "send", produce)
    monkeypatch.setattr(sender._cluster, "request_refresh", lambda: None)
    try:
        yield producer, coordinating
    finally:
        await producer.close(0)


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (1, "InitProducerId AddPartitionsToTxn Produce AddOffsetsToTxn TxnOffsetCommit EndTxn"),
        (2, "InitProducerId Produce TxnOffsetCommit EndTxn"),
    ],
)
@on_a_loop
async def test_what_each_version_asks(
    monkeypatch: pytest.MonkeyPatch, version: int, asked: str
) -> None:
    async with producing(monkeypatch, version) as (producer, coordinating):
        async with producer.transaction():
            await (await producer.send("t", b"v", partition=0))
            await producer.send_offsets_to_transaction({PLACE: 1}, GROUP)
        assert coordinating.asked == asked.split()


@pytest.mark.parametrize("version", [1, 2])
@on_a_loop
async def test_what_passes_is_tried_again(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    passing: list[int | Exception] = [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        BrokerUnavailableError("gone"),
    ]
    async with producing(monkeypatch, version) as (producer, coordinating):
        for request in (
            InitProducerIdRequest,
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        ):
            coordinating.says[request] = list(passing)
        async with producer.transaction():
            await (await producer.send("t", b"v", partition=0))
            await producer.send_offsets_to_transaction({PLACE: 1}, GROUP)
        kinds = 3 if version == 2 else 5
        assert len(coordinating.asked) >= kinds * (len(passing) + 1)


@on_a_loop
async def test_an_id_that_may_not_be_used_can_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    async with producing(monkeypatch) as (producer, coordinating):
        coordinating.says[InitProducerIdRequest] = [code]
        with pytest.raises(KafkaError, match="permission to WRITE") as caught:
            await producer.begin_transaction()
        assert caught.value.code == code
        await producer.begin_transaction()
        await producer.abort_transaction()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, AbortableTransactionError),
    ],
)
@on_a_loop
async def test_a_refused_commit_can_be_aborted(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[KafkaError]
) -> None:
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        coordinating.says[EndTxnRequest] = [code]
        with pytest.raises(kind, match="transactional id id"):
            await producer.commit_transaction()
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        with pytest.raises(LocalProtocolError, match="abort_transaction first"):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await (await producer.send("t", b"v", partition=0))


@pytest.mark.parametrize(
    ("end", "next_epoch"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, [ErrorCode.PRODUCER_FENCED]),
        (ErrorCode.PRODUCER_FENCED, []),
    ],
)
@on_a_loop
async def test_a_fenced_producer_is_at_its_end(
    monkeypatch: pytest.MonkeyPatch, end: int, next_epoch: list[int]
) -> None:
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        coordinating.says[EndTxnRequest] = [end]
        coordinating.says[InitProducerIdRequest] = [*next_epoch]
        with pytest.raises(ProducerFencedError) as caught:
            await producer.commit_transaction()
        assert caught.value.fatal
        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()
        with pytest.raises(ProducerFencedError):
            await (await producer.send("t", b"v", partition=0))


@on_a_loop
async def test_another_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        coordinating.says[EndTxnRequest] = [ErrorCode.POLICY_VIOLATION]
        calls: list[Callable[[], Any]] = [producer.commit_transaction, producer.begin_transaction]
        for call in calls:
            with pytest.raises(KafkaError, match="create a new one") as caught:
                await call()
            assert caught.value.code == ErrorCode.POLICY_VIOLATION
            assert caught.value.fatal


@on_a_loop
async def test_a_commit_without_an_answer_of_a_producer_that_is_forgotten_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been committed before the coordinator forgot it; this cannot be excluded."""
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        coordinating.says[EndTxnRequest] = [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ]
        doubt = "whether its last transaction was committed"
        with pytest.raises(KafkaError, match=doubt) as raised:
            await producer.commit_transaction()
        assert raised.value.fatal


@on_a_loop
async def test_a_partition_that_may_not_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others were not tried; no records are sent to any of them."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with producing(monkeypatch, 1, linger_ms=60_000, delivery_timeout_ms=120_000) as (
        producer,
        coordinating,
    ):
        coordinating.says[AddPartitionsToTxnRequest] = [code]
        await producer.begin_transaction()
        futures = [await producer.send("t", b"v", partition=number) for number in range(3)]
        with pytest.raises(AbortableTransactionError, match="t-2") as caught:
            await producer.commit_transaction()
        assert caught.value.code == code
        assert all(isinstance(future.exception(), KafkaError) for future in futures)
        assert "Produce" not in coordinating.asked
        await producer.abort_transaction()


@pytest.mark.parametrize("version", [1, 2])
@on_a_loop
async def test_offsets_without_an_answer_are_not_committed(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async with producing(monkeypatch, version) as (producer, coordinating):
        await producer.begin_transaction()
        coordinating.says[TxnOffsetCommitRequest] = [BrokerUnavailableError("gone")] * 10_000
        with pytest.raises(AbortableTransactionError, match="longer than 50 ms"):
            await producer.send_offsets_to_transaction({PLACE: 1}, GROUP, timeout=0.05)
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        await producer.abort_transaction()


@on_a_loop
async def test_cancelled_offsets_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        coordinating.says[TxnOffsetCommitRequest] = [BrokerUnavailableError("gone")] * 10_000
        task = asyncio.create_task(producer.send_offsets_to_transaction({PLACE: 1}, GROUP))
        await coordinating.heard["TxnOffsetCommit"].wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        with pytest.raises(AbortableTransactionError, match="interrupted"):
            await producer.commit_transaction()
        await producer.abort_transaction()


@on_a_loop
async def test_calls_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with producing(monkeypatch) as (producer, coordinating):
        await producer.begin_transaction()
        await (await producer.send("t", b"v", partition=0))
        coordinating.says[EndTxnRequest] = [BrokerUnavailableError("gone")] * 10_000
        commit = asyncio.create_task(producer.commit_transaction())
        await coordinating.heard["EndTxn"].wait()
        with pytest.raises(RequestTimedOutError, match="another call has not ended"):
            await producer.commit_transaction(timeout=0.01)
        coordinating.says.clear()
        await commit


@on_a_loop
async def test_what_a_callback_sends_is_part_of_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with producing(monkeypatch) as (producer, _):
        records = producer._internals.callback_records()
        await producer.begin_transaction()
        future = records.add(("t", b"v", None, (), 0, None))
        await producer.commit_transaction()
        assert future.result(0).partition == 0
        await producer.begin_transaction()
        unknown = records.add(("u", b"v", None, (), 0, None))
        with pytest.raises(KafkaError):
            await producer.commit_transaction(timeout=0.05)
        await producer.abort_transaction()
        with pytest.raises(LocalProtocolError, match="aborted"):
            unknown.result(0)


def test_a_call_without_brokers_ends_and_names_the_last_cause() -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1", transactional_id="id") as producer,
        pytest.raises(BrokerUnavailableError, match=r"begin_transaction .* 127\.0\.0\.1:1.*again"),
    ):
        producer.begin_transaction(timeout=2)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"transactional_id": ""}, "empty"),
        ({"transactional_id": "id", "acks": 1}, "acks=all"),
        ({"transactional_id": "id", "enable_idempotence": False}, "enable.idempotence"),
        ({"transactional_id": "id", "transaction_timeout_ms": 0}, "at least 1"),
        ({"transaction_timeout_ms": 1_000}, "no effect without transactional.id"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer(**settings)


def test_a_forked_child_is_refused() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", transactional_id="id") as producer:
        with pytest.raises(KafkaError):
            producer.begin_transaction(timeout=0.1)
        child = os.fork()
        if not child:
            try:
                producer.begin_transaction(timeout=0.1)
            except LocalProtocolError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
