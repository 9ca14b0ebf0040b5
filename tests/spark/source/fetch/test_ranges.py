"""Ranges on the embedded broker, and what is said when they cannot be read."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ConfigError, KafkaError, RemoteProtocolError
from kohort.spark.source.fetch.ranges import RangeReader, close_idle_connections
from tests.client import range_scenarios as scenarios


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    yield
    close_idle_connections()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_any_range_is_read_exactly(bootstrap: str, codec: str) -> None:
    scenarios.any_range_is_read_exactly(bootstrap, codec)


def test_headers_come_when_asked_for(bootstrap: str) -> None:
    scenarios.headers_come_when_asked_for(bootstrap)


def test_an_empty_range_asks_nobody(bootstrap: str) -> None:
    scenarios.an_empty_range_asks_nobody(bootstrap)


def test_offsets_beyond_the_end_are_lost(bootstrap: str) -> None:
    scenarios.offsets_beyond_the_end_are_lost(bootstrap)


def test_an_end_that_never_comes_is_an_error_in_time(bootstrap: str) -> None:
    scenarios.an_end_that_never_comes_is_an_error_in_time(bootstrap)


def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    scenarios.a_topic_that_is_not_there_is_named(bootstrap)


def test_a_reader_that_stops_early_disturbs_nobody(bootstrap: str) -> None:
    scenarios.a_reader_that_stops_early_disturbs_nobody(bootstrap)


def test_a_broker_that_comes_back_is_read_on(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        address = broker.bootstrap_servers
        topic = scenarios.filled_topic(address)
        settings = {"max.partition.fetch.bytes": "5000"}
        parts = RangeReader(address, settings).read(topic, 0, 0, scenarios.RECORDS)
        offsets = next(parts)["offset"].to_pylist()
    with EmbeddedBroker(tmp_path, port=int(address.rpartition(":")[2])):
        offsets += [offset for part in parts for offset in part["offset"].to_pylist()]
    assert offsets == list(range(scenarios.RECORDS))


def test_a_forked_process_does_not_use_its_parents_connections(bootstrap: str) -> None:
    topic = scenarios.filled_topic(bootstrap)
    scenarios.check(scenarios.read(bootstrap, topic, 0, 10), 0, 10)
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            scenarios.check(scenarios.read(bootstrap, topic, 0, 500), 0, 500)
            failed = 0
        finally:
            os._exit(failed)
    scenarios.check(scenarios.read(bootstrap, topic, 0, 500), 0, 500)
    assert os.waitpid(child, 0)[1] == 0


def test_nobody_there_is_one_error_in_time() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(KafkaError, match=f"{address}.*refused"):
            scenarios.read(address, "t", 0, 1, default_api_timeout_ms="200")


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x7f\xff\xff\xff", b"\0" * 64]
)
def test_a_peer_that_is_no_broker_is_refused(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)
                peer.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(RemoteProtocolError, match=f"127.0.0.1:{port}"):
            scenarios.read(f"127.0.0.1:{port}", "t", 0, 1)
        thread.join(10)


def test_settings_are_kafkas() -> None:
    with pytest.raises(ConfigError, match="host:port"):
        RangeReader("nonsense")
    with pytest.raises(ConfigError, match=r"did you mean fetch\.min\.bytes"):
        RangeReader("localhost:9092", {"fetch.minn.bytes": "1"})


def test_a_range_is_read_by_the_id_of_its_topic(bootstrap: str) -> None:
    scenarios.a_range_is_read_by_the_id_of_its_topic(bootstrap)


def test_another_topic_of_the_name_is_never_read(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.another_topic_of_the_name_is_never_read(bootstrap, caplog)


def test_a_deleted_topic_is_lost(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    scenarios.a_deleted_topic_is_lost(bootstrap, caplog)


def test_what_is_beyond_the_end_is_passed_over_if_wished(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenarios.what_is_beyond_the_end_is_passed_over_if_wished(bootstrap, caplog)


def test_columns_are_those_asked_for(bootstrap: str) -> None:
    scenarios.columns_are_those_asked_for(bootstrap)


def test_a_topic_is_found_with_one_question(bootstrap: str) -> None:
    scenarios.a_topic_is_found_with_one_question(bootstrap)
