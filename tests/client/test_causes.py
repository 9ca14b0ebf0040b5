"""Calls that time out name the cause, and calls that waiting cannot help fail at once."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client.admin.api import NewTopic
from kohort.errors import (
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    PartialFailureError,
    RequestTimedOutError,
)
from kohort.types import OffsetAndMetadata
from kohort.wire.codec import frame as frames
from kohort.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.client.cutting_proxy import CuttingProxy
from tests.client.refusing_proxy import RefusingProxy
from tests.real_kafka.broker import RealKafka, free_ports

SOON_MS = 1_000
# Longer than any call that must not wait.
NEVER_MS = 600_000


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def servers(
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
def topic(servers: str) -> str:
    name = f"t-{uuid.uuid4().hex}"
    with AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, partitions=2)])
    return name


def consumer(servers: str, **settings: Any) -> Consumer:
    chosen: dict[str, Any] = {
        "group_id": f"g-{uuid.uuid4().hex}",
        "allow_auto_create_topics": False,
        **settings,
    }
    return Consumer(bootstrap_servers=servers, **chosen)


def timed_out(call: Callable[[], object]) -> RequestTimedOutError:
    with pytest.raises(RequestTimedOutError) as caught:
        call()
    return caught.value


def assert_caused_by(error: KohortError, code: ErrorCode, *words: str) -> None:
    assert isinstance(error.__cause__, KafkaError)
    assert error.__cause__.code == code
    for word in (code.name, *words):
        assert word in str(error)


@pytest.mark.parametrize("number", [0, 7])
def test_offsets_of_what_is_missing(servers: str, topic: str, number: int) -> None:
    """It waits, like Java's client, kafka-python and aiokafka: the partition may yet appear."""
    missing = TopicPartition(topic if number else "is-not-there", number)
    shown = f"{missing.topic}-{number}"
    with consumer(servers) as reader:
        reader.assign([missing])
        calls: list[Callable[[], object]] = [
            lambda: reader.end_offsets([missing], timeout_ms=SOON_MS),
            lambda: reader.beginning_offsets([missing], timeout_ms=SOON_MS),
            lambda: reader.offsets_for_times({missing: 1}, timeout_ms=SOON_MS),
            lambda: reader.position(missing, timeout_ms=SOON_MS),
        ]
        for call in calls:
            error = timed_out(call)
            assert_caused_by(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shown, "1000 ms")
            assert not number or "has 2 partitions" in str(error)


def test_the_admin_client_and_what_is_missing(servers: str) -> None:
    missing = TopicPartition("is-not-there", 0)
    settings: dict[str, Any] = {"bootstrap_servers": servers, "default_api_timeout_ms": SOON_MS}
    with AdminClient(**settings) as admin:
        error = timed_out(lambda: admin.list_offsets({missing: -1}))
        assert_caused_by(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "is-not-there-0")
    with AdminClient(bootstrap_servers=servers, default_api_timeout_ms=NEVER_MS) as admin:
        for call in (
            lambda: admin.list_offsets({missing: -1}),
            lambda: admin.describe_topics(["is-not-there"]),
            lambda: admin.delete_topics(["is-not-there"]),
            lambda: admin.create_partitions({"is-not-there": 3}),
        ):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_of_some_that_are_missing(servers: str, topic: str) -> None:
    there, none, other = (TopicPartition(topic, number) for number in (0, 7, 8))
    with (
        AdminClient(bootstrap_servers=servers, default_api_timeout_ms=NEVER_MS) as admin,
        pytest.raises(PartialFailureError) as caught,
    ):
        admin.list_offsets({there: -1, none: -1, other: -1})
    assert caught.value.results == {there: 0}
    assert caught.value.errors.keys() == {none, other}
    for each in (none, other):
        error = caught.value.errors[each]
        assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert f"{topic}-{each.partition}; topic {topic} has 2 partitions" in str(error)


def test_a_commit_for_a_topic_that_is_missing(servers: str) -> None:
    missing = {TopicPartition("is-not-there", 0): OffsetAndMetadata(1)}
    with consumer(servers, enable_auto_commit=False) as reader:
        with pytest.raises(KafkaError, match=r"commit to group .*: is-not-there-0 ") as caught:
            reader.commit(missing, timeout_ms=NEVER_MS)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_invalid_topic_fails_at_once(servers: str) -> None:
    with (
        consumer(servers, default_api_timeout_ms=NEVER_MS) as reader,
        Producer(bootstrap_servers=servers, max_block_ms=NEVER_MS) as writer,
    ):
        bad = TopicPartition("no topic!", 0)
        for call in (lambda: reader.end_offsets([bad]), lambda: writer.send("no topic!", b"value")):
            with pytest.raises((ValueError, KafkaError), match="no topic!"):
                call()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_group_with_members_are_not_set(
    servers: str, topic: str, protocol: str
) -> None:
    group = f"g-{uuid.uuid4().hex}"
    with (
        consumer(servers, group_id=group, group_protocol=protocol) as reader,
        AdminClient(bootstrap_servers=servers, default_api_timeout_ms=NEVER_MS) as admin,
    ):
        reader.subscribe([topic])
        while not reader.assignment():
            reader.poll(100)
        with pytest.raises(KafkaError, match=f"group {group} has members") as caught:
            admin.alter_group_offsets({TopicPartition(topic, 0): 1}, group)
        assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_producer_says_which_topic_is_missing(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(tmp_path, auto_create_topics=False) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=SOON_MS) as writer,
    ):
        with pytest.raises(KafkaError, match=r"no topic is-not-there.*1000 ms") as caught:
            writer.send("is-not-there", b"value")
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NoCoordinator(CuttingProxy):
    """Plays a broker that does not know any group's coordinator."""

    def answer_itself(self, frame: bytes) -> bytes | None:
        received = frames.decode_request(memoryview(frame))
        if not isinstance(received.message, FindCoordinatorRequest):
            return None
        missing = tuple(
            Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                error_message=None,
            )
            for key in received.message.coordinator_keys
        )
        answer = FindCoordinatorResponse(coordinators=missing)
        return bytes(frames.encode_response(answer, received.version, received.correlation_id))


