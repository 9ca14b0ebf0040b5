"""Transactions of our producer on a real Kafka, in both versions (KIP-98, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module

import confluent_kafka
import pyarrow as pa
import pytest

from kohort import (
    AsyncProducer,
    Consumer,
    ConsumerGroupMetadata,
    KafkaError,
    LocalProtocolError,
    Producer,
    TopicPartition,
)
from kohort.errors import ErrorCode
from tests.broker.processes import eventually
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transactional import (
    TIMEOUT_S,
    ended,
    new_id,
    producing,
    read,
)

# --------------------------------------------------------------------------- what readers see


def test_what_is_committed_is_read_and_what_is_aborted_is_not(kafka: RealKafka, topic: str) -> None:
    with producing(kafka) as producer:
        for number in range(6):
            producer.begin_transaction()
            future = producer.send(topic, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            assert future.result(0).topic == topic
    assert read(kafka.bootstrap_servers, topic) == [b"0", b"2", b"4"]
    uncommitted = read(kafka.bootstrap_servers, topic, **{"isolation.level": "read_uncommitted"})
    assert len(uncommitted) == 6


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")  # kafka-python's own
def test_other_clients_read_what_we_commit(kafka: RealKafka, topic: str) -> None:
    with producing(kafka) as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.flush()
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
    kafka_python = import_module("kafka")
    python = kafka_python.KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    python.assign([kafka_python.TopicPartition(topic, 0)])
    librdkafka = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": new_id()}
        | {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    librdkafka.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    mine: list[bytes | None] = []
    theirs: list[bytes | None] = []

    def are_there() -> bool:
        for records in python.poll(100).values():
            mine.extend(record.value for record in records)
        message = librdkafka.poll(0.1)
        if message is not None and message.error() is None:
            theirs.append(message.value())
        return len(mine) >= 2 and len(theirs) >= 2

    eventually(are_there, "both have read two records")
    python.close()
    librdkafka.close()
    assert mine == theirs == [b"1", b"3"]


def test_we_read_what_librdkafka_commits_among_ours(kafka: RealKafka, topic: str) -> None:
    """Transactions that overlap, and whose records take turns in the log."""
    other = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": new_id()}
    )
    other.init_transactions(TIMEOUT_S)
    with producing(kafka) as producer:
        for number in range(4):
            other.begin_transaction()
            producer.begin_transaction()
            for _ in range(3):
                other.produce(topic, b"other %d" % number, partition=0)
                assert other.flush(TIMEOUT_S) == 0
                producer.send(topic, b"ours %d" % number)
                producer.flush()
            if number % 2:
                other.commit_transaction(TIMEOUT_S)
                producer.abort_transaction()
            else:
                other.abort_transaction(TIMEOUT_S)
                producer.commit_transaction()
    expected = [b"ours 0"] * 3 + [b"other 1"] * 3 + [b"ours 2"] * 3 + [b"other 3"] * 3
    assert read(kafka.bootstrap_servers, topic) == expected


def test_the_end_of_committed_records_is_the_last_stable_offset(
    kafka: RealKafka, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    with producing(kafka) as producer:
        with producer.transaction():
            producer.send(topic, b"first")
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        for level, end in (("read_committed", 2), ("read_uncommitted", 3)):
            given = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": level}
            with Consumer.from_config({**given, "auto.offset.reset": "earliest"}) as consumer:
                consumer.assign([place])
                assert consumer.end_offsets([place]) == {place: end}
                eventually(lambda: bool(consumer.poll(100)), "the first record is read")
                lag = consumer.current_lag(place)
                assert lag == end - consumer.position(place)
        producer.abort_transaction()


def test_rows_of_tables_are_part_of_a_transaction(kafka: RealKafka, topic: str) -> None:
    def rows(value: str) -> pa.Table:
        return pa.table({"value": [value] * 3})

    with producing(kafka, compression_type="lz4") as producer:
        with pytest.raises(LocalProtocolError, match="begin_transaction"):
            producer.send_arrow(topic, rows("none"))
        with producer.transaction():
            assert producer.send_arrow(topic, rows("committed")).result(TIMEOUT_S).rows == 3
        producer.begin_transaction()
        producer.send_arrow(topic, rows("aborted")).result(TIMEOUT_S)
        producer.abort_transaction()
    assert read(kafka.bootstrap_servers, topic) == [b"committed"] * 3


# -------------------------------------------------------------------------------- wrong calls


def test_calls_in_a_wrong_state_raise_at_once_and_change_nothing(
    kafka: RealKafka, topic: str
) -> None:
    nobody = ConsumerGroupMetadata("group")
    place = TopicPartition(topic, 0)
    with producing(kafka) as producer:
        ends: list[Callable[[], object]] = [
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send(topic, b"outside"),
            lambda: producer.send("no such topic", b"outside"),
            lambda: producer.send_offsets_to_transaction({place: 1}, nobody),
        ]
        for call in ends:
            with pytest.raises(LocalProtocolError, match="begin_transaction"):
                call()
        producer.init_transactions()
        for call in (*ends, producer.init_transactions):
            with pytest.raises(LocalProtocolError, match="begin_transaction"):
                call()
        producer.begin_transaction()
        producer.send(topic, b"inside")
        for call in (producer.begin_transaction, producer.init_transactions):
            with pytest.raises(LocalProtocolError, match="commit or abort it first"):
                call()
        producer.commit_transaction()
    assert read(kafka.bootstrap_servers, topic) == [b"inside"]
    with pytest.raises(LocalProtocolError, match="closed"):
        producer.begin_transaction()


def test_without_an_id_there_are_no_transactions(kafka: RealKafka) -> None:
    with (
        Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
        pytest.raises(LocalProtocolError, match=r"transactional\.id"),
    ):
        producer.begin_transaction()


def test_a_time_out_that_the_broker_does_not_allow_is_named(kafka: RealKafka) -> None:
    with (
        producing(kafka, transaction_timeout_ms=2**31 - 1) as producer,
        pytest.raises(KafkaError, match=r"transaction\.max\.timeout\.ms") as caught,
    ):
        producer.begin_transaction()
    assert caught.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# ------------------------------------------------------------------------------------- blocks


class LeftError(Exception):
    """What leaves a block."""


@pytest.mark.parametrize("kind", [LeftError, KeyboardInterrupt, SystemExit])
def test_an_exception_that_leaves_a_block_aborts_it(
    kafka: RealKafka, topic: str, kind: type[BaseException]
) -> None:
    with producing(kafka) as producer:

        def work() -> None:
            with producer.transaction():
                producer.send(topic, b"lost")
                producer.flush()
                raise kind

        with pytest.raises(kind):
            work()
        with producer.transaction():
            producer.send(topic, b"kept")
        with producer.transaction():
            producer.abort_transaction()
    assert read(kafka.bootstrap_servers, topic) == [b"kept"]


@on_a_loop
async def test_a_cancelled_task_aborts_its_block(kafka: RealKafka) -> None:
    topic = foreign.new_topic(kafka.bootstrap_servers)
    has_sent = asyncio.Event()
    async with AsyncProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=new_id()
    ) as producer:

        async def work() -> None:
            async with producer.transaction():
                await (await producer.send(topic, b"lost"))
                has_sent.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await has_sent.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        async with producer.transaction():
            await (await producer.send(topic, b"kept"))
    assert await asyncio.to_thread(read, kafka.bootstrap_servers, topic) == [b"kept"]


# ----------------------------------------------------------------------------------------- end


def test_close_aborts_what_is_open_and_says_so(
    kafka: RealKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = producing(kafka)
    producer.begin_transaction()
    producer.send(topic, b"flushed").result(TIMEOUT_S)
    late = producer.send(topic, b"late")
    producer.close()
    assert late.done()
    assert "is closed during a transaction, which is aborted" in caplog.text
    place = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        eventually(lambda: ended(consumer, place) == 2, "it is aborted")  # long before its time
    assert read(kafka.bootstrap_servers, topic) == []


def test_a_dropped_producer_aborts_what_is_open(kafka: RealKafka, topic: str) -> None:
    producer = producing(kafka)
    producer.begin_transaction()
    producer.send(topic, b"flushed").result(TIMEOUT_S)
    with pytest.warns(ResourceWarning, match="unclosed Producer"):
        del producer
    place = TopicPartition(topic, 0)
    given = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer.from_config(given) as consumer:
        eventually(lambda: ended(consumer, place) == 2, "it is aborted")
    assert read(kafka.bootstrap_servers, topic) == []
