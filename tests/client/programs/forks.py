"""A forked child uses its parent's clients: what is allowed, and that they keep working."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from kohort import (
    AdminClient,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    LocalProtocolError,
    Producer,
    TopicPartition,
)
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.producer.delivery_future import DeliveryFuture


def in_child(work: Callable[[], None], *, leaves_with_exit: bool = False) -> None:
    """Run a function in a forked child, and wait for it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            work()
        except BaseException:
            traceback.print_exc()
            code = 1
        if leaves_with_exit:
            sys.exit(code)
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status


def refused(name: str, call: Callable[[], object]) -> None:
    """A call is refused at once, and the error says what to do."""
    try:
        print(name, "returned", call())
    except LocalProtocolError as error:
        assert "fork" in str(error), f"{name}: {error}"
        assert "create a separate client" in str(error), error


def waits_for_the_parent(future: DeliveryFuture) -> None:
    """Only the parent will learn the outcome of its records."""
    refused("result", future.result)
    refused("exception", future.exception)
    refused("get", future.get)
    refused("add_done_callback", lambda: future.add_done_callback(print))


def main(bootstrap: str) -> None:  # one child after the other
    warnings.simplefilter("ignore", DeprecationWarning)  # of `os.fork` beside threads
    topic = uuid.uuid4().hex
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    lazy = Producer(**settings)
    producer, admin = Producer(**settings), AdminClient(**settings)
    producer.send(topic, b"0").result(60)
    partition = TopicPartition(topic, 0)
    admin.list_topics()
    group: dict[str, Any] = {"group_id": uuid.uuid4().hex, "auto_offset_reset": "earliest"}
    consumer = Consumer(topic, max_poll_records=1, **settings, **group)
    seen = 0
    while not seen:
        seen += len(consumer.poll(1_000))

    def uses_the_parents() -> None:
        refused("send", lambda: producer.send(topic, b"never"))
        refused("flush", producer.flush)
        refused("poll", lambda: consumer.poll(5_000))
        refused("next", lambda: next(consumer))
        refused("commit", consumer.commit)
        refused("commit_async", consumer.commit_async)
        refused("seek", lambda: consumer.seek(partition, 0))
        refused("end_offsets", lambda: consumer.end_offsets([partition]))
        refused("topics", admin.list_topics)
        consumer.wakeup()

    def forgets_the_parents() -> None:
        nonlocal producer, consumer, admin
        uses_the_parents()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            consumer.close()
            producer.close()
            del producer, consumer, admin
            gc.collect()

    def makes_its_own() -> None:
        lazy.send(topic, b"lazy").result(60)
        with Producer(**settings) as own:
            own.send(topic, b"own").result(60)

    def lets_the_exit_flush() -> None:
        lazy.send(topic, b"flushed at exit")

    def leaves_a_with_block() -> None:
        with consumer:
            sys.exit(0)

    for work in (uses_the_parents, forgets_the_parents, makes_its_own):
        in_child(work)
    for work in (uses_the_parents, forgets_the_parents, makes_its_own, lets_the_exit_flush):
        in_child(work, leaves_with_exit=True)
    in_plain_child(leaves_a_with_block)
    print("children: 8")
    goes_on(producer, consumer, topic, seen)
    for client in (producer, consumer, admin, lazy):
        client.close()
    deliveries(bootstrap)
    asyncio.run(asyncs(bootstrap, topic))


def deliveries(bootstrap: str) -> None:
    """Futures of unfinished records, with and without a state of their own."""
    topic = uuid.uuid4().hex
    with Producer(bootstrap_servers=bootstrap, linger_ms=100_000) as producer:
        futures = [producer.send(topic, b"0"), producer.send(topic, b"1")]
        futures[1].add_done_callback(lambda _: None)

        def waits() -> None:
            for future in futures:
                waits_for_the_parent(future)

        in_child(waits)
    assert [each.result().offset for each in futures] == [0, 1]


def in_plain_child(work: Callable[[], None]) -> None:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        work()
    assert os.waitpid(pid, 0)[1] == 0


def goes_on(producer: Producer, consumer: Consumer, topic: str, seen: int) -> None:
    """The parent sends and reads as if there were no children."""
    for number in range(100):
        producer.send(topic, b"%d" % number)
    producer.flush()
    while seen < 106:
        seen += sum(map(len, consumer.poll(1_000).values()))
    print("parent read", seen)


async def asyncs(bootstrap: str, topic: str) -> None:
    """Clients for asyncio, in a child with a loop of its own."""
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
    async with (
        AsyncProducer(**settings) as producer,
        AsyncConsumer(**settings) as consumer,
        AsyncAdminClient(**settings) as admin,
    ):
        await (await producer.send(topic, b"x"))
        await consumer.end_offsets([TopicPartition(topic, 0)])
        await admin.list_topics()

        async def in_the_child() -> None:
            for call in (
                lambda: producer.send(topic, b"never"),
                producer.flush,
                lambda: consumer.poll(1_000),
                admin.list_topics,
            ):
                try:
                    await call()
                except LocalProtocolError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError
            async with AsyncProducer(**settings) as own:
                await (await own.send(topic, b"own"))

        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.events._set_running_loop(None)
                loop = asyncio.new_event_loop()
                loop.run_until_complete(in_the_child())
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        status = (await asyncio.to_thread(os.waitpid, pid, 0))[1]
        where = await (await producer.send(topic, b"y"))
        print("async child:", status, "parent's offset moves:", where.offset > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
