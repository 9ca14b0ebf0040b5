"""Injected faults of a broker, as seen by kohort's and other clients."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from kohort import AdminClient, Consumer, Producer, TopicPartition
from kohort.broker import EmbeddedBroker, Fault
from kohort.broker.dispatch import SERVED
from kohort.broker.faults import read
from kohort.broker.refusals import REFUSABLE, refused
from kohort.client import NewTopic
from kohort.errors import ConfigError, ErrorCode, KafkaError, RequestTimedOutError
from kohort.wire import apis
from kohort.wire.codec import coding, frame
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.processes import eventually
from tests.wire.values import any_messages

REFUSED_JOIN = """
[[fault]]
action = "error"
api = "JoinGroup"
error = "GROUP_MAX_SIZE_REACHED"
"""
FOR_GOOD = 0  # `times` of a permanent fault


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("orders")
        yield broker


def values(broker: EmbeddedBroker, topic: str = "orders") -> list[bytes | None]:
    """Return all records of partition 0, as a client without faults reads them."""
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, client_id="looks") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        consumer.seek_to_beginning(place)
        found: list[bytes | None] = []
        while consumer.position(place) < end:
            found += [each.value for each in consumer.poll(1_000).get(place, [])]
        return found


# ------------------------------------------------------------------------------ actions


def test_an_error_has_no_effect_and_is_tried_again(broker: EmbeddedBroker) -> None:
    fault = Fault(action="error", api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    with (
        broker.faults.injected(fault) as injected,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        assert producer.send("orders", b"one").result(100).offset == 0
        assert producer.metrics()["producer-metrics"]["record-retry-total"] == 2
    assert (injected.hits, injected.seen) == (2, 3)
    assert values(broker) == [b"one"]


@pytest.mark.parametrize("effect", [False, True])
def test_a_lost_answer_does_not_double_what_an_idempotent_producer_writes(
    broker: EmbeddedBroker, effect: bool
) -> None:
    fault = Fault(action="disconnect", api="Produce", effect=effect)
    with (
        broker.faults.injected(fault) as injected,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("orders", b"one").result(100)
    assert injected.hits == 1
    assert values(broker) == [b"one"]


def test_a_lost_answer_doubles_what_a_plain_producer_writes(broker: EmbeddedBroker) -> None:
    fault = Fault(action="disconnect", api="Produce", effect=True)
    servers = broker.bootstrap_servers
    with (
        broker.faults.injected(fault),
        Producer(bootstrap_servers=servers, enable_idempotence=False) as producer,
    ):
        producer.send("orders", b"one").result(100)
    assert values(broker) == [b"one", b"one"]


def test_silence_is_a_time_out(broker: EmbeddedBroker) -> None:
    fault = Fault(action="silence", api="ListOffsets", times=FOR_GOOD, client_id="deaf")
    servers = broker.bootstrap_servers
    place = TopicPartition("orders", 0)
    with broker.faults.injected(fault), Consumer(bootstrap_servers=servers) as other:
        with (
            Consumer(
                bootstrap_servers=servers,
                client_id="deaf",
                request_timeout_ms=500,
                default_api_timeout_ms=2_000,
            ) as consumer,
            pytest.raises(RequestTimedOutError),
        ):
            consumer.end_offsets([place])
        assert other.end_offsets([place]) == {place: 0}


def test_half_an_answer_is_followed_by_the_end(broker: EmbeddedBroker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    request = frame.encode_request(MetadataRequest(topics=None), 1, 7, "raw")
    with socket.create_connection((host, int(port)), 60) as whole:
        whole.sendall(request)
        size = 4 + struct.unpack(">i", whole.recv(4, socket.MSG_WAITALL))[0]
    with (
        broker.faults.injected(Fault(action="truncate", api="Metadata", client_id="raw")),
        socket.create_connection((host, int(port)), 60) as cut,
    ):
        cut.sendall(request)
        received = b""
        while piece := cut.recv(65536):
            received += piece
    assert len(received) == size // 2


def test_a_delay_is_before_the_answer(broker: EmbeddedBroker) -> None:
    fault = Fault(action="delay", api="OffsetCommit", delay_ms=300)
    with (
        broker.faults.injected(fault) as injected,
        Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer,
    ):
        consumer.assign([TopicPartition("orders", 0)])
        consumer.commit({TopicPartition("orders", 0): 0})
        measured = consumer.metrics()["consumer-coordinator-metrics"]
    assert injected.hits == 1
    assert measured["commit-latency-max"] >= 300


@pytest.mark.parametrize("api", sorted(REFUSABLE))
def test_each_api_that_can_be_refused_answers_in_each_version(api: str) -> None:
    places = {**apis.KAFKA, **apis.PRIVATE}
    key = next(each for each, place in places.items() if place.endswith(f".{api}"))
    kind = apis.request_class(key)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), version=st.integers(SERVED[key].first, SERVED[key].last))
    def test(data: st.DataObject, version: int) -> None:
        request = data.draw(any_messages(kind, version))
        answer = refused(request, version, ErrorCode.NOT_COORDINATOR)
        assert isinstance(answer, apis.response_class(key))
        assert coding.decode(type(answer), version, coding.encode(answer, version)) is not None

    test()


# ------------------------------------------------------------------------------ matching requests


def test_the_nth_of_one_topic_and_one_group(broker: EmbeddedBroker) -> None:
    broker.create_topic("other")
    servers = broker.bootstrap_servers
    late = broker.faults.add(
        Fault(action="error", api="Produce", error="CORRUPT_MESSAGE", topic="other", nth=2, times=1)
    )
    group = broker.faults.add(
        Fault(action="error", api="OffsetCommit", error="GROUP_AUTHORIZATION_FAILED", group="g")
    )
    with Producer(bootstrap_servers=servers) as producer:
        for topic in ("orders", "other", "orders", "other", "other"):
            producer.send(topic, b"value").result(100)
    assert (late.seen, late.hits) == (4, 1)
    for name in ("h", "g"):
        with Consumer(bootstrap_servers=servers, group_id=name) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            if name == "h":
                consumer.commit({TopicPartition("orders", 0): 1})
                continue
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                consumer.commit({TopicPartition("orders", 0): 1})
    assert group.hits == 1
    broker.faults.clear()
    assert not list(broker.faults)


def test_the_topics_of_a_request_are_found_wherever_they_stand(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    apis_with_topics = ("OffsetFetch", "OffsetCommit", "Fetch", "ListOffsets", "Metadata")
    delays = [
        broker.faults.add(
            Fault(action="delay", api=api, topic="orders", delay_ms=1, times=FOR_GOOD)
        )
        for api in (*apis_with_topics, "ConsumerGroupHeartbeat", "Produce")
    ]
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("orders", b"value").result(100)
    with Consumer(
        "orders",
        bootstrap_servers=servers,
        group_id="g",
        group_protocol="consumer",
        auto_offset_reset="earliest",
    ) as consumer:
        eventually(lambda: bool(consumer.poll(100)), "the record")
        consumer.commit()
    assert [each.fault.api for each in delays if not each.hits] == []


def test_a_refusal_without_acknowledgement_is_a_lost_connection(broker: EmbeddedBroker) -> None:
    fault = Fault(action="error", api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    servers = broker.bootstrap_servers
    with (
        broker.faults.injected(fault) as injected,
        Producer(bootstrap_servers=servers, acks=0, enable_idempotence=False) as producer,
    ):
        producer.send("orders", b"lost").result(100)
        eventually(lambda: injected.hits == 1, "that it is refused")
        producer.send("orders", b"written").result(100)
    eventually(lambda: b"written" in values(broker), "the second record")


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_coordinator_that_moves_costs_no_record(broker: EmbeddedBroker, api: str) -> None:
    servers = broker.bootstrap_servers
    error = "COORDINATOR_NOT_AVAILABLE" if api == "FindCoordinator" else "NOT_COORDINATOR"
    injected = broker.faults.add(Fault(action="error", api=api, error=error, group="g", times=2))
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number)
    with Consumer(
        "orders",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    ) as consumer:
        found: list[bytes | None] = []

        def done() -> bool:
            for batch in consumer.poll(100).values():
                found.extend(each.value for each in batch)
            return len(found) >= 20 and injected.hits == 2

        eventually(done, "all records, and both faults")
    assert found == [b"%d" % number for number in range(20)]


# ------------------------------------------------------------------------------ other clients


def test_clients_of_others_meet_them(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    fault = Fault(action="error", api="Produce", error="TOPIC_AUTHORIZATION_FAILED", times=FOR_GOOD)
    with broker.faults.injected(fault):
        told: list[confluent_kafka.KafkaError | None] = []
        other = confluent_kafka.Producer({"bootstrap.servers": servers})
        other.produce("orders", b"value", on_delivery=lambda error, _: told.append(error))
        assert other.flush(60) == 0
    assert told[0] is not None
    assert told[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_transaction_of_others_names_its_topics(broker: EmbeddedBroker) -> None:
    """kohort's producer does not send this: writes join the transaction (KIP-890)."""
    fault = Fault(action="disconnect", api="AddPartitionsToTxn", topic="orders")
    with broker.faults.injected(fault) as injected:
        other = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "id"}
        )
        other.init_transactions(60)
        other.begin_transaction()
        other.produce("orders", b"value")
        other.commit_transaction(60)
    assert injected.hits == 1


