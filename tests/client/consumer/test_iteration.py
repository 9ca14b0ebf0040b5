"""How iteration, `poll`, `commit` and auto-commit work together: each on both brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from kohort import ConsumerRecord, TopicPartition
from kohort.client import AsyncConsumer, Consumer
from tests.client.consumer.reading_cases import COUNT, LONG_MS, PROTOCOLS, poll, settings, stored
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign

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


def unending(client: Consumer) -> Iterator[ConsumerRecord]:
    """The records of successive loops over a client: a loop may end before records arrive."""
    while True:
        for record in client:  # noqa: UP028  # "yield from" would close the client at its end
            yield record


def test_iteration_sees_seeks_pauses_and_resumes(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with Consumer(topic, **settings(bootstrap, consumer_timeout_ms=300)) as client:
        while not client.assignment():
            client.poll(100)
        client.seek(first, 0)
        found: list[int] = []
        while len(found) < 5:  # a loop may end before records arrive
            for record in client:
                found.append(record.offset)
                if len(found) == 2:
                    client.seek(first, 290)
                if len(found) == 5:
                    client.pause(first)
        assert found == [0, 1, 290, 291, 292]
        client.resume(first)
        assert [each.offset for each in islice(unending(client), COUNT - 293)] == list(
            range(293, COUNT)
        )


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
                client.assignment()  # the loop knows of it
        assert found == [0, 1, 2, 3, 4]
        assert next(client).offset == 5


def test_iteration_ends_when_nothing_comes(bootstrap: str, topic: str) -> None:
    with Consumer(topic, **settings(bootstrap, consumer_timeout_ms=2_000)) as client:
        assert [each.offset for each in islice(unending(client), COUNT)] == list(range(COUNT))
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
