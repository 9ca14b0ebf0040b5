"""The records waiting for a task, ordered by timestamp over all its partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Protocol

from kohort.errors import LocalProtocolError
from kohort.types import TopicPartition
from kohort.wire.records.record import Headers


class InputRecord(Protocol):
    """The fields of a record that a task needs; `kohort.ConsumerRecord` has them."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its partition."""
        ...

    @property
    def offset(self) -> int:
        """Its offset."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        ...

    @property
    def key(self) -> bytes | None:
        """Its key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Its value."""
        ...

    @property
    def headers(self) -> Headers:
        """Its headers."""
        ...


class Buffers:
    """The buffers of one task, one per partition.

    The next record is the one with the lowest timestamp. If a buffer is empty, a record with a
    lower timestamp may still arrive: then there is no next record until the partition has been read
    to its end (KIP-695), or the caller stops waiting.

    Args:
        partitions: The partitions that the task reads.
        limit: Number of waiting records at which a partition is paused.
    """

    def __init__(self, partitions: Iterable[TopicPartition], limit: int) -> None:
        self._queues: dict[TopicPartition, deque[InputRecord]] = {
            partition: deque() for partition in partitions
        }
        self._limit = limit
        self._last = dict.fromkeys(self._queues, -1)  # offset of the last added record
        self._at_end: set[TopicPartition] = set()

    def __len__(self) -> int:
        """Return the number of waiting records."""
        return sum(map(len, self._queues.values()))

    def add(self, partition: TopicPartition, records: Collection[InputRecord]) -> None:
        """Add fetched records, in offset order.

        Raises:
            LocalProtocolError: The partition is not the task's, or an offset is out of order.
        """
        queue = self._queues.get(partition)
        if queue is None:
            raise LocalProtocolError(f"{partition} is not one of {sorted(self._queues)}")
        last = self._last[partition]
        for record in records:
            if record.offset <= last:
                raise LocalProtocolError(
                    f"{partition.topic}-{partition.partition}: offset {record.offset} was added"
                    f" after {last}; to read a partition again, close the task and create a new one"
                )
            last = record.offset
        self._last[partition] = last
        queue.extend(records)

    def set_at_end(self, partition: TopicPartition, is_at_end: bool) -> None:
        """Record whether the last fetch read a partition to its end."""
        if is_at_end:
            self._at_end.add(partition)
        else:
            self._at_end.discard(partition)

    def awaited(self) -> frozenset[TopicPartition]:
        """Return the partitions whose next record is needed to determine the order."""
        return frozenset(
            partition
            for partition, queue in self._queues.items()
            if not queue and partition not in self._at_end
        )

    def next(self, *, wait: bool) -> InputRecord | None:
        """Take the next record, or None if there is none yet.

        Args:
            wait: Whether to wait for the partitions in `awaited`.
        """
        chosen: deque[InputRecord] | None = None
        lowest = 0
        for partition, queue in self._queues.items():
            if queue:
                stamp = queue[0].timestamp
                if chosen is None or stamp < lowest:
                    chosen, lowest = queue, stamp
            elif wait and partition not in self._at_end:
                return None
        return None if chosen is None else chosen.popleft()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions to pause."""
        limit = self._limit
        return frozenset(
            partition for partition, queue in self._queues.items() if len(queue) >= limit
        )
