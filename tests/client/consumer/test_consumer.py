"""The blocking consumer, on the embedded broker."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.broker.processes import eventually
from tests.client.refusing_proxy import RefusingProxy
from tests.real_kafka import foreign


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    ours = [each for each in set(threading.enumerate()) - before if "kohort" in each.name]
    assert ours == []


def filled_topic(bootstrap: str, count: int = 10) -> str:
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, [b"%d" % number for number in range(count)])
    return topic


def consumer(bootstrap: str, *topics: str, **settings: object) -> Consumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": uuid.uuid4().hex,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6_000,
    }
    return Consumer(*topics, **(defaults | settings))


def test_iteration_yields_records(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    with consumer(bootstrap, topic, value_deserializer=int) as client:
        assert [record.value for record in islice(client, 10)] == list(range(10))


def test_settings_by_kafkas_own_keys(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    with Consumer.from_config(settings, topic) as client:
        assert next(iter(client)).offset == 0
    with pytest.raises(ConfigError, match=r"group\.id"):
        Consumer.from_config({"groop.id": "g"})


def test_listeners_run_in_the_thread_that_polls(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    threads: list[threading.Thread] = []

    class Notes(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
            threads.append(threading.current_thread())
            for partition in partitions:
                client.seek(partition, 7)
            return None

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
            threads.append(threading.current_thread())
            client.commit({partition: OffsetAndMetadata(3) for partition in partitions})
            return None

    with consumer(bootstrap, enable_auto_commit=False) as client:
        client.subscribe([topic], listener=Notes())
        assert [record.offset for record in islice(client, 3)] == [7, 8, 9]
        client.unsubscribe()
        assert client.committed(TopicPartition(topic, 0)) == {
            TopicPartition(topic, 0): OffsetAndMetadata(3)
        }
    assert threads == [threading.current_thread()] * 2


def test_a_listener_may_answer_from_another_thread(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 2)
    group = uuid.uuid4().hex
    asked = threading.Event()
    finished: Future[object] = Future()

    class Later(RebalanceListener):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
            asked.set()
            return finished

    first = consumer(bootstrap, group_id=group)
    second = consumer(bootstrap, topic, group_id=group)
    with first, second:
        first.subscribe([topic], listener=Later())
        while len(first.assignment()) < 2:
            first.poll(50)
        while not asked.is_set():
            first.poll(50)
            second.poll(50)
        assert len(first.assignment()) == 2
        threading.Thread(target=finished.set_result, args=(None,)).start()
        while len(first.assignment()) != 1 or len(second.assignment()) != 1:
            first.poll(50)
            second.poll(50)


def test_another_thread_wakes_a_poll(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap)
    with consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, 0)])
        client.poll(10)
        threading.Timer(0.05, client.wakeup).start()
        assert client.poll(60_000) == {}


@pytest.mark.parametrize("reads", ["a group", "by hand"])
def test_a_poll_that_waits_ends_when_another_thread_closes(bootstrap: str, reads: str) -> None:
    topic = foreign.new_topic(bootstrap)
    client = consumer(bootstrap)
    if reads == "a group":
        client.subscribe([topic])
    else:
        client.assign([TopicPartition(topic, 0)])
    began, errors = threading.Event(), list[Exception]()

    def keep() -> None:
        client.poll(0)
        began.set()
        try:
            keep_polling(lambda _: client.poll(60_000))
        except LocalProtocolError as error:
            errors.append(error)

    polling = threading.Thread(target=keep)
    polling.start()
    assert began.wait(20)
    client.close()
    polling.join(20)
    assert not polling.is_alive()
    assert len(errors) == 1


def test_two_threads_may_not_poll_at_once(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap)
    with consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, 0)])
        waiting = threading.Thread(target=client.poll, args=(60_000,))
        waiting.start()
        with pytest.raises(LocalProtocolError, match="another poll"):
            keep_polling(client.poll)
        client.wakeup()
        waiting.join()


def test_a_slow_application_stays_a_member(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap)
    pause = threading.Event()
    with RefusingProxy(bootstrap) as proxy, consumer(proxy.bootstrap_servers, topic) as client:
        while not client.assignment():
            client.poll(50)
        generation, enough = client.generation_id, proxy.heartbeats + 10
        eventually(lambda: proxy.heartbeats >= enough or pause.wait(0.02), "heartbeats")
        client.commit({TopicPartition(topic, 0): OffsetAndMetadata(0)})
        assert client.generation_id == generation


def test_a_closed_consumer_says_so_and_closes_twice(bootstrap: str) -> None:
    client = consumer(bootstrap)
    client.close()
    client.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        client.poll()


def test_a_corrupt_batch_names_its_place_and_spares_the_others(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        good = filled_topic(broker.bootstrap_servers)
        bad = filled_topic(broker.bootstrap_servers)
        (segment,) = (tmp_path).rglob(f"{bad}-0/*.log")
        with segment.open("r+b") as file:
            file.seek(80)
            file.write(b"\xff\xff")
        for poll in ("poll", "poll_arrow"):
            with consumer(broker.bootstrap_servers, group_id=None) as client:
                client.assign([TopicPartition(bad, 0), TopicPartition(good, 0)])
                with pytest.raises(RemoteProtocolError, match=f"{bad}.*0"):
                    keep_polling(getattr(client, poll))
                client.seek_to_beginning(TopicPartition(good, 0))
                client.pause(TopicPartition(bad, 0))
                assert read_all(client) == 10


def keep_polling(poll: Callable[[int], object]) -> NoReturn:
    while True:
        poll(50)


def read_all(client: Consumer) -> int:
    return len(list(islice(client, 10)))


def test_poll_does_not_need_arrow(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, [bytes(1000)] * 2000)
    program = f"""
import sys
from kohort.client import Consumer
from kohort.types import TopicPartition
with Consumer(bootstrap_servers={bootstrap!r}, auto_offset_reset="earliest") as consumer:
    consumer.assign([TopicPartition({topic!r}, 0)])
    count = 0
    while count < 2000:
        count += sum(map(len, consumer.poll(1000).values()))
assert "pyarrow" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_poll_raises_what_should_not_have_happened_to_an_answer(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours must be neither waited out nor retried forever."""
    topic = filled_topic(bootstrap)

    def fails(_records: memoryview, _position: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kohort.client.consumer.fetcher.whole_chunk", fails)
    with consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, 0)])
        with pytest.raises(ZeroDivisionError):
            keep_polling(lambda _: client.poll(1_000))
