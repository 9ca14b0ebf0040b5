"""Convert Arrow tables to batches: one call, one future.

A table is checked as a whole before any of it is sent. Then it is encoded batch by batch in the
caller's thread, each batch when there is memory for it; only encoded batches move to the loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

import pyarrow as pa

from kohort.client.config.definitions import Partitioner, ProducerConfig
from kohort.client.net.backoff import CHANCE
from kohort.client.producer.arrow.delivery import NOT_ADDED, ArrowDelivery, ArrowFate
from kohort.client.producer.arrow.ready_batch import ReadyBatch, numbered
from kohort.client.producer.delivery import Completable
from kohort.client.producer.sender import Sender
from kohort.errors import ErrorCode, KafkaError, KohortError, LocalProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import Compression
from kohort.wire.records._columns import Columns, Outcome
from kohort.wire.records._encode_columns import Groups, Hasher
from kohort.wire.records.columns import check_schema, complaint, open_columns
from kohort.wire.records.compression import compress

log = logging.getLogger("kohort.client")

Table: TypeAlias = "pa.RecordBatch | pa.Table"

# A batch may be as large as brokers accept by default (`message.max.bytes`).
LARGEST_BATCH = 1024 * 1024
_BATCH_HEADER = 61
# Rows that are grouped by partition at once; this limits the memory beside the batches.
_ROWS_AT_ONCE = 1 << 20
# Memory for a row beside its bytes while it is being sent: its index in the table.
_ROW_BYTES = 8
# Overhead per record in the kernel's count, minus the overhead in `record_size`.
_MORE_OVERHEAD = 6


class ArrowSend:
    """One `send_arrow` in progress.

    Args:
        config: Settings.
        sender: Sends the batches.
        topic: The topic to write to.
        table: The rows.
        future: Completed when the outcome of all rows is known.

    Raises:
        KafkaError: The partition does not exist, or a record is too large.
        TypeError: The argument is not a table, or a column has an unsupported type.
        ValueError: A column is unknown, or an array is malformed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sender: Sender,
        topic: str,
        table: Table,
        future: Completable[ArrowDelivery],
    ) -> None:
        self._config = config
        self._sender = sender
        self._topic = topic
        self._partitions = sender.batches.partitions_of(topic) or 1
        self._limit = batch_limit(config)
        self._hasher = hasher_of(config)
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
        self._ready: ReadyBatch | None = None
        self._size = 0

    @property
    def partition(self) -> int | None:
        """The partition of the batch that could not be added."""
        return None if self._ready is None else self._ready.partition.partition

    def need(self) -> int | None:
        """Return the maximum size of the next batch in bytes; None when all are added."""
        if self._ready is not None:
            return self._size
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
        """Add the next batch; return False if there is no memory now, or its partition is gone.

        Args:
            need: The last result of `need`.

        Raises:
            KohortError: The producer has failed permanently.
            ValueError: The table was modified during the call.
        """
        if self._ready is None:
            if not self._sender.batches.has_room(need):
                return False
            self._ready = self._encode()
        if not self._sender.batches.add_batch(self._ready, self._size):
            return False
        self._ready = None
        self._has_added = True
        return True

    def stop(self, error: BaseException) -> None:
        """Give up the remaining rows: the future fails, or the call itself if no rows were added.

        Args:
            error: The cause; the call also fails if it affects more than this call, like a
                cancellation.

        Raises:
            BaseException: The given error.
        """
        is_ours = isinstance(error, (KohortError, ValueError))
        if self._has_added:
            self._give_up(_known(error), is_told=is_ours)
        if not (is_ours and self._has_added):
            raise error

    def _give_up(self, error: KohortError, *, is_told: bool) -> None:
        self._sender.failed(error)
        if self._ready is not None:
            self._ready.fate.failed(error)
        left = [pa.array(range(self._grouped_rows, self._rows), pa.int64())]
        if self._groups is not None:
            left.append(numbered(self._groups.rows_left(), self._first))
        rows = pa.concat_arrays(left)
        if not is_told:  # the caller does not get the future
            count = len(rows) + (0 if self._ready is None else self._ready.builder.count)
            text = "%d of %d rows for %s were not added, the others are sent: %s"
            log.warning(text, count, self._rows, self._topic, error)
            self._fate.leave()
        self._fate.failed(NOT_ADDED, rows, error)

    def _opened(self, batch: pa.RecordBatch, first: int) -> Columns:
        columns = self._checked(batch, first)
        if not callable(self._config.partitioner):
            return columns
        return self._checked(
            placed(batch, self._config.partitioner, self._topic, self._partitions), first
        )

    def _checked(self, batch: pa.RecordBatch, first: int) -> Columns:
        columns = open_columns(batch, int(time.time() * 1000))
        # The same limits as for `send`, whose sizes are six bytes smaller.
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
        """Yield rows grouped by partition, and the table index of their first row."""
        start = CHANCE.randrange(self._partitions)
        while self._unopened:
            first, columns = self._unopened.popleft()
            for at in range(0, columns.rows, _ROWS_AT_ONCE):
                count = min(_ROWS_AT_ONCE, columns.rows - at)
                groups = Groups(
                    columns, at, count, self._partitions, start, self._limit, self._hasher
                )
                self._grouped_rows = first + at + count
                yield first, groups
                start = (start + 1) % self._partitions

    def _encode(self) -> ReadyBatch:
        assert self._groups is not None
        partition = self._turn.popleft()
        encoded = self._groups.encode(partition, self._limit)
        if self._groups.left(partition):
            self._turn.append(partition)
        codec = self._config.codec
        if codec is not Compression.NONE:
            encoded = encoded.compressed(int(codec), compress(codec, encoded.records()))
        # Count row indices as well: a batch of tiny rows could otherwise exceed the memory.
        size = encoded.memory + _ROW_BYTES * encoded.count
        self._size = min(size, self._config.buffer_memory)
        where = TopicPartition(self._topic, partition)
        return ReadyBatch(where, self._sender.now_ms(), encoded, self._fate, self._first)


