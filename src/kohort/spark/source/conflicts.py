"""Messages for a group offset that differs from the end of a query's checkpoint.

No I/O and no clock: `positions.py` decides which of the two applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.spark.source.positions import Note

# Maximum number of partitions described in a message.
SHOWN = 5
# Leading characters of a checkpoint's random name, enough to tell checkpoints apart.
NAME_LENGTH = 8


class Disagreement(Struct, frozen=True, kw_only=True):
    """The group and the checkpoint of a query disagree about one partition.

    A checkpoint that does not know the partition is not in itself a disagreement: another member
    may read it. `Known` decides when it is.

    Attributes:
        place: The partition.
        offset: The group's offset.
        note: The note of the commit; None if another client made it.
        end: Where the last finished batch of the checkpoint ends; None when the checkpoint does
            not know the partition.
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
                f"(positions=group goes on from {self.offset})"
            )
        return (
            f"{what}, and other members of the group may have gone on since: going on from "
            f"{self.offset}. {self._unread}"
        )

    def passed(self) -> str:
        """Return the message that another query went on, or that the group was set forward."""
        return f"{self._facts}: going on from {self.offset}. {self._unread}"

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


def shown_choices(found: Sequence[Disagreement]) -> str:
    """Describe some of the partitions on which group and checkpoint disagree.

    Args:
        found: All such partitions.
    """
    some = "; ".join(each.choices() for each in found[:SHOWN])
    more = len(found) - SHOWN
    return f"{some}; and {more} more" if more > 0 else some
