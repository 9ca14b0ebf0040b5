"""What Spark does with a source, call by call, without a JVM; and the records it reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka as foreign
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from kohort.spark.source.datasource import KohortDataSource, KohortStreamReader
from tests.broker.processes import eventually

# Partition and offset of a record.
Row = tuple[int, int]


# Options that choose how a group agrees, and have its members answer quickly.
PROTOCOLS: Mapping[str, Mapping[str, str]] = {
    "eager": {
        "kafka.partition.assignment.strategy": "range",
        "kafka.heartbeat.interval.ms": "100",
    },
    "cooperative": {
        "kafka.partition.assignment.strategy": "cooperative-sticky",
        "kafka.heartbeat.interval.ms": "100",
    },
    "consumer": {"kafka.group.protocol": "consumer"},
}


def options(bootstrap: str, topic: str, protocol: str = "eager", **more: str) -> dict[str, str]:
    """Options of a query; `__` stands for a dot, and one that is empty is left out."""
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.group.id": f"group-of-{topic}",
        "kafka.client.id": "north",
        **PROTOCOLS[protocol],
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return {key: value for key, value in given.items() if value}


class PlayedQuery:
    """One run of one query: its offset log is `last` (finished) and `open`."""

    def __init__(self, settings: Mapping[str, str], last: dict[str, Any] | None = None) -> None:
        reader = KohortDataSource(dict(settings)).streamReader(None)  # type: ignore[arg-type]  # the schema is not used
        assert isinstance(reader, KohortStreamReader)
        self.reader = reader
        self.last = last
        self.open: dict[str, Any] | None = None
        self.sink: list[Row] = []

    def offer(self, limit: ReadLimit | None = None) -> bool:
        """A trigger: what is open is finished; returns whether there is a next batch."""
        if self.open is not None:
            self.last, self.open = self.open, None
        if self.last is None:
            self.last = self.through_log(self.reader.initialOffset())
        end = self.reader.latestOffset(self.last, limit or ReadAllAvailable())
        if json.dumps(end) == json.dumps(self.last):
            return False
        if not self.last["batch"] and not self.reader.partitions(self.last, end):
            self.last = self.through_log(end)  # the first batch, which always runs, is empty
            return False
        self.open = self.through_log(end)
        return True

    def write(self) -> list[Row]:
        """Read the open batch and write it to the sink."""
        assert self.open is not None
        tasks = self.reader.partitions(self.last or {}, self.open)
        rows = [row for task in tasks for batch in self.reader.read(task) for row in as_rows(batch)]
        self.sink += rows
        return rows

    def run_until(self, count: int) -> None:
        """Trigger until the sink has `count` rows and the group knows of all of them."""
        while len(self.sink) < count:
            if self.offer():
                self.write()
        self.offer()

    @staticmethod
    def through_log(offset: Mapping[str, object]) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(json.dumps(offset))
        return parsed


def as_rows(batch: Any) -> list[Row]:
    """The rows of an Arrow batch of the source."""
    columns = (batch[name].to_pylist() for name in ("partition", "offset"))
    return list(zip(*columns, strict=True))


def produce(bootstrap: str, topic: str, counts: Mapping[int, int]) -> None:
    """Produce `counts` records to each partition, with a foreign client."""
    producer = foreign.Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def knows_them_all() -> bool:
        """A broker may hear of a new partition later than the client that had it made."""
        try:
            return max(counts) in producer.list_topics(topic, 10).topics[topic].partitions
        except foreign.KafkaException:  # a fault that a test plants may meet this client, too
            return False

    eventually(knows_them_all, f"{topic} has partition {max(counts)}")
    failed: list[object] = []
    told: dict[str, Any] = {"on_delivery": lambda error, _: failed.append(error) if error else None}
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, b"value %d" % number, key=b"key", partition=partition, **told)
    assert producer.flush(60) == 0
    assert not failed


def committed(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The group's offsets as a foreign client sees them; -1001 where there is none."""
    consumer = foreign.Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-of-{topic}"})
    try:
        asked = [foreign.TopicPartition(topic, partition) for partition in partitions]
        return {answer.partition: answer.offset for answer in consumer.committed(asked, 60)}
    finally:
        consumer.close()


def set_group(bootstrap: str, topic: str, offsets: Mapping[int, int]) -> None:
    """What `kafka-consumer-groups --reset-offsets` does: no metadata goes with the offsets."""
    places = [foreign.TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    wanted = foreign.ConsumerGroupTopicPartitions(f"group-of-{topic}", places)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        future.result(60)


def describe(bootstrap: str, topic: str) -> Any:
    """The group as a foreign client sees it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    group = f"group-of-{topic}"
    return admin.describe_consumer_groups([group])[group].result(60)


def once(rows: Iterable[Row], counts: Mapping[int, int]) -> bool:
    """Whether the rows are exactly the first `counts` records of each partition."""
    expected = Counter((p, offset) for p, count in counts.items() for offset in range(count))
    return Counter(rows) == expected
