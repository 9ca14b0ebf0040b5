"""What happens to groups that foreign clients and our own share, with each kind of them.

Every record is read, none twice unless a member is killed, and all of them are committed.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import GroupEvent, RebalanceStarted
from tests.real_kafka import foreign
from tests.system.clients.group import (
    AiokafkaMember,
    ConfluentMember,
    ConsumerProtocolMember,
    Driver,
    KafkaPythonCooperative,
    KafkaPythonMember,
    Member,
    produce,
)
from tests.system.clients.ours import OurMember

# kafka-python drops sockets without closing them; they are collected before each test ends.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PARTITIONS = 6
RECORDS = 120
ROOT = Path(__file__).parents[3]
STICKY = "cooperative-sticky"

# Joins, says so once it owns partitions, and goes on reading until it is killed.
VICTIM = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.system.clients.test_matrix import KINDS
member = KINDS[sys.argv[2]](*sys.argv[3:], session_timeout_ms=1000)
said = False
while True:
    member.poll()
    if member.assignment() and not said:
        said = True
        print("owns", flush=True)
"""

Make = Callable[..., Member]
KINDS: dict[str, Make] = {
    "confluent-range": ConfluentMember,
    "confluent-cooperative": partial(ConfluentMember, partition_assignment_strategy=STICKY),
    "kafka-python-eager": KafkaPythonMember,
    "kafka-python-cooperative": partial(
        KafkaPythonMember, partition_assignment_strategy=[KafkaPythonCooperative]
    ),
    "aiokafka": AiokafkaMember,
}
ALONE: dict[str, Make] = {
    "consumer-uniform": partial(ConsumerProtocolMember, group_remote_assignor="uniform"),
    "consumer-range": partial(ConsumerProtocolMember, group_remote_assignor="range"),
}


def ours(name: str) -> Make:
    """Our own client, with the assignor of a kind."""
    strategy = STICKY if "cooperative" in name else "range"
    return partial(OurMember, partition_assignment_strategy=strategy)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=200) as running:
        yield running


class Case:
    """A topic and a group of a test's own, and what its group does."""

    def __init__(self, broker: EmbeddedBroker, driver: Driver) -> None:
        self.group = uuid.uuid4().hex
        self.topic = foreign.new_topic(broker.bootstrap_servers, PARTITIONS)
        self.where = (broker.bootstrap_servers, self.group, self.topic)
        self.members: list[Member] = []
        self._driver = driver
        self._produced = 0
        self._facts: list[GroupEvent] = []
        broker.subscribe(self._facts.append)

    def join(self, make: Make, **settings: object) -> Member:
        """Add a member, and wait until all share the partitions."""
        member = self._driver.add(lambda: make(*self.where, **settings))
        self.members.append(member)
        self._driver.until_shared(self.members, PARTITIONS)
        return member

    def leave(self, member: Member) -> None:
        """Take a member out in order, and wait for the others to share the partitions."""
        self.members.remove(member)
        self._driver.leave(member)
        if self.members:
            self._driver.until_shared(self.members, PARTITIONS)

    def produce(self) -> None:
        """Append more records and wait until all were read."""
        produce(self.where[0], self.topic, RECORDS, first=self._produced)
        self._produced += RECORDS
        self._driver.until(lambda: len(self._driver.seen) == self._produced, "every record")

    def rebalances(self) -> int:
        """How often the group rebalanced."""
        mine = [fact for fact in self._facts if fact.group == self.group]
        return sum(isinstance(fact, RebalanceStarted) for fact in mine)

    def check(self) -> None:
        """None twice; all committed by the members that left in order."""
        for member in self.members:
            self._driver.leave(member)
        seen = self._driver.seen
        assert set(seen.values()) == {1}
        ends = [1 + max(at for p, at in seen if p == number) for number in range(PARTITIONS)]
        servers = self.where[0]
        stored = [foreign.committed(servers, self.group, self.topic, n) for n in range(PARTITIONS)]
        assert stored == ends


@pytest.fixture
def case(broker: EmbeddedBroker, driver: Driver) -> Case:
    return Case(broker, driver)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ours_first", [True, False])
def test_strangers_and_ours_in_one_group(case: Case, name: str, ours_first: bool) -> None:
    """L1, L2: either may lead, and compute what the other gets; either may leave the other."""
    stranger, mine = KINDS[name], ours(name)
    first = case.join(mine if ours_first else stranger)
    case.produce()
    case.join(stranger if ours_first else mine)
    case.join(stranger)
    case.produce()
    case.leave(first)
    case.produce()
    # One after the other: a commit in the middle of a rebalance is refused, and librdkafka does not
    # repeat it when it leaves.
    case.leave(case.members[0])
    case.check()


@pytest.mark.parametrize("name", [*KINDS, *ALONE])
def test_a_static_stranger_comes_back_without_a_rebalance(
    case: Case, driver: Driver, name: str
) -> None:
    """C30, K32: it has what it had, and nothing is read twice."""
    make = (KINDS | ALONE)[name]
    case.join(make, group_instance_id="one")
    two = case.join(make, group_instance_id="two")
    case.produce()
    before, had = case.rebalances(), driver.owned(two)
    case.members.remove(two)
    driver.leave(two)
    again = case.join(make, group_instance_id="two")
    case.produce()
    assert driver.owned(again) == had
    assert case.rebalances() == before
    case.check()


@pytest.mark.parametrize("name", KINDS)
def test_static_strangers_and_ours_come_back_beside_each_other(
    case: Case, driver: Driver, name: str
) -> None:
    """C30: whichever leads, and whichever of the two starts again, nobody else is disturbed."""
    kinds = {"mine": ours(name), "theirs": KINDS[name]}
    members = {each: case.join(make, group_instance_id=each) for each, make in kinds.items()}
    case.produce()
    before = case.rebalances()
    for each, make in kinds.items():
        had = driver.owned(members[each])
        case.members.remove(members[each])
        driver.leave(members[each])
        members[each] = case.join(make, group_instance_id=each)
        case.produce()
        assert driver.owned(members[each]) == had
    assert case.rebalances() == before
    case.check()


@pytest.mark.parametrize("name", KINDS)
def test_what_a_killed_stranger_had_is_taken_over(case: Case, driver: Driver, name: str) -> None:
    """By our client, when its session is over."""
    case.join(ours(name))
    kill_one_that_owns(name, case.where)
    driver.until_shared(case.members, PARTITIONS)
    case.produce()
    case.check()


def kill_one_that_owns(name: str, where: tuple[str, str, str]) -> None:
    """Start a member in a process, and kill that once it owns partitions."""
    command = [sys.executable, "-W", "ignore", "-c", VICTIM, str(ROOT), name, *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        try:
            assert victim.stdout.readline() == "owns\n"
        finally:
            victim.kill()