def _known(error: BaseException) -> KohortError:
    if isinstance(error, KohortError):
        return error
    if isinstance(error, ValueError):
        return LocalProtocolError(str(error))
    return LocalProtocolError(f"send_arrow was ended by {type(error).__name__}")


def batch_limit(config: ProducerConfig) -> int:
    """Return the maximum size of a batch's records, in bytes."""
    largest = min(config.max_request_size, max(LARGEST_BATCH, config.batch_size))
    return max(1, min(largest, config.buffer_memory) - _BATCH_HEADER)


def check_arguments(topic: str, table: Table) -> None:
    """Reject arguments that could never be sent.

    Raises:
        TypeError: The topic is not a string, or the table is not a table.
        ValueError: A column is unknown or duplicated, or there are no values.
    """
    if not isinstance(topic, str):
        raise TypeError(f"the topic is a {type(topic).__name__}, not str")
    if not isinstance(table, (pa.RecordBatch, pa.Table)):
        raise TypeError(
            f"send_arrow takes a pyarrow.RecordBatch or Table, not {type(table).__name__}"
        )
    check_schema(table.schema)


def batches_of(table: Table) -> list[tuple[int, pa.RecordBatch]]:
    """Return parts of a table with contiguous arrays, and the index of their first rows."""
    if isinstance(table, pa.RecordBatch):
        return [(0, table)]
    found, first = [], 0
    for batch in table.to_batches():
        found.append((first, batch))
        first += batch.num_rows
    return found


def hasher_of(config: ProducerConfig) -> Hasher:
    """Return the hash function by which the kernel finds the partition of a key."""
    if callable(config.partitioner):
        return Hasher.NONE
    return Hasher.CRC32 if config.partitioner == "consistent_random" else Hasher.MURMUR2


def placed(
    batch: pa.RecordBatch, partitioner: Partitioner, topic: str, partitions: int
) -> pa.RecordBatch:
    """Return checked rows with the partitions that the application's partitioner chooses.

    Raises:
        TypeError: It did not return a number.
        ValueError: It returned a partition that does not exist.
    """
    names = batch.schema.names
    none = [None] * batch.num_rows
    given = batch.column("partition").to_pylist() if "partition" in names else none
    keys = batch.column("key").to_pylist() if "key" in names else none
    chosen = [
        _place(partitioner, topic, key, partitions) if partition is None else partition
        for key, partition in zip(keys, given, strict=True)
    ]
    others = [name for name in names if name != "partition"]
    return batch.select(others).append_column("partition", pa.array(chosen, pa.int32()))


def _place(
    partitioner: Partitioner, topic: str, key: bytes | str | None, partitions: int
) -> int | None:
    chosen = partitioner(topic, key.encode() if isinstance(key, str) else key, partitions)
    if chosen is None:
        return None
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        raise TypeError(f"the partitioner returned a {type(chosen).__name__}, not an integer")
    if not 0 <= chosen < partitions:
        raise ValueError(f"the partitioner returned {chosen} of {partitions} partitions")
    return chosen
