"""Return fetched records: decoding happens here, in the application's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.partitions import Partitions, PartitionState
from kohort.client.consumer.records import Chunk, ClippedTimes, ConsumerRecord, decode_columns
from kohort.errors import KohortError, RecordDeserializationError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import iter_batches

if TYPE_CHECKING:
    import pyarrow as pa

Records = dict[TopicPartition, list[ConsumerRecord]]

_COLUMNS_BYTES = 16 * 1024 * 1024

_Part = tuple[TopicPartition, memoryview, int, int]


class Reader:
    """Returns records that were set aside; one buffer for `poll`, `poll_arrow` and iteration.

    Two cursors move at different times. The *position* of a partition is just past the last
    returned record. Its *consumed* offset, which auto-commit may commit, follows when the
    application asks for more, because it has then processed the earlier records.

    Args:
        partitions: The consumer's partitions.
        config: Settings.

    Attributes:
        is_undelivered: Whether the records taken last have not reached the application. It is set
            before anything moves, because a signal handler may raise at any call, and the code that
            returns the records clears it.
    """

    def __init__(self, partitions: Partitions, config: ConsumerConfig) -> None:
        self._partitions = partitions
        self._config = config
        self._reading: PartitionState | None = None
        self._begun: Sequence[_Begun] = ()
        self._has_polled = False
        self.is_undelivered = False
        self._clipped_times = ClippedTimes()

    def restore_undelivered(self) -> None:
        """Take back undelivered records; an interrupted call can be repeated."""
        if self.is_undelivered:
            for each in self._begun:
                each.restore_undelivered()
            self.is_undelivered = False

    # -------------------------------------------------------------------------- one at a time

    def next(self) -> ConsumerRecord | None:
        """Return the next record; None when no more are set aside."""
        if self._has_polled:  # the application has also processed records of an earlier poll
            self._partitions.mark_consumed()
            self._has_polled = False
        state = self._reading
        if state is not None:
            if self._partitions.stores_offsets:
                state.consumed = state.position  # the loop has finished its last record
            record = self._one_of(state)
            if record is not None:
                return record
        for state in self._partitions:
            record = self._one_of(state)
            if record is not None:
                self._reading = state
                return record
        self._reading = None
        if any(state.is_spoiled for state in self._partitions):
            self._raise_failure()
        return None

    def _one_of(self, state: PartitionState) -> ConsumerRecord | None:
        chunk = state.current
        if chunk is None or not state.is_readable:
            return None
        begun = _Begun(state)
        self._begun = (begun,)
        self.is_undelivered = True
        try:
            record = chunk.take_one(state.partition, self._config)
        except (RemoteProtocolError, RecordDeserializationError) as error:
            self.is_undelivered = False
            _stop(state, error)
            return None
        begun.settle(-1 if record is None else record.leader_epoch)
        self._partitions.given_out += record is not None
        if record is None:
            self.is_undelivered = False  # skipped for good: records of an aborted transaction
        return record

    # --------------------------------------------------------------------------- many at once

    def poll(self, count: int) -> Records:
        """Return the next records, at most `count`, one partition after the other.

        Raises:
            KohortError: There are no records, and a partition cannot be read.
        """
        found: Records = {}
        begun = self._begin()
        for state in self._partitions:
            if count <= 0 or not state.is_taken:
                continue
            begun.append(_Begun(state))
            records = self._take(begun[-1], count)
            if records:
                found[state.partition] = records
                self._partitions.given_out += len(records)
                count -= len(records)
        for each in begun:
            records = found.get(each.state.partition, [])
            each.settle(records[-1].leader_epoch if records else -1)
        if not found:
            self.is_undelivered = False
            self._raise_failure()
        return found

    def _begin(self) -> list[_Begun]:
        """Return the starting point of each partition before records are taken."""
        begun: list[_Begun] = []
        self._begun = begun
        self._has_polled = self.is_undelivered = True
        return begun

    def _take(self, begun: _Begun, count: int) -> list[ConsumerRecord]:
        state = begun.state
        try:
            return begun.chunk.take(state.partition, count, self._config)
        except (RemoteProtocolError, RecordDeserializationError) as error:
            _stop(state, error)
            return []

    def _raise_failure(self) -> None:
        # Records that are corrupt after each new fetch must not end in silent empty polls.
        is_spoiled = any(state.is_spoiled for state in self._partitions)
        failure = failure_to_raise(self._partitions, is_idle=is_spoiled)
        if failure is not None:
            raise failure

    # ------------------------------------------------------------------------------ as columns

    def columns(self, count: int | None) -> pa.RecordBatch:
        """Return the next records as columns: buffered ones, at most `count` rows and a few MB.

        Raises:
            KohortError: See `poll`.
        """
        batch = self._columns(count, self._begin())
        self._partitions.given_out += batch.num_rows
        if not batch.num_rows:
            self.is_undelivered = False
            self._raise_failure()
        return batch

    def _columns(self, count: int | None, begun: list[_Begun]) -> pa.RecordBatch:
        parts = self._parts(count, begun)
        try:
            batch, ends = decode_columns(parts, self._config.check_crcs, self._clipped_times)
        except RemoteProtocolError:
            return self._singly(parts, begun)
        for each, part, end in zip(begun, parts, ends, strict=True):
            each.advance(part[3], end)
        return batch

    def _parts(self, count: int | None, begun: list[_Begun]) -> list[_Part]:
        parts: list[_Part] = []
        size = 0
        for state in self._partitions:
            if size >= _COLUMNS_BYTES or (count is not None and count <= 0):
                break
            if not state.is_taken:
                continue
            begun.append(_Begun(state))
            assert state.current is not None
            records, first, end = state.current.arrow_part(count)
            parts.append((state.partition, records, first, end))
            size += len(records)
            if count is not None:
                count -= end - first
        return parts

    def _singly(self, parts: list[_Part], begun: list[_Begun]) -> pa.RecordBatch:
        """Return the decodable records of the first partition that has good ones."""
        for each, part in zip(begun, parts, strict=True):
            batch, end, error = self._good_part(part)
            if batch is not None and end > part[2]:
                each.advance(end, end)
                return batch
            if error is not None:
                each.state.spoil(error)
        return decode_columns([], self._config.check_crcs, self._clipped_times)[0]

    def _good_part(
        self, part: _Part
    ) -> tuple[pa.RecordBatch | None, int, RemoteProtocolError | None]:
        """Return the columns before a corrupt batch, their end offset, and the error there."""
        partition, records, first, end = part
        check_crcs, times = self._config.check_crcs, self._clipped_times
        size, good_end = 0, first
        failure: RemoteProtocolError | None = None
        try:
            for header, batch in iter_batches(records):
                decode_columns([(partition, batch, first, end)], check_crcs, times)
                size += len(batch)
                good_end = min(end, header.next_offset)
        except RemoteProtocolError as error:
            failure = error
        if not size:
            return None, first, failure
        good = [(partition, records[:size], first, good_end)]
        columns, ends = decode_columns(good, check_crcs, times)
        return columns, max(good_end, ends[0]), failure


class _Begun:
    """A partition whose records are being returned, and its position before."""

    __slots__ = ("_incarnation", "_mark", "_position", "chunk", "state")

    def __init__(self, state: PartitionState) -> None:
        assert state.current is not None
        self.state = state
        self.chunk: Chunk = state.current
        self._mark = self.chunk.mark()
        self._position = state.position
        self._incarnation = state.incarnation

    def settle(self, leader_epoch: int) -> None:
        """Adopt the position, unless a deserializer moved it or closed the consumer."""
        if self._incarnation == self.state.incarnation:
            if leader_epoch >= 0:
                self.state.leader_epoch = leader_epoch
            self.state.settle()

    def advance(self, wanted_end: int, decoded_end: int) -> None:
        """Adopt the end of decoding; offsets skipped at the end count as read."""
        self.chunk.position = max(wanted_end, decoded_end)
        self.chunk.drop_read()
        self.settle(-1)

    def restore_undelivered(self) -> None:
        if self._incarnation == self.state.incarnation:
            self.chunk.rewind(self._mark)
            self.state.put_back(self.chunk)
            self.state.position = self._position


def _stop(state: PartitionState, error: RemoteProtocolError | RecordDeserializationError) -> None:
    """Stop reading; bytes that were garbled in transit are good after another fetch."""
    if isinstance(error, RemoteProtocolError):
        state.spoil(error)
    else:
        state.failure = error


def failure_to_raise(partitions: Partitions, *, is_idle: bool) -> KohortError | None:
    """Return why a partition cannot be read: once, and again whenever there are no records."""
    for state in partitions:
        if state.failure is not None and (is_idle or not state.is_reported):
            state.is_reported = True
            return state.failure
        trouble = state.trouble
        if trouble is None or state.is_paused or state.is_held:
            continue
        if trouble.is_due(is_idle=is_idle):
            _note_reported(partitions, trouble.error)
            return trouble.error
    return None


def _note_reported(partitions: Partitions, error: KohortError) -> None:
    """Note that the application gets an error, which several partitions may share."""
    for state in partitions:
        if state.trouble is not None and state.trouble.error is error:
            state.trouble.is_reported = True
