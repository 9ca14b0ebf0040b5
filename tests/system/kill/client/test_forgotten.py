"""Clients that nobody closes and nobody refers to: a warning, and all they had ends at once."""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from kohort import AdminClient, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client import RebalanceListener
from kohort.client.admin.aio import AsyncAdminClient
from tests.real_kafka.broker import RealKafka

LONG_S = 60
# Longer than any test may take: who waits for it fails.
NEVER_MS = 300_000


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker


@pytest.fixture
def bootstrap(embedded: EmbeddedBroker) -> str:
    return embedded.bootstrap_servers


@pytest.fixture(params=["embedded", "real_kafka"])
def either(request: pytest.FixtureRequest) -> str:
    broker: EmbeddedBroker | RealKafka = request.getfixturevalue(request.param)
    return broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def fill(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def end_of(bootstrap: str, topic: str) -> int:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        return consumer.end_offsets([partition])[partition]


def member(bootstrap: str, topic: str, **settings: Any) -> Consumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "max_poll_interval_ms": NEVER_MS,
        "group_instance_id": None,
    }
    if settings.get("group_protocol") != "consumer":
        defaults["session_timeout_ms"] = 60_000
    return Consumer(topic, **(defaults | settings))


def until(is_so: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(LONG_S * 100):
        if is_so():
            return
        waited.wait(0.01)
    raise AssertionError("it does not come about")


def our_threads() -> set[threading.Thread]:
    """The threads of clients; a failed test may have left some to its report."""
    names = ("kohort-consumer", "kohort-producer", "kohort-admin")
    return {each for each in threading.enumerate() if each.name in names}


def warned(forget: Callable[[], object], names: set[str]) -> None:
    """Forget clients; each of them is warned of, and its thread ends."""
    before = our_threads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget()
        gc.collect()
        until(lambda: our_threads() <= before)
        gc.collect()
    texts = {str(each.message) for each in caught if each.category is ResourceWarning}
    assert {text.split(":")[0].removeprefix("unclosed ") for text in texts} == names, texts


# ------------------------------------------------------------------------- what is collected


def test_a_consumer(bootstrap: str, topic: str) -> None:
    warned(lambda: Consumer(bootstrap_servers=bootstrap).topics(), {"Consumer"})


def test_a_producer(bootstrap: str, topic: str) -> None:
    warned(lambda: Producer(bootstrap_servers=bootstrap).send(topic, b"").result(60), {"Producer"})


def test_an_admin_client(bootstrap: str) -> None:
    warned(lambda: AdminClient(bootstrap_servers=bootstrap).list_topics(), {"AdminClient"})


def test_clients_that_were_closed_or_never_used(bootstrap: str, topic: str) -> None:
    def forget() -> None:
        for kind in (Consumer, Producer, AdminClient, AsyncConsumer, AsyncProducer):
            kind(bootstrap_servers=bootstrap)
        Consumer().close()
        with Consumer(bootstrap_servers=bootstrap) as consumer:
            consumer.topics()

    warned(forget, set())


def test_a_warning_that_is_an_error_does_not_keep_the_thread(bootstrap: str) -> None:
    before = our_threads()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda _: None)
        warnings.simplefilter("error")
        AdminClient(bootstrap_servers=bootstrap).list_topics()
        gc.collect()
    until(lambda: our_threads() <= before)


