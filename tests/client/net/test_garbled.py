"""Bytes that are not Kafka's protocol, or are garbled in transit, never stop a client for good.

A load balancer answers for a restarting broker, a network flips a bit: once the bytes are good
again, everything continues by itself, and until then the problem is reported.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, AsyncConsumer, Consumer, Producer, TopicPartition
from kohort.client import ConfigResource
from kohort.errors import RemoteProtocolError, RequestTimedOutError
from tests.broker.processes import BrokerProcess, eventually
from tests.client.garbling_proxy import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Garbles,
    GarblingProxy,
    http,
    nonsense,
    one_bit,
    zeros,
)
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign

PRODUCE, FIND_COORDINATOR, LIST_GROUPS, DELETE_RECORDS, DESCRIBE_CONFIGS = 0, 10, 16, 21, 32
API_VERSIONS = 18
VALUES = [b"value of record %d" % number for number in range(20)]
QUICK: dict[str, Any] = {"retry_backoff_max_ms": 200, "reconnect_backoff_max_ms": 200}


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[GarblingProxy]:
    with GarblingProxy(bootstrap) as made:
        yield made


def reader(proxy: GarblingProxy, *partitions: TopicPartition, **settings: Any) -> Consumer:
    """A consumer that reads partitions from the start."""
    consumer = Consumer(
        bootstrap_servers=proxy.bootstrap_servers,
        auto_offset_reset="earliest",
        **{**QUICK, **settings},
    )
    consumer.assign(partitions)
    return consumer


def read(consumer: Consumer, seen: list[bytes], told: list[str]) -> bool:
    """Poll once; keep records and exceptions. Returns True, so that a condition may follow."""
    try:
        for records in consumer.poll(200).values():
            seen += [record.value for record in records]
    except RemoteProtocolError as error:
        told.append(str(error))
    return True


@pytest.mark.parametrize("how", [nonsense, http, zeros, one_bit])
def test_a_partition_is_read_on_once_answers_are_good(
    bootstrap: str, proxy: GarblingProxy, how: Garbles, caplog: pytest.LogCaptureFixture
) -> None:
    """Each poll reports the problem while it lasts; no record is lost or read twice."""
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, VALUES[:10])
    seen: list[bytes] = []
    told: list[str] = []
    with reader(proxy, TopicPartition(topic, 0)) as consumer:
        eventually(lambda: read(consumer, seen, told) and len(seen) == 10, "what is good")
        assert told == []
        proxy.garble(how, FETCH)
        foreign.produce(bootstrap, topic, VALUES[10:])
        eventually(lambda: read(consumer, seen, told) and len(told) >= 3, "each poll tells")
        assert len(seen) == 10
        proxy.stop()
        eventually(lambda: read(consumer, seen, told) and len(seen) == 20, "it is read on")
        before = len(told)
        consumer.poll(200)
        assert len(told) == before, "what is over is not told again"
    assert seen == VALUES
    assert any(told[0] in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("how", [nonsense, one_bit])
def test_one_garbled_answer_is_told_and_read_again(
    bootstrap: str, proxy: GarblingProxy, how: Garbles
) -> None:
    topic = foreign.new_topic(bootstrap)
    proxy.garble(how, FETCH, times=1)
    foreign.produce(bootstrap, topic, VALUES)
    seen: list[bytes] = []
    told: list[str] = []
    with reader(proxy, TopicPartition(topic, 0)) as consumer:
        eventually(lambda: read(consumer, seen, told) and len(seen) == 20, "it is read")
    assert seen == VALUES
    assert told, "a poll raises even what is over before it"


def test_a_garbled_partition_keeps_no_other_back(bootstrap: str, proxy: GarblingProxy) -> None:
    """The others are read while one is garbled, and good records before it come first."""
    topic = foreign.new_topic(bootstrap, 2)
    marked = b"garble this one, which is long enough"
    foreign.produce(bootstrap, topic, VALUES[:5], 0)
    foreign.produce(bootstrap, topic, [marked], 0)
    foreign.produce(bootstrap, topic, VALUES, 1)
    proxy.garble(lambda answer: answer.replace(marked, marked.upper()), FETCH)
    seen: list[bytes] = []
    told: list[str] = []
    partitions = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with reader(proxy, *partitions) as consumer:
        eventually(lambda: read(consumer, seen, told) and len(seen) == 25, "the good ones")
        eventually(lambda: read(consumer, seen, told) and len(told) >= 3, "it is told")
        foreign.produce(bootstrap, topic, VALUES, 1)
        eventually(lambda: read(consumer, seen, told) and len(seen) == 45, "the other goes on")
        proxy.stop()
        eventually(lambda: read(consumer, seen, told) and len(seen) == 46, "it is read on")
    assert seen[-1] == marked
    assert all(f"{topic}-0 at offset 5" in each for each in told)


def test_columns_are_read_again(bootstrap: str, proxy: GarblingProxy) -> None:
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, VALUES)
    proxy.garble(one_bit, FETCH, times=2)
    seen: list[bytes] = []
    told: list[str] = []

    def columns() -> bool:
        try:
            seen.extend(consumer.poll_arrow(200).column("value").to_pylist())
        except RemoteProtocolError as error:
            told.append(str(error))
        return len(seen) == len(VALUES)

    with reader(proxy, TopicPartition(topic, 0)) as consumer:
        eventually(columns, "all is read")
    assert seen == VALUES
    assert len(told) >= 2


def test_a_loop_is_told_each_time_and_goes_on(bootstrap: str, proxy: GarblingProxy) -> None:
    """A loop without a timeout must not wait silently for bytes that stay bad."""
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, VALUES)
    proxy.garble(one_bit, FETCH)
    with reader(proxy, TopicPartition(topic, 0)) as consumer:
        for _ in range(3):
            with pytest.raises(RemoteProtocolError, match="CRC"):
                next(consumer)
        proxy.stop()
        seen: list[bytes] = []
        while len(seen) < len(VALUES):
            try:
                seen += [next(consumer).value for _ in VALUES[len(seen) :]]
            except RemoteProtocolError:
                continue  # garbled before `stop`
    assert seen == VALUES


@on_a_loop
async def test_an_asyncio_consumer_reads_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, GarblingProxy(broker.bootstrap_servers) as proxy:
        topic = foreign.new_topic(broker.bootstrap_servers)
        foreign.produce(broker.bootstrap_servers, topic, VALUES)
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with AsyncConsumer(**settings, **QUICK) as consumer:  # type: ignore[arg-type]  # checked there
            consumer.assign([TopicPartition(topic, 0)])
            proxy.garble(one_bit, FETCH)
            for _ in range(2):
                with pytest.raises(RemoteProtocolError, match="CRC"):
                    await anext(consumer)
            proxy.stop()
            seen: list[bytes] = []
            while len(seen) < len(VALUES):
                try:
                    found = await consumer.poll(200)
                except RemoteProtocolError:
                    continue
                seen += [record.value for records in found.values() for record in records]
        assert seen == VALUES


def test_an_answer_that_comes_twice_while_a_connection_is_made(
    proxy: GarblingProxy, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The same bytes make it ready and break it: that is one error, and not asyncio's."""
    place = TopicPartition(topic, 0)
    with reader(proxy, place) as consumer:
        count = consumer.end_offsets([place])[place]
        proxy.garble(lambda answer: answer + answer, API_VERSIONS, times=2)
        seen: list[bytes] = []
        told: list[str] = []
        eventually(lambda: read(consumer, seen, told) and len(seen) == count, "it is read")
        assert proxy.garbled[API_VERSIONS] == 2
    assert "asyncio" not in {each.name for each in caplog.records}
    assert told
    assert "received a frame without a pending request" in told[0]


