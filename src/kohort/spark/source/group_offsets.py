"""The offsets that a group has committed, and the notes of the queries that committed them.

No I/O and no clock. The group's offsets alone do not show their origin: a group behind a checkpoint
has missed a commit (the process was killed before it), or an operator has reset it. So every commit
has a note that names the committer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from kohort.types import OffsetAndMetadata, TopicPartition

# For this long after a start, other members may still be starting.
BEGINNING_MS = 300_000


class Topic(Struct, frozen=True):
    """A subscribed topic as the brokers describe it.

    Attributes:
        topic_id: Its id (KIP-516); empty if the brokers do not send it.
        count: Its number of partitions.
    """

    topic_id: str
    count: int


class Note(Struct, frozen=True, kw_only=True):
    """The metadata of a commit by this source: the committer and its state at that time.

    Attributes:
        operator: Name of the query, for messages.
        nonce: Identifies the checkpoint.
        batch: Number of batches that the query had offered; 0 for a start.
        epoch: Generation of the group.
        topic_id: Id of the offset's topic; empty if unknown.
        count: Number of partitions of the topic.
        began: Generation in which the group began.
        at_ms: When it was committed, in milliseconds since 1970.
        exclusive: Whether the query must be alone in its group, as its state does not move.
        sink: Digest of the directory of the query's file sink; empty for other sinks.
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
        """Return the note of a commit; None if the commit was not made by this source."""
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

        Members that join together start together. So neither their commits in the group's first
        generation nor starts within the last minutes show that it had begun.

        Args:
            epoch: The current generation; -1: none.
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
        """The generation in which the group began; None if unknown."""
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
        topics: The current subscribed topics.
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
        sink: Digest of the directory.
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
