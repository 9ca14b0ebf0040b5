"""The outcome of records while their producer is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from kohort import AdminClient, AsyncProducer, LocalProtocolError, Producer
from kohort.broker import EmbeddedBroker
from kohort.client.admin.api import NewTopic
from kohort.client.producer.api import DeliveryFuture
from kohort.errors import KafkaError
from tests.broker.processes import eventually
from tests.client.cutting_proxy import CuttingProxy
from tests.client.loops import on_a_loop
from tests.client.producer_scenarios import read_all, unique_name

DEADLINE_S = 60


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


class Senders:
    """Threads that send until the producer refuses."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.futures: list[DeliveryFuture] = []
        self.errors: list[str] = []
        self._producer, self._topic = producer, topic
        self._many = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(4)]

    def start(self) -> None:
        for each in self._threads:
            each.start()
        assert self._many.wait(DEADLINE_S)

    def join(self) -> None:
        for each in self._threads:
            each.join(DEADLINE_S)
            assert not each.is_alive()

    def _send(self) -> None:
        try:
            while True:
                self.futures.append(self._producer.send(self._topic, bytes(100)))
                if len(self.futures) > 2_000:
                    self._many.set()
        except LocalProtocolError as error:
            self.errors.append(str(error))


@pytest.mark.parametrize("buffer_memory", [32 * 2**20, 2**16])
def test_what_threads_send_during_close_is_refused_or_delivered(
    bootstrap: str, buffer_memory: int
) -> None:
    topic = unique_name()
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    producer = Producer(bootstrap_servers=bootstrap, buffer_memory=buffer_memory)
    senders = Senders(producer, topic)
    senders.start()
    producer.close()
    senders.join()
    assert all(each.done() for each in senders.futures)
    offsets = sorted(each.result(0).offset for each in senders.futures)
    assert offsets == list(range(len(offsets)))
    assert len(senders.errors) == 4
    assert all("closed" in each for each in senders.errors)


def test_a_close_in_time_says_what_may_have_been_written(bootstrap: str) -> None:
    topic = unique_name()
    proxy = CuttingProxy(bootstrap, lambda _: True)
    with proxy:
        producer = Producer(bootstrap_servers=proxy.bootstrap_servers, linger_ms=0)
        future = producer.send(topic, b"v")
        pause = threading.Event()
        eventually(lambda: proxy.lost > 0 or pause.wait(0.02), "an answer is lost")
        producer.close(timeout=1)
    error = future.exception(0)
    assert isinstance(error, KafkaError)
    assert "not acknowledged in 1 s" in str(error)
    assert "may have been written" in str(error)
    assert read_all(bootstrap, topic) == [(None, b"v")]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_callbacks_send_during_close_is_delivered(bootstrap: str, is_known: bool) -> None:
    topic, dead_letters = unique_name(), unique_name()
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        limit = {"max.message.bytes": "2000"}
        admin.create_topics([NewTopic(topic, 1, configs=limit), NewTopic(dead_letters, 1)])
    sent: list[DeliveryFuture] = []
    with Producer(bootstrap_servers=bootstrap) as producer:
        if is_known:
            sent.append(producer.send(dead_letters, b"first"))
        for _ in range(30):
            producer.send(topic, bytes(5000)).add_errback(
                lambda error: sent.append(producer.send(dead_letters, str(error).encode()))
            )
    assert len(sent) == 30 + is_known
    assert {each.result(0).topic for each in sent} == {dead_letters}
    assert len(read_all(bootstrap, dead_letters)) == len(sent)


def test_callbacks_may_send_on_and_on_until_the_time_to_close_is_over(bootstrap: str) -> None:
    topic = unique_name()
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
    last: list[DeliveryFuture] = []
    refused: list[str] = []

    def again(_: object) -> None:
        try:
            future = producer.send(topic, b"v")
        except LocalProtocolError as error:
            refused.append(str(error))
        except KafkaError as error:
            refused.append(str(error))
        else:
            last[:] = [future]
            future.add_done_callback(again)

    producer.send(topic, b"v").add_done_callback(again)
    producer.close(timeout=0.5)
    wait(last, DEADLINE_S)
    assert len(refused) == 1


@on_a_loop
async def test_a_task_that_sends_while_its_producer_closes_is_not_cancelled(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        for turns in range(8):
            producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers)
            tasks = [asyncio.create_task(producer.send("t", b"v")) for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await producer.close()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, LocalProtocolError), outcome
                else:
                    assert (await outcome).topic == "t"


@on_a_loop
async def test_a_task_that_is_cancelled_while_it_waits_for_metadata_is_cancelled(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            task = asyncio.create_task(producer.send("t", b"v"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                _ = await task


def test_a_close_that_a_handler_interrupts_can_be_done_again(bootstrap: str) -> None:
    topic = unique_name()
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
    futures = [producer.send(topic, b"%d" % number) for number in range(20_000)]
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)

    def interrupt() -> None:
        while not producer._internals.is_closed:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            producer.close()
            interrupting.join()
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    producer.close()
    assert sorted(future.result(60).offset for future in futures) == list(range(20_000))


@on_a_loop
async def test_a_close_that_is_cancelled_can_be_done_again(bootstrap: str) -> None:
    topic = unique_name()
    producer = AsyncProducer(bootstrap_servers=bootstrap, linger_ms=60_000)
    futures = [await producer.send(topic, b"%d" % number) for number in range(1_000)]
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await producer.close()
    offsets = [(await future).offset for future in futures]
    assert sorted(offsets) == list(range(1_000))
