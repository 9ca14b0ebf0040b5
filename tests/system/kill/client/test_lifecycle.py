"""Clients that signals interrupt, that are forked, and that are closed from wherever."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kohort import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KohortError,
    LocalProtocolError,
    Producer,
    TopicPartition,
)
from kohort.broker import EmbeddedBroker
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.blocking.loop_thread import LoopThread
from kohort.client.producer.api import RecordMetadata
from kohort.errors import RequestTimedOutError
from tests.client.programs.run import run
from tests.real_kafka.broker import RealKafka

LONG_S = 60


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def consumer(bootstrap: str, *topics: str, **settings: Any) -> Consumer:
    defaults = {"bootstrap_servers": bootstrap, "group_id": uuid.uuid4().hex}
    return Consumer(*topics, **(defaults | settings))


# ---------------------------------------------------------------------------------- signals


def test_20_000_signals_in_every_call_of_a_consumer(bootstrap: str) -> None:
    done = run("signals", bootstrap, "20000")
    assert done.stdout == "signals: all\n", done.stderr
    assert done.returncode == 0, done.stderr


def test_signals_beside_apache_kafka(real_kafka: RealKafka) -> None:
    done = run("signals", real_kafka.bootstrap_servers, "4000")
    assert done.stdout == "signals: all\n", done.stderr
    assert done.returncode == 0, done.stderr


def test_a_wakeup_before_the_first_poll_ends_it(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap, topic) as client:
        client.wakeup()
        assert client.poll(LONG_S * 1000 * 60) == {}


def test_a_wakeup_after_close_does_nothing(bootstrap: str, topic: str) -> None:
    for polls in (False, True):
        client = consumer(bootstrap, topic)
        if polls:
            client.poll(0)
        client.close()
        client.wakeup()


def test_an_async_consumer_is_woken_from_anywhere(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap) as client:
            client.wakeup()
            client.assign([TopicPartition(topic, 0)])
            assert await client.poll(LONG_S * 1000 * 60) == {}
            threading.Thread(target=client.wakeup).start()
            assert await client.poll(LONG_S * 1000 * 60) == {}
        client.wakeup()

    asyncio.run(main())


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def handle(does: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: does())

    yield handle
    signal.signal(signal.SIGUSR1, before)


def send_signal_while(is_so: Callable[[], bool]) -> threading.Thread:
    def wait_and_send() -> None:
        while not is_so():
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    return thread


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_close_in_a_handler_ends_the_poll_it_interrupts(
    bootstrap: str,
    topic: str,
    protocol: str,
    on_signal: Callable[[Callable[[], object]], None],
) -> None:
    client = consumer(bootstrap, topic, group_protocol=protocol)
    on_signal(client.close)
    sender = send_signal_while(lambda: bool(client.member_id))

    def polls() -> None:
        while True:
            client.poll(LONG_S * 1000)

    with pytest.raises(LocalProtocolError, match="closed"):
        polls()
    sender.join(LONG_S)
    client.close()


def test_a_blocking_call_in_a_handler_is_answered(
    bootstrap: str, topic: str, on_signal: Callable[[Callable[[], object]], None]
) -> None:
    found: list[dict[TopicPartition, int]] = []
    with consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, 0)])
        client.partitions_for_topic(topic)

        def asks() -> None:
            found.append(client.end_offsets([TopicPartition(topic, 0)]))
            client.wakeup()

        on_signal(asks)
        sender = send_signal_while(lambda: True)
        while not found:
            client.poll(LONG_S * 1000)
        sender.join(LONG_S)
    assert found == [{TopicPartition(topic, 0): 0}]


# ------------------------------------------------------------------------------------- fork


def test_a_forked_child_is_refused_and_its_parent_goes_on(bootstrap: str) -> None:
    done = run("forks", bootstrap)
    assert done.stdout.splitlines() == [
        "children: 8",
        "parent read 106",
        "async child: 0 parent's offset moves: True",
    ], done.stderr
    assert done.returncode == 0, done.stderr
    for complaint in ("Exception", "pending", "Traceback", "never awaited"):
        assert complaint not in done.stderr, done.stderr


def test_a_forked_child_beside_apache_kafka(real_kafka: RealKafka) -> None:
    done = run("forks", real_kafka.bootstrap_servers)
    assert "parent read 106" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_another_loop_is_refused(bootstrap: str, topic: str, kind: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    producer, reader = AsyncProducer(**settings), AsyncConsumer(**settings)
    admin = AsyncAdminClient(**settings)

    async def use() -> None:
        if kind == "producer":
            await (await producer.send(topic, b""))
        elif kind == "consumer":
            await reader.topics()
        else:
            await admin.list_topics()

    async def elsewhere() -> None:
        with pytest.raises(LocalProtocolError, match="for each loop"):
            await use()

    async def main() -> None:
        await use()
        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        for client in (producer, reader, admin):
            await client.close()

    asyncio.run(main())


# ------------------------------------------------------------------- the client's own thread


def test_blocking_calls_in_callbacks_are_refused_at_once(bootstrap: str, topic: str) -> None:
    errors: list[BaseException] = []

    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except LocalProtocolError as error:
            errors.append(error)

    with Producer(bootstrap_servers=bootstrap) as producer:
        done = threading.Event()

        def told(_: object) -> None:
            for call in (producer.flush, producer.close):
                refused(call)
            done.set()

        producer.send(topic, b"").add_done_callback(told)
        assert done.wait(LONG_S)
        producer.send(topic, b"").result(LONG_S)
    assert len(errors) == 2

    def heard(_: object) -> None:
        for call in (client.topics, client.close):
            refused(call)

    client: Consumer = consumer(bootstrap, topic, event_listener=heard)
    with client:
        while not client.assignment():
            client.poll(100)
    assert len(errors) > 2
    for error in errors:
        assert "own thread" in str(error)


def test_a_delivery_callback_may_send_to_a_topic_nobody_knows_yet(
    bootstrap: str, topic: str
) -> None:
    sent: list[Future[RecordMetadata]] = []
    with Producer(bootstrap_servers=bootstrap) as producer:
        done = threading.Event()

        def told(_: object) -> None:
            sent.extend(producer.send(f"{topic}-dead", b"%d" % number) for number in range(5))
            done.set()

        producer.send(topic, b"").add_done_callback(told)
        assert done.wait(LONG_S)
        producer.flush()
        assert [each.result(0).offset for each in sent] == [0, 1, 2, 3, 4]


def test_a_delivery_callback_does_not_wait_for_memory(bootstrap: str, topic: str) -> None:
    """Records of callbacks wait elsewhere while memory is full, and as much of it, no more."""
    value = b"x" * 1000
    failed: list[BaseException] = []
    sent: list[Future[RecordMetadata]] = []
    with Producer(bootstrap_servers=bootstrap, buffer_memory=4_000, linger_ms=0) as producer:
        done = threading.Event()

        def told(_: object) -> None:
            for _ in range(50):
                try:
                    sent.append(producer.send(topic, value))
                except RequestTimedOutError as error:
                    failed.append(error)
            done.set()

        producer.send(topic, value).add_done_callback(told)
        assert done.wait(LONG_S)
        producer.flush()
        assert failed
        assert 3 <= len(sent) <= 8
        for each in sent:
            assert each.result(0)


# ------------------------------------------------------------------------------------ close


def test_close_is_done_once_and_waited_for_by_all(bootstrap: str, topic: str) -> None:
    client = consumer(bootstrap, topic)
    while not client.assignment():
        client.poll(100)
    closers = [threading.Thread(target=client.close) for _ in range(5)]
    for each in closers:
        each.start()
    for each in closers:
        each.join(LONG_S)
    client.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        client.poll(0)


@pytest.mark.parametrize("make", [Consumer, Producer, AdminClient])
def test_with_and_close_go_together(bootstrap: str, make: type[Consumer | Producer]) -> None:
    with make(bootstrap_servers=bootstrap) as client:
        client.close()
    client.close()


def test_a_start_that_fails_can_be_tried_again(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Producer(bootstrap_servers=bootstrap) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot)
            with pytest.raises(LocalProtocolError, match="can't start new thread"):
                producer.send(topic, b"")
        producer.send(topic, b"").result(LONG_S)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        broken = Producer(bootstrap_servers=bootstrap)
        with pytest.raises(LocalProtocolError):
            broken.send(topic, b"")
        broken.close()


def test_many_threads_start_one_loop() -> None:
    async def thread() -> str:
        return threading.current_thread().name + str(threading.get_ident())

    for _ in range(50):
        loop, found = LoopThread("one"), set[str]()
        gate = threading.Barrier(8)

        def use(
            loop: LoopThread = loop, found: set[str] = found, gate: threading.Barrier = gate
        ) -> None:
            gate.wait()
            found.add(loop.run(thread))

        threads = [threading.Thread(target=use) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        loop.close()
        assert len(found) == 1


def test_calls_that_race_with_close_end() -> None:
    async def nothing() -> None:
        await asyncio.sleep(0)

    for _ in range(100):
        loop = LoopThread("racing")

        def use(loop: LoopThread = loop) -> None:
            with suppress(LocalProtocolError):
                while True:
                    loop.run(nothing)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for each in threads:
            each.start()
        loop.close()
        for each in threads:
            each.join(LONG_S)
            assert not each.is_alive()


def test_close_waits_no_longer_than_it_is_told_to(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Something of the application's blocks the client's thread for ever."""
    blocks, freed = threading.Event(), threading.Event()

    def block(_: object) -> None:
        if blocks.is_set():
            freed.wait(LONG_S * 10)

    client = consumer(bootstrap, topic, event_listener=block)
    while not client.assignment():
        client.poll(100)
    blocks.set()
    client.close(timeout_s=0.1)
    assert "did not close in time" in caplog.text
    assert "is still running after close" in caplog.text
    freed.set()
    with pytest.raises(KohortError):
        client.poll(0)
    del client
    gc.collect()
