"""How far a query is: what it owns, which batch is open, what it may commit to the group.

No input or output and no clock. The rules that this file keeps:

* a batch is open from the moment it is offered (or replayed) until Spark asks for the next one;
* only records of batches that are not open are ever committed;
* a position never goes back, and nothing is committed for a partition that is not owned;
* a partition is given up only between batches that read it, and after its commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.errors import KohortError
from kohort.spark.manifest import Manifest, share_limit
from kohort.types import TopicPartition


class MembershipLostError(KohortError, RuntimeError):
    """The group gave this query's partitions to others before it knew of their last batch."""


class Progress:
    """Positions of one query between Spark's batch boundaries.

    Args:
        operator: Name of the query's member, part of every manifest.
    """

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._epoch = -1
        self._positions: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._open: Manifest | None = None
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._lost: frozenset[TopicPartition] = frozenset()
        # Partitions of finished batches that the group does not know of yet.
        self._unreported: set[TopicPartition] = set()
        # Ends of finished batches whose partitions were not yet owned: the first thing to know
        # about them when they come.
        self._finished: dict[TopicPartition, int] = {}

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that the group has given to this query."""
        return frozenset(self._positions)

    @property
    def staying(self) -> frozenset[TopicPartition]:
        """Owned partitions that the group does not want back."""
        return self.owned - self._leaving

    @property
    def epoch(self) -> int:
        """Generation of the group, -1 before the first."""
        return self._epoch

    @property
    def unplaced(self) -> frozenset[TopicPartition]:
        """Owned partitions whose position is not known yet."""
        return frozenset(tp for tp, position in self._positions.items() if position is None)

    @property
    def has_open_batch(self) -> bool:
        """Whether Spark has been given a batch that it has not finished."""
        return self._open is not None

    def assigned(self, partitions: Iterable[TopicPartition], epoch: int) -> None:
        """Take over partitions; their positions are unknown until `place`."""
        self._epoch = epoch
        self._leaving = frozenset()
        for partition in partitions:
            self._positions.setdefault(partition, None)

    def place(
        self,
        epoch: int,
        committed: Mapping[TopicPartition, int],
        initial: Mapping[TopicPartition, int],
    ) -> None:
        """Set the positions of partitions that are new here.

        Args:
            epoch: Generation in which the positions were looked up; in a later one the partition
                may have been elsewhere in between, so they are looked up again.
            committed: Offsets the group has committed.
            initial: Where to start partitions for which it has none. These are committed as soon
                as possible, so that the next owner starts at the same place.
        """
        if epoch != self._epoch:
            return
        for partition in self.unplaced:
            if partition in committed:
                self._committed[partition] = committed[partition]
            known = committed.get(partition, initial.get(partition))
            if known is not None:
                self._positions[partition] = max(known, self._finished.pop(partition, known))

    def leaving(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the group wants partitions back: nothing of them is offered any more."""
        self._leaving = frozenset(partitions)

    def may_leave(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether partitions can be given up now, as no open batch reads them."""
        return self._open is None or not self._open.reads(partitions)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give partitions up."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
            self._unreported.discard(partition)

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that others own these partitions already."""
        gone = frozenset(partitions)
        if not self.may_leave(gone) or self._unreported & gone:
            self._lost |= gone
        self.revoked(gone)

    def replay(self, batch: Manifest) -> None:
        """Note that Spark runs a batch of an earlier run of this query again."""
        self._open = batch

    def boundary(self, start: Manifest) -> None:
        """Take note that every batch up to `start` is in the sink and in Spark's commit log.

        Raises:
            MembershipLostError: Others got partitions of a batch before it was committed.
        """
        self._open = None
        self.check()
        for partition, (_, end) in start.ranges.items():
            position = self._positions.get(partition)
            if position is None:
                self._finished[partition] = end
            elif position < end:
                self._positions[partition] = end
                self._unreported.add(partition)

    def check(self) -> None:
        """Check that no batch was taken over by others.

        Raises:
            MembershipLostError: Others got partitions of a batch before it was committed.
        """
        if self._lost:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._lost))
            raise MembershipLostError(
                f"the group took {names} away from {self._operator!r} before a batch that reads "
                "them was finished and committed (no heartbeat for session.timeout.ms, or the "
                "batch took longer than max.poll.interval.ms); the new owners read that batch "
                "again. Restart the query; make batches smaller with maxOffsetsPerTrigger if this "
                "happens again"
            )

    def offer(self, ends: Mapping[TopicPartition, int], limit: int | None) -> Manifest | None:
        """Open the next batch, if there is anything to read.

        Args:
            ends: End offsets of owned partitions; one without is offered nothing.
            limit: Records to read at most, None for all.
        """
        placed = {
            partition: position
            for partition, position in self._positions.items()
            if position is not None and partition not in self._leaving
        }
        sizes = {tp: max(ends.get(tp, 0) - position, 0) for tp, position in placed.items()}
        if not any(sizes.values()):
            return None
        if limit is not None:
            sizes = share_limit(sizes, limit)
        ranges = {tp: (position, position + sizes[tp]) for tp, position in placed.items()}
        self._open = Manifest(self._epoch, self._operator, ranges)
        return self._open

    def to_commit(self) -> dict[TopicPartition, int]:
        """Return the positions of owned partitions that the group does not have yet."""
        return {
            partition: position
            for partition, position in self._positions.items()
            if position is not None and position > self._committed.get(partition, -1)
        }

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what the group has accepted."""
        for partition, offset in offsets.items():
            if partition in self._positions:
                self._committed[partition] = max(offset, self._committed.get(partition, -1))
        self._unreported -= {tp for tp in offsets if tp not in self.to_commit()}
