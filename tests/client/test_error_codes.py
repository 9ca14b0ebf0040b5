"""An error code in one answer stops a client for good only if the application must act.

A newer broker may send unknown codes, and a flipped bit may turn a good answer into an error: it is
logged once, and the request is retried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort import Consumer, KafkaError, Producer, TopicPartition
from kohort.errors import ErrorCode
from tests.broker.processes import eventually
from tests.client.consumer.reading_cases import COUNT
from tests.client.erring_proxy import (
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FETCH,
    PRODUCE,
    ErringProxy,
)
from tests.real_kafka import foreign

UNKNOWN = 8192
PASSING = [150, UNKNOWN, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST]
QUICK: dict[str, Any] = {"retry_backoff_max_ms": 200, "reconnect_backoff_max_ms": 200}


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[ErringProxy]:
    with ErringProxy(bootstrap) as made:
        yield made


class Reading:
    """A consumer of a topic's only partition, with its records and errors."""

    def __init__(self, proxy: ErringProxy, topic: str, **settings: Any) -> None:
        self.consumer = Consumer(
            bootstrap_servers=proxy.bootstrap_servers,
            **{"auto_offset_reset": "earliest", **QUICK, **settings},
        )
        self.consumer.assign([TopicPartition(topic, 0)])
        self.offsets: list[int] = []
        self.told: list[int] = []

    def poll(self) -> bool:
        try:
            for records in self.consumer.poll(200).values():
                self.offsets += [each.offset for each in records]
        except KafkaError as error:
            self.told.append(error.code)
        return True

    def until_all_is_read(self) -> None:
        eventually(lambda: self.poll() and len(self.offsets) >= COUNT, "all is read")
        assert self.offsets == list(range(COUNT))


@pytest.mark.parametrize("code", PASSING)
@pytest.mark.parametrize("key", [FETCH, LIST_OFFSETS, OFFSET_FETCH])
def test_an_error_of_one_answer_is_told_once_and_reading_goes_on(
    proxy: ErringProxy, topic: str, key: int, code: int
) -> None:
    proxy.err(code, key)
    group = {"group_id": topic} if key == OFFSET_FETCH else {}
    reading = Reading(proxy, topic, **group)
    with reading.consumer:
        reading.until_all_is_read()
        reading.poll()
    assert proxy.erred == 1
    assert reading.told == [code]


def test_an_error_that_lasts_is_told_again_and_ends_by_itself(
    proxy: ErringProxy, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.err(UNKNOWN, FETCH, times=1_000_000)
    reading = Reading(proxy, topic)
    with reading.consumer:
        eventually(lambda: reading.poll() and len(reading.told) >= 3, "it is told")
        proxy.err(UNKNOWN, FETCH, times=0)
        reading.until_all_is_read()
    assert set(reading.told) == {UNKNOWN}
    lines = [each.getMessage() for each in caplog.records if "fetched again until" in each.message]
    assert len(lines) == 1


@pytest.mark.parametrize("key", [FETCH, LIST_OFFSETS])
def test_an_error_of_authorization_waits_for_the_application(
    proxy: ErringProxy, topic: str, key: int
) -> None:
    proxy.err(ErrorCode.TOPIC_AUTHORIZATION_FAILED, key)
    reading = Reading(proxy, topic)
    with reading.consumer:
        eventually(lambda: reading.poll() and len(reading.told) >= 3, "it is told")
        assert reading.offsets == []
        reading.consumer.seek(TopicPartition(topic, 0), 0)
        reading.until_all_is_read()
    assert set(reading.told) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_asking_for_a_position_raises_an_unknown_error_once(proxy: ErringProxy, topic: str) -> None:
    proxy.err(UNKNOWN, LIST_OFFSETS)
    where = TopicPartition(topic, 0)
    reading = Reading(proxy, topic, retry_backoff_ms=200)
    with reading.consumer as consumer:
        with pytest.raises(KafkaError, match="UNKNOWN_CODE_8192"):
            consumer.position(where)
        found: list[int] = []
        codes = {UNKNOWN}

        def asked_again() -> bool:
            try:
                found.append(consumer.position(where))
            except KafkaError as error:
                codes.add(error.code)
            return bool(found)

        eventually(asked_again, "a position")
    assert (found, codes) == ([0], {UNKNOWN})


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("code", [*PASSING, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_an_unknown_error_fails_the_records_of_one_batch(
    bootstrap: str, proxy: ErringProxy, code: int, is_idempotent: bool
) -> None:
    topic = foreign.new_topic(bootstrap)
    settings: dict[str, Any] = {"enable_idempotence": is_idempotent, **QUICK}
    with Producer(bootstrap_servers=proxy.bootstrap_servers, **settings) as producer:
        proxy.err(code, PRODUCE)
        with pytest.raises(KafkaError) as caught:
            producer.send(topic, b"refused").result(30)
        assert caught.value.code == code
        sent = [producer.send(topic, b"good") for _ in range(3)]
        assert len({each.result(30).offset for each in sent}) == 3


@pytest.mark.parametrize("code", [*PASSING, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_producer_asks_for_its_number_again(
    bootstrap: str, proxy: ErringProxy, code: int
) -> None:
    topic = foreign.new_topic(bootstrap)
    proxy.err(code, INIT_PRODUCER_ID)
    with Producer(bootstrap_servers=proxy.bootstrap_servers, **QUICK) as producer:
        assert producer.send(topic, b"one").result(30).offset == 0
    assert proxy.erred == 1