# ------------------------------------------------------------------------------ what is asked


Ask = Callable[[str, TopicPartition], object]


def as_admin(ask: Callable[[AdminClient, TopicPartition], object]) -> Ask:
    def call(bootstrap: str, place: TopicPartition) -> object:
        with AdminClient(bootstrap_servers=bootstrap, **QUICK) as admin:
            return ask(admin, place)

    return call


def as_consumer(ask: Callable[[Consumer, TopicPartition], object]) -> Ask:
    def call(bootstrap: str, place: TopicPartition) -> object:
        settings: dict[str, Any] = {"group_id": f"group-of-{place.topic}", **QUICK}
        with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            consumer.assign([place])
            return ask(consumer, place)

    return call


def end_of(consumer: Consumer, place: TopicPartition) -> object:
    consumer.seek_to_end(place)
    return consumer.position(place)


def settings_of_a_broker(admin: AdminClient, _place: TopicPartition) -> object:
    (node,) = admin.describe_cluster()
    return admin.describe_configs([ConfigResource("broker", str(node.node_id))])


@pytest.mark.parametrize("how", [nonsense, http])
@pytest.mark.parametrize(
    ("key", "ask"),
    [
        (LIST_OFFSETS, as_admin(lambda admin, place: admin.list_offsets({place: -1}))),
        (LIST_GROUPS, as_admin(lambda admin, _: bool(admin.list_groups()))),
        (DELETE_RECORDS, as_admin(lambda admin, place: admin.delete_records({place: 0}))),
        (DESCRIBE_CONFIGS, as_admin(settings_of_a_broker)),
        (
            OFFSET_FETCH,
            as_admin(lambda admin, place: admin.list_group_offsets(f"group-of-{place.topic}")),
        ),
        (FIND_COORDINATOR, as_consumer(lambda consumer, place: consumer.committed(place))),
        (OFFSET_FETCH, as_consumer(lambda consumer, place: consumer.committed(place))),
        (OFFSET_COMMIT, as_consumer(lambda consumer, place: consumer.commit({place: 1}))),
        (LIST_OFFSETS, as_consumer(lambda consumer, place: consumer.end_offsets([place]))),
        (LIST_OFFSETS, as_consumer(end_of)),
    ],
)
def test_what_is_asked_is_asked_again(
    bootstrap: str,
    proxy: GarblingProxy,
    topic: str,
    key: int,
    ask: Ask,
    how: Garbles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calls retry after garbled answers like after lost ones, and the log reports them."""
    place = TopicPartition(topic, 0)
    wanted = ask(bootstrap, place)
    proxy.garble(how, key, times=2)
    assert ask(proxy.bootstrap_servers, place) == wanted
    assert proxy.garbled[key] == 2
    address = proxy.bootstrap_servers
    assert any(address in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin, place: admin.list_offsets({place: -1}),
        lambda admin, place: admin.list_group_offsets(f"group-of-{place.topic}"),
    ],
)
def test_a_call_that_runs_out_of_time_says_what_came(
    proxy: GarblingProxy, topic: str, ask: Callable[[AdminClient, TopicPartition], object]
) -> None:
    with AdminClient(
        bootstrap_servers=proxy.bootstrap_servers, default_api_timeout_ms=500, **QUICK
    ) as admin:
        admin.list_topics()
        proxy.garble(http, LIST_OFFSETS, OFFSET_FETCH)
        with pytest.raises(RequestTimedOutError, match="the port speaks HTTP") as caught:
            ask(admin, TopicPartition(topic, 0))
        assert isinstance(caught.value.__cause__, RemoteProtocolError)


def test_metadata_that_come_garbled_are_asked_for_again(proxy: GarblingProxy, topic: str) -> None:
    with AdminClient(bootstrap_servers=proxy.bootstrap_servers, **QUICK) as admin:
        assert topic in admin.list_topics()
        proxy.garble(nonsense, METADATA, times=4)
        assert topic in admin.list_topics()
        assert proxy.garbled[METADATA] == 4


@pytest.mark.parametrize("how", [nonsense, http, zeros])
def test_a_server_that_has_said_its_versions_is_a_broker(
    proxy: GarblingProxy, topic: str, how: Garbles
) -> None:
    """Its first answers to Metadata are garbled, so that no broker is known by its id yet."""
    place = TopicPartition(topic, 0)
    servers: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, **QUICK}
    proxy.garble(how, METADATA, times=3)
    with Producer(**servers) as producer:
        producer.send(topic, b"value").result(30)
    proxy.garble(how, METADATA, times=3)
    with AdminClient(**servers) as admin:
        assert topic in admin.list_topics()
    proxy.garble(how, METADATA, times=3)
    with Consumer(**servers) as consumer:
        assert consumer.end_offsets([place])[place] >= 1
    assert proxy.garbled[METADATA] == 9


# ----------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize("how", [nonsense, http, zeros])
def test_a_producer_sends_again_and_nothing_twice(
    bootstrap: str, proxy: GarblingProxy, how: Garbles
) -> None:
    """The broker has the records, and recognises duplicates by their sequence numbers."""
    topic = foreign.new_topic(bootstrap)
    with Producer(bootstrap_servers=proxy.bootstrap_servers, **QUICK) as producer:
        proxy.garble(how, PRODUCE, times=3)
        sent = [producer.send(topic, value) for value in VALUES]
        assert [each.result(30).offset for each in sent] == list(range(len(VALUES)))
        assert proxy.garbled[PRODUCE] == 3
    with reader(proxy, TopicPartition(topic, 0)) as consumer:
        seen: list[bytes] = []
        eventually(lambda: read(consumer, seen, []) and len(seen) >= 20, "all is read")
    assert seen == VALUES


def test_a_producer_without_numbers_sends_again_too(bootstrap: str, proxy: GarblingProxy) -> None:
    """As after a lost connection: without idempotence, a record may then be written twice."""
    topic = foreign.new_topic(bootstrap)
    with Producer(
        bootstrap_servers=proxy.bootstrap_servers, enable_idempotence=False, acks="all", **QUICK
    ) as producer:
        proxy.garble(nonsense, PRODUCE, times=1)
        assert producer.send(topic, b"once or twice").result(30).offset == 1


def test_records_that_run_out_of_time_say_what_came(
    bootstrap: str, proxy: GarblingProxy, topic: str
) -> None:
    with Producer(
        bootstrap_servers=proxy.bootstrap_servers,
        delivery_timeout_ms=3_000,
        request_timeout_ms=2_500,
        linger_ms=0,
        **QUICK,
    ) as producer:
        proxy.garble(nonsense, PRODUCE)
        with pytest.raises(RequestTimedOutError, match=r"delivery\.timeout\.ms") as caught:
            producer.send(topic, b"value").result(30)
    assert isinstance(caught.value.__cause__, RemoteProtocolError)
    assert str(caught.value.__cause__) in str(caught.value)


def test_a_producer_that_began_at_a_balancer_sends_once_a_broker_is_there(tmp_path: Path) -> None:
    """`send` reports at once that there is no broker; this does not break the producer."""
    with BrokerProcess(tmp_path) as broker:
        topic = foreign.new_topic(broker.bootstrap_servers)
        broker.kill()
        with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            with balancer(broker.port), pytest.raises(RemoteProtocolError, match="speaks HTTP"):
                producer.send(topic, b"too early")
            broker.start()
            assert producer.send(topic, b"value").result(30).offset == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broker_that_restarts_behind_a_balancer(tmp_path: Path, protocol: Any) -> None:
    """Its address answers with HTTP 503 meanwhile: polls report it, then everything continues."""
    with BrokerProcess(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic = foreign.new_topic(servers)
        seen: list[bytes] = []
        told: list[str] = []
        settings: dict[str, Any] = {"group_protocol": protocol, "group_id": "g", **QUICK}
        with (
            Producer(bootstrap_servers=servers, delivery_timeout_ms=90_000, **QUICK) as producer,
            Consumer(
                topic, bootstrap_servers=servers, auto_offset_reset="earliest", **settings
            ) as consumer,
        ):
            for value in VALUES[:10]:
                producer.send(topic, value).result(30)
            eventually(lambda: read(consumer, seen, told) and len(seen) == 10, "it is read")
            broker.kill()
            with balancer(broker.port):
                sent = [producer.send(topic, value) for value in VALUES[10:]]
                eventually(lambda: read(consumer, seen, told) and bool(told), "it is told")
            broker.start()
            assert [each.result(60).offset for each in sent] == list(range(10, 20))
            eventually(lambda: read(consumer, seen, told) and len(seen) == 20, "it is read on")
        assert seen == VALUES
        assert "the port speaks HTTP" in told[0]


@contextmanager
def balancer(port: int) -> Iterator[None]:
    """Answer every connection to a port like a load balancer without a broker."""
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)
                client.sendall(http(b""))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
