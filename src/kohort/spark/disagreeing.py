"""What people are told where the group's offset is not where a query's checkpoint ends.

No input or output and no clock: `positions.py` decides which of the two counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kohort.types import TopicPartition
from kohort.values import dataclass

if TYPE_CHECKING:
    from kohort.spark.positions import Note

# Partitions that a message describes.
SHOWN = 5
# Letters of a checkpoint's random name that tell it from others.
NAME_LENGTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """The group and the checkpoint of a query disagree about one partition.

    Attributes:
        place: The partition.
        offset: The group's offset.
        note: The note of the commit; None when another client has made it.
        end: Where the last finished batch of the checkpoint ends.
        batch: The number of that batch.
        nonce: Names the checkpoint.
    """

    place: TopicPartition
    offset: int
    note: Note | None
    end: int
    batch: int
    nonce: str

    @property
    def is_ours(self) -> bool:
        """Whether a query with this very checkpoint, or a copy of it, has committed the offset."""
        return self.note is not None and bool(self.nonce) and self.note.nonce == self.nonce

    @property
    def is_restored(self) -> bool:
        """Whether the checkpoint is an older copy: the group knows of batches that it lacks.

        A batch is committed to the group only when it is in Spark's commit log. Where a partition
        starts is committed before that, under the batch number 0.
        """
        has_finished = self.note is not None and self.note.batch > 0
        return self.offset > self.end and self.is_ours and has_finished

    @property
    def committer(self) -> str:
        """Who has committed the group's offset, for people."""
        if self.note is None:
            return "another client or an operator"
        whose = "this checkpoint" if self.is_ours else f"checkpoint {self.note.nonce[:NAME_LENGTH]}"
        return f"query {self.note.operator!r} ({whose}, batch {self.note.batch})"

    def restored(self, *, reads_again: bool) -> str:
        """Say that the checkpoint is an older copy.

        Args:
            reads_again: Whether the checkpoint counts, else the group.
        """
        what = (
            f"{self._facts}. So the checkpoint is an older copy of this query's, such as a "
            "restored backup"
        )
        if reads_again:
            return (
                f"{what}, and nobody else reads the group: reading again from {self.end} "
                f"(positions=group goes on from {self.offset})"
            )
        return (
            f"{what}, and other members of the group may have gone on since: going on from "
            f"{self.offset}. {self._unread}"
        )

    def passed(self) -> str:
        """Say that somebody else has gone on, or has set the group forward."""
        return f"{self._facts}: going on from {self.offset}. {self._unread}"

    def choices(self) -> str:
        """Say which choice skips records and which reads them again."""
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
        return (
            f"{self.place.topic}-{self.place.partition}: {self.committer} has committed offset "
            f"{self.offset} for the group, and this query's checkpoint ends at {self.end} "
            f"(batch {self.batch})"
        )

    @property
    def _unread(self) -> str:
        return (
            f"This query does not read offsets {self.end} to {self.offset - 1} again "
            "(positions=checkpoint does)"
        )


def shown_choices(found: Sequence[Disagreement]) -> str:
    """Describe some of the partitions about which group and checkpoint disagree.

    Args:
        found: All of them.
    """
    some = "; ".join(each.choices() for each in found[:SHOWN])
    more = len(found) - SHOWN
    return f"{some}; and {more} more" if more > 0 else some
