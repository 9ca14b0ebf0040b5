"""Problems that keep a client waiting are logged once, and so is their end; retries have pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.errors import BrokerUnavailableError
from kohort.values import replace
from kohort.wire.codec import frame as frames
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.processes import DEADLINE_S, eventually
from tests.client.cutting_proxy import CuttingProxy
from tests.real_kafka.broker import RealKafka, free_ports

QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, "reconnect_backoff_max_ms": 50}


def consumer(servers: str, **settings: Any) -> Consumer:
    given = {"allow_auto_create_topics": False, "auto_offset_reset": "earliest", **QUICK}
    return Consumer(bootstrap_servers=servers, **{**given, **settings})


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if word in each.getMessage()]


def polled(reader: Consumer, until: Callable[[], object]) -> None:
    """Poll until a condition holds, then a few more times."""

    def done() -> bool:
        reader.poll(50)
        return bool(until())

    eventually(done, "what is polled for")
    for _ in range(10):
        reader.poll(20)


class Recorder(CuttingProxy):
    """Notes when metadata was requested; can hold fetches, and advertise any address.

    Attributes:
        asked: Times of metadata requests, in seconds.
        go_on: While clear, fetches are not forwarded.
        advertised: Host and port of the broker instead of its own.
    """

    def __init__(self, broker: str) -> None:
        super().__init__(broker, lambda _: False)
        self.asked: list[float] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.advertised: tuple[str, int] | None = None

    def answer_itself(self, frame: bytes) -> bytes | None:
        request = frames.decode_request(memoryview(frame)).message
        if isinstance(request, MetadataRequest):
            self.asked.append(time.monotonic())
        if isinstance(request, FetchRequest):
            self.go_on.wait(DEADLINE_S)
        return None

    def _renamed(self, frame: bytes, version: int, number: int) -> bytes:
        renamed = super()._renamed(frame, version, number)
        if self.advertised is None:
            return renamed
        host, port = self.advertised
        response = frames.decode_response(MetadataResponse, version, memoryview(renamed)[4:])
        brokers = tuple(replace(b, host=host, port=port) for b in response.brokers)
        response = replace(response, brokers=brokers)
        return bytes(frames.encode_response(response, version, number))


@pytest.mark.parametrize("kind", ["embedded", "kafka"])
def test_a_topic_that_is_missing(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    if kind == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        check_missing_topic(kafka.bootstrap_servers, caplog)
        return
    with EmbeddedBroker(tmp_path) as broker:
        check_missing_topic(broker.bootstrap_servers, caplog)


def check_missing_topic(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    with consumer(servers) as reader:
        reader.assign([TopicPartition("comes-later", 0)])
        polled(reader, lambda: lines(caplog, "comes-later"))
        (line,) = lines(caplog, "comes-later")
        assert "topic comes-later" in line
        assert "UNKNOWN_TOPIC_OR_PARTITION" in line
        assert servers in line
        assert "asking again" in line
        with Producer(bootstrap_servers=servers) as writer:
            writer.send("comes-later", b"value").result(DEADLINE_S)
        # The producer may have logged the same about itself.
        over = "consumer kohort: topic comes-later is available now"
        polled(reader, lambda: over in lines(caplog, "comes-later"))
        assert sum("consumer kohort" in line for line in lines(caplog, "comes-later")) == 2


def test_a_partition_that_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker, consumer(broker.bootstrap_servers) as reader:
        broker.create_topic("t", partitions=2)
        reader.assign([TopicPartition("t", 1), TopicPartition("t", 7)])
        reader.seek(TopicPartition("t", 7), 3)
        polled(reader, lambda: lines(caplog, "t-7"))
        (line,) = lines(caplog, "t-7")
        assert "UNKNOWN_TOPIC_OR_PARTITION, the topic has 2 partitions" in line
        assert not lines(caplog, "t-1")


def test_bootstrap_servers_that_never_were_there(caplog: pytest.LogCaptureFixture) -> None:
    first, second = free_ports(2)
    with consumer(f"127.0.0.1:{first},127.0.0.1:{second}", group_id="g") as reader:
        reader.subscribe(["t"])

        def is_said() -> bool:
            with suppress(BrokerUnavailableError):
                reader.poll(100)
            return bool(lines(caplog, "no broker can be reached"))

        eventually(is_said, "it is said")
        for _ in range(20):
            with pytest.raises(Exception, match="Connection refused"):
                reader.poll(100)
        (line,) = lines(caplog, "no broker can be reached")
        for port in (first, second):
            assert f"127.0.0.1:{port}: Connection refused" in line
        assert "trying again" in line
        reader.close(timeout_s=0.1)


@pytest.mark.parametrize("host", ["127.0.0.1", "advertised.invalid"])
def test_an_advertised_address_that_cannot_be_used(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    with EmbeddedBroker(tmp_path) as broker, Recorder(broker.bootstrap_servers) as proxy:
        broker.create_topic("t")
        with Producer(bootstrap_servers=broker.bootstrap_servers) as writer:
            writer.send("t", b"value").result(DEADLINE_S)
        proxy.advertised = host, port
        with consumer(proxy.bootstrap_servers) as reader:
            reader.assign([TopicPartition("t", 0)])
            polled(reader, lambda: lines(caplog, "cannot be reached"))
            (line,) = lines(caplog, "cannot be reached")
            assert f"{host}:{port}" in line
            assert "broker 1" in line
            assert "advertises" in line
            assert "trying again" in line
            proxy.advertised = None
            polled(reader, lambda: lines(caplog, "reached again"))
            (over,) = lines(caplog, "reached again")
            assert over == "consumer kohort: broker 1 can be reached again"


def test_a_broker_that_falls_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(tmp_path) as broker, Recorder(broker.bootstrap_servers) as proxy:
        broker.create_topic("t")
        settings: dict[str, Any] = {"request_timeout_ms": 300, "fetch_max_wait_ms": 50}
        with consumer(proxy.bootstrap_servers, **settings) as reader:
            reader.assign([TopicPartition("t", 0)])
            polled(reader, lambda: reader.position(TopicPartition("t", 0)) == 0)
            assert not lines(caplog, "did not answer")
            proxy.go_on.clear()
            polled(reader, lambda: lines(caplog, "did not answer FetchRequest"))
            assert proxy.bootstrap_servers in lines(caplog, "did not answer")[0]
            proxy.go_on.set()
            polled(reader, lambda: lines(caplog, "answers again"))


def test_a_missing_topic_is_asked_for_ever_more_rarely(tmp_path: Path) -> None:
    """The minimum total of the pauses does not depend on the machine's speed."""
    with EmbeddedBroker(tmp_path) as broker, Recorder(broker.bootstrap_servers) as proxy:
        settings: dict[str, Any] = {"retry_backoff_ms": 50, "retry_backoff_max_ms": 400}
        with consumer(proxy.bootstrap_servers, **settings) as reader:
            reader.assign([TopicPartition("is-not-there", 0)])
            reader.seek(TopicPartition("is-not-there", 0), 1)
            eventually(lambda: (reader.poll(20), len(proxy.asked) >= 9)[1], "nine times asked")
    # the first is from the consumer's start; jitter is at most a fifth
    least_s = 0.8 * (0.05 + 0.1 + 0.2 + 0.4 + 0.4 + 0.4 + 0.4)
    assert proxy.asked[8] - proxy.asked[0] > least_s


def test_another_subscription_is_asked_for_at_once(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("there")
        with Producer(bootstrap_servers=broker.bootstrap_servers) as writer:
            writer.send("there", b"value").result(DEADLINE_S)
        hour_ms = 3_600_000
        settings: dict[str, Any] = {"retry_backoff_ms": hour_ms, "retry_backoff_max_ms": hour_ms}
        with consumer(broker.bootstrap_servers, **settings) as reader:
            reader.assign([TopicPartition("is-not-there", 0)])
            reader.seek(TopicPartition("is-not-there", 0), 1)
            for _ in range(5):
                reader.poll(20)
            reader.assign([TopicPartition("there", 0)])
            reader.seek(TopicPartition("there", 0), 0)
            eventually(lambda: bool(reader.poll(50)), "the record of the other topic")
