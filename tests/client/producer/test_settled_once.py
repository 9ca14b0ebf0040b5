"""Each row and each record is settled once, however its batch is split, refused or given up."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncProducer, Producer
from kohort.client.producer._open_batches import OpenBatches
from kohort.client.producer.accumulator import Accumulator
from kohort.client.producer.arrow.delivery import (
    ArrowDelivery,
    ArrowDeliveryError,
    ArrowDeliveryFuture,
    ArrowFate,
    PartitionRows,
)
from kohort.client.producer.arrow.ready_batch import ReadyBatch
from kohort.client.producer.batch import Batch, Identity
from kohort.client.producer.delivery import DEFECT, tell_all
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.errors import ErrorCode, KafkaError, RequestTimedOutError
from kohort.types import TopicPartition
from kohort.wire.records import Compression, RecordBatchBuilder, decode_records
from kohort.wire.records._encode_columns import EncodedRows, Groups
from kohort.wire.records.columns import open_columns
from kohort.wire.records.compression import compress
from tests.client.loops import on_a_loop

HERE = TopicPartition("t", 0)
REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "no")
DELIVERY_TIMEOUT_MS = 1_000
SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=40)
# Outcomes of the batch that is taken next.
FATES = st.lists(
    st.sampled_from(["deliver", "divide", "divide", "divide", "again", "give up", "refuse one"])
)
# Outcomes of the remaining batches: they expire, or the producer ends.
ENDS = st.sampled_from(["deliver", "expire", "abandon"])


class Game:
    """The batches of one partition, and the broker's answer to each."""

    def __init__(self) -> None:
        self.accumulator = Accumulator(delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        self.accumulator.identity = Identity(7, 0)
        self.written: list[bytes] = []

    def play(self, fates: list[str], end: str) -> None:
        for fate in fates:
            for batch in self._take():
                self._settle(batch, fate)
        if end == "deliver":
            while batches := self._take():
                self._settle(batches[0], end)
        left = self.accumulator.expired(DELIVERY_TIMEOUT_MS) if end == "expire" else []
        for batch in (*left, *self.accumulator.abandon()):
            tell_all(batch.fate.failed(REFUSED))
        assert self.accumulator.undone() == []

    def _take(self) -> list[Batch]:
        requests = self.accumulator.take(0, lambda _: 1, lambda _: 5, 10**6)
        return [batch for batches in requests.values() for batch in batches]

    def _settle(self, batch: Batch, fate: str) -> None:
        if fate == "again":
            self.accumulator.again(batch, 0)
        elif fate == "divide" and batch.builder.count > 1:
            self.accumulator.divide(batch, batch.parts(batch.builder.size // 2))
        elif fate == "refuse one":
            self.accumulator.gave_up(batch)
            tell_all(batch.fate.failed(REFUSED, {batch.builder.count - 1: REFUSED}))
        elif fate == "give up":
            self.accumulator.gave_up(batch)
            tell_all(batch.fate.failed(REFUSED))
        else:
            first = len(self.written)
            self.written += values_of(batch)
            self.accumulator.done(batch)
            tell_all(batch.fate.delivered(first, -1))


def values_of(batch: Batch) -> list[bytes]:
    return [each.value or b"" for each in decode_records(batch.encode(Compression.NONE))]


def encoded(values: list[bytes], codec: Compression = Compression.NONE) -> EncodedRows:
    """Return values as a single batch, as made by `send_arrow`."""
    columns = open_columns(pa.record_batch({"value": values}), 0)
    assert columns.check(10**6, 1) is None
    rows = Groups(columns, 0, len(values), 1, 0, 10**6).encode(0, 10**6)
    if codec is Compression.NONE:
        return rows
    return rows.compressed(int(codec), compress(codec, rows.records()))


def numbered(sizes: list[int]) -> list[bytes]:
    return [b"%04d" % number + b"v" * size for number, size in enumerate(sizes)]


@given(SIZES, st.sampled_from([Compression.NONE, Compression.GZIP]), FATES, ENDS)
@example([30] * 40, Compression.NONE, ["divide"] * 3, "deliver")
def test_each_row_is_settled_once(
    sizes: list[int], codec: Compression, fates: list[str], end: str
) -> None:
    values = numbered(sizes)
    half = len(values) // 2
    future: Future[ArrowDelivery] = Future()
    whole = ArrowFate("t", future)
    game = Game()
    for first, rows in ((0, values[:half]), (half, values[half:])):
        if rows:
            game.accumulator.add(ReadyBatch(HERE, 0, encoded(rows, codec), whole, first))
    whole.close()
    game.play(fates, end)
    assert future.done()
    error = future.exception(0)
    delivered, failed = future.result(0) if error is None else None, []
    if isinstance(error, ArrowDeliveryError):
        delivered, failed = error.delivered, error.rows.to_pylist()
        assert sum(each.rows for each in error.failures.values()) == len(failed)
    assert delivered is not None
    assert delivered.rows == len(game.written) == len(values) - len(failed)
    assert sorted(game.written + [values[row] for row in failed]) == values


@given(SIZES, FATES, ENDS)
def test_each_record_is_settled_once(sizes: list[int], fates: list[str], end: str) -> None:
    values, calls = numbered(sizes), [0] * len(sizes)
    game, batches = Game(), opened()
    futures = []
    for number, value in enumerate(values):
        future = batches.add(DeliveryFuture, "t", value, None, (), 0, 0)
        assert future is not None
        futures.append(future)
        if number % 2:  # others are completed only when someone asks
            future.add_done_callback(counting(calls, number))
    batches.seal_all()
    for batch in batches.sealed:
        game.accumulator.add(batch)
    game.play(fates, end)
    assert all(each.done() for each in futures)
    assert calls[1::2] == [1] * (len(calls) // 2)
    for value, future in zip(values, futures, strict=True):
        if future.exception(0) is None:
            assert game.written[future.result(0).offset] == value
    assert len(game.written) == sum(each.exception(0) is None for each in futures)


def counting(calls: list[int], number: int) -> Callable[[object], None]:
    def count(_: object) -> None:
        calls[number] += 1

    return count


def opened() -> OpenBatches:
    batches = OpenBatches(
        Batch,
        lambda: 0,
        lambda: None,
        batch_size=4_000,
        largest_batch=4_000,
        linger_ms=0,
        buffer_memory=10**6,
        largest_record=10**6,
    )
    batches.set_partitions("t", 1)
    return batches


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 300), st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=900)))
    ),
    min_size=2,
    max_size=20,
)


