"""Arrow tables on their way into batches: one call, one future.

A table is looked at as a whole before anything of it is sent. Then it is encoded batch by batch,
each when there is memory for it, in the caller's thread; only ready batches cross to the loop.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

import pyarrow as pa

from kohort.client.arrow_delivery import NOT_ADDED, ArrowFate, ArrowFuture
from kohort.client.config import ProducerConfig
from kohort.client.sender import Sender
from kohort.errors import ErrorCode, KafkaError, KohortError, LocalProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import Compression
from kohort.wire.records._columns import Columns, Outcome
from kohort.wire.records._encode_columns import EncodedRows, Groups
from kohort.wire.records.columns import check_schema, complaint, open_columns
from kohort.wire.records.compression import compress

Table: TypeAlias = "pa.RecordBatch | pa.Table"

# A batch may be as large as a broker takes it by default (`message.max.bytes`).
LARGEST_BATCH = 1024 * 1024
_BATCH_HEADER = 61
# Rows that are grouped by partition at once: what they cost beside their batches is bounded.
_ROWS_AT_ONCE = 1 << 20
# What a row costs beside its bytes while it is on its way: its number in the table.
_ROW_BYTES = 8
# What the kernel counts for a record beside its bytes, less what `record_size` counts.
_MORE_OVERHEAD = 6


class ArrowSend:
    """One `send_arrow` under way.

    Args:
        config: Settings.
        sender: Takes the batches.
        topic: Where the rows go.
        table: The rows.
        partitions: How many partitions the topic has.
        future: Completed when the fate of all rows is known.

    Raises:
        KafkaError: There is no such partition, or a record is too large.
        TypeError: It is no table, or a column is of a type that it may not have.
        ValueError: A column is unknown or an array malformed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sender: Sender,
        topic: str,
        table: Table,
        partitions: int,
        future: ArrowFuture,
    ) -> None:
        self._config = config
        self._sender = sender
        self._topic = topic
        self._partitions = partitions
        self._limit = batch_limit(config)
        self._fate = ArrowFate(topic, future)
        self._unopened = deque(
            (first, self._opened(batch, first)) for first, batch in batches_of(table)
        )
        self._rows = table.num_rows
        self._parts = self._all_parts()
        self._groups: Groups | None = None
        self._first = 0
        self._turn: deque[int] = deque()
        self._grouped_rows = 0
        self._has_added = False

    def need(self) -> int | None:
        """Return how many bytes the next batch takes at most; None when all are added."""
        while not self._turn:
            part = next(self._parts, None)
            if part is None:
                self._fate.close()
                return None
            self._first, self._groups = part
            self._turn.extend(self._groups.pending())
        assert self._groups is not None
        return self._groups.need(self._turn[0], self._limit)

    def add(self, need: int) -> bool:
        """Add the next batch; False when there is no memory for it now.

        Args:
            need: What `need` has just returned.

        Raises:
            KohortError: The producer has failed for good.
            ValueError: The table was changed meanwhile.
        """
        if not self._sender.reserve(need):
            return False
        try:
            partition, encoded = self._encode()
        except BaseException:
            self._sender.give_back(need)
            raise
        size = encoded.memory + _ROW_BYTES * encoded.count
        self._sender.give_back(need - size)
        self._fate.add()
        self._has_added = True
        fate = BatchFate(self._fate, partition, encoded, self._first)
        self._sender.add_ready(TopicPartition(self._topic, partition), encoded, fate, size)
        return True

    def stop(self, error: KohortError | ValueError) -> None:
        """Give up what was not added: the future fails, or the call itself if nothing was added.

        Raises:
            KohortError: `error`, and nothing was added.
            ValueError: Likewise.
        """
        if not self._has_added:
            raise error
        left = [pa.array(range(self._grouped_rows, self._rows), pa.int64())]
        if self._groups is not None:
            left.append(numbered(self._groups.rows_left(), self._first))
        rows = pa.concat_arrays(left)
        cause = error if isinstance(error, KohortError) else LocalProtocolError(str(error))
        self._fate.failed(NOT_ADDED, rows, cause)

    def _opened(self, batch: pa.RecordBatch, first: int) -> Columns:
        columns = open_columns(batch, int(time.time() * 1000))
        # The same bounds as for `send`, whose sizes are six bytes smaller.
        largest = min(
            self._config.max_request_size + _MORE_OVERHEAD,
            self._config.buffer_memory - _BATCH_HEADER,
        )
        refused = columns.check(largest, self._partitions)
        if refused is not None:
            raise self._refusal(first + refused[1], refused[0], refused[2])
        return columns

    def _refusal(self, row: int, outcome: int, number: int) -> KafkaError | ValueError:
        where = f"row {row} for {self._topic}: {complaint(outcome, number)}"
        if outcome == Outcome.TOO_LARGE:
            return KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{where}; max.request.size is {self._config.max_request_size} and buffer.memory"
                f" {self._config.buffer_memory}",
            )
        if outcome == Outcome.BAD_PARTITION:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{where}, the topic has {self._partitions}; without the column 'partition' one is"
                " chosen",
            )
        return ValueError(where)

    def _all_parts(self) -> Iterator[tuple[int, Groups]]:
        """Yield rows grouped by partition, and the row that their numbers count from."""
        start = random.randrange(self._partitions)
        while self._unopened:
            first, columns = self._unopened.popleft()
            for at in range(0, columns.rows, _ROWS_AT_ONCE):
                count = min(_ROWS_AT_ONCE, columns.rows - at)
                groups = Groups(columns, at, count, self._partitions, start, self._limit)
                self._grouped_rows = first + at + count
                yield first, groups
                start = (start + 1) % self._partitions

    def _encode(self) -> tuple[int, EncodedRows]:
        assert self._groups is not None
        partition = self._turn.popleft()
        encoded = self._groups.encode(partition, self._limit)
        if self._groups.left(partition):
            self._turn.append(partition)
        codec = self._config.codec
        if codec is not Compression.NONE:
            encoded = encoded.compressed(int(codec), compress(codec, encoded.records()))
        return partition, encoded


