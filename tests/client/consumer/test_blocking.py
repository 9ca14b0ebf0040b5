"""The blocking consumer: which calls are allowed from where, and what interrupts them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, Consumer, Producer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import ConfigError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.loops import on_a_loop

LONG_S = 20


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder, num_partitions=2) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with twenty records in two partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


def consumer(bootstrap: str, **settings: object) -> Consumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": uuid.uuid4().hex,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6_000,
    }
    return Consumer(**(defaults | settings))


def values(client: Consumer, count: int) -> list[bytes]:
    """Read `count` values by polling."""
    found: list[bytes] = []
    while len(found) < count:
        for records in client.poll(LONG_S * 1000).values():
            found += [record.value for record in records]
    return found


def test_a_listener_may_ask_commit_and_seek(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap) as client:

        class Asks(RebalanceListener):
            def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
                ends = client.end_offsets(partitions)
                for partition in partitions:
                    client.seek(partition, ends[partition] - 1)
                client.commit({partition: OffsetAndMetadata(7) for partition in partitions})
                return None

        client.subscribe([topic], listener=Asks())
        assert sorted(values(client, 2)) == [b"18", b"19"]
        found = client.committed(*client.assignment())
        assert {stored.offset for stored in found.values()} == {7}


def test_another_thread_may_ask_while_a_poll_waits(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap) as client:
        client.assign([TopicPartition(topic, 0)])
        values(client, 10)
        waiting = threading.Thread(target=client.poll, args=(LONG_S * 1000,))
        waiting.start()
        assert client.end_offsets([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): 10}
        client.wakeup()
        waiting.join(LONG_S)
        assert not waiting.is_alive()


def test_positions_are_committed_without_waiting(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap, enable_auto_commit=False) as client:
        client.subscribe([topic])
        values(client, 20)
        client.commit_async().result(LONG_S)
        stored = client.committed(*client.assignment())
    assert {each.offset for each in stored.values()} == {10}


def test_a_membership_without_reading_is_one(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap) as client:
        client.subscribe([topic])
        while not client.assignment():
            client.poll_membership(LONG_S * 1000)
        assert len(client.assignment()) == 2
        assert client.generation_id == 1


def test_columns_are_cut_at_the_number_asked_for(bootstrap: str, topic: str) -> None:
    with consumer(bootstrap) as client:
        client.subscribe([topic])
        sizes: list[int] = []
        while sum(sizes) < 20:
            sizes.append(client.poll_arrow(LONG_S * 1000, max_records=7).num_rows)
    assert max(sizes) <= 7
    assert sum(sizes) == 20


def test_a_consumer_without_a_group_cannot_subscribe(bootstrap: str) -> None:
    with consumer(bootstrap, group_id=None) as client, pytest.raises(ConfigError):
        client.subscribe(["t"])


def test_an_interrupt_in_a_listener_comes_out_and_the_consumer_lives(
    bootstrap: str, topic: str
) -> None:
    class Interrupted(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
            raise KeyboardInterrupt

    with consumer(bootstrap) as client:
        client.subscribe([topic], listener=Interrupted())
        with pytest.raises(KeyboardInterrupt):
            values(client, 20)
        assert len(values(client, 20)) == 20


@on_a_loop
async def test_a_blocked_loop_is_reported(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        heartbeat_interval_ms=50,
    ) as client:
        while not client.assignment():
            await client.poll(20)
        threading.Event().wait(0.5)  # the loop does nothing else meanwhile
        while "event loop was blocked" not in caplog.text:
            await client.poll(20)