@given(RECORDS, st.integers(0, 5_000))
@example([(10, []), (10, [("big", bytes(3_000))])], 1_500)
def test_a_divided_batch_has_smaller_parts(
    records: list[tuple[int, list[tuple[str, bytes]]]], most_bytes: int
) -> None:
    builder = RecordBatchBuilder()
    for number, (size, headers) in enumerate(records):
        builder.append(0, None, b"%04d" % number + b"v" * size, headers)
    whole = Batch(HERE, 0, builder)
    parts = whole.parts(min(most_bytes, builder.size // 2))
    assert len(parts) >= 2
    assert [value for part in parts for value in values_of(part)] == values_of(whole)
    assert all(0 < part.builder.count < builder.count for part in parts)


def test_rows_are_not_settled_twice() -> None:
    batch = ReadyBatch(HERE, 0, encoded([b"a", b"b"]), ArrowFate("t", Future()), 0)
    batch.fate.delivered(0, -1)
    with pytest.raises(AssertionError, match="set only once"):
        batch.fate.failed(REFUSED)
    with pytest.raises(AssertionError, match="set only once"):
        batch.fate.divide([(0, batch.fate)])


class Unbuildable:
    """Content of a batch that makes one step of the sender raise."""

    def __init__(self, step: str) -> None:
        self._step = step

    @property
    def count(self) -> int:
        return 2

    @property
    def size(self) -> int:
        if self._step == "take":
            raise ZeroDivisionError(self._step)
        return 10

    def build(self, codec: Compression, **numbers: int) -> bytes:
        raise ZeroDivisionError(self._step)


@pytest.mark.parametrize("step", ["take", "build"])
@on_a_loop
async def test_a_defect_fails_records_and_lets_none_wait_for_ever(
    step: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 2)
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await (await producer.send("t", b"v", partition=0))
            sender = producer._internals.sender()
            batch = Batch(HERE, sender.now_ms(), Unbuildable(step))
            assert sender.batches.add_batch(batch, 10)
            await producer.flush(60)
            assert batch.fate.is_settled
    assert [each.getMessage() for each in caplog.records] == [DEFECT]


def test_an_exit_from_a_record_that_waited_for_its_topic_ends_nothing(tmp_path: Path) -> None:
    """Callbacks send without waiting: their records wait elsewhere, and fail from there."""
    failed = threading.Event()

    def leave(_: object) -> None:
        failed.set()
        sys.exit()

    with EmbeddedBroker(tmp_path, auto_create_topics=False) as broker:
        broker.create_topic("t", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=3_000) as producer:

            def send_another(_: object) -> None:
                producer.send("missing", b"v").add_errback(leave)

            producer.send("t", b"v").add_callback(send_another)
            assert failed.wait(60)
            assert producer.send("t", b"v").get(60).offset == 1


@pytest.mark.parametrize("end", [lambda: 1 / 0, sys.exit], ids=["an error", "an exit"])
def test_a_callback_of_a_table_that_raises_is_logged_and_hurts_nobody(
    end: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    future, heard = ArrowDeliveryFuture(), list[tuple[object, ...]]()

    def hear(*given: object) -> None:
        heard.append(given)

    assert future.add_callback(lambda _: end()).add_callback(hear, 1) is future
    future.add_errback(hear)
    fate = ArrowFate("t", future)
    batch = ReadyBatch(HERE, 0, encoded([b"a", b"b"]), fate, 0)
    fate.close()
    with caplog.at_level(logging.ERROR):
        batch.fate.delivered(5, -1)
    delivery = future.get(0)
    assert heard == [(1, delivery)]
    assert delivery == ArrowDelivery("t", 2, {0: PartitionRows(2, 5, 6)})
    (said,) = caplog.records
    assert (said.name, "of the table raised" in said.getMessage()) == ("kohort.client", True)


def test_the_future_of_a_table_has_the_calls_of_the_future_of_a_record() -> None:
    future, heard = ArrowDeliveryFuture(), list[object]()
    future.add_errback(heard.append).add_callback(heard.append)
    with pytest.raises(RequestTimedOutError, match="the table was not acknowledged in 0 s"):
        future.get(timeout=0)
    fate = ArrowFate("t", future)
    batch = ReadyBatch(HERE, 0, encoded([b"a", b"b"]), fate, 0)
    fate.close()
    batch.fate.failed(REFUSED)
    with pytest.raises(ArrowDeliveryError, match="INVALID_RECORD: no") as raised:
        future.get(0)
    assert heard == [raised.value]
    cancelled = ArrowDeliveryFuture()
    assert cancelled.cancel()
    assert wait([cancelled], 0).done == {cancelled}
