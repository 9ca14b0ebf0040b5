"""The options of the source: Spark's names where Spark's own Kafka source has the option."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from kohort.errors import ConfigError
from kohort.spark.options.java_regex import java_pattern
from kohort.spark.options.region import REGION_OPTIONS, RegionOptions, region_options
from kohort.spark.options.schema import check_columns, column_names
from kohort.spark.options.values import (
    EARLIEST,
    LATEST,
    Offsets,
    OptionError,
    Timestamps,
    Values,
)
from kohort.types import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "SPARK_ONLY",
    "TABLE_KEYS",
    "GroupMode",
    "Offsets",
    "OptionError",
    "Positions",
    "SourceOptions",
    "parse_options",
    "unknown_option",
]

# `member`: joins the group. `commitOnly`: owns all partitions and commits to the group without
# joining it. `none`: neither, like Spark's own source.
GroupMode: TypeAlias = Literal["member", "commitOnly", "none"]
# Whether the group's offsets or the checkpoint apply if they disagree; None: the newer one.
Positions: TypeAlias = Literal["group", "checkpoint", "fail"]
Strategy: TypeAlias = Literal["error", "latest"]

GROUP_MODES: tuple[GroupMode, ...] = ("member", "commitOnly", "none")
POSITIONS: tuple[Positions, ...] = ("group", "checkpoint", "fail")
STRATEGIES: tuple[Strategy, ...] = ("error", "latest")
MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
# Kafka limits an offset's metadata to 4096 bytes, some of which the source itself needs.
COMMIT_METADATA_LENGTH = 1000

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "table",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "columns",
    "groupMode",
    "positions",
    "exclusive",
    "checkpointLocation",
    "commitMetadata",
    *REGION_OPTIONS,
)

# Options of Spark's own source that have no effect here, and their replacements.
SPARK_ONLY = {
    "kafkaConsumer.pollTimeoutMs": "kafka.default.api.timeout.ms sets how long an executor waits",
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms limits requests for offsets",
    "fetchOffset.retryIntervalMs": "kafka.retry.backoff.ms sets the wait between attempts",
    "groupIdPrefix": "no group id is made up; kafka.group.id names the group",
}

# Options that Spark itself adds to a table, and the writer's option of a table that is also written
# to.
TABLE_KEYS = (
    "provider", "owner", "path", "location", "comment", "external", "is_managed_location",
    "table_type", "collation", "topic",
)  # fmt: skip

# One of these selects the topics or partitions to read.
SELECTIONS = ("subscribe", "subscribePattern", "assign", "table")

# The first one given applies.
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
SPLITS = ("minPartitions", "maxRecordsPerPartition")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

# Kafka settings that conflict with the source, and the alternatives.
REFUSED = {
    "auto.offset.reset": "set startingOffsets to say where to start; the source manages offsets "
    "itself so that no record is missed when partitions are added",
    "key.deserializer": "keys are binary; use DataFrame operations to decode them",
    "value.deserializer": "values are binary; use DataFrame operations to decode them",
    "key.serializer": "the source only reads",
    "value.serializer": "the source only reads",
    "enable.auto.commit": "the source commits to the group when a batch is in the sink, and only "
    "then",
    "auto.commit.interval.ms": "the source commits to the group when a batch is in the sink",
    "interceptor.classes": "an interceptor could change the records, and the source could not "
    "repeat a batch",
}


class SourceOptions(Struct, frozen=True, kw_only=True):
    """The checked options of one `load()`.

    Of the start options, only the one that applies is set: `starting_timestamp` before
    `starting_offsets_by_timestamp` before `starting_offsets`. The same holds for the end options.

    Attributes:
        bootstrap_servers: `host:port`, comma separated.
        topics: Topics of `subscribe`, `assign` or `table`; empty with `subscribePattern`.
        assigned: Partitions of `assign`.
        pattern: The Java regular expression of `subscribePattern`.
        starting_offsets: Where to start partitions without a committed offset; None if not given,
            which means `latest` for a stream and `earliest` for a batch.
        starting_timestamp: Where to start all partitions, in milliseconds, or LATEST, EARLIEST.
        starting_offsets_by_timestamp: The same by partition.
        starting_strategy: How to start a partition that has no record at or after its timestamp.
        ending_offsets: Where a batch read ends; None if not given, which means `latest`.
        ending_timestamp: Where all partitions end, in milliseconds.
        ending_offsets_by_timestamp: The same by partition.
        fail_on_data_loss: Whether lost records are an error; otherwise a warning.
        min_partitions: Minimum number of tasks of a batch.
        max_records_per_partition: Maximum number of records of a task.
        max_offsets_per_trigger: Maximum number of records per batch; None: unlimited.
        min_offsets_per_trigger: Number of records to wait for before a batch.
        max_trigger_delay_ms: How long to wait for them, in milliseconds.
        include_headers: Whether there is a column `headers`.
        columns: The columns to read; None: all.
        group_mode: How the query uses its group.
        positions: Whether the group's offsets or the checkpoint apply if they disagree.
        exclusive: Whether the query must be alone in its group.
        checkpoint_location: The location of the query's Spark checkpoint.
        commit_metadata: The user's text in the metadata of every commit.
        region: The consistent region of which the query is an operator; None: none.
        settings: Kafka client settings by Kafka's own names, without the prefix `kafka.`. They may
            contain secrets, so no text about these options shows them.
        given: Names of the given options, except Kafka client settings.
    """

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    pattern: str | None = None
    starting_offsets: Offsets | None = None
    starting_timestamp: int | None = None
    starting_offsets_by_timestamp: Timestamps | None = None
    starting_strategy: Strategy = "error"
    ending_offsets: Offsets | None = None
    ending_timestamp: int | None = None
    ending_offsets_by_timestamp: Timestamps | None = None
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    group_mode: GroupMode = "member"
    positions: Positions | None = None
    exclusive: bool = False
    checkpoint_location: str | None = None
    commit_metadata: str | None = None
    region: RegionOptions | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Name the client settings without their values."""
        return f"SourceOptions({self.selection}, {sorted(self.given)}, {sorted(self.settings)})"

    @property
    def is_table(self) -> bool:
        """Whether a batch read returns the last value of each key."""
        return "table" in self.given

    @property
    def group_id(self) -> str | None:
        """The consumer group, `kafka.group.id`."""
        return self.settings.get("group.id")

    @property
    def operator(self) -> str:
        """Name of this query's member in manifests and messages: `kafka.client.id`."""
        return self.settings.get("client.id", "kohort-spark")

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns to read, in order."""
        return column_names(self.columns, self.include_headers)

    @property
    def selection(self) -> str:
        """The topics or partitions to read, for messages."""
        if self.pattern is not None:
            return f"topics that match {self.pattern!r}"
        if self.assigned:
            return ", ".join(f"{topic}-{partition}" for topic, partition in self.assigned)
        return ", ".join(self.topics)


def parse_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check the options of a `load()`.

    Args:
        raw: Options as Spark passes them; their case does not matter.

    Raises:
        OptionError: An option is invalid; the message names it and the remedy.
    """
    options = {key.lower(): value for key, value in raw.items()}
    settings = {
        key.removeprefix("kafka."): value
        for key, value in options.items()
        if key.startswith("kafka.")
    }
    _refuse_unknown(options)
    _check_settings(settings)
    bootstrap = settings.pop("bootstrap.servers", "")
    if not bootstrap.strip():
        raise OptionError("kafka.bootstrap.servers is required: host:port of one or more brokers")
    values = Values(options)
    region = region_options(values)
    if region is not None:  # all operators of a region read this way
        settings.setdefault("isolation.level", "read_committed")
    topics, assigned, pattern = _selection(values)
    start, end = _first(STARTS, values), _first(ENDS, values)
    parsed = SourceOptions(
        bootstrap_servers=bootstrap,
        topics=topics,
        assigned=assigned,
        pattern=pattern,
        starting_offsets=values.offsets(start) if start == STARTS[2] else None,
        starting_timestamp=values.timestamp(start) if start == STARTS[0] else None,
        starting_offsets_by_timestamp=values.timestamps(start) if start == STARTS[1] else None,
        starting_strategy=values.choice("startingOffsetsByTimestampStrategy", STRATEGIES)
        or "error",
        ending_offsets=values.offsets(end) if end == ENDS[2] else None,
        ending_timestamp=values.timestamp(end) if end == ENDS[0] else None,
        ending_offsets_by_timestamp=values.timestamps(end) if end == ENDS[1] else None,
        fail_on_data_loss=values.flag("failOnDataLoss", default=True),
        min_partitions=values.number("minPartitions"),
        max_records_per_partition=values.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=values.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=values.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        include_headers=values.flag("includeHeaders", default=False),
        columns=values.names("columns") if "columns" in values else None,
        group_mode=_group_mode(values),
        positions=values.choice("positions", POSITIONS),
        exclusive=values.flag("exclusive", default=False),
        checkpoint_location=values.text("checkpointLocation"),
        commit_metadata=values.text("commitMetadata"),
        region=region,
        settings=settings,
        given=frozenset(name for name in (*OPTIONS, *SPARK_ONLY) if name in values),
    )
    _check_together(parsed)
    return parsed


