"""Where a query starts to read: at the group's offset, its checkpoint's or `startingOffsets`.

No I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct, field

from kohort.spark.source.group_offsets import GroupOffsets, Note
from kohort.types import TopicPartition

# Whether the group or the checkpoint applies if they disagree; None: the one known to be newer.
Policy: TypeAlias = Literal["group", "checkpoint", "fail"] | None


_BEGUN = "the group began before: it has expired or was deleted, or was never committed"
_OF_OTHERS = "another program has committed offsets in it: startingOffsets is for new groups"
# Maximum number of partitions described in a message.
SHOWN = 5
# Leading characters of a checkpoint's random name, enough to tell checkpoints apart.
NAME_LENGTH = 8


class Disagreement(Struct, frozen=True, kw_only=True):
    """The group and the checkpoint of a query disagree about one partition.

    If the checkpoint does not know the partition, that alone is not a disagreement: another member
    may read it. `Known` decides when it is.

    Attributes:
        place: The partition.
        offset: The group's offset.
        note: The note of the commit; None if another client made it.
        end: Where the last finished batch of the checkpoint ends; None if the checkpoint does not
            know the partition.
        batch: The number of that batch.
        nonce: Identifies the checkpoint.
    """

    place: TopicPartition
    offset: int
    note: Note | None
    end: int | None
    batch: int
    nonce: str

    @property
    def is_ours(self) -> bool:
        """Whether a query with this checkpoint, or a copy of it, committed the offset."""
        return self.note is not None and bool(self.nonce) and self.note.nonce == self.nonce

    @property
    def is_restored(self) -> bool:
        """Whether the checkpoint is an older copy: the group knows of batches that it lacks.

        A batch is committed to the group only when it is in Spark's commit log. A partition's start
        is committed earlier, with batch number 0. This query may have owned a partition that the
        checkpoint does not know before another member got it: then the note names a batch that the
        checkpoint has.
        """
        if self.note is None or not self.is_ours:
            return False
        if self.end is None:
            return self.note.batch > self.batch
        return self.offset > self.end and self.note.batch > 0

    @property
    def committer(self) -> str:
        """A readable name for the committer of the group's offset."""
        if self.note is None:
            return "another client or an operator"
        whose = "this checkpoint" if self.is_ours else f"checkpoint {self.note.nonce[:NAME_LENGTH]}"
        return f"query {self.note.operator!r} ({whose}, batch {self.note.batch})"

    def restored(self, *, reads_again: bool) -> str:
        """Return the message that the checkpoint is an older copy.

        Args:
            reads_again: Whether the checkpoint applies; otherwise the group does.
        """
        what = (
            f"{self._facts}. So the checkpoint is an older copy of this query's, such as a "
            "restored backup"
        )
        if reads_again:
            where = "the partition's beginning" if self.end is None else self.end
            return (
                f"{what}, and no other query reads the group: reading again from {where} "
                f"(positions=group continues from {self.offset})"
            )
        return (
            f"{what}, and other members of the group may have read on since: continuing from "
            f"{self.offset}. {self._unread}"
        )

    def passed(self) -> str:
        """Return the message that another query read on, or that the group was advanced."""
        return f"{self._facts}: continuing from {self.offset}. {self._unread}"

    def trusted(self) -> str:
        """Return the message that the checkpoint applies but does not know the partition."""
        return f"{self._facts}: as positions is checkpoint, it is read from its beginning"

    def choices(self) -> str:
        """Return which choice skips records and which reads them again."""
        if self.end is None:
            return (
                f"{self._facts} (positions=checkpoint reads the partition from its beginning, "
                f"positions=group skips the offsets before {self.offset})"
            )
        low, high = sorted((self.offset, self.end))
        reads, skips = (
            ("checkpoint", "group") if self.offset > self.end else ("group", "checkpoint")
        )
        return (
            f"{self._facts} (positions={reads} reads offsets {low} to {high - 1} again, "
            f"positions={skips} skips them)"
        )

    @property
    def _facts(self) -> str:
        says = "does not know the partition" if self.end is None else f"ends at {self.end}"
        return (
            f"{self.place.topic}-{self.place.partition}: {self.committer} has committed offset "
            f"{self.offset} for the group, and this query's checkpoint {says} (batch {self.batch})"
        )

    @property
    def _unread(self) -> str:
        if self.end is None:
            return (
                f"This query does not read the offsets before {self.offset} (positions=checkpoint "
                "reads the partition from its beginning)"
            )
        return (
            f"This query does not read offsets {self.end} to {self.offset - 1} again "
            "(positions=checkpoint does)"
        )


