"""The progress of a query: owned partitions, the open batch, and offsets it may commit.

No I/O and no clock. The rules that this file enforces:

* a batch is open from the moment it is offered (or replayed) until Spark asks for the next one;
* only records of batches that are not open are ever committed;
* a position never moves back, and nothing is committed for a partition that is not owned;
* a partition is given up only between batches that read it, and after its offset is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.errors import KohortError
from kohort.spark.checkpoint.manifest import Manifest, Range
from kohort.spark.source.group_offsets import Note, Topic
from kohort.spark.source.limits import FairLimit
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace


class MembershipLostError(KohortError, RuntimeError):
    """The group gave this query's partitions to others before their last batch was committed."""


class GroupInUseError(KohortError, RuntimeError):
    """The group has other members, and the query needs it for itself."""


class Progress:
    """Positions of one query at Spark's batch boundaries.

    Args:
        operator: Name of the query's member, part of every manifest.

    Attributes:
        nonce: Identifies the checkpoint.
        topics: The subscribed topics as of the last answer of the brokers.
        began: Generation in which the group began.
        is_exclusive: Whether the query must be alone in its group.
        is_committing: Whether positions are committed to the group at all.
        text: The user's text for the note of every commit.
        sink: Digest of the directory of the query's file sink; empty for other sinks.
    """

    def __init__(self, operator: str, nonce: str = "") -> None:
        self.nonce = nonce
        self.topics: Mapping[str, Topic] = {}
        self.began = -1
        self.is_exclusive = False
        self.is_committing = True
        self.text = ""
        self.sink = ""
        self._operator = operator
        self._epoch = -1
        self._is_assigned = False  # until the group first assigns partitions
        self._batch = 0
        self._positions: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._open: Manifest | None = None
        self._last: Manifest | None = None
        self._limit = FairLimit()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._lost: frozenset[TopicPartition] = frozenset()
        self._why_lost = ""
        # Partitions of finished batches that are not committed to the group yet.
        self._unreported: set[TopicPartition] = set()
        # Partitions for which this query has not finished a batch yet.
        self._starts: set[TopicPartition] = set()
        # Ends of finished batches whose partitions were not owned yet; used first when they are
        # assigned.
        self._finished: dict[TopicPartition, int] = {}

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that the group has assigned to this query."""
        return frozenset(self._positions)

    @property
    def staying(self) -> frozenset[TopicPartition]:
        """Owned partitions that the group is not revoking."""
        return self.owned - self._leaving

    @property
    def epoch(self) -> int:
        """Generation of the group; -1 before the first."""
        return self._epoch

    @property
    def unplaced(self) -> frozenset[TopicPartition]:
        """Owned partitions whose positions are not known yet."""
        return frozenset(tp for tp, position in self._positions.items() if position is None)

    @property
    def has_open_batch(self) -> bool:
        """Whether Spark has received a batch that it has not finished."""
        return self._open is not None

    def assigned(self, partitions: Iterable[TopicPartition], epoch: int) -> None:
        """Adopt assigned partitions; their positions are unknown until `place`."""
        self._epoch = epoch
        self._is_assigned = True
        self._leaving = frozenset()
        for partition in partitions:
            self._positions.setdefault(partition, None)

    @property
    def finished(self) -> Mapping[TopicPartition, int]:
        """Ends of finished batches for partitions without a position."""
        return self._finished

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the next batch starts, for partitions whose position is known."""
        return {place: at for place, at in self._positions.items() if at is not None}

    @property
    def has_positions(self) -> bool:
        """Whether the position of any partition is known."""
        return any(at is not None for at in self._positions.values())

    def place(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
        starts: Iterable[TopicPartition] = (),
    ) -> None:
        """Set the positions of newly assigned partitions.

        Args:
            epoch: Generation in which the positions were looked up; in a later one another member
                may have owned the partition meanwhile, so they are looked up again.
            positions: Where to start. Positions that the group lacks are committed as soon as
                possible, so that the next owner starts at the same place.
            committed: The group's offsets.
            starts: The partitions that were never read before.
        """
        if epoch != self._epoch:
            return
        for partition in self.unplaced & positions.keys():
            self._positions[partition] = positions[partition]
            self._finished.pop(partition, None)
            self._committed.pop(partition, None)
            if partition in committed:
                self._committed[partition] = committed[partition]
        self._starts |= self._positions.keys() & set(starts)

    def misplaced(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard positions that are no longer valid: their records are gone."""
        for partition in partitions:
            if partition in self._positions:
                self._positions[partition] = None
            self._finished.pop(partition, None)
            self._unreported.discard(partition)

    def leaving(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the group is revoking partitions: they are left out of new batches."""
        self._leaving = frozenset(partitions)

    def may_leave(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether partitions can be given up now: no open batch reads them."""
        return self._open is None or not self._open.reads(partitions)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions."""
        for partition in partitions:
            position = self._positions.pop(partition, None)
            committed = self._committed.pop(partition, -1)
            if position is not None and position < committed:
                self._finished[partition] = position  # reads finished records again
            self._unreported.discard(partition)
            self._starts.discard(partition)

    def lost(self, partitions: Iterable[TopicPartition], why: str = "") -> None:
        """Record that other members already own these partitions.

        Args:
            partitions: The partitions.
            why: Why the member was removed from its group and the remedy, in sentences; empty if
                unknown.
        """
        gone = frozenset(partitions)
        if not self.may_leave(gone) or self._unreported & gone:
            self._lost |= gone
            self._why_lost = self._why_lost or why
        self.revoked(gone)

    def replay(self, batch: Manifest) -> None:
        """Record that Spark replays a batch of an earlier run of this query."""
        self._open = batch

    @property
    def drained(self) -> Manifest | None:
        """The last batch, if it is finished and committed and no other batch is open."""
        is_done = self._open is None and not self._lost and self.is_committed
        return self._last if is_done else None

    @property
    def is_committed(self) -> bool:
        """Whether all finished batches that this query may commit are committed.

        A replayed batch may be finished before the group assigns its partitions, and before the
        group's offsets are known.
        """
        return not self.to_commit() and not self._untold()

    def _untold(self) -> frozenset[TopicPartition]:
        """Uncommitted partitions of finished batches that this query owns or may be assigned."""
        if not self.is_committing:
            return frozenset()
        finished = frozenset(self._finished)
        return finished & self.unplaced if self._is_assigned else finished

    def undrained(self, trouble: str) -> str:
        """Return why `drained` is None, for messages.

        Args:
            trouble: Why the last commit was refused; empty if it was accepted.
        """
        if self._lost:
            return self._loss()
        if self._open is not None:
            return f"batch {self._open.batch} is not reported as finished yet"
        waiting = sorted(self.to_commit().items())
        if not waiting:
            if self._untold():
                return f"the group has not assigned the partitions of batch {self._batch} yet"
            return "no batch is finished yet"
        offsets = ", ".join(f"{topic}-{number} at {at}" for (topic, number), at in waiting[:10])
        more = f" and {len(waiting) - 10} more" if len(waiting) > 10 else ""
        cause = trouble or "it has not answered yet"
        return f"the group has not accepted the commit of {offsets}{more}: {cause}"

    @property
    def open_batch(self) -> Manifest | None:
        """The batch that Spark has received and not finished."""
        return self._open

    def is_open(self, batch: Manifest) -> bool:
        """Whether this is the batch that Spark has received and not finished."""
        return self._open == batch

    def boundary(self, start: Manifest) -> None:
        """Mark every batch up to `start` as in the sink and in Spark's commit log.

        Raises:
            MembershipLostError: Others got partitions of a batch before it was committed.
        """
        self.finish(start)
        self.check()

    def finish(self, batch: Manifest) -> None:
        """Mark a batch as finished, as reported by Spark's next trigger or its log."""
        self._open = None
        if self._lost or batch == self._last:  # idle triggers pass the last batch again
            return
        self._last = batch
        self._batch = max(self._batch, batch.batch)
        for partition, (start, end) in batch.ranges.items():
            position = self._positions.get(partition)
            if position is None:
                self._finished[partition] = end
            elif position < end:
                self._positions[partition] = end
                self._unreported.add(partition)
            if start < end:
                self._starts.discard(partition)

    def check(self) -> None:
        """Check that no other member has taken over a batch.

        Raises:
            MembershipLostError: Others got partitions of a batch before it was committed.
        """
        if self._lost:
            raise MembershipLostError(self._loss())

    @property
    def has_lost(self) -> bool:
        """Whether others got partitions of a batch before it was committed."""
        return bool(self._lost)

    def _loss(self) -> str:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._lost))
        why = self._why_lost or "no heartbeat came in time, or the batch took too long."
        if "heartbeat" in why:  # the cause may be a slow batch
            why += (
                " In a query, make batches smaller with maxOffsetsPerTrigger, and give two sources "
                "of one query a kafka.group.id each."
            )
        return (
            f"the group took {names} away from {self._operator!r} before a batch that reads "
            "them was finished and committed, so the new owners read that batch again. The "
            f"reason: {why} Restart the query"
        )

    def offer(
        self, ends: Mapping[TopicPartition, int], limit: int | None, least: int = 1
    ) -> Manifest | None:
        """Open the next batch, if there are records to read.

        Args:
            ends: End offsets of owned partitions; partitions without one are left out.
            limit: Maximum number of records to read; None: unlimited.
            least: Minimum number of records for a batch.
        """
        placed = {
            partition: position
            for partition, position in self._positions.items()
            if position is not None and partition not in self._leaving
        }
        sizes = {tp: max(ends.get(tp, 0) - position, 0) for tp, position in placed.items()}
        if sum(sizes.values()) < least:
            return None
        if limit is not None:
            sizes = self._limit.share(sizes, limit)
        return self._offer(
            {tp: (position, position + sizes[tp]) for tp, position in placed.items()}
        )

    def offer_start(self, firsts: Mapping[TopicPartition, int]) -> Manifest:
        """Open a batch without records that stores the query's starts in Spark's log.

        Args:
            firsts: Starts of partitions that may be assigned later, see `Manifest`.
        """
        ranges = {tp: (position, position) for tp, position in self.positions.items()}
        self._open = replace(self._offer(ranges), firsts=dict(firsts))
        return self._open

    def _offer(self, ranges: Mapping[TopicPartition, Range]) -> Manifest:
        self._open = Manifest(
            self._epoch, self._operator, ranges, self._batch + 1, self.nonce, self.topics
        )
        return self._open

    def to_commit(self) -> dict[TopicPartition, int]:
        """Return the positions of owned partitions that are not committed yet."""
        if not self.is_committing:
            return {}
        return {
            partition: position
            for partition, position in self._positions.items()
            if position is not None and position > self._committed.get(partition, -1)
        }

    def note(self, partition: TopicPartition, now_ms: int = 0) -> Note:
        """Return the metadata to commit with a position.

        Args:
            partition: The partition.
            now_ms: The time, in milliseconds since 1970.
        """
        topic = self.topics.get(partition.topic, Topic("", 0))
        return Note(
            operator=self._operator,
            nonce=self.nonce,
            batch=0 if partition in self._starts else max(self._batch, 1),
            epoch=self._epoch,
            topic_id=topic.topic_id,
            count=topic.count,
            began=self.began,
            at_ms=now_ms,
            exclusive=self.is_exclusive,
            sink=self.sink,
            text=self.text,
        )

    def refused(
        self,
        partition: TopicPartition,
        batch: Manifest,
        found: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
    ) -> OffsetAndMetadata:
        """Return the group's offset unchanged, with a note that the next batch is not in the sink.

        Args:
            partition: The partition.
            batch: The refused batch.
            found: The group's offsets; the batch's start is used for a partition without one.
            now_ms: The time, in milliseconds since 1970.
        """
        present = found.get(partition)
        offset = batch.ranges[partition][0] if present is None else present.offset
        note = replace(self.note(partition, now_ms), refused=True)
        return OffsetAndMetadata(offset, note.to_text())

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the offsets that the group has accepted."""
        for partition, offset in offsets.items():
            if partition in self._positions:
                self._committed[partition] = max(offset, self._committed.get(partition, -1))
        self._unreported -= {tp for tp in offsets if tp not in self.to_commit()}


def present_offsets(
    offsets: Mapping[TopicPartition, int],
    notes: Mapping[TopicPartition, Note],
    ids: Mapping[str, str],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets for a commit, without recreated topics, whose offsets are not valid.

    Args:
        offsets: The offsets to commit.
        notes: The metadata to commit with each offset.
        ids: The current ids of the topics.
    """
    return {
        place: OffsetAndMetadata(offset, notes[place].to_text())
        for place, offset in offsets.items()
        if not notes[place].topic_id
        or notes[place].topic_id == ids.get(place.topic, notes[place].topic_id)
    }