def unknown_option(key: str, known: Sequence[str]) -> OptionError:
    """Return the error for an unknown option, with the nearest known one.

    Args:
        key: The option as it was given.
        known: The known options, besides Kafka client settings.
    """
    names = {name.lower(): name for name in (*known, "kafka.bootstrap.servers", "kafka.group.id")}
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"; did you mean {names[near[0]]}?" if near else f"; known: {', '.join(known)}"
    return OptionError(f"unknown option {key!r}{hint}")


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*OPTIONS, *SPARK_ONLY, *TABLE_KEYS)}
    for key in options:
        if not (key in known or key.startswith(("kafka.", "kafkaconsumer.", "option."))):
            raise unknown_option(key, OPTIONS)


def _check_settings(settings: Mapping[str, str]) -> None:
    from kohort.client.config.definitions import ConsumerConfig, make_from_kafka
    from kohort.spark.source.fetch.ranges import RangeReader

    for key in settings:
        if key in REFUSED:
            raise OptionError(f"kafka.{key} is not supported: {REFUSED[key]}")
    try:
        make_from_kafka(ConsumerConfig, settings)
        RangeReader(settings.get("bootstrap.servers", "localhost:9092"), settings)
    except ConfigError as error:
        raise OptionError(f"kafka.*: {error}") from error