# ------------------------------------------------------------------------------ invalid faults


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"action": "explode"}, "action='explode'"),
        ({"action": "silence", "api": "Produc"}, "api='Produc'"),
        ({"action": "error", "api": "Produce"}, "must be given together"),
        ({"action": "silence", "error": "NOT_COORDINATOR"}, "must be given together"),
        ({"action": "error", "api": "Produce", "error": "NO_SUCH"}, "is not an error code"),
        (
            {"action": "error", "error": "NOT_COORDINATOR", "api": "CreateTopics"},
            "errors are possible",
        ),
        ({"action": "error", "api": "Metadata", "error": "NOT_COORDINATOR"}, "errors are possible"),
        ({"action": "silence", "api": "Produce", "group": "g"}, "Produce names no group"),
        ({"action": "silence", "api": "JoinGroup", "topic": "t"}, "JoinGroup names no topic"),
        ({"action": "delay"}, "delay_ms"),
        ({"action": "silence", "nth": 0}, "nth must be at least 1"),
        ({"action": "delay", "delay_ms": 1, "effect": True}, "effect is only for"),
    ],
)
def test_faults_that_cannot_be(wrong: dict[str, object], why: str) -> None:
    broker = EmbeddedBroker()
    with pytest.raises(ConfigError, match=why):
        broker.faults.add(Fault(**wrong))  # type: ignore[arg-type]  # that is the point
    assert not list(broker.faults)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[fault]]\naction = 'silence'\nwhen = 3\n", "unknown field `when`"),
        ("[[fault]]\naction = 3\n", "fault 1: action: Expected `str`, got `int`"),
        (
            "[[fault]]\naction = 'silence'\n[[fault]]\naction = 'eror'\n",
            "fault 2: action='eror' is not among 'error', 'delay',",
        ),
        ("[[fault]]\naction = 'silence'\nnth = '3'\n", "fault 1: nth: Expected `int`, got `str`"),
        ("fault = 3\n", "must be a table"),
        ("[[faults]]\naction = 'silence'\n", "tables must be named"),
        ("[[fault]\n", "line 1"),
        ("[[fault]]\naction = 'delay'\n", "delay_ms"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read(path)
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "missing.toml")


def test_the_command_has_the_faults_of_a_file(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text(REFUSED_JOIN)
    command = [sys.executable, "-m", "kohort.broker", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--faults", str(faults)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().split()[-1]
            with AdminClient(bootstrap_servers=servers) as admin:
                admin.create_topics([NewTopic("orders")])
            with (
                Consumer("orders", bootstrap_servers=servers, group_id="g") as consumer,
                pytest.raises(KafkaError, match="GROUP_MAX_SIZE_REACHED"),
            ):
                eventually(lambda: bool(consumer.poll(100)), "the refusal")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_a_command_with_a_wrong_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text("[[fault]]\naction = 'explode'\n")
    command = [sys.executable, "-m", "kohort.broker", "--data", str(tmp_path)]
    command += ["--faults", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("kohort broker: faults of ")
    assert "explode" in done.stderr
