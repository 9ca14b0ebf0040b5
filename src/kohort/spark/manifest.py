"""The offset that Spark logs for a batch: every owned partition with the range to read.

Spark replays a batch that its commit log does not name by asking for the very same offset again,
perhaps after the partitions have moved to another application. So an offset holds all that a
batch is made of, and nothing about a batch is ever worked out a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from kohort.types import TopicPartition
from kohort.values import dataclass

# First offset to read, and the one after the last.
Range: TypeAlias = tuple[int, int]
# A manifest as Spark stores it in its offset log.
OffsetJson: TypeAlias = dict[str, object]


class ManifestError(ValueError):
    """An offset in the checkpoint was not written by this source."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One batch of one query.

    Attributes:
        epoch: Generation of the group in which the ranges were offered, -1 before any.
        operator: Name of the query's member in the group.
        ranges: Range of every partition that was owned, also of those without new records.
    """

    epoch: int = -1
    operator: str = ""
    ranges: Mapping[TopicPartition, Range] = field(default_factory=dict)

    def to_json(self) -> OffsetJson:
        """Return the manifest for Spark: equal manifests give equal text, key by key."""
        topics: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), (start, end) in sorted(self.ranges.items()):
            topics.setdefault(topic, {})[str(partition)] = [start, end]
        return {"epoch": self.epoch, "operator": self.operator, "topics": topics}

    @staticmethod
    def from_json(offset: Mapping[str, object]) -> Manifest:
        """Read back what `to_json` wrote.

        Raises:
            ManifestError: The offset is of another source.
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
        return Manifest(epoch, operator, ranges)

    def reads(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the batch reads any record of the given partitions."""
        bounds = (self.ranges.get(partition, (0, 0)) for partition in partitions)
        return any(start < end for start, end in bounds)


def trim(
    ranges: Mapping[TopicPartition, Range], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Range]:
    """Leave out of a replayed batch what the group has committed since.

    Only a finished batch is ever committed, so a committed offset inside a range says that
    somebody else has finished that part of it.

    Args:
        ranges: The ranges of the batch.
        committed: The group's offsets; partitions without one are absent.

    Returns:
        What is left to read, without empty ranges.
    """
    left = {
        partition: (max(start, committed.get(partition, start)), end)
        for partition, (start, end) in ranges.items()
    }
    return {partition: bounds for partition, bounds in left.items() if bounds[0] < bounds[1]}


def share_limit(sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Split `maxOffsetsPerTrigger` in proportion to what each partition has, like Spark does.

    A partition with records gets at least one, so the sum may exceed a very small limit.

    Args:
        sizes: Records available in each partition.
        limit: Records to read in all.

    Returns:
        Records to read of each partition.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    return {
        partition: min(size, max(limit * size // total, 1)) for partition, size in sizes.items()
    }
