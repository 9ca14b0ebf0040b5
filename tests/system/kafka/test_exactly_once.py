"""A worker that is killed again and again, and one that ends without a word."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import Consumer, TopicPartition
from tests.broker.processes import BrokerProcess, eventually
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transactional import PAUSE, ended

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
BROKER_KILLS = 10

# What a program may do with a transaction that it does not end.
PROGRAM = """
import asyncio, sys
from kohort import AsyncProducer, Producer
servers, topic, how = sys.argv[1:]

def blocking():
    producer = Producer(bootstrap_servers=servers, transactional_id=topic)
    producer.begin_transaction()
    producer.send(topic, b"flushed").result(30)
    producer.send(topic, b"unsent")
    return producer

async def on_a_loop():
    producer = AsyncProducer(bootstrap_servers=servers, transactional_id=topic)
    await producer.begin_transaction()
    await (await producer.send(topic, b"flushed"))
    return producer

if how == "asyncio":
    kept = asyncio.run(on_a_loop())
else:
    kept = blocking()
    if how == "raises":
        raise ValueError("a mistake")
    if how == "exits":
        sys.exit(3)
"""


@pytest.fixture
def topic(real_kafka: RealKafka) -> str:
    return foreign.new_topic(real_kafka.bootstrap_servers)


def test_each_order_is_taxed_once_although_workers_are_killed(real_kafka: RealKafka) -> None:
    """The program of examples/ with ten kills at random moments."""
    command = [sys.executable, str(ROOT / "examples" / "exactly_once.py")]
    command += [real_kafka.bootstrap_servers, "--orders", "1500", "--kills", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1500 orders, 10 kills: 0 too many, 0 missing" in done.stdout


def test_on_the_embedded_broker_that_is_killed_as_well(tmp_path: Path) -> None:
    """Workers and the broker die at random moments, independently of each other."""
    rng = random.Random(4)
    with BrokerProcess(tmp_path) as broker:
        command = [sys.executable, str(ROOT / "examples" / "exactly_once.py")]
        command += [broker.bootstrap_servers, "--orders", "2000", "--kills", "10"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            kills = 0
            while process.poll() is None and kills < BROKER_KILLS:
                PAUSE.wait(rng.uniform(0.5, 3))
                broker.kill()
                broker.start()
                kills += 1
            output, _ = process.communicate(timeout=TIMEOUT_S)
    assert "2000 orders, 10 kills: 0 too many, 0 missing" in output
    assert process.returncode == 0
    assert kills > 1


@pytest.mark.parametrize(("how", "status"), [("ends", 0), ("raises", 1), ("exits", 3)])
def test_a_program_that_ends_aborts_what_is_open(
    real_kafka: RealKafka, topic: str, how: str, status: int
) -> None:
    done = ran(real_kafka, topic, how)
    assert done.returncode == status, done.stderr
    assert "is closed during a transaction, which is aborted" in done.stderr
    place = TopicPartition(topic, 0)
    given = {"bootstrap.servers": real_kafka.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer.from_config({**given, "isolation.level": "read_committed"}) as consumer:
        consumer.assign([place])
        # The last stable offset is 0 while it is open; it is aborted long before its time. The
        # second record may have been sent before the abort.
        eventually(lambda: ended(consumer, place) > 0, "it is aborted")
        end = ended(consumer, place)
        read: list[bytes] = []

        def is_at_the_end() -> bool:
            read.extend(each.value for each in consumer.poll(100).get(place, []))
            return consumer.position(place) == end

        eventually(is_at_the_end, "all is read")
    assert read == []


def test_an_asyncio_program_that_ends_says_what_it_leaves_open(
    real_kafka: RealKafka, topic: str
) -> None:
    """Its loop runs no more: the broker aborts when the time is over."""
    done = ran(real_kafka, topic, "asyncio")
    assert done.returncode == 0, done.stderr
    assert f"transactional id {topic}" in done.stderr
    assert "the broker aborts after 60000 ms: await its close()" in done.stderr


def ran(kafka: RealKafka, topic: str, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, kafka.bootstrap_servers, topic, how]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
