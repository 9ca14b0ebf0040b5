"""The future of a record: a `concurrent.futures` future, with kafka-python's methods."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, as_completed, wait
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client.producer._deliveries import Fate
from kohort.client.producer._open_batches import OpenBatches
from kohort.client.producer.api import Producer
from kohort.client.producer.batch import Batch
from kohort.client.producer.delivery import RecordMetadata, tell_all
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.errors import ErrorCode, KafkaError, RequestTimedOutError
from tests.client.loops import on_a_loop

REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "no")


class Sent:
    """Records in one batch whose outcome a test decides."""

    def __init__(self, count: int) -> None:
        batches = OpenBatches(
            Batch,
            lambda: 0,
            lambda: None,
            batch_size=10**6,
            largest_batch=10**6,
            linger_ms=0,
            buffer_memory=10**6,
            largest_record=10**6,
        )
        batches.set_partitions("t", 1)
        self.futures = [self._add(batches, number) for number in range(count)]
        batches.seal_all()
        self.fate: Fate = batches.sealed[0].fate

    def _add(self, batches: OpenBatches, number: int) -> DeliveryFuture:
        future = batches.add(DeliveryFuture, "t", b"v", None, (), 0, 1000 + number)
        assert future is not None
        return future

    def deliver(self) -> None:
        tell_all(self.fate.delivered(7, -1))

    def fail(self) -> None:
        tell_all(self.fate.failed(REFUSED))


def place(number: int) -> RecordMetadata:
    return RecordMetadata("t", 0, 7 + number, 1000 + number)


def test_it_is_a_future_whether_or_not_somebody_waited() -> None:
    sent = Sent(3)
    assert [(isinstance(each, Future), each.done()) for each in sent.futures] == [(True, False)] * 3
    assert not sent.futures[0].running()  # this reads its state
    sent.deliver()
    assert [each.done() for each in sent.futures] == [True] * 3
    assert [each.result(0) for each in sent.futures] == [place(n) for n in range(3)]
    assert [each.exception(0) for each in sent.futures] == [None] * 3
    assert not any(each.cancel() for each in sent.futures)


def test_it_fails_whether_or_not_somebody_waited() -> None:
    sent = Sent(2)
    assert not sent.futures[0].cancelled()
    sent.fail()
    for each in sent.futures:
        assert each.exception(0) is REFUSED
        with pytest.raises(KafkaError, match="INVALID_RECORD: no"):
            each.result(0)
        with pytest.raises(KafkaError, match="INVALID_RECORD: no"):
            each.get(0)


def test_refused_records_have_their_own_reasons() -> None:
    sent = Sent(3)
    own = KafkaError(ErrorCode.INVALID_TIMESTAMP, "too old")
    tell_all(sent.fate.failed(REFUSED, {1: own}))
    assert [each.exception(0) for each in sent.futures] == [REFUSED, own, REFUSED]


def test_records_of_a_divided_batch_go_on_in_its_parts() -> None:
    sent = Sent(6)
    assert not sent.futures[4].cancelled()  # the state of some is created before, of others after
    parts = [(first, Fate("t", 0)) for first in (0, 2, 4)]
    sent.fate.divide(parts)
    assert not sent.futures[3].cancelled()
    deeper = [(0, Fate("t", 0)), (1, Fate("t", 0))]
    parts[2][1].divide(deeper)
    tell_all(parts[0][1].delivered(10, -1))
    tell_all(parts[1][1].failed(REFUSED))
    tell_all(deeper[0][1].delivered(20, 5))
    assert [sent.fate.is_settled, parts[1][1].is_settled] == [False, True]
    assert [each.done() for each in sent.futures] == [True] * 5 + [False]
    tell_all(deeper[1][1].delivered(30, -1))
    assert sent.fate.is_settled
    found = [each.exception(0) or each.result(0).offset for each in sent.futures]
    assert found == [10, 11, REFUSED, REFUSED, 20, 30]
    assert sent.futures[4].result(0).timestamp == 5


def test_cancelling_ends_the_wait_and_changes_nothing_else() -> None:
    sent = Sent(2)
    cancelled, other = sent.futures
    assert cancelled.cancel()
    assert cancelled.cancel()
    assert wait([cancelled], 0).done == {cancelled}
    sent.deliver()
    assert other.result(0) == place(1)
    with pytest.raises(CancelledError):
        cancelled.result(0)


def test_getting_takes_no_longer_than_it_may() -> None:
    (future,) = Sent(1).futures
    with pytest.raises(TimeoutError):
        assert future.result(0)
    with pytest.raises(RequestTimedOutError, match="not acknowledged in 0 s"):
        future.get(timeout=0)


def test_callbacks_are_those_of_kafka_python(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    def hear(*given: object, **named: object) -> None:
        heard.append((given, named))

    good, bad = Sent(1), Sent(1)
    for sent in (good, bad):
        (future,) = sent.futures
        assert future.add_callback(hear, 1, a=2).add_errback(hear, 3, b=4) is future
    good.deliver()
    bad.fail()
    good.futures[0].add_callback(hear)
    bad.futures[0].add_callback(hear)
    assert heard == [((1, place(0)), {"a": 2}), ((3, REFUSED), {"b": 4}), ((place(0),), {})]
    assert not caplog.records


@pytest.mark.parametrize("end", [lambda: 1 / 0, sys.exit], ids=["an error", "an exit"])
@pytest.mark.parametrize("add", ["add_callback", "add_done_callback"])
def test_a_callback_that_raises_is_logged_and_hurts_nobody(
    caplog: pytest.LogCaptureFixture, end: Callable[[], object], add: str
) -> None:
    sent = Sent(3)
    heard: list[object] = []
    getattr(sent.futures[0], add)(lambda _: end())
    sent.futures[1].add_callback(heard.append)
    with caplog.at_level(logging.ERROR):
        sent.deliver()
    assert heard == [place(1)]
    assert [each.result(0) for each in sent.futures] == [place(n) for n in range(3)]
    (said,) = caplog.records
    assert (said.name, said.levelname) == ("kohort.client", "ERROR")
    assert re.match("the callback <function .*> of the record raised", said.getMessage())


def test_a_callback_that_raises_hurts_no_other_of_its_record() -> None:
    sent, heard = Sent(1), list[object]()
    (future,) = sent.futures
    for _ in range(2):
        future.add_done_callback(lambda _: sys.exit())
        future.add_done_callback(heard.append)
    sent.deliver()
    assert heard == [future, future]


def test_an_exit_out_of_a_callback_called_at_once_is_the_application_s() -> None:
    sent = Sent(1)
    sent.deliver()
    with pytest.raises(SystemExit):
        sent.futures[0].add_callback(sys.exit)


def test_threads_make_its_state_once() -> None:
    for _ in range(200):
        sent = Sent(1)
        (future,) = sent.futures
        begin = threading.Barrier(4)
        heard: list[object] = []

        def watch(future: DeliveryFuture = future, begin: threading.Barrier = begin) -> None:
            begin.wait(30)
            future.add_callback(heard.append)  # noqa: B023  # joined before the next round

        threads = [threading.Thread(target=watch) for _ in range(3)]
        for thread in threads:
            thread.start()
        begin.wait(30)
        sent.deliver()
        for thread in threads:
            thread.join(30)
        assert heard == [place(0)] * 3


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Producer]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        broker.create_topic("t", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as made:
            yield made


def test_the_standard_library_takes_it(producer: Producer) -> None:
    futures = [producer.send("t", b"v") for _ in range(100)]
    assert wait(futures, 30, FIRST_COMPLETED).done
    assert {each.result(0).partition for each in as_completed(futures, 30)} == {0}
    done, left = wait(futures, 30)
    assert (len(done), len(left)) == (100, 0)


@on_a_loop
async def test_asyncio_takes_it(producer: Producer) -> None:
    futures = [asyncio.wrap_future(producer.send("t", b"v")) for _ in range(10)]
    offsets = [each.offset for each in await asyncio.gather(*futures)]
    assert offsets == list(range(offsets[0], offsets[0] + 10))
