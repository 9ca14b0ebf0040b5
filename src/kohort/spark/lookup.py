"""What the source asks the brokers about partitions and offsets, on Spark's threads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from kohort.errors import KohortError
from kohort.spark.manifest import Range
from kohort.spark.options import EARLIEST, LATEST, Offsets, OptionError, SourceOptions
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from typing import Self

# Spark asks about every 12 ms when a query is idle; the brokers are not asked as often.
ENDS_MAX_AGE_S = 0.1


class DataLossError(KohortError, RuntimeError):
    """The records that are to be read next are not in the topic any more."""


class Lookup:
    """Answers questions about the subscribed topics; may block on the network.

    Args:
        options: The options of the `load()`.
    """

    def __init__(self, options: SourceOptions) -> None:
        from kohort.client import AdminClient

        self._options = options
        self._admin = AdminClient.from_config(client_settings(options))
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each subscribed topic has.

        Raises:
            KafkaError: A topic does not exist.
        """
        return {
            topic: len(p) for topic, p in self._admin.describe_topics(self._options.topics).items()
        }

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are left out."""
        return self._admin.committed(partitions)

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

    def _list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._admin.list_offsets(specs) if specs else {}


def client_settings(options: SourceOptions) -> dict[str, str]:
    """Return the settings of the group's member, by Kafka's names."""
    return {
        **options.settings,
        "bootstrap.servers": options.bootstrap_servers,
        "enable.auto.commit": "false",
    }