class Service:
    """The usual cycles: all that it gives to its clients refers to itself, and so to them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.events = 0
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self.consumer = Consumer(
            group_id=topic,
            key_deserializer=self.made,
            value_deserializer=self.made,
            event_listener=self.seen,
            on_commit=self.answered,
            **settings,
        )
        listener = RebalanceListener()
        listener.consumer = self.consumer  # type: ignore[attr-defined]  # as users do
        self.consumer.subscribe([topic], listener=listener)
        self.producer = Producer(
            key_serializer=self.written, value_serializer=self.written, **settings
        )

    def made(self, value: bytes) -> object:
        return value

    def written(self, value: object) -> bytes:
        return b"%r" % value

    def seen(self, _: object) -> None:
        self.events += 1

    def answered(self, *_: object) -> None:
        self.events += 1


def test_what_refers_to_its_own_clients(bootstrap: str, topic: str) -> None:
    def forget() -> None:
        service = Service(bootstrap, topic)
        service.producer.send(topic, 1, key=1).result(LONG_S)
        while not service.consumer.assignment():
            service.consumer.poll(100)
        service.consumer.commit_async()
        assert service.events

    warned(forget, {"Consumer", "Producer"})


variable: ContextVar[object] = ContextVar("variable")


def test_a_consumer_in_a_context_variable(bootstrap: str, topic: str) -> None:
    def forget() -> None:
        consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id=topic)
        token = variable.set(consumer)
        consumer.poll(0)
        variable.reset(token)

    warned(forget, {"Consumer"})


def test_a_producer_whose_last_reference_is_in_its_own_callback(bootstrap: str, topic: str) -> None:
    def forget() -> None:
        held = [Producer(bootstrap_servers=bootstrap)]
        gate = threading.Event()

        def told(_: object) -> None:
            gate.wait(LONG_S)
            held.clear()

        held[0].send(topic, b"").add_done_callback(told)
        gate.set()

    warned(forget, {"Producer"})


# ------------------------------------------------------------------------------- on a loop


def forgotten_on_a_loop(use: Callable[[], Awaitable[object]], name: str) -> None:
    def sockets() -> int:
        selector: selectors.BaseSelector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # as users do
        return len(selector.get_map())

    async def main() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await use()
            gc.collect()
            while len(asyncio.all_tasks()) > 1 or sockets() > 1:
                await asyncio.sleep(0)
                gc.collect()
        texts = [str(each.message) for each in caught if each.category is ResourceWarning]
        assert [text.split(":")[0] for text in texts] == [f"unclosed {name}"]

    asyncio.run(main())


def test_an_async_producer(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        producer = AsyncProducer(bootstrap_servers=bootstrap, linger_ms=NEVER_MS)
        _ = await producer.send(topic, b"")

    forgotten_on_a_loop(use, "AsyncProducer")
    assert end_of(bootstrap, topic) == 1


def test_an_async_consumer(bootstrap: str, topic: str) -> None:
    async def use() -> None:
        consumer = AsyncConsumer(bootstrap_servers=bootstrap, group_id=topic)
        listener = RebalanceListener()
        listener.consumer = consumer  # type: ignore[attr-defined]  # as users do
        consumer.subscribe([topic], listener=listener)
        while not consumer.assignment():
            await consumer.poll(100)

    fill(bootstrap, topic, 1)
    forgotten_on_a_loop(use, "AsyncConsumer")
    with member(bootstrap, topic) as successor:
        while not successor.assignment():
            successor.poll(100)


def test_an_async_admin_client(bootstrap: str) -> None:
    async def use() -> None:
        await AsyncAdminClient(bootstrap_servers=bootstrap).list_topics()

    forgotten_on_a_loop(use, "AsyncAdminClient")


# ------------------------------------------------------------------------------ what is lost


def test_unsent_records_are_sent(either: str, topic: str) -> None:
    def forget() -> None:
        producer = Producer(bootstrap_servers=either, linger_ms=NEVER_MS)
        for _ in range(100):
            producer.send(topic, b"", partition=0)

    warned(forget, {"Producer"})
    assert end_of(either, topic) == 100


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_leaves_and_commits_only_what_was_consumed(
    either: str, topic: str, protocol: str
) -> None:
    """Its partitions go to the next member without a time-out, with what it polled last."""
    fill(either, topic, 10)

    def forget() -> None:
        consumer = member(either, topic, group_protocol=protocol, max_poll_records=4)
        seen = 0
        while seen < 8:
            seen += sum(map(len, consumer.poll(1_000).values()))

    warned(forget, {"Consumer"})
    with member(either, topic, group_protocol=protocol) as successor:
        found: list[int] = []
        while 9 not in found:
            for records in successor.poll(1_000).values():
                found += [record.offset for record in records]
    assert found == [4, 5, 6, 7, 8, 9]


def test_the_face_is_gone(bootstrap: str, topic: str) -> None:
    before = our_threads()
    consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id=topic)
    consumer.poll(100)
    face = ref(consumer)
    with pytest.warns(ResourceWarning, match="unclosed Consumer"):
        del consumer
    assert face() is None
    until(lambda: our_threads() <= before)
