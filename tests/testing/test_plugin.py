"""The fixtures of the pytest plugin, in sessions of their own."""

from __future__ import annotations

import re
import socketserver
import threading
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.broker.faults import read
from tests.docs.test_readme import python_blocks
from tests.real_kafka.broker import RealKafka
from tests.testing.sessions import session

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
USES = """
import pytest
from kohort import Consumer, Producer, TopicPartition

def test_one(kohort_broker, kohort_topic, kohort_group):
    kohort_broker.produce(kohort_topic, b"one", b"two")
    with Consumer(
        kohort_topic, bootstrap_servers=kohort_broker.bootstrap_servers, group_id=kohort_group,
        auto_offset_reset="earliest",
    ) as consumer:
        seen = []
        while len(seen) < 2:
            seen += [r.value for rs in consumer.poll(1_000).values() for r in rs]
    assert seen == [b"one", b"two"]
    assert kohort_broker.committed(kohort_group) == {TopicPartition(kohort_topic, 0): 2}
    assert [r.value for r in kohort_broker.records(kohort_topic)] == [b"one", b"two"]

@pytest.mark.kohort_topic(partitions=3, configs={"retention.ms": "1000"})
def test_topics_are_as_asked(kohort_broker, kohort_topic):
    from kohort import AdminClient
    with AdminClient(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics([kohort_topic])[kohort_topic]) == 3

def test_protocols(kohort_protocol, kohort_broker, kohort_topic, kohort_group):
    with Consumer(
        kohort_topic, bootstrap_servers=kohort_broker.bootstrap_servers, group_id=kohort_group,
        group_protocol=kohort_protocol,
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(50)
        assert kohort_broker.wait_for_members(kohort_group, 1).type == kohort_protocol

def test_nothing_is_left(kohort_broker):
    from kohort import AdminClient
    with AdminClient(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        assert not [name for name in admin.list_topics() if name.startswith("topic-")]
        assert not [each for each in admin.list_groups() if each.group_id.startswith("group-")]
"""
FAULTS = """
import pytest
from kohort import Consumer, Producer

def test_leaves_a_fault(kohort_broker, kohort_topic):
    from kohort.broker import Fault
    kohort_broker.faults.add(Fault(action="silence", api="Produce", times=0))

def test_has_none(kohort_broker, kohort_topic):
    kohort_broker.produce(kohort_topic, b"value")
"""
CLUSTER = """
from kohort import Producer

def test_it_is_there_again(kohort_cluster):
    kafka = kohort_cluster.kafka
    topic = kafka.create_topic()
    kafka.produce(topic, b"one")
    kohort_cluster.kill()
    kohort_cluster.start()
    kafka.produce(topic, b"two")
    assert kohort_cluster.stop() == 0
    kohort_cluster.start()
    assert [record.value for record in kafka.records(topic)] == [b"one", b"two"]

def test_a_paused_one_is_waited_for(kohort_cluster):
    kafka = kohort_cluster.kafka
    topic = kafka.create_topic()
    with Producer(bootstrap_servers=kohort_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"one").result(60)
        kohort_cluster.pause()
        future = producer.send(topic, b"two")
        assert not future.done()
        kohort_cluster.resume()
        assert future.result(60).offset == 1
"""


def test_a_service_is_tested_with_the_embedded_broker(tmp_path: Path) -> None:
    said = session(tmp_path, USES)
    assert "5 passed" in said, said


def test_each_worker_of_xdist_has_a_broker(tmp_path: Path) -> None:
    said = session(tmp_path, USES.replace("def test_nothing_is_left", "def nothing"), "-n", "2")
    assert "4 passed" in said, said


def test_a_service_is_tested_with_apache_kafka(tmp_path: Path, real_kafka: RealKafka) -> None:
    """Other tests use that Kafka, too: what they leave there is not this test's."""
    code = USES.replace("def test_nothing_is_left", "def nothing")
    servers = real_kafka.bootstrap_servers
    said = session(tmp_path, code, "--kohort-bootstrap-servers", servers)
    assert "4 passed" in said, said


def test_a_fault_ends_with_its_test(tmp_path: Path) -> None:
    said = session(tmp_path, FAULTS)
    assert "2 passed" in said, said


def test_a_broker_of_ones_own_is_killed_and_paused(tmp_path: Path) -> None:
    said = session(tmp_path, CLUSTER)
    assert "2 passed" in said, said


def test_faults_on_another_kafka_are_an_error(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        said = session(tmp_path, FAULTS, "--kohort-bootstrap-servers", broker.bootstrap_servers)
    assert "HarnessError: faults: only an embedded broker can do that" in said


def test_an_address_without_a_kafka_is_told_before_any_test(tmp_path: Path) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers = f"127.0.0.1:{server.server_address[1]}"
        said = session(tmp_path, USES, "--kohort-bootstrap-servers", servers)
        server.shutdown()
    assert f"--kohort-bootstrap-servers: no Kafka answers at {servers} within 5 s: " in said
    assert "5 errors" in said


class Other(socketserver.BaseRequestHandler):
    """Answers as another server than a Kafka, so that a client does not try on."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("code", "options", "why"),
    [
        (USES, ("--kohort-protocols", "classic,eager"), "eager is not one of classic, consumer"),
        (USES.replace("partitions=3", "count=3"), (), "takes partitions= and configs="),
        (
            USES,
            ("--kohort-bootstrap-servers", ""),
            "is empty: leave it out, or give the address of a Kafka",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, code: str, options: tuple[str, ...], why: str
) -> None:
    assert why in session(tmp_path, code, *options)


def test_what_the_page_shows_passes(tmp_path: Path) -> None:
    blocks = [code for code in python_blocks(PAGE.read_text()) if "def test_" in code]
    assert len(blocks) == 3
    said = session(tmp_path, "\n".join(blocks))
    assert "3 passed" in said, said


def test_what_the_page_shows_without_pytest_runs() -> None:
    (code,) = [code for code in python_blocks(PAGE.read_text()) if "EmbeddedBroker()" in code]
    exec(compile(code, PAGE.name, "exec"), {})


def test_tests_with_faults_are_skipped_as_the_page_shows(tmp_path: Path) -> None:
    (code,) = [code for code in python_blocks(PAGE.read_text()) if "pytest.skip" in code]
    code += "\n\ndef test_fault(embedded_broker):\n    embedded_broker.faults.clear()\n"
    with EmbeddedBroker(tmp_path / "data") as broker:
        said = session(tmp_path, code, "--kohort-bootstrap-servers", broker.bootstrap_servers)
    assert "1 skipped" in said, said


def test_the_faults_that_the_page_shows_can_be(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "faults.toml").write_text(shown)
    assert [fault.api for fault in read(tmp_path / "faults.toml")] == ["OffsetCommit", "Fetch"]


def test_a_session_without_kafka_loads_nothing_of_it(tmp_path: Path) -> None:
    code = """
import sys

def test_nothing():
    loaded = {name for name in sys.modules if name.startswith("kohort.")}
    assert not loaded & {"kohort.client", "kohort.broker", "kohort.wire"}, loaded
"""
    said = session(tmp_path, code)
    assert "1 passed" in said, said
