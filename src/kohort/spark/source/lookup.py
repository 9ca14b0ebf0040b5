"""The source's requests to brokers about partitions and offsets, on Spark's threads."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from kohort.errors import (
    MAY_BE_HIDDEN,
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    KohortError,
    RequestTimedOutError,
)
from kohort.spark.options.java_regex import java_pattern
from kohort.spark.options.source import EARLIEST, LATEST, OptionError, SourceOptions
from kohort.spark.source.group_offsets import Topic
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer.api import Consumer

Asked = TypeVar("Asked", bound=Iterable[TopicPartition])
Answer = TypeVar("Answer")

# Spark polls an idle query about every 12 ms; the brokers are queried less often.
ENDS_MAX_AGE_S = 0.1
# After this long without an answer the topics are checked again; the interval then doubles.
LOOK_AGAIN_MS = 1_000
# Kafka's default for `default.api.timeout.ms`.
API_TIMEOUT_MS = 60_000
# Maximum number of partitions named in a message.
SHOWN = 5


class DataLossError(KohortError, RuntimeError):
    """The next records to read are no longer in the topic."""


class Lookup:
    """Looks up partitions and offsets of the subscribed topics; may block on the network.

    Args:
        options: The options of the `load()`.
        consumer: The consumer that sends the requests.

    Attributes:
        look_again: Called while the brokers do not answer for partitions: the client retries until
            `default.api.timeout.ms`, even for a topic that was deleted meanwhile. It raises an
            error if the partitions no longer exist.
    """

    def __init__(self, options: SourceOptions, consumer: Consumer) -> None:
        self._options = options
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at = 0.0
        self._patience_ms = int(options.settings.get("default.api.timeout.ms", API_TIMEOUT_MS))
        self.look_again: Callable[[Iterable[TopicPartition]], None] | None = None

    @property
    def wanted(self) -> str:
        """The topics or partitions that the query reads, for messages."""
        return self._options.selection

    @property
    def subscription(self) -> Sequence[str] | re.Pattern[str]:
        """The member's subscription."""
        pattern = self._options.pattern
        return self._options.topics if pattern is None else java_pattern(pattern)

    def selected(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names selected by the options; their topics may be gone."""
        pattern = self._options.pattern
        if pattern is None:
            return frozenset(names).intersection(self._options.topics)
        return frozenset(filter(java_pattern(pattern).match, names))

    def topics(self) -> tuple[str, ...]:
        """Return the names of the subscribed topics; a pattern is resolved on each call."""
        pattern = self._options.pattern
        if pattern is None:
            return self._options.topics
        matches = java_pattern(pattern).match
        return tuple(sorted(name for name in self._consumer.topics() if matches(name)))

    def describe(self) -> dict[str, Topic]:
        """Return the subscribed topics that exist."""
        found = self._consumer.topic_metadata(self.topics())
        return {
            name: Topic(str(each.topic_id) if each.topic_id.int else "", len(each.partitions))
            for name, each in found.items()
        }

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each subscribed topic has.

        Raises:
            KafkaError: A topic does not exist, or no broker can be reached.
        """
        counts = {}
        for topic in self.topics():
            numbers = self._consumer.partitions_for_topic(topic)
            if numbers:
                counts[topic] = len(numbers)
            elif self._options.pattern is None:  # a matching topic may have been deleted just now
                text = f"{topic}: the topic does not exist, {MAY_BE_HIDDEN}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return counts

    def partitions(self, counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """Return the partitions to read: all of the topics', or those of `assign`.

        Args:
            counts: The number of partitions of each topic.

        Raises:
            OptionError: `assign` names a partition that does not exist.
        """
        for topic, number in self._options.assigned:
            if number >= counts.get(topic, 0):
                raise OptionError(
                    f"assign names {topic}-{number}, and {topic} has {counts.get(topic, 0)} "
                    "partitions, from 0 up"
                )
        return frozenset(self._options.assigned) or frozenset(
            TopicPartition(topic, number) for topic in counts for number in range(counts[topic])
        )

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are left out."""
        found = self._consumer.committed(*partitions)
        return {partition: position.offset for partition, position in found.items()}

    def starting(
        self, partitions: Iterable[TopicPartition], default: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """Return the starts given by the options; earliest for partitions that they do not name.

        Args:
            partitions: Partitions to place.
            default: Applies if no option specifies the start.

        Raises:
            OptionError: An option names a missing topic or partition, a timestamp is after the
                last record, or the group has no offset to start from.
        """
        options, wanted = self._options, frozenset(partitions)
        if options.starting_offsets == "committed":
            return self._starting_committed(wanted)
        timed = self._timestamps(
            options.starting_timestamp, options.starting_offsets_by_timestamp, wanted
        )
        if timed is not None:
            return self._at_timestamps(wanted, timed, EARLIEST, options.starting_strategy)
        return self._at_offsets(wanted, options.starting_offsets or default, EARLIEST)

    def starts_at_latest(self, partition: TopicPartition) -> bool:
        """Whether the options start a partition after its last record."""
        options, starting = self._options, self._options.starting_offsets
        if options.starting_timestamp is not None:
            return options.starting_timestamp == LATEST
        if options.starting_offsets_by_timestamp:
            return options.starting_offsets_by_timestamp.get(partition) == LATEST
        if isinstance(starting, Mapping):
            return starting.get(partition) == LATEST
        return starting in (None, "latest")

    def ending(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of a batch read; partitions that no option names end at latest.

        Args:
            partitions: The partitions to read.

        Raises:
            OptionError: An option names a partition that does not exist.
        """
        options, wanted = self._options, frozenset(partitions)
        timed = self._timestamps(
            options.ending_timestamp, options.ending_offsets_by_timestamp, wanted
        )
        if timed is not None:
            return self._at_timestamps(wanted, timed, LATEST, "latest")
        ending = options.ending_offsets
        return self._at_offsets(wanted, ending if isinstance(ending, Mapping) else "latest", LATEST)

    def logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the start and end offsets of the logs."""
        wanted = list(partitions)
        first = self.begins(wanted)
        last = self._list_offsets(dict.fromkeys(wanted, LATEST))
        return {partition: (first[partition], last[partition]) for partition in wanted}

    def ends(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets, at most `ENDS_MAX_AGE_S` old."""
        now = time.monotonic()
        if self._ends.keys() != partitions or now - self._ends_at > ENDS_MAX_AGE_S:
            self._ends = self._list_offsets(dict.fromkeys(partitions, LATEST))
            self._ends_at = now
        return self._ends

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start offsets of the logs."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def forget_ends(self) -> None:
        """Discard the cached end offsets."""
        self._ends = {}

    def _starting_committed(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = self.committed(partitions)
        missing = sorted(partitions - found.keys())
        if missing:
            raise OptionError(
                f"startingOffsets=committed: group {self._options.group_id} has no offset for "
                f"{shown_partitions(missing)}. Commit one (kafka-consumer-groups --reset-offsets), "
                "or set startingOffsets to earliest or latest"
            )
        return found

    def _timestamps(
        self,
        every: int | None,
        some: Mapping[TopicPartition, int] | None,
        partitions: frozenset[TopicPartition],
    ) -> Mapping[TopicPartition, int] | None:
        if every is not None:
            return dict.fromkeys(partitions, every)
        if some is not None:
            self._check_named(some)
        return some

    def _at_timestamps(
        self,
        partitions: frozenset[TopicPartition],
        timed: Mapping[TopicPartition, int],
        unnamed: int,
        strategy: Literal["error", "latest"],
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after timestamps; `strategy` applies if there is none."""
        targets = {partition: timed.get(partition, unnamed) for partition in partitions}
        asked = {partition: at for partition, at in targets.items() if at >= 0}
        found = self._ask(self._consumer.offsets_for_times, asked) if asked else {}
        offsets = {partition: at.offset for partition, at in found.items() if at is not None}
        late = sorted(asked.keys() - offsets.keys())
        if late and strategy == "error":
            raise OptionError(
                f"no record of {shown_partitions(late)} is at or after timestamp "
                f"{asked[late[0]]}. Set startingOffsetsByTimestampStrategy=latest to start there "
                "with the next record"
            )
        others = {partition: spec for partition, spec in targets.items() if spec < 0}
        return {**offsets, **self._list_offsets({**others, **dict.fromkeys(late, LATEST)})}

    def _at_offsets(
        self,
        partitions: frozenset[TopicPartition],
        wanted: Literal["earliest", "latest"] | Mapping[TopicPartition, int],
        unnamed: int,
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
            if topic not in counts:
                raise OptionError(f"{topic} is named, and is none of the {self.wanted}")
            if partition >= counts[topic]:
                raise OptionError(f"{topic} has {counts[topic]} partitions, no {partition}")

    def _list_offsets(self, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the start (EARLIEST) or end (LATEST) offsets of the logs."""
        first = [partition for partition, target in targets.items() if target == EARLIEST]
        last = [partition for partition, target in targets.items() if target == LATEST]
        found = self._ask(self._consumer.beginning_offsets, first) if first else {}
        return {**found, **(self._ask(self._consumer.end_offsets, last) if last else {})}

    def _ask(self, ask: Callable[[Asked, int | None], Answer], asked: Asked) -> Answer:
        if self.look_again is None:
            return ask(asked, None)
        wait_ms, deadline = LOOK_AGAIN_MS, time.monotonic() + self._patience_ms / 1000
        while True:
            left_ms = max(1, round((deadline - time.monotonic()) * 1000))
            try:
                return ask(asked, min(wait_ms, left_ms))
            except (BrokerUnavailableError, RequestTimedOutError):
                self.look_again(asked)
                if left_ms <= wait_ms:
                    raise
            wait_ms *= 2  # a busy broker may be slow


def shown_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of some of the partitions, for messages."""
    some = ", ".join(f"{topic}-{number}" for topic, number in partitions[:SHOWN])
    more = len(partitions) - SHOWN
    return f"{some} and {more} more" if more > 0 else some


def client_settings(options: SourceOptions) -> dict[str, str]:
    """Return the client's settings, by Kafka's names."""
    # By default a client looks for topics that match a pattern every 5 minutes.
    age = {} if options.pattern is None else {"metadata.max.age.ms": "5000"}
    return {
        "allow.auto.create.topics": "false",
        "client.id": options.operator,
        **age,
        **options.settings,
        "bootstrap.servers": options.bootstrap_servers,
        "enable.auto.commit": "false",
    }
