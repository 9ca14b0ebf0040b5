"""Groups of librdkafka in the consumer protocol of KIP-848, on the embedded broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from kohort.broker import EmbeddedBroker
from kohort.group.events import (
    Assigned,
    Cause,
    GroupEvent,
    GroupStateChanged,
    MemberLeft,
    RebalanceStarted,
)
from tests.system.clients.group import (
    DEADLINE_S,
    ConsumerProtocolMember,
    Driver,
    Member,
    produce,
    quick_broker,
)

PARTITIONS = 6
RECORDS = 1_000
ROOT = Path(__file__).parents[3]

# Joins, says so once it owns partitions, and goes on reading until it is killed.
VICTIM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.system.clients.group import ConsumerProtocolMember
member = ConsumerProtocolMember(sys.argv[2], "g", "t")
said = False
while True:
    member.poll()
    if member.assignment() and not said:
        said = True
        print("owns", flush=True)
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as running:
        running.create_topic("t", PARTITIONS)
        yield running


def maker(broker: EmbeddedBroker, topic: str = "t", **settings: object) -> Callable[[], Any]:
    servers = broker.bootstrap_servers
    return partial(ConsumerProtocolMember, servers, "g", topic, **settings)


def until_at_rest(driver: Driver, facts: list[GroupEvent], members: list[Member]) -> None:
    """Wait until a change is over for the coordinator, too.

    librdkafka does not repeat a commit that is refused because its member is an epoch behind.
    """
    driver.until_shared(members, PARTITIONS)

    def at_rest() -> bool:
        return [fact.after for fact in facts if isinstance(fact, GroupStateChanged)][-1] == "Stable"

    driver.until(at_rest, "a stable group")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_join_and_leave_and_each_record_is_consumed_once(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent], assignor: str
) -> None:
    """K11, K23, K31: with both assignors; nothing is read twice when members come and go."""
    make = maker(broker, group_remote_assignor=assignor)
    produce(broker.bootstrap_servers, "t", RECORDS)
    members = [driver.add(make)]
    until_at_rest(driver, facts, members)
    # librdkafka hands out what one call fetched before and after a revocation, and commits no more
    driver.until(lambda: len(driver.seen) == RECORDS, "every record, of one")
    for _ in range(2):
        members.append(driver.add(make))
        until_at_rest(driver, facts, members)
    produce(broker.bootstrap_servers, "t", RECORDS, first=RECORDS)
    driver.until(lambda: len(driver.seen) == 2 * RECORDS, "every record")
    driver.leave(members.pop(0))
    until_at_rest(driver, facts, members)
    produce(broker.bootstrap_servers, "t", RECORDS, first=2 * RECORDS)
    driver.until(lambda: len(driver.seen) == 3 * RECORDS, "every record, of two")
    assert set(driver.seen.values()) == {1}
    if assignor == "range":
        last = [fact for fact in facts if isinstance(fact, Assigned)][-1]
        shares = sorted(tuple(p.partition for p in share) for _, share in last.assignments)
        assert shares == [(0, 1, 2), (3, 4, 5)]


def test_k50_a_pattern_finds_topics_that_come_later(broker: EmbeddedBroker, driver: Driver) -> None:
    members = [driver.add(maker(broker, "^t.*")), driver.add(maker(broker, "^t.*"))]
    driver.until_shared(members, PARTITIONS)
    broker.create_topic("t2", 1)
    produce(broker.bootstrap_servers, "t2", 10)
    driver.until(lambda: len(driver.seen) == 10, "the records of the later topic")


def test_k50_a_text_that_is_no_pattern(broker: EmbeddedBroker) -> None:
    """It is one to the client's own library, but RE2 has no references to what was matched."""
    member = ConsumerProtocolMember(broker.bootstrap_servers, "g", r"^(t)\1")
    try:
        message = member.consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert "The regular expression is not valid" in error.str()
    finally:
        member.close()


def test_k30_partitions_of_a_killed_member_are_taken_over(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent]
) -> None:
    survivor = driver.add(maker(broker))
    driver.until_shared([survivor], PARTITIONS)
    arguments = [sys.executable, "-c", VICTIM, str(ROOT), broker.bootstrap_servers]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "owns\n"
        finally:
            victim.kill()
    produce(broker.bootstrap_servers, "t", RECORDS)
    driver.until_shared([survivor], PARTITIONS)
    driver.until(lambda: len(driver.seen) == RECORDS, "every record, by the survivor")
    left = [fact for fact in facts if isinstance(fact, MemberLeft)]
    assert [fact.cause for fact in left] == [Cause.SESSION_EXPIRED]


def test_k32_a_static_member_comes_back_without_a_rebalance(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent]
) -> None:
    make = partial(maker, broker)
    members = [
        driver.add(make(group_instance_id="i1")),
        driver.add(make(group_instance_id="i2")),
    ]
    driver.until_shared(members, PARTITIONS)
    had = driver.owned(members[0])
    before = sum(isinstance(fact, RebalanceStarted) for fact in facts)
    driver.leave(members.pop(0))
    back = driver.add(make(group_instance_id="i1"))
    driver.until(lambda: driver.owned(back) == had, "the same partitions again")
    assert sum(isinstance(fact, RebalanceStarted) for fact in facts) == before


def test_k38_the_admin_client_lists_and_describes(broker: EmbeddedBroker, driver: Driver) -> None:
    member = driver.add(maker(broker, client_id="here"))
    driver.until_shared([member], PARTITIONS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    types = {confluent_kafka.ConsumerGroupType.CONSUMER}
    listed = admin.list_consumer_groups(types=types).result(DEADLINE_S).valid
    assert [each.group_id for each in listed] == ["g"]
    described = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    assert described.type is confluent_kafka.ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    (only,) = described.members
    assert only.client_id == "here"
    assigned = {each.partition for each in only.assignment.topic_partitions}
    assert assigned == set(range(PARTITIONS))
