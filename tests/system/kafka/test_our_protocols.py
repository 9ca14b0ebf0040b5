"""Our members on a real Kafka in every protocol: static ones, and a restart under all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.system.clients.group import Driver, Seen, produce
from tests.system.clients.ours import OurMember

PARTITIONS = 4
RECORDS = 80
PROTOCOLS: dict[str, dict[str, object]] = {
    "range": {"partition_assignment_strategy": "range"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "uniform": {"group_protocol": "consumer", "group_remote_assignor": "uniform"},
    "consumer-range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}


class Group:
    """Two static members that share a topic of their own."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.name = servers, name
        self.topic = foreign.new_topic(servers, PARTITIONS)
        self.driver = Driver()
        self.members = [self.join(instance) for instance in ("one", "two")]
        self._produced = 0

    def join(self, instance: str) -> OurMember:
        settings = PROTOCOLS[self.name] | {"group_instance_id": instance}
        member = OurMember(self.servers, self.name, self.topic, None, **settings)
        self.driver.add(lambda: member)
        return member

    def settle(self) -> None:
        self.driver.until_shared(self.members, PARTITIONS)

    def produce(self) -> None:
        produce(self.servers, self.topic, RECORDS, first=self._produced)
        self._produced += RECORDS

    def read(self) -> None:
        seen = self.driver.seen
        self.driver.until(lambda: len(seen) == self._produced, f"{self.name}: every record")

    def bounce(self) -> None:
        """Restart the second member: it gets what it had, in the same generation."""
        two = self.members.pop()
        before, had = two.consumer.generation_id, self.driver.owned(two)
        self.driver.leave(two)
        again = self.join("two")
        self.members.append(again)
        self.driver.until(lambda: self.driver.owned(again) == had, f"{self.name}: what it had")
        assert again.consumer.generation_id == before

    def check(self) -> None:
        """None twice, all committed."""
        for member in self.members:
            self.driver.leave(member)
        seen: Counter[Seen] = self.driver.seen
        assert set(seen.values()) == {1}
        for number in range(PARTITIONS):
            end = 1 + max(at for p, at in seen if p == number)
            assert foreign.committed(self.servers, self.name, self.topic, number) == end


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with RealKafka(tmp_path_factory.mktemp("protocols")) as running:
        yield running


def test_every_protocol_lives_through_bounces_of_members_and_of_the_broker(
    kafka: RealKafka,
) -> None:
    """C30, K32, L1, L37: one broker, a group of each protocol on it at the same time."""
    groups = [Group(kafka.bootstrap_servers, name) for name in PROTOCOLS]
    try:
        read_more(groups)
        for group in groups:
            group.bounce()
        read_more(groups)
        kafka.restart()
        read_more(groups)
        for group in groups:
            group.check()
    finally:
        for group in groups:
            group.driver.leave_all()


def read_more(groups: list[Group]) -> None:
    """Have every group read new records, each of its members some."""
    for group in groups:
        group.settle()
        group.produce()
    for group in groups:
        group.read()
