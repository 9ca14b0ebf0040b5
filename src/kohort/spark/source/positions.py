"""Where a query starts to read: at the group's offset, its checkpoint's or `startingOffsets`.

No I/O and no clock. The group's offsets alone do not show their origin: a group behind a checkpoint
has missed a commit (the process was killed before it), or an operator has reset it. So every commit
carries a note that names the committer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct, field

from kohort.spark.source.conflicts import Disagreement
from kohort.types import OffsetAndMetadata, TopicPartition

# For this long after a start, other members may still be starting.
BEGINNING_MS = 300_000

# Which of group and checkpoint applies if they disagree; None: the one known to be newer.
Policy: TypeAlias = Literal["group", "checkpoint", "fail"] | None


class Topic(Struct, frozen=True):
    """A subscribed topic as the brokers describe it.

    Attributes:
        topic_id: Its id (KIP-516); empty when the brokers do not say.
        count: Its number of partitions.
    """

    topic_id: str
    count: int


class Note(Struct, frozen=True, kw_only=True):
    """The metadata of a commit of this source: the committer, and its state at that time.

    Attributes:
        operator: Name of the query, for messages.
        nonce: Identifies the checkpoint.
        batch: Number of batches the query had offered; 0 for a start.
        epoch: Generation of the group.
        topic_id: Id of the offset's topic; empty when not known.
        count: Number of partitions of the topic.
        began: Generation in which the group began.
        at_ms: When it was committed, in milliseconds since 1970.
        exclusive: Whether the query must be alone in its group, as its state does not move.
        sink: Short name of the directory of the query's file sink; empty for other sinks.
        refused: Whether the checkpoint is ahead because a batch was refused: its records are not
            in the sink.
        text: The option `commitMetadata`, for operators.
    """

    operator: str = ""
    nonce: str = ""
    batch: int = 0
    epoch: int = -1
    topic_id: str = ""
    count: int = 0
    began: int = -1
    at_ms: int = 0
    exclusive: bool = False
    sink: str = ""
    refused: bool = False
    text: str = ""

    def to_text(self) -> str:
        """Return the metadata to commit with the offset: short, as brokers limit its size."""
        named = {
            "kohort": self.operator,
            "checkpoint": self.nonce,
            "batch": self.batch,
            "epoch": self.epoch,
            "topicId": self.topic_id,
            "partitions": self.count,
            "began": self.began,
            "at": self.at_ms,
            **({"exclusive": True} if self.exclusive else {}),
            **({"sink": self.sink} if self.sink else {}),
            **({"refused": True} if self.refused else {}),
            **({"text": self.text} if self.text else {}),
        }
        return json.dumps(named, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Note | None:
        """Return the note of a commit; None when the commit was not made by this source."""
        try:
            found = json.loads(text)
        except ValueError:
            return None
        if not isinstance(found, dict) or "kohort" not in found:
            return None
        return Note(
            operator=str(found["kohort"]),
            nonce=str(found.get("checkpoint", "")),
            batch=_number(found.get("batch"), 0),
            epoch=_number(found.get("epoch"), -1),
            topic_id=str(found.get("topicId", "")),
            count=_number(found.get("partitions"), 0),
            began=_number(found.get("began"), -1),
            at_ms=_number(found.get("at"), 0),
            exclusive=found.get("exclusive") is True,
            sink=str(found.get("sink", "")),
            refused=found.get("refused") is True,
            text=str(found.get("text", "")),
        )


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


_BEGUN = "the group began before: it has expired or was deleted, or was never committed"
_OF_OTHERS = "another program has committed offsets in it: startingOffsets is for new groups"


class GroupOffsets(Struct, frozen=True):
    """The group's committed offsets of the subscribed topics that are still valid.

    Attributes:
        offsets: Offset of each partition that has one.
        notes: Notes of the offsets that this source committed.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    notes: Mapping[TopicPartition, Note] = field(default_factory=dict)

    def has_begun(self, epoch: int, now_ms: int) -> bool:
        """Whether the group had begun to read before this query joined.

        Members that join together start together: neither what they commit in the generation in
        which the group begins, nor starts that are some minutes old, are a sign that it had begun.

        Args:
            epoch: The current generation, -1 without one.
            now_ms: The time, in milliseconds since 1970.
        """
        if self.offsets.keys() - self.notes.keys():
            return True  # an operator or another client has set offsets
        return any(
            not (note.began == epoch >= 0)
            and not (note.batch == 0 and now_ms - note.at_ms < BEGINNING_MS)
            for note in self.notes.values()
        )

    @property
    def began(self) -> int | None:
        """The generation in which the group began; None when that is not known."""
        return max((note.began for note in self.notes.values()), default=None)

    def has_noted(self, topic: str) -> bool:
        """Whether a query has committed to a topic, and thus recorded its number of partitions."""
        return any(place.topic == topic for place in self.notes)

    def count(self, topic: str) -> int:
        """Return the number of partitions a topic had when the group last committed to it."""
        counts = [note.count for place, note in self.notes.items() if place.topic == topic]
        if any(counts):
            return max(counts)
        return 1 + max(
            (place.partition for place in self.offsets if place.topic == topic), default=-1
        )


