"""The offset that Spark logs for a batch: every owned partition with the range to read.

Spark replays a batch that is not in its commit log by requesting the same offset again, perhaps
after the partitions have moved to another application. So an offset contains the complete
description of a batch, and nothing about a batch is ever computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TypeAlias, TypeVar

from msgspec import Struct, field

from kohort.spark.source.group_offsets import Topic
from kohort.types import TopicPartition

# First offset to read, and the one after the last.
Range: TypeAlias = tuple[int, int]
# A manifest as Spark stores it in its offset log.
OffsetJson: TypeAlias = dict[str, object]
T = TypeVar("T")


class ManifestError(ValueError):
    """An offset in the checkpoint was not written by this source."""


class Manifest(Struct, frozen=True):
    """One batch of one query.

    Attributes:
        epoch: Generation of the group in which the ranges were offered; -1 before any.
        operator: Name of the query's member in the group.
        ranges: Range of every owned partition, including those without new records.
        batch: Number of batches that the checkpoint's query has offered, including this one.
        nonce: Identifies the checkpoint in the notes of its commits; created with its first batch.
        topics: Every subscribed topic, owned or not, at that time.
        firsts: Positions of `startingOffsets` at the first batch, for partitions that were not
            assigned yet and start at latest: records that arrive before their assignment must be
            read.
        region: The consistent region of the query; empty: none. In a region, `epoch` is the
            attempt, `nonce` the operator's incarnation, and `batch` counts only that incarnation's
            batches.
    """

    epoch: int = -1
    operator: str = ""
    ranges: Mapping[TopicPartition, Range] = field(default_factory=dict)
    batch: int = 0
    nonce: str = ""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    firsts: Mapping[TopicPartition, int] = field(default_factory=dict)
    region: str = ""

    def to_json(self) -> OffsetJson:
        """Return the manifest as text for Spark; equal manifests have equal texts."""
        return {
            "batch": self.batch,
            "counts": {name: each.count for name, each in sorted(self.topics.items())},
            "epoch": self.epoch,
            **({"firsts": by_topic(self.firsts)} if self.firsts else {}),
            "ids": {name: each.topic_id for name, each in sorted(self.topics.items())},
            "nonce": self.nonce,
            "operator": self.operator,
            **({"region": self.region} if self.region else {}),
            "topics": by_topic({place: list(ends) for place, ends in self.ranges.items()}),
        }

    @staticmethod
    def from_json(offset: Mapping[str, object]) -> Manifest:
        """Parse the result of `to_json`.

        Raises:
            ManifestError: The offset belongs to another source.
        """
        epoch, operator, topics = (offset.get(key) for key in ("epoch", "operator", "topics"))
        if not (isinstance(epoch, int) and isinstance(operator, str) and isinstance(topics, dict)):
            raise ManifestError(
                f"the checkpoint holds {str(dict(offset))[:200]}, which is not an offset of the "
                "kohort source; a query that changes its source needs a new checkpointLocation"
            )
        ranges = {
            TopicPartition(topic, int(partition)): (int(bounds[0]), int(bounds[1]))
            for topic, partitions in topics.items()
            for partition, bounds in partitions.items()
        }
        region = str(offset.get("region", ""))
        return Manifest(epoch, operator, ranges, *_identity(offset), _firsts(offset), region)

    def reads(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the batch reads any record of the given partitions."""
        bounds = (self.ranges.get(partition, (0, 0)) for partition in partitions)
        return any(start < end for start, end in bounds)


def by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """Return values in the JSON structure of Spark's own source: by topic, then by partition."""
    topics: dict[str, dict[str, T]] = {}
    for (topic, partition), value in sorted(values.items(), key=itemgetter(0)):
        topics.setdefault(topic, {})[str(partition)] = value
    return topics


def _identity(offset: Mapping[str, object]) -> tuple[int, str, dict[str, Topic]]:
    """Return batch, nonce and topics; manifests of the first releases lack them."""
    batch, nonce = offset.get("batch", 0), offset.get("nonce", "")
    counts, ids = offset.get("counts", {}), offset.get("ids", {})
    if not (isinstance(batch, int) and isinstance(nonce, str)):
        raise ManifestError(f"batch {batch!r} or nonce {nonce!r} of the checkpoint is malformed")
    if not (isinstance(counts, dict) and isinstance(ids, dict)):
        raise ManifestError("counts or ids of the checkpoint are malformed")
    topics = {name: Topic(str(ids.get(name, "")), int(count)) for name, count in counts.items()}
    return batch, nonce, topics


def _firsts(offset: Mapping[str, object]) -> dict[TopicPartition, int]:
    """Return the starts of partitions; only some first batches have them."""
    firsts = offset.get("firsts", {})
    if not isinstance(firsts, dict):
        raise ManifestError("firsts of the checkpoint is malformed")
    return {
        TopicPartition(topic, int(partition)): int(first)
        for topic, partitions in firsts.items()
        for partition, first in partitions.items()
    }


def trim(
    ranges: Mapping[TopicPartition, Range], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Range]:
    """Return the ranges of a replayed batch without offsets that the group has committed since.

    Only finished batches are ever committed, so a committed offset inside a range means that
    another query has finished that part of it.

    Args:
        ranges: The ranges of the batch.
        committed: The group's offsets; partitions without one are absent.

    Returns:
        The remaining non-empty ranges.
    """
    left = {
        partition: (max(start, committed.get(partition, start)), end)
        for partition, (start, end) in ranges.items()
    }
    return {partition: bounds for partition, bounds in left.items() if bounds[0] < bounds[1]}
