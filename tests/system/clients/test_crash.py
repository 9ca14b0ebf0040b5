"""A member that dies without a word, and a broker that does."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import Cause, GroupEvent, MemberLeft
from tests.broker.processes import BrokerProcess
from tests.system.clients.group import (
    DEADLINE_S,
    AiokafkaMember,
    ConfluentMember,
    Driver,
    KafkaPythonMember,
    kafka,
    produce,
)

# kafka-python drops sockets without closing them; they are collected before each test ends.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PARTITIONS = 4
RECORDS = 400
ROOT = Path(__file__).parents[3]
MEMBERS: list[type[ConfluentMember | KafkaPythonMember | AiokafkaMember]] = [
    ConfluentMember,
    KafkaPythonMember,
    AiokafkaMember,
]

# Joins, says so once it owns partitions, and goes on reading until it is killed.
VICTIM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.system.clients import group
make = getattr(group, sys.argv[2])
member = make(sys.argv[3], "g", "t", session_timeout_ms=1000)
said = False
while True:
    member.poll()
    if member.assignment() and not said:
        said = True
        print("owns", flush=True)
"""


@pytest.mark.parametrize("make", MEMBERS)
def test_partitions_of_a_killed_member_are_taken_over(
    make: type[ConfluentMember | KafkaPythonMember | AiokafkaMember], driver: Driver
) -> None:
    with EmbeddedBroker() as broker:
        facts: list[GroupEvent] = []
        broker.subscribe(facts.append)
        broker.create_topic("t", PARTITIONS)
        servers = broker.bootstrap_servers
        survivor = driver.add(lambda: make(servers, "g", "t"))
        driver.until_shared([survivor], PARTITIONS)
        kill_one_that_owns(make.__name__, servers)
        produce(servers, "t", RECORDS)
        driver.until_shared([survivor], PARTITIONS)
        driver.until(lambda: len(driver.seen) == RECORDS, "every record, by the survivor")
        left = [fact for fact in facts if isinstance(fact, MemberLeft)]
        assert [fact.cause for fact in left] == [Cause.SESSION_EXPIRED]
        driver.leave_all()


def kill_one_that_owns(member: str, servers: str) -> None:
    """Start a member in a process, and kill that once it owns partitions."""
    command = [sys.executable, "-W", "ignore", "-c", VICTIM, str(ROOT), member, servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        try:
            assert victim.stdout.readline() == "owns\n"
        finally:
            victim.kill()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_clients_live_through_a_restart_of_the_broker(
    how: str, tmp_path: Path, driver: Driver
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([kafka.admin.NewTopic("t", PARTITIONS, 1)])
        admin.close()
        members = [driver.add(partial(make, servers, "g", "t")) for make in MEMBERS]
        driver.until_shared(members, PARTITIONS)
        settings = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 300, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        send(producer, range(RECORDS))
        assert producer.flush(DEADLINE_S) == 0
        driver.until(lambda: len(driver.seen) == RECORDS, "the records before")
        getattr(broker, how)()
        send(producer, range(RECORDS, 2 * RECORDS))
        broker.start()
        assert producer.flush(DEADLINE_S) == 0
        driver.until(lambda: len(driver.seen) == 2 * RECORDS, "the records after")
        driver.until_shared(members, PARTITIONS)
        driver.leave_all()


def send(producer: confluent_kafka.Producer, numbers: range) -> None:
    for number in numbers:
        producer.produce("t", key=str(number).encode(), value=b"x")