class Origin(Enum):
    """The source of a partition's start."""

    GROUP = "the group's offset"
    CHECKPOINT = "the checkpoint"
    STARTING = "startingOffsets"
    FIRST = "where startingOffsets was at the query's first batch"
    EARLIEST = "the beginning of the partition"


class Start(Struct, frozen=True):
    """Where one partition starts.

    Attributes:
        origin: The source of the start.
        warning: A message at level WARNING; empty: none.
        is_conflict: Whether group and checkpoint disagree, so that `positions=fail` refuses.
        notice: A message about a normal start, at level INFO; empty: none.
    """

    origin: Origin
    warning: str = ""
    is_conflict: bool = False
    notice: str = ""


class Known(Struct, frozen=True, kw_only=True):
    """The facts that determine where a partition starts.

    Attributes:
        group: The group's offsets.
        nonce: Identifies the checkpoint of this query.
        ends: Where the last finished batch of the checkpoint ended, for existing topics.
        counts: Number of partitions of each topic when this query last checked, according to its
            checkpoint; empty before the query's first start.
        has_placed: Whether this query has placed a partition before, in this run or an earlier one.
        firsts: Positions of `startingOffsets` at the query's first batch, see `Manifest`.
        resumed: The group's offsets from which this run has read a replayed batch to its end.
        epoch: Generation of the group.
        now_ms: The time, in milliseconds since 1970.
        policy: Whether the group or the checkpoint applies if they disagree.
        batch: Number of the checkpoint's last finished batch.
        is_alone: Whether no other query may commit to the group.
        added: Partitions added while this query runs that no query has started to read.
        unnamed: Partitions that are neither in the checkpoint with which this run began nor placed
            by this run; empty if that checkpoint names no partition.
    """

    group: GroupOffsets
    nonce: str = ""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    has_placed: bool = False
    firsts: Mapping[TopicPartition, int] = field(default_factory=dict)
    resumed: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch: int = -1
    now_ms: int = 0
    policy: Policy = None
    batch: int = 0
    is_alone: bool = False
    added: frozenset[TopicPartition] = frozenset()
    unnamed: frozenset[TopicPartition] = frozenset()

    def start(self, place: TopicPartition) -> Start:
        """Return the source of a partition's start.

        The group's offset applies, otherwise the checkpoint's; without either, `startingOffsets`
        applies only while the group begins. Later a partition without an offset is new, or its
        offset has expired: then all of its records may be unread. A query that owned nothing at its
        first batch has not begun yet: its partitions start where the group begins.
        """
        if place in self.group.offsets:
            return self._from_group(place)
        if place in self.ends:
            return Start(Origin.CHECKPOINT)
        if self._is_added(place) or self.group.has_begun(self.epoch, self.now_ms):
            return self._late(place)
        if place in self.firsts:
            return Start(Origin.FIRST)
        return self._late(place) if self.has_placed else Start(Origin.STARTING)

    def _is_added(self, place: TopicPartition) -> bool:
        """Whether the partition did not exist when the group or this query last checked."""
        if place in self.added:
            return True
        is_new = bool(self.counts) and place.partition >= self.counts.get(place.topic, 0)
        return is_new or place.partition >= self.group.count(place.topic) > 0

    def _from_group(self, place: TopicPartition) -> Start:
        offset, end = self.group.offsets[place], self.ends.get(place)
        if end is None and place in self.unnamed:
            return self._from_unnamed(self.disagreement(place))
        if end is None or offset == end:
            return Start(Origin.GROUP)
        has_missed_a_commit = self._has_missed_a_commit(place)
        if self.policy == "checkpoint" or (offset < end and self.resumed.get(place) == offset):
            return Start(Origin.CHECKPOINT, is_conflict=not has_missed_a_commit)
        if self.policy == "group":
            return Start(Origin.GROUP, is_conflict=not has_missed_a_commit)
        if has_missed_a_commit:
            return Start(Origin.CHECKPOINT)
        if self.policy == "fail":
            return Start(Origin.GROUP, is_conflict=True)
        if offset > end:
            return self._from_ahead(self.disagreement(place))
        return Start(Origin.GROUP, self._reset(place, offset, end), is_conflict=True)

    def _from_unnamed(self, found: Disagreement) -> Start:
        """Return the source of the start of a partition that only the group knows.

        In a shared group, its last owner was another member, or this query some batches ago. Group
        and checkpoint disagree if the commit is of a batch that the checkpoint lacks, or if no
        other query may commit.
        """
        is_by_others = self.is_alone and not found.is_ours
        if not (found.is_restored or is_by_others):
            return Start(Origin.GROUP)
        if self.policy == "checkpoint":
            return Start(Origin.EARLIEST, found.trusted())
        if self.policy is not None:
            return Start(Origin.GROUP, is_conflict=True)
        if self.is_read_again(found):
            return Start(Origin.EARLIEST, found.restored(reads_again=True))
        if found.is_restored:
            return Start(Origin.GROUP, found.restored(reads_again=False))
        return Start(Origin.GROUP, found.passed())

    def disagreement(self, place: TopicPartition) -> Disagreement:
        """Return how group and checkpoint disagree on a partition with an offset in the group."""
        return Disagreement(
            place=place,
            offset=self.group.offsets[place],
            note=self.group.notes.get(place),
            end=self.ends.get(place),
            batch=self.batch,
            nonce=self.nonce,
        )

    def is_read_again(self, found: Disagreement) -> bool:
        """Whether the checkpoint applies although the group is ahead of it.

        It is an older copy, and only the query itself can have advanced the group: its state lacks
        the records in between.
        """
        is_alone = self.is_alone or (found.note is not None and found.note.exclusive)
        return found.is_restored and is_alone

    def _from_ahead(self, found: Disagreement) -> Start:
        if self.is_read_again(found):
            return Start(Origin.CHECKPOINT, found.restored(reads_again=True))
        if found.is_restored:
            return Start(Origin.GROUP, found.restored(reads_again=False))
        if found.is_ours or (found.note is not None and not self.is_alone):
            return Start(Origin.GROUP, notice=found.passed())  # as members commit all the time
        return Start(Origin.GROUP, found.passed())

    def _has_missed_a_commit(self, place: TopicPartition) -> bool:
        """Whether the group is behind only because this query was killed before it committed."""
        note = self.group.notes.get(place)
        if note is not None and note.refused:
            return False
        is_ours = self.nonce == (note.nonce if note else "")
        is_ours = is_ours or self.resumed.get(place) == self.group.offsets[place]
        return is_ours and self.group.offsets[place] < self.ends[place]

    def _reset(self, place: TopicPartition, offset: int, end: int) -> str:
        note = self.group.notes.get(place)
        whose = f"query {note.operator!r} has committed" if note else "another program has set"
        if note is not None and note.refused:
            whose = "a batch that the sink had skipped was refused at"
        return (
            f"{place.topic}-{place.partition}: {whose} offset {offset} for the group, and this "
            f"query's checkpoint ends at {end}: reading again from {offset} (positions=checkpoint "
            "continues from the checkpoint)"
        )

    def _late(self, place: TopicPartition) -> Start:
        count = max(self.counts.get(place.topic, 0), self.group.count(place.topic))
        if place in self.added or (place.partition >= count and self._is_added_to(place.topic)):
            return Start(Origin.EARLIEST)  # added, or of a new topic of the subscription
        foreign = place.topic not in self.counts and not self.group.has_noted(place.topic)
        why = _OF_OTHERS if foreign else _BEGUN
        return Start(
            Origin.EARLIEST,
            f"{place.topic}-{place.partition}: the group has no offset for it, though {why}. "
            "Reading the partition from its beginning (kohort groups reset-offsets, or "
            "kafka-consumer-groups --reset-offsets, sets another start)",
        )

    def _is_added_to(self, topic: str) -> bool:
        """Whether a topic's earlier number of partitions is known, or that it did not exist."""
        if topic in self.counts or self.group.has_noted(topic):
            return True
        return not any(place.topic == topic for place in self.group.offsets)


def shown_choices(found: Sequence[Disagreement]) -> str:
    """Describe some of the partitions on which group and checkpoint disagree.

    Args:
        found: All such partitions.
    """
    some = "; ".join(each.choices() for each in found[:SHOWN])
    more = len(found) - SHOWN
    return f"{some}; and {more} more" if more > 0 else some
