"""A producer's close is interrupted and the producer dropped: its records are still sent."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from kohort import AsyncProducer, Producer
from kohort.broker import EmbeddedBroker
from tests.broker.processes import eventually
from tests.client.interrupting import BoomError
from tests.client.loops import on_a_loop
from tests.client.observing import Recorder
from tests.client.producer_scenarios import unique_name

LONG_S = 60
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def handler(_number: int, _frame: FrameType | None) -> None:
        raise BoomError

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt_close(producer: Producer, may_go_on: threading.Event) -> None:
    """Interrupt the close, whose loop hears of it only when it may go on."""
    internals, running = producer._internals, producer._thread._running
    assert running is not None

    def interrupt() -> None:
        while not internals.is_closed:
            pass
        running.post(may_go_on.wait, LONG_S)
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(BoomError):
        producer.close()
    interrupting.join(LONG_S)


def fill(producer: Producer, topic: str) -> list[Future[Any]]:
    futures: list[Future[Any]] = [producer.send(topic, b"%d" % number) for number in range(3)]
    futures.append(producer.send_arrow(topic, pa.table({"value": [b"row"] * 100})))
    return futures


def drop(producers: list[Producer], may_go_on: threading.Event) -> None:
    producers.clear()
    gc.collect()
    may_go_on.set()


def close_again(producers: list[Producer], may_go_on: threading.Event) -> None:
    [producer] = producers

    def let_go() -> None:
        while not producer._thread._waiting:
            pass
        may_go_on.set()

    helper = threading.Thread(target=let_go)
    helper.start()
    producer.close()
    helper.join(LONG_S)


@pytest.mark.parametrize("then", [drop, close_again])
def test_what_an_interrupted_close_leaves_is_sent(
    bootstrap: str, then: Callable[[list[Producer], threading.Event], None]
) -> None:
    may_go_on = threading.Event()
    with Recorder(bootstrap) as proxy:
        producers = [Producer(bootstrap_servers=proxy.bootstrap_servers)]
        topic = unique_name()
        producers[0].send(topic, b"first").result(LONG_S)
        proxy.held.clear()  # before there are records to send, or all may already be sent
        futures = fill(producers[0], topic)
        interrupt_close(producers[0], may_go_on)
        proxy.held.set()
        then(producers, may_go_on)
        for future in futures:
            assert future.result(LONG_S) is not None


def test_what_can_not_be_sent_fails_and_is_told(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No answer arrives before the records expire."""
    may_go_on = threading.Event()
    with Recorder(bootstrap) as proxy:
        settings: dict[str, Any] = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 4_000}
        producers = [Producer(bootstrap_servers=proxy.bootstrap_servers, linger_ms=0, **settings)]
        topic = unique_name()
        producers[0].send(topic, b"first").result(LONG_S)
        proxy.held.clear()
        futures = [producers[0].send(topic, b"%d" % number) for number in range(3)]
        interrupt_close(producers[0], may_go_on)
        drop(producers, may_go_on)
        for future in futures:
            assert future.exception(LONG_S) is not None
    # logged by the producer's own thread, which may lag behind the one that awaits the futures
    eventually(lambda: "3 records" in caplog.text, "the lost records are told")


@on_a_loop
async def test_a_close_behind_one_that_is_cancelled_closes(bootstrap: str) -> None:
    """Wherever it is cancelled, the remaining work is done."""
    turns, is_cut = 0, True
    while is_cut:
        producer = AsyncProducer(bootstrap_servers=bootstrap, linger_ms=60_000)
        futures = [await producer.send("cancelled", b"%d" % number) for number in range(3)]
        closing = asyncio.create_task(producer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_cut = not closing.done()
        closing.cancel()
        await producer.close()
        assert all(future.done() for future in futures)
        await asyncio.wait([closing])
        assert asyncio.all_tasks() == {asyncio.current_task()}
        turns += 1
