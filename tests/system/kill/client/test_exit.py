"""Processes that end without `close`: what was sent arrives, or the log says what did not."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.broker import EmbeddedBroker
from tests.client.programs.exits import COUNT, WAYS
from tests.client.programs.run import DEADLINE_S, ROOT, run
from tests.real_kafka.broker import RealKafka, free_ports

CODES = {"by_sys_exit": 3, "by_an_exception": 1, "by_interrupt": 1}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def arrived(bootstrap: str, topic: str) -> int:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = consumer.partitions_for_topic(topic) or frozenset()
        ends = consumer.end_offsets([TopicPartition(topic, each) for each in partitions])
        return sum(ends.values())


@pytest.mark.parametrize("way", WAYS)
def test_all_records_arrive(bootstrap: str, topic: str, way: str) -> None:
    done = run("exits", way, bootstrap.replace("127.0.0.1", "localhost"), topic)
    assert done.returncode == CODES.get(way, 0), done.stderr
    assert arrived(bootstrap, topic) == COUNT, done.stderr
    assert "lost" not in done.stderr


@pytest.mark.parametrize("way", ["send", "by_an_exception", "by_fork"])
def test_all_records_arrive_at_apache_kafka(real_kafka: RealKafka, topic: str, way: str) -> None:
    done = run("exits", way, real_kafka.bootstrap_servers, topic)
    assert done.returncode == CODES.get(way, 0), done.stderr
    assert arrived(real_kafka.bootstrap_servers, topic) == COUNT, done.stderr


def test_a_broker_that_moves_during_the_end_is_found(tmp_path: Path, topic: str) -> None:
    """Its new address is a name, which no other thread can look up any more."""
    ports = free_ports(2)
    servers = ",".join(f"localhost:{port}" for port in ports)
    first = EmbeddedBroker(tmp_path, port=ports[0])
    first.start()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.client.programs.exits", "when_told", servers, topic],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    first.stop()
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    with EmbeddedBroker(tmp_path, port=ports[1]) as second:
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
        assert arrived(second.bootstrap_servers, topic) == COUNT, errors


LOSES = """
import sys
from kohort import Producer
from kohort.broker import EmbeddedBroker

broker = EmbeddedBroker()
broker.start()
producer = Producer(
    bootstrap_servers=broker.bootstrap_servers, linger_ms=100, request_timeout_ms=500,
    delivery_timeout_ms=1_000,
)
producer.send("there", b"").result(60)
broker.stop()
for number in range(100):
    producer.send("there", b"lost", partition=0)
"""


def test_what_is_lost_is_in_the_log() -> None:
    done = run(LOSES, script=True)
    assert done.returncode == 0, done.stderr
    assert "100 records for there-0 are lost" in done.stderr
    assert "100 records are lost in total" in done.stderr


NEVER_CONNECTED = """
from kohort import Producer, Consumer, AdminClient

kept = [Producer(), Consumer("t", group_id="g"), AdminClient()]
"""


def test_clients_that_were_never_used_leave_in_silence() -> None:
    done = run(NEVER_CONNECTED, script=True)
    assert (done.returncode, done.stdout) == (0, "")
    # A busy machine may give up the last commit, which a line says; nothing is a traceback.
    assert [each for each in done.stderr.splitlines() if "auto-commit failed" not in each] == []


LEFT_OPEN = """
import sys
from kohort import Consumer

consumer = Consumer(
    sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[2], auto_offset_reset="earliest",
    group_protocol=sys.argv[3],
)
while not consumer.assignment():
    consumer.poll(100)
print("joined")
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_leaves_its_group_when_the_process_ends(
    bootstrap: str, topic: str, protocol: Any
) -> None:
    done = run(LEFT_OPEN, bootstrap, topic, protocol, script=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "joined\n", "")
    settings: Any = {"group_protocol": protocol}
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, **settings) as consumer:
        while not consumer.assignment():
            consumer.poll(100)


IN_A_DAEMON_THREAD = """
import atexit
import sys
import threading

served = threading.Event()
threads = []
atexit.register(lambda: [each.join() for each in threads])  # after the hook of kohort

from kohort import Consumer, Producer

servers, topic, way = sys.argv[1:]


def loops():
    consumer = Consumer(
        topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
    )
    for _ in consumer:
        served.set()


def polls():
    consumer = Consumer(
        topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
    )
    while True:
        if consumer.poll(60_000):
            served.set()


def sends():
    producer = Producer(bootstrap_servers=servers)
    while True:
        producer.send(topic, b"").result()
        served.set()


def sends_without_waiting():
    producer = Producer(bootstrap_servers=servers, buffer_memory=100_000)
    while True:
        producer.send(topic, b"")
        served.set()


with Producer(bootstrap_servers=servers) as first:
    first.send(topic, b"").result()
threads.append(threading.Thread(target=globals()[way], daemon=True))
threads[0].start()
served.wait()
"""


@pytest.mark.parametrize("way", ["loops", "polls", "sends", "sends_without_waiting"])
def test_a_daemon_thread_ends_in_silence(bootstrap: str, topic: str, way: str) -> None:
    """A busy broker may not answer the last commit in time, and that has to be told."""
    done = run(IN_A_DAEMON_THREAD, bootstrap, topic, way, script=True)
    told = [line for line in done.stderr.splitlines() if "given up before it was" not in line]
    assert (done.returncode, done.stdout, told) == (0, "", [])


CONFLUENT = """
import sys
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
for number in range(100):
    producer.produce(sys.argv[2], b"%d" % number)
"""

KAFKA_PYTHON = """
import sys
from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=5_000)
for number in range(100):
    producer.send(sys.argv[2], b"%d" % number)
"""


@pytest.mark.parametrize(("script", "count"), [(CONFLUENT, 0), (KAFKA_PYTHON, 100)])
def test_what_other_clients_do(real_kafka: RealKafka, topic: str, script: str, count: int) -> None:
    run(script, real_kafka.bootstrap_servers, topic, script=True)
    assert arrived(real_kafka.bootstrap_servers, topic) == count
