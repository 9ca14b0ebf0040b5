"""A topic that members of one group share, and what librdkafka says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import confluent_kafka

from tests.real_kafka import foreign
from tests.system.clients.group import DEADLINE_S, Driver, Member, eventually, produce

PARTITIONS = 4
RECORDS = 80

Make = Callable[..., Member]


class Sharing:
    """A topic and a group of a test's own.

    Args:
        servers: the broker.
        driver: polls the members.
    """

    def __init__(self, servers: str, driver: Driver) -> None:
        self.topic = foreign.new_topic(servers, PARTITIONS)
        self.group = f"group-of-{self.topic}"
        self.members: list[Member] = []
        self._servers, self._driver = servers, driver
        self._produced = 0
        self._reader = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": self.group, "log_level": 0}
        )

    def join(self, make: Make, **settings: object) -> Member:
        """Add a member, and wait until all share the partitions."""
        where = (self._servers, self.group, self.topic)
        member = self._driver.add(lambda: make(*where, **settings))
        self.members.append(member)
        self._driver.until_shared(self.members, PARTITIONS)
        return member

    def leave(self, member: Member) -> None:
        """Take a member out in order, and wait until the others have its partitions."""
        self.members.remove(member)
        self._driver.leave(member)
        if self.members:
            self._driver.until_shared(self.members, PARTITIONS)

    def produce(self) -> None:
        """Append more records, and wait until the members have read all of them."""
        produce(self._servers, self.topic, RECORDS, first=self._produced)
        self._produced += RECORDS
        self._driver.until(lambda: len(self._driver.seen) == self._produced, "every record")

    def until_committed(self) -> None:
        """Wait until the group's offsets are the ends of the partitions."""
        eventually(lambda: self.committed() == self.ends(), "all that was read is committed")

    def check(self) -> None:
        """Let all members leave: each record was read once, and all of them are committed."""
        for member in list(self.members):
            self.leave(member)
        ends = self.ends()
        assert sum(ends) == self._produced
        every = ((p, offset) for p, end in enumerate(ends) for offset in range(end))
        assert self._driver.seen == Counter(every)
        assert self.committed() == ends
        self._reader.close()

    def committed(self) -> list[int]:
        """The group's offsets, by partition; negative where there is none."""
        return [each.offset for each in self._reader.committed(self._places(), DEADLINE_S)]

    def ends(self) -> list[int]:
        """Where the partitions end."""
        return [self._reader.get_watermark_offsets(each, DEADLINE_S)[1] for each in self._places()]

    def _places(self) -> list[confluent_kafka.TopicPartition]:
        return [confluent_kafka.TopicPartition(self.topic, n) for n in range(PARTITIONS)]