def test_a_group_without_coordinator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = TopicPartition("t", 0)
    with (
        EmbeddedBroker(tmp_path) as broker,
        NoCoordinator(broker.bootstrap_servers, lambda _: False) as proxy,
        consumer(proxy.bootstrap_servers, retry_backoff_ms=10, retry_backoff_max_ms=20) as reader,
        AdminClient(
            bootstrap_servers=proxy.bootstrap_servers, default_api_timeout_ms=SOON_MS
        ) as admin,
    ):
        reader.subscribe(["t"])
        for call in (
            lambda: reader.committed(place, timeout_ms=SOON_MS),
            lambda: admin.list_group_offsets("g"),
            lambda: admin.describe_groups(["g"]),
            lambda: admin.delete_groups(["g"]),
            lambda: admin.alter_group_offsets({place: 1}, "g"),
            lambda: admin.delete_group_offsets([place], "g"),
        ):
            error = timed_out(call)
            assert_caused_by(error, ErrorCode.COORDINATOR_NOT_AVAILABLE, "group g")
    told = [each.message for each in caplog.records if "has no coordinator" in each.message]
    assert any("COORDINATOR_NOT_AVAILABLE" in each for each in told)
    assert len(told) == len(set(told))


def test_a_coordinator_that_keeps_loading(tmp_path: Path) -> None:
    place = TopicPartition("t", 0)
    with (
        EmbeddedBroker(tmp_path) as broker,
        RefusingProxy(broker.bootstrap_servers) as proxy,
        closing(consumer(proxy.bootstrap_servers, enable_auto_commit=False)) as reader,
    ):
        broker.create_topic("t")
        proxy.refuses = lambda _: True
        error = timed_out(lambda: reader.commit({place: OffsetAndMetadata(1)}, timeout_ms=SOON_MS))
        assert_caused_by(error, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "commit", "t-0")


def test_a_broker_that_is_gone_is_named_with_its_address() -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    place = TopicPartition("t", 0)
    settings: dict[str, Any] = {"bootstrap_servers": address, "default_api_timeout_ms": SOON_MS}
    with (
        closing(consumer(address)) as reader,
        AdminClient(**settings) as admin,
        Producer(bootstrap_servers=address, max_block_ms=SOON_MS) as writer,
    ):
        reader.assign([place])
        for call in (
            lambda: reader.end_offsets([place], timeout_ms=SOON_MS),
            lambda: reader.position(place, timeout_ms=SOON_MS),
            lambda: reader.committed(place, timeout_ms=SOON_MS),
            lambda: reader.commit({place: OffsetAndMetadata(1)}, timeout_ms=SOON_MS),
            lambda: reader.partitions_for_topic("t", timeout_ms=SOON_MS),
            lambda: reader.topics(timeout_ms=SOON_MS),
            lambda: admin.create_topics([NewTopic("t")]),
            lambda: admin.list_topics(),
            lambda: admin.list_groups(),
            lambda: admin.describe_cluster(),
            lambda: admin.list_group_offsets("g"),
            lambda: writer.send("t", b"value"),
        ):
            with pytest.raises(BrokerUnavailableError) as caught:
                call()
            text = str(caught.value)
            assert f"{address}: Connection refused" in text
            assert "1000 ms" in text
            assert isinstance(caught.value.__cause__, BrokerUnavailableError)


async def _is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def test_a_server_that_accepts_and_says_nothing() -> None:
    async def run() -> None:
        server = await asyncio.start_server(_is_silent, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            await asyncio.to_thread(ask, address)

    def ask(address: str) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": address, "default_api_timeout_ms": SOON_MS}
        with AdminClient(**settings) as admin:
            is_not_yet(admin.list_topics, f"{address}: the connection was accepted")

    asyncio.run(run())


def is_not_yet(call: Callable[[], object], what: str) -> None:
    """Let a call time out: an ongoing connection attempt is not a failure."""
    error = timed_out(call)
    assert what in str(error)
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    assert str(error).endswith(" yet")
    assert isinstance(error.__cause__, RequestTimedOutError)


def test_a_server_that_does_not_accept_yet() -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(server.getsockname())  # from now on no other connection is accepted
        address = "{}:{}".format(*server.getsockname())
        with Producer(bootstrap_servers=address, max_block_ms=SOON_MS) as writer:
            what = f"{address}: no server accepted the connection"
            is_not_yet(lambda: writer.send("t", b"value"), what)
