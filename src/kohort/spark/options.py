"""The options of the source: Spark's names where Spark's own Kafka source has the option."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from kohort.errors import ConfigError
from kohort.types import TopicPartition
from kohort.values import dataclass

EARLIEST = -2
LATEST = -1

# Where to start or end: a word for all partitions, or an offset (or -2, -1) for some.
Offsets: TypeAlias = Literal["earliest", "latest"] | Mapping[TopicPartition, int]

OPTIONS = (
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "includeHeaders",
)

# Options of Spark's own source that this one does not have, so that a moved query says which.
SPARK_ONLY = (
    "assign", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp",
    "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "groupIdPrefix",
)  # fmt: skip

# Kafka settings that would contradict what the source does, and what to do instead.
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


class OptionError(ConfigError):
    """An option is missing, unknown or malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one `load()`, checked.

    Attributes:
        bootstrap_servers: `host:port`, comma separated.
        topics: Topics to read.
        starting_offsets: Where to start partitions without a committed offset; None when not
            given, which is `latest` for a stream and `earliest` for a batch.
        ending_offsets: Where a batch read ends; None when not given, which is `latest`.
        max_offsets_per_trigger: Records per batch at most, None for all that there are.
        include_headers: Whether there is a column `headers`.
        settings: Kafka client settings by Kafka's own names, without the prefix `kafka.`.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    starting_offsets: Offsets | None = None
    ending_offsets: Offsets | None = None
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def group_id(self) -> str | None:
        """The consumer group, `kafka.group.id`."""
        return self.settings.get("group.id")

    @property
    def operator(self) -> str:
        """Name of this query's member in manifests and to people: `kafka.client.id`."""
        return self.settings.get("client.id", "kohort-spark")


def parse_options(raw: Mapping[str, str]) -> SourceOptions:
    """Check the options of a `load()`.

    Args:
        raw: Options as Spark hands them over; case does not matter.

    Raises:
        OptionError: Names the option and what to do.
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
    topics = tuple(name.strip() for name in options.get("subscribe", "").split(",") if name.strip())
    if not topics:
        raise OptionError("subscribe is required: the topics to read, separated by commas")
    return SourceOptions(
        bootstrap_servers=bootstrap,
        topics=topics,
        starting_offsets=_offsets("startingOffsets", options, topics),
        ending_offsets=_offsets("endingOffsets", options, topics),
        max_offsets_per_trigger=_positive("maxOffsetsPerTrigger", options),
        include_headers=_boolean("includeHeaders", options),
        settings=settings,
    )


def check_stream_options(options: SourceOptions) -> None:
    """Refuse options that make no sense for a stream.

    Raises:
        OptionError: Names the option.
    """
    if not options.group_id:
        raise OptionError(
            "kafka.group.id is required: a stream of the kohort source is a member of a group"
        )
    if options.ending_offsets is not None:
        raise OptionError("endingOffsets is not valid in a stream, which has no end")


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    foreign = {name.lower(): name for name in SPARK_ONLY}
    for key in options:
        if key.startswith("kafka.") or key in known:
            continue
        if key in foreign:
            raise OptionError(
                f"{foreign[key]} is an option of Spark's own Kafka source that kohort lacks; "
                f"it has {', '.join(OPTIONS)} and kafka.*"
            )
        names = {
            **known,
            "kafka.bootstrap.servers": "kafka.bootstrap.servers",
            "kafka.group.id": "kafka.group.id",
        }
        near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
        hint = f"; did you mean {names[near[0]]}?" if near else f"; known: {', '.join(OPTIONS)}"
        raise OptionError(f"unknown option {key!r}{hint}")


def _check_settings(settings: Mapping[str, str]) -> None:
    from kohort.client.config import ConsumerConfig, make_from_kafka
    from kohort.client.ranges import RangeReader

    for key in settings:
        if key in REFUSED:
            raise OptionError(f"kafka.{key} is not supported: {REFUSED[key]}")
    if settings.get("isolation.level", "read_uncommitted") != "read_uncommitted":
        raise OptionError("kafka.isolation.level: executors cannot read_committed so far")
    try:
        make_from_kafka(ConsumerConfig, settings)
        RangeReader(settings.get("bootstrap.servers", "localhost:9092"), settings)
    except ConfigError as error:
        raise OptionError(f"kafka.*: {error}") from error


def _positive(name: str, options: Mapping[str, str]) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise OptionError(f"{name} must be a positive number, not {text!r}")
    return int(text)


def _boolean(name: str, options: Mapping[str, str]) -> bool:
    text = options.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _offsets(name: str, options: Mapping[str, str], topics: tuple[str, ...]) -> Offsets | None:
    text = options.get(name.lower())
    if text is None:
        return None
    word = text.strip().lower()
    if word == "earliest" and name == "startingOffsets":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        offsets = _parse_offsets(text)
    except (ValueError, AttributeError, TypeError) as error:
        words = "earliest, latest" if name == "startingOffsets" else "latest"
        raise OptionError(
            f'{name} must be {words} or JSON like {{"topic":{{"0":23,"1":-1}}}}, not {text!r}'
        ) from error
    for partition, offset in offsets.items():
        if partition.topic not in topics:
            raise OptionError(f"{name} names {partition.topic!r}, which subscribe does not")
        if offset < (EARLIEST if name == "startingOffsets" else LATEST):
            raise OptionError(f"{name}: {offset} is no offset of {partition.topic}")
    return offsets


def _parse_offsets(text: str) -> dict[TopicPartition, int]:
    parsed: dict[TopicPartition, int] = {}
    for topic, partitions in json.loads(text).items():
        for partition, offset in partitions.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or int(partition) < 0:
                raise ValueError(f"{topic}-{partition}: {offset}")
            parsed[TopicPartition(topic, int(partition))] = offset
    return parsed
