"""What iteration, `poll`, `commit` and auto-commit agree on: each on both brokers."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kohort import OffsetAndMetadata, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, Consumer, ConsumerRecord
from kohort.errors import (
    BrokerUnavailableError,
    CommitFailedError,
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RecordDeserializationError,
)
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

COUNT = 300
LONG_MS = 60_000
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        yield kafka.bootstrap_servers
        return
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, name, [b"%d" % number for number in range(COUNT)])
    return name


def settings(bootstrap: str, protocol: str = "classic", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "group_id": uuid.uuid4().hex,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    } | more


def stored(config: dict[str, Any], topic: str) -> int | None:
    """Return what the group has committed, as another client sees it."""
    only_group = {key: config[key] for key in ("bootstrap_servers", "group_id")}
    with Consumer(**only_group) as reader:
        found = reader.committed(TopicPartition(topic, 0))
    return found[TopicPartition(topic, 0)].offset if found else None


def poll(client: Consumer, **arguments: int) -> list[ConsumerRecord]:
    """Poll until there are records."""
    while True:
        found = client.poll(1_000, **arguments)
        if found:
            return [record for records in found.values() for record in records]


# ----------------------------------------------------------------------- A1: loops and commits


@PROTOCOLS
@pytest.mark.parametrize("auto", [True, False])
def test_commit_and_break_store_what_was_yielded(
    bootstrap: str, topic: str, protocol: str, auto: bool
) -> None:
    config = settings(bootstrap, protocol, enable_auto_commit=auto)
    with Consumer(topic, **config) as client:
        for _ in client:
            client.commit()
            break
        assert stored(config, topic) == 1
        assert client.position(TopicPartition(topic, 0)) == 1
    assert stored(config, topic) == 1


@PROTOCOLS
def test_an_exception_in_a_loop_commits_only_what_the_loop_came_back_from(
    bootstrap: str, topic: str, protocol: str
) -> None:
    config = settings(bootstrap, protocol)
    client = Consumer(topic, **config)
    try:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  # the loop is the point
            try:
                for record in client:
                    _ = 1 // (5 - record.offset)
            finally:
                client.close()
    finally:
        client.close()
    assert stored(config, topic) == 5


def test_what_a_loop_left_is_handed_out_by_the_next_poll(bootstrap: str, topic: str) -> None:
    with Consumer(topic, **settings(bootstrap)) as client:
        for record in client:
            if record.offset == 2:
                break
        assert [record.offset for record in poll(client, max_records=3)] == [3, 4, 5]
        assert [record.offset for record in islice(client, 2)] == [6, 7]
        seen = 8
        while seen < COUNT:
            found = [record.offset for record in poll(client)]
            assert found == list(range(seen, seen + len(found)))
            seen += len(found)


def test_the_timer_commits_what_the_loop_came_back_from(bootstrap: str, topic: str) -> None:
    config = settings(bootstrap, auto_commit_interval_ms=50)
    with Consumer(topic, **config) as client:
        assert [record.offset for record in islice(client, 8)] == list(range(8))
        while stored(config, topic) != 7:
            pass
        with pytest.raises(RuntimeError), client:  # noqa: PT012  # leaves by an exception
            assert next(client).offset == 8
            raise RuntimeError
    assert stored(config, topic) == 8


def test_iteration_sees_seeks_pauses_and_resumes(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with Consumer(topic, **settings(bootstrap, consumer_timeout_ms=300)) as client:
        while not client.assignment():
            client.poll(100)
        client.seek(first, 0)
        found = []
        for record in client:
            found.append(record.offset)
            if len(found) == 2:
                client.seek(first, 290)
            if len(found) == 5:
                client.pause(first)
        assert found == [0, 1, 290, 291, 292]
        client.resume(first)
        assert [record.offset for record in client] == list(range(293, COUNT))


def test_iteration_calls_listeners_and_drops_what_was_revoked(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 2)
    for partition in range(2):
        values = [b"%d" % number for number in range(COUNT)]
        foreign.produce(bootstrap, topic, values, partition=partition)
    config = settings(bootstrap, heartbeat_interval_ms=100, session_timeout_ms=6_000)
    seen: list[tuple[int, int]] = []
    with Consumer(topic, **config) as one, Consumer(topic, **config) as two:
        seen += [(each.partition, each.offset) for each in islice(one, 10)]
        joined = threading.Thread(target=read_all, args=(two, seen))
        joined.start()
        for record in one:
            seen.append((record.partition, record.offset))
            if len(set(seen)) == 2 * COUNT:
                break
        two.wakeup()
        joined.join()
    assert len(seen) == len(set(seen)) == 2 * COUNT


def read_all(client: Consumer, seen: list[tuple[int, int]]) -> None:
    seen.extend((record.partition, record.offset) for record in client)


def test_a_wakeup_ends_iteration_and_keeps_what_was_read_ahead(bootstrap: str, topic: str) -> None:
    with Consumer(topic, **settings(bootstrap)) as client:
        found = []
        for record in client:
            found.append(record.offset)
            if record.offset == 4:
                client.wakeup()
                client.assignment()  # the loop has heard of it
        assert found == [0, 1, 2, 3, 4]
        assert next(client).offset == 5


def test_iteration_ends_when_nothing_comes(bootstrap: str, topic: str) -> None:
    with Consumer(topic, **settings(bootstrap, consumer_timeout_ms=2_000)) as client:
        assert [record.offset for record in client] == list(range(COUNT))
        assert list(client) == []


@on_a_loop
async def test_async_iteration_does_the_same(bootstrap: str, topic: str) -> None:
    config = settings(bootstrap)
    async with AsyncConsumer(topic, **config) as client:
        async for _ in client:
            await client.commit()
            break
        assert (await client.position(TopicPartition(topic, 0))) == 1
        found = await client.poll(LONG_MS, max_records=2)
        assert [record.offset for record in found[TopicPartition(topic, 0)]] == [1, 2]
        async for record in client:
            assert record.offset == 3
            client.wakeup()
    assert await asyncio.to_thread(stored, config, topic) == 4


@on_a_loop
async def test_a_cancelled_task_commits_only_what_its_loop_came_back_from(
    bootstrap: str, topic: str
) -> None:
    config = settings(bootstrap)
    reached = asyncio.Event()

    async def work() -> None:
        async with AsyncConsumer(topic, **config) as client:
            async for record in client:
                if record.offset == 3:
                    reached.set()
                    await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await asyncio.to_thread(stored, config, topic) == 3


# ------------------------------------------------------------------- A2: leaving by an exception


@PROTOCOLS
@pytest.mark.parametrize("way", ["with", "finally", "interrupt"])
def test_an_exception_keeps_the_last_poll_from_being_committed(
    bootstrap: str, topic: str, protocol: str, way: str
) -> None:
    config = settings(bootstrap, protocol)
    client = Consumer(topic, **config)
    error = KeyboardInterrupt if way == "interrupt" else RuntimeError

    def work() -> None:
        poll(client, max_records=10)
        poll(client, max_records=5)
        raise error

    def work_and_close() -> None:
        if way == "finally":
            try:
                work()
            finally:
                client.close()
        else:
            with client:
                work()

    with pytest.raises(error):
        work_and_close()
    assert stored(config, topic) == 10


@PROTOCOLS
@pytest.mark.parametrize("way", ["with", "close", "unsubscribe"])
def test_without_one_the_last_poll_is_committed(
    bootstrap: str, topic: str, protocol: str, way: str
) -> None:
    config = settings(bootstrap, protocol)
    with Consumer(topic, **config) as client:
        poll(client, max_records=7)
        if way == "close":
            client.close()
        elif way == "unsubscribe":
            client.unsubscribe()
            assert stored(config, topic) == 7
    assert stored(config, topic) == 7


# ------------------------------------------------------------------------- C4: poison records


def poisoned(value: bytes) -> int:
    number = int(value)
    if number == 3:
        raise ValueError("no threes")
    return number


def test_a_poison_record_stops_its_partition_only(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap, 2)
    for partition in range(2):
        foreign.produce(
            bootstrap,
            topic,
            [b"%d" % (number + 10 * partition) for number in range(6)],
            partition=partition,
        )
    found: list[int] = []
    errors: list[RecordDeserializationError] = []
    with Consumer(topic, **settings(bootstrap, value_deserializer=poisoned)) as client:
        while len(found) < 11:
            try:
                found += [record.value for record in poll(client)]
            except RecordDeserializationError as error:
                errors.append(error)
                if len(errors) == 2:
                    client.seek(error.partition, error.offset + 1)
    assert sorted(found) == [0, 1, 2, 4, 5, *range(10, 16)]
    assert len(errors) == 2
    first = errors[0]
    assert (first.partition, first.offset, first.value) == (TopicPartition(topic, 0), 3, b"3")
    assert isinstance(first.__cause__, ValueError)
    assert f"{topic}-0 at offset 3" in str(first)
    assert "no threes" in str(first)
    assert "offset 4" in str(first)


def test_iteration_raises_at_a_poison_record_and_goes_on_behind_it(
    bootstrap: str, topic: str
) -> None:
    config = settings(bootstrap, value_deserializer=poisoned, consumer_timeout_ms=2_000)
    with Consumer(topic, **config) as client:
        with pytest.raises(RecordDeserializationError) as raised:
            list(client)
        assert client.position(TopicPartition(topic, 0)) == 3
        client.seek(raised.value.partition, raised.value.offset + 1)
        assert [record.value for record in client] == list(range(4, COUNT))


# ------------------------------------------------------------------- C1: an error that stays


@PROTOCOLS
def test_a_fatal_error_is_raised_at_every_poll(bootstrap: str, topic: str, protocol: str) -> None:
    config = settings(bootstrap, protocol, group_instance_id="one")
    if protocol == "classic":
        config |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    first, second = Consumer(topic, **config), Consumer(topic, **config)
    failed = first if protocol == "classic" else second  # who is fenced
    with first, second:
        poll(first)
        raised: list[str] = []
        other = threading.Thread(target=drain, args=(second, raised))
        if protocol == "classic":
            other.start()
        while len(raised) < 3:
            try:
                failed.poll(200)
            except KafkaError as error:
                raised.append(error.name)
        second.wakeup()
        if protocol == "classic":
            other.join()
    expected = "FENCED_INSTANCE_ID" if protocol == "classic" else "UNRELEASED_INSTANCE_ID"
    assert raised == [expected] * 3


def drain(client: Consumer, ends_with: list[str]) -> None:
    while len(ends_with) < 3:
        client.poll(100)


# --------------------------------------------------------------------- D: what peers have, too


def test_lag_and_high_watermark(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with Consumer(topic, **settings(bootstrap)) as client:
        with pytest.raises(LocalProtocolError):
            client.highwater(first)
        assert client.positions() == {}
        poll(client, max_records=10)
        assert client.highwater(first) == COUNT
        assert client.current_lag(first) == COUNT - 10
        assert client.positions() == {first: 10}


def test_offsets_may_be_plain_numbers(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    config = settings(bootstrap)
    with Consumer(**config) as client:
        client.commit({first: 17})
        assert client.committed(first) == {first: OffsetAndMetadata(17)}
        client.commit_async({first: OffsetAndMetadata(18, "text")}).result(60)
        assert client.committed(first)[first].metadata == "text"
        with pytest.raises(ValueError, match="offset"):
            client.commit({first: -1})
        with pytest.raises(TypeError):
            client.commit({first: 1.5})  # type: ignore[dict-item]  # that is the point


def test_the_outcome_of_a_commit_is_told_in_a_later_poll(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    told: list[tuple[object, KohortError | None, threading.Thread]] = []

    def note(offsets: object, error: KohortError | None) -> None:
        told.append((offsets, error, threading.current_thread()))

    with Consumer(topic, **settings(bootstrap, enable_auto_commit=False)) as client:
        poll(client, max_records=5)
        client.commit_async(on_commit=note).result(60)
        assert told == []
        poll(client)
        assert len(told) == 1
        offsets, error, thread = told[0]
        assert isinstance(offsets, dict)
        assert offsets[first].offset == 5
        assert error is None
        assert thread is threading.current_thread()
        client.commit_async(on_commit=note)
    assert len(told) == 2


def test_auto_commits_are_told_to_the_callback_of_the_settings(bootstrap: str, topic: str) -> None:
    told: list[tuple[int, KohortError | None]] = []

    def note(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: object) -> None:
        assert error is None
        told.extend((each.offset, None) for each in offsets.values())

    with Consumer(topic, **settings(bootstrap, on_commit=note)) as client:
        poll(client, max_records=5)
        client.commit_async({TopicPartition(topic, 0): 3}).result(60)
        assert told == []
        poll(client, max_records=2)
        assert told == [(3, None)]
    assert told == [(3, None), (7, None)]


@PROTOCOLS
def test_offsets_that_the_application_stores_itself(
    bootstrap: str, topic: str, protocol: str
) -> None:
    config = settings(bootstrap, protocol, enable_auto_offset_store=False)
    first = TopicPartition(topic, 0)
    with Consumer(topic, **config) as client:
        records = poll(client)
        client.store_offsets(records[41])
        poll(client) if len(records) < COUNT else client.poll(0)
        with pytest.raises(LocalProtocolError):
            client.store_offsets({TopicPartition(topic, 7): 1})
    assert stored(config, topic) == 42
    with Consumer(topic, **config) as client:
        assert poll(client)[0].offset == 42
        client.store_offsets({first: OffsetAndMetadata(50, "mine")})
        client.commit()
        assert client.committed(first)[first].metadata == "mine"
    with (
        Consumer(topic, **settings(bootstrap)) as client,
        pytest.raises(LocalProtocolError, match="enable_auto_offset_store"),
    ):
        client.store_offsets({first: 1})


def test_what_a_member_does_is_logged(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(bootstrap)
    with caplog.at_level(logging.INFO, "kohort"), Consumer(topic, **config) as client:
        poll(client)
    texts = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
    group = config["group_id"]
    for wanted in ("joined", "assigned", "revoked", "ended its membership"):
        assert any(group in text and wanted in text for text in texts), (wanted, texts)
    assert any(f"{topic}-0" in text for text in texts)


def test_asking_for_a_topic_does_not_create_it(bootstrap: str) -> None:
    name = f"typo-{uuid.uuid4().hex}"
    with Consumer(bootstrap_servers=bootstrap) as client:
        assert client.partitions_for_topic(name) is None
        assert client.partitions_for_topic(name) is None
        assert name not in client.topics()


def test_topics_need_a_group() -> None:
    with pytest.raises(ConfigError, match="group_id"):
        Consumer("t", bootstrap_servers="localhost:1")


# ------------------------------------------------------------ what handlers of signals may break


def test_a_handler_that_raises_takes_no_record_along(bootstrap: str, topic: str) -> None:
    """An alarm whose handler raises, at random moments of a loop: each record comes once."""

    class AlarmError(Exception):
        pass

    is_armed = rang = 0

    def ring(*_: object) -> None:
        nonlocal is_armed, rang
        if is_armed:
            is_armed, rang = 0, rang + 1
            raise AlarmError

    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, ring)
    with Consumer(topic, **settings(bootstrap)) as client:
        seen.append(next(client).offset)
        signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        while len(seen) < COUNT:
            try:
                is_armed = 1
                for record in client:
                    seen.append(record.offset)  # one by one is the point
                    if len(seen) == COUNT:
                        break
                is_armed = 0
            except AlarmError:
                continue
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert rang
    assert seen == list(range(COUNT))


def test_a_wakeup_ends_one_poll_and_no_more(bootstrap: str, topic: str) -> None:
    with Consumer(topic, **settings(bootstrap)) as client:
        assert len(poll(client, max_records=5)) == 5
        client.wakeup()
        assert client.poll(LONG_MS) == {}
        assert len(poll(client, max_records=5)) == 5
        client.wakeup()
        assert list(client) == []
        assert next(client).offset == 10
        client.wakeup()
        assert client.poll_arrow(LONG_MS).num_rows == 0
        assert client.poll_arrow(LONG_MS, max_records=3).num_rows == 3


@pytest.mark.parametrize("call", ["seek", "unsubscribe"])
def test_a_deserializer_may_call_back(bootstrap: str, topic: str, call: str) -> None:
    first = TopicPartition(topic, 0)
    calls: list[bytes] = []

    def deserialize(value: bytes) -> bytes:
        calls.append(value)
        if len(calls) == 3:
            if call == "seek":
                client.seek(first, 200)
            else:
                client.unsubscribe()
        return value

    with Consumer(topic, **settings(bootstrap, value_deserializer=deserialize)) as client:
        assert [record.offset for record in poll(client, max_records=5)] == [0, 1, 2, 3, 4]
        if call == "seek":
            assert client.position(first) == 200
            assert poll(client)[0].offset == 200
        else:
            assert client.assignment() == frozenset()


def test_a_close_from_another_thread_ends_the_poll_that_waits(bootstrap: str) -> None:
    topic = foreign.new_topic(bootstrap)
    client = Consumer(topic, **settings(bootstrap))
    errors: list[Exception] = []

    def wait() -> None:
        try:
            while True:
                client.poll(LONG_MS)
        except LocalProtocolError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not client.assignment():
        pass
    client.close()
    waiting.join()
    assert "closed" in str(errors[0])


def test_a_loop_waits_for_a_broker_and_a_poll_says_that_there_is_none() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{bound.getsockname()[1]}"
        config: dict[str, Any] = {
            "bootstrap_servers": nobody,
            "group_id": "g",
            "consumer_timeout_ms": 2_500,
        }
        with Consumer("t", **config) as client:
            with pytest.raises(BrokerUnavailableError):
                client.poll(1_500)
            begun = time.monotonic()
            with pytest.raises(BrokerUnavailableError):
                next(client)
            assert time.monotonic() - begun > 2
            with pytest.raises(CommitFailedError, match=r"not a member of its group now.*refused"):
                client.commit({TopicPartition("t", 0): 1})
