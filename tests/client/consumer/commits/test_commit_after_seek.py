"""Commits right after a seek to the end, whose position is not known yet: none is lost silently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import AsyncConsumer, Consumer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode, PartialFailureError
from tests.broker.processes import eventually
from tests.client.consumer.reading_cases import COUNT
from tests.client.erring_proxy import LIST_OFFSETS, ErringProxy
from tests.real_kafka import foreign

EVER = 1_000_000


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ErringProxy]:
    with EmbeddedBroker(tmp_path) as broker, ErringProxy(broker.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def stuck(proxy: ErringProxy) -> tuple[TopicPartition, TopicPartition]:
    """Two partitions with records."""
    name = foreign.new_topic(proxy.bootstrap_servers, 2)
    foreign.produce(proxy.bootstrap_servers, name, [b"%d" % each for each in range(COUNT)])
    return TopicPartition(name, 0), TopicPartition(name, 1)


def consumer_of(servers: str, **settings: Any) -> Consumer:
    given = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **settings}
    return Consumer(bootstrap_servers=servers, group_id="g", **given)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and "leaves out" in each.getMessage()
    ]


@pytest.mark.parametrize(("seek", "offset"), [("seek_to_end", COUNT), ("seek_to_beginning", 0)])
def test_a_commit_stores_the_end_that_was_sought(
    bootstrap: str, topic: str, seek: str, offset: int
) -> None:
    where = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False) as one:
        one.assign([where])
        one.commit({where: 1})
        getattr(one, seek)(where)
        one.commit()
        assert one.committed(where)[where].offset == offset


def test_an_awaited_commit_stores_the_end_that_was_sought(bootstrap: str, topic: str) -> None:
    where = TopicPartition(topic, 0)

    async def work() -> int:
        settings: dict[str, Any] = {"group_id": topic, "enable_auto_commit": False}
        async with AsyncConsumer(bootstrap_servers=bootstrap, **settings) as one:
            one.assign([where])
            await one.commit({where: 1})
            one.seek_to_end()
            await one.commit()
            return (await one.committed(where))[where].offset

    assert asyncio.run(work()) == COUNT


def test_a_commit_that_finds_no_position_in_time_names_it_and_stores_the_others(
    proxy: ErringProxy, stuck: tuple[TopicPartition, TopicPartition]
) -> None:
    sought, other = stuck
    with consumer_of(proxy.bootstrap_servers) as consumer:
        consumer.assign(stuck)
        consumer.commit({sought: 1, other: 1})
        consumer.seek(other, 2)
        proxy.err(ErrorCode.NOT_LEADER_OR_FOLLOWER, LIST_OFFSETS, EVER)
        consumer.seek_to_end(sought)
        with pytest.raises(PartialFailureError, match=f"{sought.topic}-0 has no position") as late:
            consumer.commit(timeout_ms=500)
        assert set(late.value.errors) == {sought}
        assert late.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert consumer.committed(other)[other].offset == 2
        proxy.err(ErrorCode.NONE, LIST_OFFSETS, 0)
        end = consumer.end_offsets([sought])[sought]
        consumer.commit()
        assert consumer.committed(sought)[sought].offset == end


def test_a_commit_raises_why_a_position_that_was_sought_is_refused(
    proxy: ErringProxy, stuck: tuple[TopicPartition, TopicPartition]
) -> None:
    with consumer_of(proxy.bootstrap_servers) as consumer:
        consumer.assign(stuck)
        proxy.err(ErrorCode.TOPIC_AUTHORIZATION_FAILED, LIST_OFFSETS, EVER)
        consumer.seek_to_end()
        with pytest.raises(PartialFailureError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
            consumer.commit()
        assert set(refused.value.errors) == set(stuck)


def has_joined(consumer: Consumer, partition: TopicPartition) -> bool:
    consumer.poll(20)
    return partition in consumer.assignment()


def by_commit_async(consumer: Consumer) -> None:
    consumer.commit_async().result(30)


def by_assigning_nothing(consumer: Consumer) -> None:
    consumer.assign([])


def by_unsubscribing(consumer: Consumer) -> None:
    consumer.unsubscribe()


def by_closing(consumer: Consumer) -> None:
    consumer.close()


@pytest.mark.parametrize(
    ("commit", "is_member"),
    [
        (by_commit_async, False),
        (by_assigning_nothing, False),
        (by_closing, False),
        (by_closing, True),
        (by_unsubscribing, True),
    ],
)
def test_a_commit_that_cannot_wait_names_what_it_leaves_out(
    proxy: ErringProxy,
    stuck: tuple[TopicPartition, TopicPartition],
    commit: Callable[[Consumer], None],
    is_member: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sought, _ = stuck
    with consumer_of(proxy.bootstrap_servers, enable_auto_commit=True) as consumer:
        if is_member:
            consumer.subscribe([sought.topic])
            eventually(lambda: has_joined(consumer, sought), "a share")
        else:
            consumer.assign(stuck)
        consumer.position(sought)
        proxy.err(ErrorCode.NOT_LEADER_OR_FOLLOWER, LIST_OFFSETS, EVER)
        consumer.seek_to_end(sought)
        commit(consumer)
        (line,) = warnings(caplog)
        assert f"leaves out {sought.topic}-0: " in line
        proxy.err(ErrorCode.NONE, LIST_OFFSETS, 0)


def test_a_commit_of_what_is_stored_by_hand_waits_for_no_position(
    proxy: ErringProxy,
    stuck: tuple[TopicPartition, TopicPartition],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sought, other = stuck
    settings = {"enable_auto_commit": True, "enable_auto_offset_store": False}
    with consumer_of(proxy.bootstrap_servers, **settings) as consumer:
        consumer.assign(stuck)
        consumer.store_offsets({other: 1})
        proxy.err(ErrorCode.NOT_LEADER_OR_FOLLOWER, LIST_OFFSETS, EVER)
        consumer.seek_to_end(sought)
        consumer.commit()
        assert consumer.committed(sought, other).keys() == {other}
    assert not warnings(caplog)