class BatchFate:
    """Tells the call what became of one of its batches.

    Args:
        fate: Of the call.
        partition: Where the batch goes.
        encoded: The batch.
        first: The row that its row numbers count from.
    """

    def __init__(self, fate: ArrowFate, partition: int, encoded: EncodedRows, first: int) -> None:
        self._fate = fate
        self._partition = partition
        self._encoded = encoded
        self._first = first

    def delivered(self, base_offset: int) -> None:
        """Take where its first record went, -1 when that is not known."""
        self._fate.delivered(self._partition, self._encoded.count, base_offset)

    def failed(self, error: KohortError) -> None:
        """Take why it did not go anywhere."""
        self._fate.failed(self._partition, numbered(self._encoded.rows, self._first), error)


def numbered(rows: pa.Int64Array, first: int) -> pa.Int64Array:
    """Return the numbers of rows in the whole table, given those from `first` on."""
    if not first:
        return rows
    import pyarrow.compute as pc

    return pc.add(rows, first)


def batch_limit(config: ProducerConfig) -> int:
    """Return how many bytes of records a batch may have."""
    largest = min(config.max_request_size, max(LARGEST_BATCH, config.batch_size))
    return max(1, min(largest, config.buffer_memory) - _BATCH_HEADER)


def batches_of(table: Table) -> list[tuple[int, pa.RecordBatch]]:
    """Return the parts of a table whose arrays are each in one piece, and their first rows."""
    if isinstance(table, pa.RecordBatch):
        check_schema(table.schema)
        return [(0, table)]
    if not isinstance(table, pa.Table):
        raise TypeError(
            f"send_arrow takes a pyarrow.RecordBatch or Table, not {type(table).__name__}"
        )
    check_schema(table.schema)
    found, first = [], 0
    for batch in table.to_batches():
        found.append((first, batch))
        first += batch.num_rows
    return found
