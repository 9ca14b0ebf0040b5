"""Groups of KIP-848 whose members make the assignment, over TCP, also with others among them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import (
    AssignmentAsked,
    AssignorFellBack,
    AssignorUnsupported,
    Cause,
    GroupEvent,
    MemberLeft,
)
from kohort.types import TopicPartition
from tests.system.clients.group import ConsumerProtocolMember, Driver, produce, quick_broker
from tests.system.clients.local_assignor import OurMember

PARTITIONS = 6
RECORDS = 600
ROOT = Path(__file__).parents[3]

# Is asked for an assignment, says so, and never makes it: until it is killed.
VICTIM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.system.clients.local_assignor import ByRank, OurMember
ByRank.assign = lambda self, cluster, subscriptions: self.computes.set() or self.hangs.wait()
import threading
ByRank.hangs = threading.Event()
member = OurMember(sys.argv[2], rank=9)
said = False
while True:
    member.poll()
    if member.assignor.computes.is_set() and not said:
        said = True
        print("computes", flush=True)
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as running:
        running.create_topic("t", PARTITIONS)
        yield running


def member(broker: EmbeddedBroker, driver: Driver, rank: int) -> OurMember:
    made = driver.add(partial(OurMember, broker.bootstrap_servers, rank))
    assert isinstance(made, OurMember)
    return made


def until_dealt(driver: Driver, *members: OurMember) -> None:
    """Wait until the members have what the assignor gives them, the highest rank first."""
    number = len(members)
    shares = [set(range(at, PARTITIONS, number)) for at in range(number)]
    driver.until(lambda: [driver.owned(each) for each in members] == shares, "the cards are dealt")


def asked(facts: list[GroupEvent]) -> list[str]:
    return [fact.member for fact in facts if isinstance(fact, AssignmentAsked)]


def fell_back(facts: list[GroupEvent]) -> list[str]:
    return [fact.reason for fact in facts if isinstance(fact, AssignorFellBack)]


def test_three_members_deal_the_partitions_out_themselves(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent]
) -> None:
    """K60, K61: each record is read once, and what the one said reaches the others' assignors."""
    produce(broker.bootstrap_servers, "t", RECORDS)
    low = member(broker, driver, 1)
    until_dealt(driver, low)
    high = member(broker, driver, 3)
    until_dealt(driver, high, low)
    middle = member(broker, driver, 2)
    until_dealt(driver, high, middle, low)
    produce(broker.bootstrap_servers, "t", RECORDS, first=RECORDS)
    driver.until(lambda: len(driver.seen) == 2 * RECORDS, "every record")
    driver.leave(high)
    until_dealt(driver, middle, low)
    assert set(driver.seen.values()) == {1}
    assert fell_back(facts) == []
    partitions, word = middle.assignor.told[-1]
    assert partitions == {TopicPartition("t", number) for number in (0, 2, 4)}
    assert word is not None
    assert word.startswith(b"dealt by ")


def test_a_member_that_is_killed_while_it_computes_holds_nobody_up(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent]
) -> None:
    """K61: when its session ends another one is asked; until then all go on."""
    survivors = [member(broker, driver, 2), member(broker, driver, 1)]
    until_dealt(driver, *survivors)
    arguments = [sys.executable, "-c", VICTIM, str(ROOT), broker.bootstrap_servers]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "computes\n"
        finally:
            victim.kill()
    killed = asked(facts)[-1]
    produce(broker.bootstrap_servers, "t", RECORDS)
    driver.until(lambda: len(driver.seen) == RECORDS, "every record, meanwhile")
    driver.until(lambda: asked(facts)[-1] != killed, "a survivor is asked")
    until_dealt(driver, *survivors)
    assert [fact.cause for fact in facts if isinstance(fact, MemberLeft)] == [Cause.SESSION_EXPIRED]
    assert fell_back(facts) == []


def test_an_assignor_that_hangs_leaves_the_work_to_the_broker(driver: Driver) -> None:
    """K61: its member gets partitions like everybody else."""
    facts: list[GroupEvent] = []
    with EmbeddedBroker(
        group_consumer_heartbeat_interval_ms=100, group_consumer_client_assignment_timeout_ms=300
    ) as broker:
        broker.create_topic("t", PARTITIONS)
        broker.subscribe(facts.append)
        first = OurMember(broker.bootstrap_servers, 1)
        first.assignor.goes_on.clear()
        driver.add(lambda: first)
        driver.until_shared([first], PARTITIONS)
        assert fell_back(facts) == ["no assignment in time"]
        first.assignor.goes_on.set()
        driver.leave_all()


def test_a_foreign_member_gets_its_partitions_and_is_asked_nothing(
    broker: EmbeddedBroker, driver: Driver, facts: list[GroupEvent]
) -> None:
    """K60: librdkafka among ours: the broker assigns until it is gone, then ours do again."""
    produce(broker.bootstrap_servers, "t", RECORDS)
    ours = [member(broker, driver, 2), member(broker, driver, 1)]
    until_dealt(driver, *ours)
    foreign = driver.add(partial(ConsumerProtocolMember, broker.bootstrap_servers, "g", "t"))
    driver.until_shared([*ours, foreign], PARTITIONS)
    number = len(asked(facts))
    produce(broker.bootstrap_servers, "t", RECORDS, first=RECORDS)
    driver.until(lambda: len(driver.seen) == 2 * RECORDS, "every record")
    driver.leave(foreign)
    until_dealt(driver, *ours)
    assert len(asked(facts)) > number
    assert set(driver.seen.values()) == {1}
    assert not [
        fact for each in ours for fact in each.facts if isinstance(fact, AssignorUnsupported)
    ]
