"""The size of a batch: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

No I/O and no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from kohort.types import TopicPartition


class FairLimit:
    """Splits `maxOffsetsPerTrigger` over the partitions, batch by batch.

    If the limit is below the number of partitions, they take turns.
    """

    def __init__(self) -> None:
        self._last: TopicPartition | None = None

    def share(self, sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
        """Return how many records to read from each partition, `limit` in total.

        Args:
            sizes: Records available in each partition.
            limit: Total number of records to read.
        """
        waiting = sorted(partition for partition, size in sizes.items() if size > 0)
        if limit >= len(waiting):
            return share_limit(sizes, limit)
        first = bisect_right(waiting, self._last) if self._last is not None else 0
        turn = (waiting[first:] + waiting[:first])[:limit]
        self._last = turn[-1]
        return {partition: int(partition in turn) for partition in sizes}


class BatchDelay:
    """Waits for `minOffsetsPerTrigger` records, at most for `maxTriggerDelay`.

    The first batch of a run does not wait, as with Spark's own source.

    Args:
        least: Number of records to wait for; None: do not wait.
        max_delay_ms: Maximum time between batches while there are records to read, in milliseconds.
    """

    def __init__(self, least: int | None, max_delay_ms: int) -> None:
        self._least = least
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def least(self, now_ms: float) -> int:
        """Return how many records a batch needs now.

        Args:
            now_ms: A monotonic time, in milliseconds.
        """
        if self._least is None or self._last_ms is None:
            return 1
        return 1 if now_ms - self._last_ms >= self._max_delay_ms else self._least

    def began(self, now_ms: float) -> None:
        """Record that a batch begins."""
        self._last_ms = now_ms


def share_limit(sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Split a limit in proportion to the records of each partition, at least one record each.

    Args:
        sizes: Records available in each partition.
        limit: Total number of records to read, at least one for each partition that has any.

    Returns:
        Number of records to read from each partition, `limit` in total if there are as many.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    waiting = {partition: size for partition, size in sizes.items() if size > 0}
    spare, more = limit - len(waiting), total - len(waiting)
    shares = {partition: 1 + spare * (size - 1) // more for partition, size in waiting.items()}
    missing = limit - sum(shares.values())
    by_loss = sorted(waiting, key=lambda p: (-(spare * (waiting[p] - 1) % more), p))
    for partition in by_loss[:missing]:
        shares[partition] += 1
    return {partition: shares.get(partition, 0) for partition in sizes}
