"""Poison records, errors that stay, positions, callbacks and signals: each on both brokers."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Mapping
from itertools import islice
from typing import Any, Self

import pytest

from kohort import OffsetAndMetadata, TopicPartition
from kohort.client import Consumer
from kohort.errors import (
    BrokerUnavailableError,
    CommitFailedError,
    ConfigError,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RecordDeserializationError,
)
from tests.client.consumer.reading_cases import COUNT, LONG_MS, PROTOCOLS, poll, settings, stored
from tests.real_kafka import foreign

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
    with Consumer(topic, **settings(bootstrap, value_deserializer=poisoned)) as client:
        with pytest.raises(RecordDeserializationError) as raised:
            list(client)
        assert client.position(TopicPartition(topic, 0)) == 3
        client.seek(raised.value.partition, raised.value.offset + 1)
        assert [each.value for each in islice(client, COUNT - 4)] == list(range(4, COUNT))


# ------------------------------------------------------------------- C1: an error that stays


@PROTOCOLS
def test_a_fatal_error_is_raised_at_every_poll(bootstrap: str, topic: str, protocol: str) -> None:
    config = settings(bootstrap, protocol, group_instance_id="one")
    if protocol == "classic":
        config |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    first, second = Consumer(topic, **config), Consumer(topic, **config)
    failed = first if protocol == "classic" else second  # the fenced member
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
    for wanted in ("joined", "assigned", "revoked", "leaves"):
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


class AlarmError(Exception):
    """The exception of the handler."""


class Alarm:
    """Fires at random moments: while armed, its handler raises in the main thread."""

    def __init__(self) -> None:
        self.is_armed = False
        self.rang = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ring)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGUSR1, self._raise)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _ring(self) -> None:
        while not self._over.wait(0.0003):
            os.kill(os.getpid(), signal.SIGUSR1)

    def _raise(self, *_: object) -> None:
        if self.is_armed:
            self.is_armed, self.rang = False, self.rang + 1
            raise AlarmError


def test_a_handler_that_raises_takes_no_record_along(bootstrap: str, topic: str) -> None:
    """Each record is read once, whenever the handler raises during a loop."""
    with Consumer(topic, **settings(bootstrap)) as client:
        next(client)
        with Alarm() as alarm:
            while alarm.rang < 5:
                client.seek(TopicPartition(topic, 0), 0)
                assert all_of(client, alarm) == list(range(COUNT))


def all_of(client: Consumer, alarm: Alarm) -> list[int]:
    """Read all records in loops that the alarm interrupts."""
    seen: list[int] = []
    while len(seen) < COUNT:
        try:
            alarm.is_armed = True
            for record in client:
                seen.append(record.offset)  # one by one is the point
                if len(seen) == COUNT:
                    break
            alarm.is_armed = False
        except AlarmError:
            continue
    return seen


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
            with pytest.raises(BrokerUnavailableError):
                next(client)
            with pytest.raises(CommitFailedError, match=r"not a member of its group now.*refused"):
                client.commit({TopicPartition("t", 0): 1})
