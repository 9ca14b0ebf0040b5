"""The history of a query in its checkpoint: the batches begun, and the last finished one.

This is the whole log of a query with one source, as a value; `log.py` only checks whether a batch
is finished in a running query's log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from kohort.spark.checkpoint.log import (
    COMMIT_VERSIONS,
    OFFSET_VERSIONS,
    CheckpointError,
    Store,
    numbers,
)
from kohort.spark.checkpoint.manifest import Manifest, OffsetJson, by_topic
from kohort.types import TopicPartition

# Where Spark's own Kafka source stores its start offsets.
INITIAL = "sources/0/0"
INITIAL_VERSION = "v1"
# Marks a source that has returned no offset yet.
NO_OFFSET = "-"

# The source that wrote a checkpoint: Spark's own for Kafka, or this package's.
Origin: TypeAlias = Literal["spark", "kohort"]
Offsets: TypeAlias = Mapping[TopicPartition, int]


class Entry(Struct, frozen=True):
    """One batch in the offset log.

    Attributes:
        head: The lines before the source's own: the version and Spark's settings.
        name: The name before the offset in a log of version 2; otherwise empty.
        offset: Where the batch ends, as the source wrote it.
    """

    head: tuple[str, str]
    name: str
    offset: Mapping[str, object]

    def text(self, offset: str) -> str:
        """Return the file with its offset replaced."""
        return "\n".join([*self.head, self.name + offset])


class History(Struct, frozen=True):
    """The log of one query.

    Attributes:
        location: The checkpoint's location, for messages.
        origin: The source that wrote it.
        entries: Batches by number; Spark removes the oldest.
        finished: The last batch that is in the sink and in Spark's commit log; -1 before the first.
        initial: Where Spark's own source started; empty in a checkpoint of this package.
    """

    location: str
    origin: Origin
    entries: Mapping[int, Entry]
    finished: int
    initial: Offsets = field(default_factory=dict)

    @property
    def open_batch(self) -> int | None:
        """The batch that has begun but not finished; None if there is none."""
        last = max(self.entries)
        return last if last > self.finished else None

    def offsets(self, batch: int) -> Offsets:
        """Return where a batch of Spark's own source ends."""
        return kafka_offsets(self.entries[batch].offset)

    def manifest(self, batch: int) -> Manifest:
        """Return a batch of this package's source."""
        return Manifest.from_json(self.entries[batch].offset)


def read_history(location: str, store: Store) -> History:
    """Read a checkpoint.

    Args:
        location: The checkpoint's location, for messages.
        store: The store from which to read it.

    Raises:
        CheckpointError: It is not a checkpoint, its query has several sources or a different one, a
            version is unknown, or more than one batch is open.
    """
    try:
        return _read(location, store)
    except OSError as error:
        raise CheckpointError(f"the checkpoint at {location} cannot be read: {error}") from error


def _read(location: str, store: Store) -> History:
    batches = sorted(numbers(store.names("offsets")))
    if not batches:
        raise CheckpointError(
            f"{location} has no folder offsets with a batch in it: give the checkpointLocation of "
            "a query that has begun at least one batch"
        )
    entries = {batch: _entry(location, store, batch) for batch in batches}
    origins = {_origin(location, each.offset) for each in entries.values()}
    if len(origins) > 1:
        raise CheckpointError(
            f"{location} has batches of two sources, Spark's own and kohort's: it was changed in "
            "the middle of a conversion. Use the backup or the original"
        )
    origin = origins.pop()
    initial = _initial(location, store) if origin == "spark" else {}
    history = History(location, origin, entries, _finished(location, store, batches), initial)
    begun = [batch for batch in batches if batch > history.finished]
    if len(begun) > 1:
        raise CheckpointError(
            f"{location}: batches {begun[0]} to {begun[-1]} are in offsets and not in commits, as "
            "asyncProgressTrackingEnabled leaves them. Run the query once without that option, "
            "with trigger availableNow"
        )
    return history


