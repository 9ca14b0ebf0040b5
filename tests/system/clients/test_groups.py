"""Groups of foreign clients share a topic of the embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import confluent_kafka
import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import GroupEvent, RebalanceStarted
from tests.system.clients.group import (
    AiokafkaMember,
    ConfluentMember,
    Driver,
    KafkaPythonCooperative,
    KafkaPythonMember,
    KafkaPythonRoundRobin,
    Member,
    produce,
)

# aiokafka leaves connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PARTITIONS = 6
RECORDS = 1_000
Make = Callable[[str, str, str], Member]


def kafka_python_roundrobin(servers: str, group: str, topic: str) -> Member:
    return KafkaPythonMember(
        servers, group, topic, partition_assignment_strategy=[KafkaPythonRoundRobin]
    )


CLIENTS: dict[str, Make] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "kafka-python-roundrobin": kafka_python_roundrobin,
    "kafka-python-cooperative": partial(
        KafkaPythonMember, partition_assignment_strategy=[KafkaPythonCooperative]
    ),
    "confluent-kafka-cooperative": partial(
        ConfluentMember, partition_assignment_strategy="cooperative-sticky"
    ),
    "aiokafka": AiokafkaMember,
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("t", PARTITIONS)
        yield running


def committed(servers: str, group: str, topic: str = "t") -> dict[int, int]:
    """The group's positions as librdkafka reads them."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        wanted = [confluent_kafka.TopicPartition(topic, p) for p in range(PARTITIONS)]
        return {each.partition: each.offset for each in reader.committed(wanted, timeout=20)}
    finally:
        reader.close()


@pytest.mark.parametrize("name", CLIENTS)
def test_members_join_and_leave_and_each_record_is_consumed_once(
    name: str, broker: EmbeddedBroker, driver: Driver
) -> None:
    servers, make = broker.bootstrap_servers, CLIENTS[name]
    produce(servers, "t", RECORDS)
    one = driver.add(lambda: make(servers, "g", "t"))
    driver.until_shared([one], PARTITIONS)
    driver.until(lambda: len(driver.seen) == RECORDS, "all of the first records")
    two = driver.add(lambda: make(servers, "g", "t"))
    driver.until_shared([one, two], PARTITIONS)
    three = driver.add(lambda: make(servers, "g", "t"))
    driver.until_shared([one, two, three], PARTITIONS)
    produce(servers, "t", RECORDS, first=RECORDS)
    driver.until(lambda: len(driver.seen) == 2 * RECORDS, "all of the second records")
    driver.leave(one)
    driver.until_shared([two, three], PARTITIONS)
    driver.leave(two)
    driver.until_shared([three], PARTITIONS)
    produce(servers, "t", RECORDS, first=2 * RECORDS)
    driver.until(lambda: len(driver.seen) == 3 * RECORDS, "all of the last records")
    driver.leave(three)
    assert set(driver.seen.values()) == {1}
    ends = {p: 1 + max(o for q, o in driver.seen if q == p) for p in range(PARTITIONS)}
    assert committed(servers, "g") == ends


def test_members_of_different_clients_share_one_group(
    broker: EmbeddedBroker, driver: Driver
) -> None:
    servers = broker.bootstrap_servers
    produce(servers, "t", RECORDS)
    makes: list[Make] = [ConfluentMember, AiokafkaMember, KafkaPythonMember]
    members = [driver.add(partial(make, servers, "g", "t")) for make in makes]
    driver.until_shared(members, PARTITIONS)
    driver.until(lambda: len(driver.seen) == RECORDS, "all records")


def test_a_static_member_comes_back_without_a_rebalance(
    broker: EmbeddedBroker, driver: Driver
) -> None:
    servers = broker.bootstrap_servers
    other = driver.add(lambda: ConfluentMember(servers, "g", "t", group_instance_id="other"))
    mine = driver.add(lambda: ConfluentMember(servers, "g", "t", group_instance_id="mine"))
    driver.until_shared([other, mine], PARTITIONS)
    before = driver.owned(mine)
    driver.leave(mine)
    facts: list[GroupEvent] = []
    broker.subscribe(facts.append)
    again = driver.add(lambda: ConfluentMember(servers, "g", "t", group_instance_id="mine"))
    driver.until(lambda: driver.owned(again) == before, "the same partitions as before")
    assert not [fact for fact in facts if isinstance(fact, RebalanceStarted)]
