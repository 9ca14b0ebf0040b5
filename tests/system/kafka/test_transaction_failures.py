"""What goes wrong in transactions, on a real Kafka, in both versions (KIP-98, KIP-890)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kohort import (
    AbortableTransactionError,
    AsyncProducer,
    Consumer,
    KafkaError,
    LocalProtocolError,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from kohort.client.producer.transactions.sender import TransactionalSender
from kohort.errors import RequestTimedOutError
from tests.broker.processes import DEADLINE_S, eventually
from tests.client.cutting_proxy import CuttingProxy
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.cluster import RealCluster
from tests.real_kafka.transactional import (
    PAUSE,
    SETTINGS,
    TIMEOUT_S,
    ended,
    new_id,
    producing,
    read,
)

END_TXN = 26
REPLICATED_TRANSACTIONS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
}


# ------------------------------------------------------------------------------------ failures


def test_a_record_that_fails_makes_the_transaction_abortable(kafka: RealKafka) -> None:
    topic = foreign.new_topic(kafka.bootstrap_servers, max_message_bytes="1000")
    with producing(kafka) as producer:
        producer.begin_transaction()
        producer.send(topic, b"fits").result(TIMEOUT_S)
        future = producer.send(topic, bytes(5_000))
        error = future.exception(TIMEOUT_S)
        assert isinstance(error, KafkaError)
        with pytest.raises(AbortableTransactionError, match="abort_transaction") as caught:
            producer.commit_transaction()
        assert caught.value.__cause__ is error
        with pytest.raises(AbortableTransactionError):
            producer.send(topic, b"later")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again")
    assert read(kafka.bootstrap_servers, topic) == [b"again"]


@pytest.mark.parametrize("flushes", [True, False])
def test_a_second_producer_fences_the_first(kafka: RealKafka, topic: str, flushes: bool) -> None:
    name = new_id()
    with producing(kafka, name) as first, producing(kafka, name) as second:
        first.begin_transaction()
        first.send(topic, b"first")
        if flushes:
            first.flush()
        with second.transaction():
            second.send(topic, b"second")
        calls: list[Callable[[], object]] = [
            first.commit_transaction,
            first.abort_transaction,
            first.begin_transaction,
            lambda: first.send(topic, b"late"),
        ]
        for call in calls:
            with pytest.raises(ProducerFencedError, match=name):
                call()
        with second.transaction():
            second.send(topic, b"still there")
    assert read(kafka.bootstrap_servers, topic) == [b"second", b"still there"]


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "close"])
def test_a_fenced_producer_leaves_the_transaction_of_its_successor_alone(
    kafka: RealKafka, topic: str, call: str
) -> None:
    """Asked for the next epoch by the one, the broker would abort what the other has open."""
    name = new_id()
    with producing(kafka, name) as first, producing(kafka, name) as second:
        first.begin_transaction()
        second.begin_transaction()
        second.send(topic, b"second").result(30)
        first.send(topic, b"first")
        first.flush()
        with suppress(ProducerFencedError):
            getattr(first, call)()
        second.send(topic, b"second again")
        second.commit_transaction()
    assert read(kafka.bootstrap_servers, topic) == [b"second", b"second again"]


@pytest.mark.parametrize("sends_more", [True, False])
def test_a_transaction_that_is_open_for_too_long(
    kafka: RealKafka, topic: str, sends_more: bool, request: pytest.FixtureRequest
) -> None:
    """In version 2 it is not taken for fencing; before, the broker answers both alike."""
    place = TopicPartition(topic, 0)
    is_final = "version-1" in request.node.name
    kind = ProducerFencedError if is_final else AbortableTransactionError
    with producing(kafka, transaction_timeout_ms=500) as producer:
        producer.begin_transaction()
        producer.send(topic, b"slow")
        producer.flush()
        given = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
        with Consumer.from_config(given) as consumer:
            eventually(lambda: ended(consumer, place) == 2, "the broker has aborted it")
        if sends_more:
            producer.send(topic, b"more")
        with pytest.raises(kind, match=r"transaction\.timeout\.ms"):
            producer.commit_transaction()
        if is_final:
            return
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"quick")
    assert read(kafka.bootstrap_servers, topic) == [b"quick"]


def waited(proxy: CuttingProxy) -> bool:
    PAUSE.wait(0.01)
    return proxy.lost > 0


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_whose_answer_is_lost_happens_once(
    kafka: RealKafka, topic: str, commits: bool
) -> None:
    with CuttingProxy(kafka.bootstrap_servers, lambda number: number % 3 == 0) as proxy:
        proxy.loses = frozenset({END_TXN})
        with Producer(
            bootstrap_servers=proxy.bootstrap_servers, transactional_id=new_id()
        ) as producer:
            for number in range(5):
                producer.begin_transaction()
                producer.send(topic, b"%d" % number)
                producer.flush()
                producer.commit_transaction() if commits else producer.abort_transaction()
        assert proxy.lost
    expected = [b"%d" % number for number in range(5)] if commits else []
    assert read(kafka.bootstrap_servers, topic) == expected


def test_a_commit_without_an_answer_may_only_be_committed_again(
    kafka: RealKafka, topic: str
) -> None:
    is_cut = True
    with CuttingProxy(kafka.bootstrap_servers, lambda _: is_cut) as proxy:
        proxy.loses = frozenset({END_TXN})
        with Producer(
            bootstrap_servers=proxy.bootstrap_servers, transactional_id=new_id()
        ) as producer:
            producer.begin_transaction()
            producer.send(topic, b"once")
            with pytest.raises(KafkaError, match="commit_transaction again") as caught:
                producer.commit_transaction(timeout=1)
            assert caught.value.retriable
            wrong: list[Callable[[], object]] = [
                producer.abort_transaction,
                producer.begin_transaction,
                lambda: producer.send(topic, b"later"),
            ]
            for call in wrong:
                with pytest.raises(LocalProtocolError, match="call it again"):
                    call()
            is_cut = False
            producer.commit_transaction()
            with producer.transaction():
                producer.send(topic, b"next")
    assert read(kafka.bootstrap_servers, topic) == [b"once", b"next"]


def test_an_interrupted_commit_can_be_made_again(kafka: RealKafka, topic: str) -> None:
    """Ctrl-C, once the broker has committed and its answer is lost."""
    is_cut = True
    with (
        CuttingProxy(kafka.bootstrap_servers, lambda _: is_cut) as proxy,
        Producer(bootstrap_servers=proxy.bootstrap_servers, transactional_id=new_id()) as producer,
    ):
        proxy.loses = frozenset({END_TXN})
        producer.begin_transaction()
        producer.send(topic, b"once")

        def interrupt() -> None:
            eventually(lambda: waited(proxy), "the broker has committed")
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
        interrupter.join()
        is_cut = False
        producer.commit_transaction()
    assert read(kafka.bootstrap_servers, topic) == [b"once"]


@on_a_loop
async def test_a_cancelled_commit_can_be_made_again(kafka: RealKafka) -> None:
    topic = foreign.new_topic(kafka.bootstrap_servers)
    is_cut = True
    with CuttingProxy(kafka.bootstrap_servers, lambda _: is_cut) as proxy:
        proxy.loses = frozenset({END_TXN})
        async with AsyncProducer(
            bootstrap_servers=proxy.bootstrap_servers, transactional_id=new_id()
        ) as producer:
            await producer.begin_transaction()
            await (await producer.send(topic, b"once"))
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.to_thread(eventually, lambda: waited(proxy), "the broker has committed")
            commit.cancel()
            await asyncio.wait([commit])
            is_cut = False
            await producer.commit_transaction()
    assert await asyncio.to_thread(read, kafka.bootstrap_servers, topic) == [b"once"]


def test_a_commit_that_waits_for_records_can_be_taken_back(kafka: RealKafka, topic: str) -> None:
    """Produce has no answer, so nothing was asked of the coordinator: abort is allowed."""
    with (
        CuttingProxy(kafka.bootstrap_servers, lambda _: True) as proxy,
        Producer(bootstrap_servers=proxy.bootstrap_servers, transactional_id=new_id()) as producer,
    ):
        producer.begin_transaction()
        producer.send(topic, b"unknown")
        with pytest.raises(RequestTimedOutError, match="or abort_transaction"):
            producer.commit_transaction(timeout=1)
        proxy.cut = lambda _: False
        producer.abort_transaction()
    assert read(kafka.bootstrap_servers, topic) == []


def test_the_broker_may_be_killed_in_the_middle(tmp_path: Path) -> None:
    with RealKafka(tmp_path, SETTINGS) as kafka:
        topic = foreign.new_topic(kafka.bootstrap_servers)
        with producing(kafka) as producer:
            producer.begin_transaction()
            producer.send(topic, b"before")
            producer.flush()
            kafka.kill()
            kafka.start()
            producer.send(topic, b"after")
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(topic, b"aborted").result(TIMEOUT_S)
            kafka.kill()
            abort = threading.Thread(target=producer.abort_transaction)
            abort.start()
            kafka.start()
            abort.join(DEADLINE_S)
            with producer.transaction():
                producer.send(topic, b"last")
        assert read(kafka.bootstrap_servers, topic) == [b"before", b"after", b"last"]


def test_the_coordinator_may_move_in_the_middle(tmp_path: Path) -> None:
    """Its node is killed between the records and the commit; another one has its log."""
    names = [new_id() for _ in range(30)]
    with RealCluster(tmp_path, REPLICATED_TRANSACTIONS) as cluster, ExitStack() as stack:
        found = (begun(stack, cluster.bootstrap_servers, name) for name in names)
        producer, node = next(each for each in found if each[1] in (2, 3))
        producer.send(names[0], b"before").result(TIMEOUT_S)
        cluster.brokers[node - 2].kill()
        producer.send(names[0], b"after")
        producer.commit_transaction()
        with producer.transaction():
            producer.send(names[0], b"next")
        assert read(cluster.bootstrap_servers, names[0]) == [b"before", b"after", b"next"]


def begun(stack: ExitStack, servers: str, name: str) -> tuple[Producer, int]:
    """A producer within a transaction, and the node of its coordinator."""
    given = {"bootstrap.servers": servers, "transactional.id": name}
    producer = stack.enter_context(Producer.from_config(given))
    producer.begin_transaction()
    sender = producer._internals.made
    assert isinstance(sender, TransactionalSender)
    node = sender.coordinator._node_id
    assert node is not None
    return producer, node