def _entry(location: str, store: Store, batch: int) -> Entry:
    lines = versioned_lines(location, store, f"offsets/{batch}", OFFSET_VERSIONS)
    sources = lines[2:]
    if len(sources) != 1:
        raise CheckpointError(
            f"{location}/offsets/{batch} has {len(sources)} sources, and only the checkpoint of a "
            "query with one source can be converted"
        )
    name, text = "", sources[0]
    if lines[0] == "v2":
        key, separator, text = text.partition(":")
        name = key + separator
    return Entry((lines[0], lines[1]), name, _parsed(f"{location}/offsets/{batch}", text))


def versioned_lines(location: str, store: Store, file: str, versions: tuple[str, ...]) -> list[str]:
    """Return the lines of a file of Spark's log, without empty ones at its end.

    Raises:
        CheckpointError: Its version is unknown, or it is empty.
    """
    lines = (store.text(file) or "").rstrip("\n").split("\n")
    if lines[0] not in versions:
        raise CheckpointError(
            f"{location}/{file} begins with {lines[0][:40]!r}, and this version of kohort knows "
            f"{', '.join(versions)} there: it was written by a version of Spark that is not known "
            "here, or only half of it was written"
        )
    return lines


def _parsed(file: str, text: str) -> OffsetJson:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        empty = " (its source has returned no offset yet)" if text == NO_OFFSET else ""
        raise CheckpointError(f"{file}: {text[:100]!r} is not the offset of a Kafka source{empty}")
    return found


def _origin(location: str, offset: Mapping[str, object]) -> Origin:
    if {"epoch", "operator", "topics"} <= offset.keys() and isinstance(offset["epoch"], int):
        return "kohort"
    try:
        kafka_offsets(offset)
    except ValueError as error:
        raise CheckpointError(
            f"{location} belongs to another source than Kafka: {error}"
        ) from error
    return "spark"


def kafka_offsets(offset: Mapping[str, object]) -> Offsets:
    """Parse an offset of Spark's own Kafka source: `{"flights":{"0":23,"1":40}}`.

    Raises:
        ValueError: It belongs to another source.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in offset.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{str(dict(offset))[:100]} has no partitions")
        for number, end in partitions.items():
            if not (str(number).isdecimal() and isinstance(end, int)):
                raise ValueError(f"{str(dict(offset))[:100]} has no offsets by partition")
            found[TopicPartition(topic, int(number))] = end
    return found


def kafka_json(offsets: Offsets) -> str:
    """Return offsets as Spark's own source writes them and `startingOffsets` accepts them."""
    return json.dumps(by_topic(offsets), separators=(",", ":"))


def _finished(location: str, store: Store, batches: list[int]) -> int:
    committed = sorted(numbers(store.names("commits")))
    over = [batch for batch in committed if _is_over(location, store, batch)]
    last = max(over, default=-1)
    if last > batches[-1]:
        raise CheckpointError(
            f"{location}: batch {last} is in commits and not in offsets: a part of the checkpoint "
            "is missing, or the query runs"
        )
    return last


def _is_over(location: str, store: Store, batch: int) -> bool:
    if not (store.text(f"commits/{batch}") or "").strip():
        return False  # left by a crash; Spark writes it again when it replays the batch
    lines = versioned_lines(location, store, f"commits/{batch}", COMMIT_VERSIONS)
    return len(lines) > 1


def _initial(location: str, store: Store) -> Offsets:
    """Return where Spark's own source started; empty if the checkpoint does not have it."""
    text = (store.text(INITIAL) or "").lstrip("\0")
    version, _, offset = text.partition("\n")
    if not text:
        return {}
    if version != INITIAL_VERSION:
        raise CheckpointError(
            f"{location}/{INITIAL} begins with {version[:40]!r}, and this version of kohort knows "
            f"{INITIAL_VERSION} there"
        )
    return kafka_offsets(_parsed(f"{location}/{INITIAL}", offset.strip()))


def initial_text(offsets: Offsets) -> str:
    """Return the text of Spark's own `sources/0/0`; it begins with a zero (SPARK-19517)."""
    return f"\0{INITIAL_VERSION}\n{kafka_json(offsets)}"
