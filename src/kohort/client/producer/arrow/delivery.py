"""The outcome of one `send_arrow`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.client.producer.called_future import CalledFuture
from kohort.client.producer.delivery import Completable, tell_safely
from kohort.errors import KohortError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.client")

NOT_ADDED = -1
"""Partition number for rows that were not added to any partition."""

_MOST_NAMED = 5


class PartitionRows(Struct, frozen=True):
    """The rows that were written to one partition.

    Attributes:
        rows: Number of rows.
        first_offset: Offset of the first row; -1 when the broker did not report it (acks 0).
        last_offset: Offset of the last row. Records of other producers may be in between.
    """

    rows: int
    first_offset: int
    last_offset: int


class ArrowDelivery(Struct, frozen=True):
    """Where the rows of one `send_arrow` were written.

    Attributes:
        topic: Their topic.
        rows: Number of delivered rows.
        partitions: The rows written to each partition.
    """

    topic: str
    rows: int
    partitions: Mapping[int, PartitionRows]


class RowsFailure(Struct, frozen=True):
    """The rows that were not written to one partition.

    Attributes:
        rows: Number of rows.
        error: The cause; the first one if batches failed for several reasons.
    """

    rows: int
    error: KohortError


class ArrowDeliveryError(KohortError):
    """Not all rows of a `send_arrow` were delivered.

    Select the failed rows with `batch.take(error.rows)` to send them again. As with any record that
    was not acknowledged in time, the broker may still have written some of them.

    Attributes:
        delivered: The delivered rows.
        failures: The failed rows by partition; -1 for rows that were not added to any.
        rows: The indices of the rows that were not delivered, ascending.
    """

    def __init__(
        self, delivered: ArrowDelivery, failures: Mapping[int, RowsFailure], rows: pa.Int64Array
    ) -> None:
        """Make the error from the delivered and the failed rows."""
        self.delivered = delivered
        self.failures = dict(failures)
        self.rows = rows
        super().__init__(_summary(delivered, self.failures))


def _summary(delivered: ArrowDelivery, failures: Mapping[int, RowsFailure]) -> str:
    failed = sum(each.rows for each in failures.values())
    causes = [
        f"{_place(delivered.topic, partition)} ({each.rows} rows): {each.error}"
        for partition, each in sorted(failures.items())
    ]
    if len(causes) > _MOST_NAMED:
        causes[_MOST_NAMED:] = [f"and {len(causes) - _MOST_NAMED} more partitions"]
    return (
        f"{delivered.rows} of {delivered.rows + failed} rows were delivered to {delivered.topic},"
        f" {failed} were not: {'; '.join(causes)}"
    )


def _place(topic: str, partition: int) -> str:
    return "not sent" if partition == NOT_ADDED else f"{topic}-{partition}"


class ArrowDeliveryFuture(CalledFuture[ArrowDelivery]):
    """The future result of `send_arrow`, done when all rows are decided; see `DeliveryFuture`.

    It fails with `ArrowDeliveryError` when some rows were not delivered.
    """

    _what = "the table"


class _Logged:
    """Receives the outcome of a table whose future was dropped."""

    def set_result(self, result: ArrowDelivery, /) -> None:
        """Ignore the result."""

    def set_exception(self, exception: Exception, /) -> None:
        """Log the delivery error."""
        log.warning("send_arrow was interrupted: %s", exception)

    def done(self) -> bool:
        """Whether it was cancelled."""
        return False


class ArrowFate:
    """Collects the outcomes of batches until all are known, then completes the future.

    Batches are added in the caller's thread and settled on the loop.

    Args:
        topic: The topic of the rows.
        future: Completed at the end.
    """

    def __init__(self, topic: str, future: Completable[ArrowDelivery]) -> None:
        self._topic = topic
        self._future = future
        self._lock = threading.Lock()
        self._open = 1  # the call itself, until it has added its last batch
        self._delivered: dict[int, PartitionRows] = {}
        self._failures: dict[int, RowsFailure] = {}
        self._failed_rows: list[pa.Int64Array] = []

    def leave(self) -> None:
        """Note that the future was dropped: an error is logged instead."""
        self._future = _Logged()

    def add(self) -> None:
        """Note that another batch is being sent."""
        with self._lock:
            self._open += 1

    def delivered(self, partition: int, rows: int, base_offset: int) -> None:
        """Note that a batch was delivered."""
        last = base_offset + rows - 1 if base_offset >= 0 else -1
        with self._lock:
            before = self._delivered.get(partition)
            if before is not None:
                rows += before.rows
                base_offset = _earlier(before.first_offset, base_offset)
                last = max(before.last_offset, last)
            self._delivered[partition] = PartitionRows(rows, base_offset, last)
        self.close()

    def failed(self, partition: int, rows: pa.Int64Array, error: KohortError) -> None:
        """Note that rows failed: those of a batch, or those that were not added."""
        with self._lock:
            before = self._failures.get(partition)
            count = len(rows)
            if before is not None:
                count, error = count + before.rows, before.error
            self._failures[partition] = RowsFailure(count, error)
            self._failed_rows.append(rows)
        self.close()

    def close(self) -> None:
        """Note that one more part is done: a batch, or adding the batches."""
        with self._lock:
            self._open -= 1
            if self._open:
                return
        tell_safely(self._future, self._outcome())

    def _outcome(self) -> ArrowDelivery | KohortError:
        rows = sum(each.rows for each in self._delivered.values())
        delivery = ArrowDelivery(self._topic, rows, dict(sorted(self._delivered.items())))
        if not self._failures:
            return delivery
        error = ArrowDeliveryError(delivery, self._failures, _ascending(self._failed_rows))
        error.__cause__ = next(iter(self._failures.values())).error
        return error


def _earlier(a: int, b: int) -> int:
    known = [each for each in (a, b) if each >= 0]
    return min(known, default=-1)


def _ascending(parts: list[pa.Int64Array]) -> pa.Int64Array:
    import pyarrow as pa

    rows = pa.concat_arrays(parts)
    return rows.sort()
