"""A batch of rows that is already encoded when it is added; only its header is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from kohort.client.producer.arrow.delivery import ArrowFate
from kohort.client.producer.batch import Batch
from kohort.errors import KafkaError, KohortError
from kohort.types import TopicPartition
from kohort.wire.records._encode_columns import EncodedRows

if TYPE_CHECKING:
    from kohort.client.producer._deliveries import Fate


class ReadyBatch(Batch):
    """Encoded rows of one partition.

    Args:
        partition: The partition to write to.
        created: When it was created, in milliseconds of the loop's clock.
        encoded: The rows.
        whole: Collects the outcome.
        first: Index in the table of the first row.
    """

    __slots__ = ()

    def __init__(
        self,
        partition: TopicPartition,
        created: int,
        encoded: EncodedRows,
        whole: ArrowFate,
        first: int,
    ) -> None:
        fate = RowsFate(whole, partition.partition, numbered(encoded.rows, first))
        super().__init__(partition, created, encoded, cast("Fate", fate))
        whole.add()


class RowsFate:
    """Reports the outcome of one batch of rows to its `send_arrow`; `Fate` does so for records.

    Args:
        whole: Collects the outcome of all rows.
        partition: The partition of these rows.
        rows: Their indices in the table.
    """

    def __init__(self, whole: ArrowFate, partition: int, rows: pa.Int64Array) -> None:
        self._whole = whole
        self._partition = partition
        self._rows = rows
        self._parts: list[RowsFate] = []
        self._is_known = False

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, for all parts if the batch was split."""
        if self._parts:
            return all(part.is_settled for part in self._parts)
        return self._is_known

    def delivered(self, base_offset: int, append_time: int) -> list[object]:  # noqa: ARG002  # `Fate` needs it
        """Note that the batch was written. No caller waits for a single row."""
        self._decide()
        self._whole.delivered(self._partition, len(self._rows), base_offset)
        return []

    def failed(
        self, error: KohortError, reasons: dict[int, KohortError] | None = None
    ) -> list[object]:
        """Note that the batch was given up. No caller waits for a single row."""
        self._decide()
        self._whole.failed(self._partition, self._rows, self._refusal(reasons) or error)
        return []

    def _decide(self) -> None:
        if self._is_known or self._parts:
            raise AssertionError("the outcome of a batch must be set only once")
        self._is_known = True

    def cut(self, counts: Sequence[int]) -> list[RowsFate]:
        """Return the fates of the parts of the batch, with these numbers of rows."""
        at = 0
        parts = []
        for count in counts:
            parts.append(RowsFate(self._whole, self._partition, self._rows.slice(at, count)))
            at += count
        return parts

    def divide(self, parts: list[tuple[int, RowsFate]]) -> None:
        """Hand the rows over to parts of the batch."""
        if self._is_known or self._parts:
            raise AssertionError("the outcome of a batch must be set only once")
        self._parts = [part for _, part in parts]
        for _ in parts:
            self._whole.add()
        self._whole.close()

    def _refusal(self, reasons: dict[int, KohortError] | None) -> KohortError | None:
        """Return why the broker refused some of the rows, with its message for the first."""
        for index, reason in (reasons or {}).items():
            if isinstance(reason, KafkaError) and index < len(self._rows):
                row = self._rows[index].as_py()
                return KafkaError(
                    reason.code,
                    f"{reason.message} (row {row}; {len(reasons or ())} rows of its batch are"
                    f" refused, and the others with them)",
                )
        return None


def numbered(rows: pa.Int64Array, first: int) -> pa.Int64Array:
    """Return row indices in the whole table, given indices relative to `first`."""
    if not first:
        return rows
    import pyarrow.compute as pc

    return pc.add(rows, first)