def group_offsets(
    found: Mapping[TopicPartition, OffsetAndMetadata], topics: Mapping[str, Topic]
) -> GroupOffsets:
    """Parse the notes of a group's offsets, and drop offsets of recreated topics.

    Args:
        found: The group's offsets.
        topics: The subscribed topics as they are now.
    """
    notes = {place: Note.from_text(each.metadata) for place, each in found.items()}
    valid = {
        place: each.offset for place, each in found.items() if _is_of(notes[place], place, topics)
    }
    return GroupOffsets(
        valid, {place: note for place, note in notes.items() if note and place in valid}
    )


def _is_of(note: Note | None, place: TopicPartition, topics: Mapping[str, Topic]) -> bool:
    topic = topics.get(place.topic)
    if topic is None or note is None or not (note.topic_id and topic.topic_id):
        return True
    return note.topic_id == topic.topic_id


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
        warning: A message at level WARNING; empty for none.
        is_conflict: Whether group and checkpoint disagree, so that `positions=fail` refuses.
        notice: A message about a normal start, at level INFO; empty for none.
    """

    origin: Origin
    warning: str = ""
    is_conflict: bool = False
    notice: str = ""


class Known(Struct, frozen=True, kw_only=True):
    """The facts that decide where a partition starts.

    Attributes:
        group: The group's offsets.
        nonce: Identifies the checkpoint of this query.
        ends: Where the last finished batch of the checkpoint ended, for existing topics.
        counts: Number of partitions of each topic when this query last checked, according to its
            checkpoint; empty before the query's first start.
        has_placed: Whether this query has placed a partition before, in this run or an earlier one.
        firsts: Where `startingOffsets` was at the query's first batch, see `Manifest`.
        resumed: The group's offsets from which this run has read a replayed batch to its end.
        epoch: Generation of the group.
        now_ms: The time, in milliseconds since 1970.
        policy: Which of group and checkpoint applies if they disagree.
        batch: Number of the checkpoint's last finished batch.
        is_alone: Whether no other query may commit to the group.
        added: Partitions added while this query runs that no query has started to read.
        unnamed: Partitions that are neither in the checkpoint with which this run began nor placed
            by this run; none if that checkpoint names no partition.
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
            "goes on from the checkpoint)"
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


def exclusive_notes(group: GroupOffsets, nonce: str) -> list[str]:
    """Return the names of other queries that must be alone in the group."""
    return _distinct(
        note.operator for note in group.notes.values() if note.exclusive and note.nonce != nonce
    )


def foreign_notes(group: GroupOffsets, nonce: str) -> dict[TopicPartition, Note]:
    """Return the notes of commits by queries with another checkpoint."""
    return {place: note for place, note in group.notes.items() if note.nonce != nonce}


def sink_notes(group: GroupOffsets, nonce: str, sink: str, since_ms: int) -> list[str]:
    """Return the names of other queries that write to a directory.

    Args:
        group: The group's offsets.
        nonce: Identifies the asking query's checkpoint.
        sink: Short name of the directory.
        since_ms: Earlier commits are ignored, in milliseconds since 1970: the directory may have
            been a different one then.
    """
    return _distinct(
        note.operator
        for note in group.notes.values()
        if note.sink == sink and note.nonce != nonce and note.at_ms > since_ms
    )


def _distinct(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
