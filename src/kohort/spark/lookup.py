"""What the source asks the brokers about partitions and offsets, on Spark's threads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.spark.manifest import Range
from kohort.spark.options import EARLIEST, LATEST, Offsets, OptionError, SourceOptions
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer import Consumer

# Spark asks about every 12 ms when a query is idle; the brokers are not asked as often.
ENDS_MAX_AGE_S = 0.1


class DataLossError(KohortError, RuntimeError):
    """The records that are to be read next are not in the topic any more."""


class Lookup:
    """Answers questions about the subscribed topics; may block on the network.

    Args:
        options: The options of the `load()`.
        consumer: Who is asked.
    """

    def __init__(self, options: SourceOptions, consumer: Consumer) -> None:
        self._options = options
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at = 0.0

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each subscribed topic has.

        Raises:
            KafkaError: A topic does not exist, or no broker can be reached.
        """
        counts = {}
        for topic in self._options.topics:
            numbers = self._consumer.partitions_for_topic(topic)
            if not numbers:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
            counts[topic] = len(numbers)
        return counts

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are left out."""
        found = self._consumer.committed(*partitions)
        return {partition: position.offset for partition, position in found.items()}

    def starting(
        self, partitions: Iterable[TopicPartition], default: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """Return where `startingOffsets` puts partitions; those it does not name are new: earliest.

        Args:
            partitions: Partitions to place.
            default: What counts when the option is not given.
        """
        return self._resolve(partitions, self._options.starting_offsets or default, EARLIEST)

    def ends(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets, at most `ENDS_MAX_AGE_S` old."""
        now = time.monotonic()
        if self._ends.keys() != partitions or now - self._ends_at > ENDS_MAX_AGE_S:
            self._ends = self._list_offsets(dict.fromkeys(partitions, LATEST))
            self._ends_at = now
        return self._ends

    def check_present(self, positions: Mapping[TopicPartition, int]) -> None:
        """Check that the records from `positions` on can be read.

        Raises:
            DataLossError: Names the partition and what its log holds.
        """
        first = self._list_offsets(dict.fromkeys(positions, EARLIEST))
        last = self._list_offsets(dict.fromkeys(positions, LATEST))
        for partition, position in positions.items():
            if not first[partition] <= position <= last[partition]:
                raise DataLossError(
                    f"{partition.topic}-{partition.partition} holds offsets {first[partition]} to "
                    f"{last[partition]}, and the next to read is {position}: records were deleted "
                    "before they were read, or the topic was made anew. Set the group's offsets "
                    "(kafka-consumer-groups --reset-offsets) to go on without them"
                )

    def bounded(self) -> dict[TopicPartition, Range]:
        """Return the ranges of a batch read, without empty ones."""
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self.partition_counts().items()
            for number in range(count)
        ]
        starts = self.starting(partitions, default="earliest")
        ends = self._resolve(partitions, self._options.ending_offsets or "latest", LATEST)
        return {tp: (starts[tp], ends[tp]) for tp in partitions if starts[tp] < ends[tp]}

    def _resolve(
        self, partitions: Iterable[TopicPartition], wanted: Offsets, unnamed: int
    ) -> dict[TopicPartition, int]:
        if isinstance(wanted, str):
            named: Mapping[TopicPartition, int] = {}
            unnamed = EARLIEST if wanted == "earliest" else LATEST
        else:
            named = wanted
            self._check_named(named)
        targets = {partition: named.get(partition, unnamed) for partition in partitions}
        looked_up = self._list_offsets({tp: spec for tp, spec in targets.items() if spec < 0})
        return {**targets, **looked_up}

    def _check_named(self, named: Iterable[TopicPartition]) -> None:
        counts = self.partition_counts()
        for topic, partition in named:
            if partition >= counts[topic]:
                raise OptionError(f"{topic} has {counts[topic]} partitions, no {partition}")

    def _list_offsets(self, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the log begins (for EARLIEST) or ends (for LATEST)."""
        first = [partition for partition, target in targets.items() if target == EARLIEST]
        last = [partition for partition, target in targets.items() if target == LATEST]
        found = self._consumer.beginning_offsets(first) if first else {}
        return {**found, **(self._consumer.end_offsets(last) if last else {})}


def client_settings(options: SourceOptions) -> dict[str, str]:
    """Return the settings of the client, by Kafka's names."""
    return {
        "allow.auto.create.topics": "false",
        **options.settings,
        "bootstrap.servers": options.bootstrap_servers,
        "enable.auto.commit": "false",
    }