def _selection(
    values: Values,
) -> tuple[tuple[str, ...], tuple[TopicPartition, ...], str | None]:
    """Return topics, partitions and pattern, from the one of three options that is given."""
    given = [name for name in SELECTIONS if name in values]
    if not given:
        hint = "; topic says where to write" if "topic" in values else ""
        raise OptionError(
            "subscribe is required: the topics to read, separated by commas (or subscribePattern, "
            f"assign or table){hint}"
        )
    if len(given) > 1:
        raise OptionError(f"only one of {', '.join(given)} can be given")
    if "assign" in values:
        assigned = values.partitions("assign")
        return tuple(sorted({topic for topic, _ in assigned})), assigned, None
    if "subscribePattern" in values:
        pattern = values.text("subscribePattern")
        if pattern is None:
            raise OptionError("subscribePattern is empty: it is a regular expression for topics")
        java_pattern(pattern)
        return (), (), pattern
    name = "table" if "table" in values else "subscribe"
    topics = tuple(dict.fromkeys(values.names(name)))
    if not topics:
        raise OptionError(f"{name} is required: the topics to read, separated by commas")
    return topics, (), None


def _group_mode(values: Values) -> GroupMode:
    """Return the group mode; a member cannot choose its partitions."""
    given = values.choice("groupMode", GROUP_MODES)
    return given or ("commitOnly" if "assign" in values else "member")


def _first(names: Sequence[str], values: Values) -> str:
    return next((name for name in names if name in values), "")


def _check_together(options: SourceOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    if options.starting_offsets == "committed" and not options.group_id:
        raise OptionError("startingOffsets=committed needs kafka.group.id: their group")
    if len(options.commit_metadata or "") > COMMIT_METADATA_LENGTH:
        raise OptionError(f"commitMetadata has more than {COMMIT_METADATA_LENGTH} characters")
    check_columns(options.columns)
    for name, wanted in _by_partition(options).items():
        _check_selected(name, wanted, options)
    _check_order(options)


def _by_partition(options: SourceOptions) -> dict[str, Mapping[TopicPartition, int]]:
    every = {
        STARTS[1]: options.starting_offsets_by_timestamp,
        STARTS[2]: options.starting_offsets,
        ENDS[1]: options.ending_offsets_by_timestamp,
        ENDS[2]: options.ending_offsets,
    }
    return {name: wanted for name, wanted in every.items() if isinstance(wanted, Mapping)}


def _check_selected(
    name: str, wanted: Mapping[TopicPartition, int], options: SourceOptions
) -> None:
    """Check that an option names topics the query reads; for a pattern, only brokers know them."""
    for partition in wanted:
        if options.assigned and partition not in options.assigned:
            shown = f"{partition.topic}-{partition.partition}"
            raise OptionError(f"{name} names {shown}, which assign does not")
        if options.topics and partition.topic not in options.topics:
            raise OptionError(f"{name} names {partition.topic!r}, which subscribe does not")


def _check_order(options: SourceOptions) -> None:
    """Check that no range ends before it starts, as far as the options alone show."""
    start, end = options.starting_timestamp, options.ending_timestamp
    if start is not None and end is not None and start > end >= 0:
        raise OptionError(f"startingTimestamp={start} is after endingTimestamp={end}")
    wanted = _by_partition(options)
    for first, last in ((STARTS[1], ENDS[1]), (STARTS[2], ENDS[2])):
        starts, ends = wanted.get(first, {}), wanted.get(last, {})
        for partition in starts.keys() & ends.keys():
            if starts[partition] > ends[partition] >= 0:
                raise OptionError(
                    f"{partition.topic}-{partition.partition}: {first} {starts[partition]} is "
                    f"after {last} {ends[partition]}"
                )
