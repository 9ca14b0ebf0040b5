"""What the sources read: topics, records and a group, the same for each of them, and changed alike.

Each source has topics of its own, so that each meets a change at the same moment of its own story.
Their names are those of the other side's but for an ending, which comparisons leave out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import confluent_kafka as foreign
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kohort.client import AdminClient as KohortAdmin
from kohort.errors import ErrorCode, KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.broker.processes import eventually
from tests.real_kafka.known import until_coordinator_knows

TIMEOUT_S = 60
PARTITIONS = 2
LATEST = -1
# Each record's time is its offset's, so that both sides have the same.
FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000

Headers = Sequence[tuple[str, bytes | None]]


@functools.cache
def foreign_admin(bootstrap: str) -> AdminClient:
    """One client per broker, as its futures do not outlive it.

    By default it creates the topics whose metadata it renews, deleted ones as well.
    """
    return AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0, "allow.auto.create.topics": False}
    )


class World:
    """The topics of one side of a scenario.

    Args:
        bootstrap: Where the broker listens.
        scenario: Names the scenario, with letters, digits and hyphens.
        side: Which source reads: the end of each name.
    """

    def __init__(self, bootstrap: str, scenario: str, side: str) -> None:
        self.bootstrap = bootstrap
        self.side = side
        self.scenario = scenario
        self.group = f"group-of-{scenario}-{side}"
        self.topic = self.name("t")
        # Options of the next run; a change may set some.
        self.options: dict[str, str] = {}
        # Topics whose end a running query has to reach.
        self.read = ["t"]
        self._admin = foreign_admin(bootstrap)
        self._ours = KohortAdmin(bootstrap_servers=bootstrap)
        self._transactions: list[tuple[foreign.Producer, int]] = []
        self._ids = 0

    def name(self, topic: str) -> str:
        """What a topic of the scenario is called on this side."""
        return f"{self.scenario}.{topic}.{self.side}"

    def plain(self, text: str) -> str:
        """A text of this side as the other one would have it."""
        return text.replace(f".{self.side}", "")

    # ------------------------------------------------------------------------------------- topics

    def create(self, topic: str = "t", partitions: int = PARTITIONS, **configs: str) -> None:
        """Create a topic; the record times are old, so nothing may expire."""
        settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in configs.items()}
        wanted = NewTopic(self.name(topic), partitions, 1, config=settings)

        def is_created() -> bool:  # a broker may not be done with an older one of that name
            return self._admin.create_topics([wanted])[wanted.topic].exception(TIMEOUT_S) is None

        eventually(is_created, f"the topic {wanted.topic}")
        eventually(lambda: len(self.ends(topic)) == partitions, f"partitions of {wanted.topic}")
        until_coordinator_knows(self.bootstrap, (wanted.topic,))

    def delete(self, topic: str = "t") -> None:
        self._admin.delete_topics([self.name(topic)])[self.name(topic)].result(TIMEOUT_S)

    def add_partition(self, topic: str = "t", count: int = PARTITIONS + 1) -> None:
        name = self.name(topic)
        self._admin.create_partitions([NewPartitions(name, count)])[name].result(TIMEOUT_S)
        eventually(lambda: len(self.ends(topic)) == count, f"{count} partitions of {name}")

    def delete_before(self, offsets: Mapping[int, int], topic: str = "t") -> None:
        """Have records deleted, as retention does."""
        name = self.name(topic)
        places = [foreign.TopicPartition(name, number, at) for number, at in offsets.items()]
        for future in self._admin.delete_records(places).values():
            future.result(TIMEOUT_S)

    def ends(self, topic: str = "t") -> dict[int, int]:
        """Where the partitions of a topic end; nothing where there is none."""
        found = self._admin.list_topics(self.name(topic), TIMEOUT_S).topics[self.name(topic)]
        places = [TopicPartition(self.name(topic), number) for number in found.partitions]
        listed = self._ours.list_offsets(dict.fromkeys(places, LATEST)) if places else {}
        return {place.partition: at for place, at in listed.items() if at is not None}

    # ------------------------------------------------------------------------------------ records

    def produce(self, counts: Mapping[int, int], topic: str = "t", **settings: str) -> None:
        """Append records to partitions; their values and times say which they are."""
        ends = self.ends(topic)
        records = [
            (number, f"{topic} {number} {offset}".encode(), FIRST_MS + offset * STEP_MS)
            for number, count in counts.items()
            for offset in range(ends[number], ends[number] + count)
        ]
        producer = self._producer(**settings)
        for number, value, at in records:
            producer.produce(self.name(topic), value, b"key", number, timestamp=at)
        assert producer.flush(TIMEOUT_S) == 0

    def produce_one(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = 0,
        at: int = FIRST_MS,
    ) -> None:
        producer = self._producer()
        producer.produce(
            self.topic, value, key, partition, timestamp=at, headers=list(headers) or None
        )
        assert producer.flush(TIMEOUT_S) == 0

    def begin(self, count: int, partition: int = 0) -> None:
        """Begin a transaction with some records, and leave it open."""
        self._ids += 1
        producer = self._producer(**{"transactional.id": f"{self.topic}-{self._ids}"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        self._transactions.append((producer, partition))
        for number in range(count):
            producer.produce(
                self.topic, b"open %d" % number, None, partition, timestamp=FIRST_MS + number
            )
        assert producer.flush(TIMEOUT_S) == 0

    def abort(self) -> None:
        self._end(foreign.Producer.abort_transaction)

    def commit(self) -> None:
        self._end(foreign.Producer.commit_transaction)

    def _end(self, how: Callable[[foreign.Producer, float], None]) -> None:
        """End the last transaction; its marker takes an offset, some time after that."""
        producer, partition = self._transactions.pop()
        before = self.ends()[partition]
        how(producer, TIMEOUT_S)
        eventually(lambda: self.ends()[partition] > before, "a marker")

    def _producer(self, **settings: str) -> foreign.Producer:
        # One partition may fill its batch before another: order is kept within each.
        return foreign.Producer(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5, **settings}
        )

    # -------------------------------------------------------------------------------------- group

    def set_group(self, offsets: Mapping[int, int]) -> None:
        """What `kafka-consumer-groups --reset-offsets` does."""
        wanted = {TopicPartition(self.topic, p): OffsetAndMetadata(at) for p, at in offsets.items()}
        self._ours.alter_group_offsets(wanted, self.group)

    def committed(self) -> dict[int, int]:
        """The group's offsets; nothing without a group."""
        found = self._ours.list_group_offsets(self.group)
        return {place.partition: each.offset for place, each in sorted(found.items())}

    def forget_offsets(self, partitions: Iterable[int]) -> None:
        """What a broker does with offsets that have expired."""
        places = [TopicPartition(self.topic, number) for number in partitions]
        self._ours.delete_group_offsets(places, self.group)

    def delete_group(self) -> None:
        self._ours.delete_groups([self.group])

    def until_the_group_is_empty(self) -> None:
        """Spark does not wait until the process of a query that it stopped has left its group."""

        def is_empty() -> bool:
            try:
                return not self._ours.describe_groups([self.group])[self.group].members
            except KafkaError as error:  # without a topic the query joined none
                return error.code == ErrorCode.GROUP_ID_NOT_FOUND

        eventually(is_empty, f"the members of {self.group} to leave")

    @property
    def has_group(self) -> bool:
        return self.side == "kohort"

    # ------------------------------------------------------------------------------------ options

    def by_partition(self, numbers: Mapping[int, int], topic: str = "t") -> str:
        """JSON as in `startingOffsets`."""
        return json.dumps({self.name(topic): {str(p): number for p, number in numbers.items()}})

    def close(self) -> None:
        """End transactions that a scenario has left open."""
        while self._transactions:
            self.abort()
        self._ours.close()
