"""Hands out what was fetched: decoding happens here, in the application's thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohort.client.config import ConsumerConfig
from kohort.client.partitions import Partitions, PartitionState
from kohort.client.records import Chunk, ConsumerRecord, decode_columns
from kohort.errors import KohortError, RecordDeserializationError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import iter_batches

if TYPE_CHECKING:
    import pyarrow as pa

Records = dict[TopicPartition, list[ConsumerRecord]]

_COLUMNS_BYTES = 16 * 1024 * 1024

_Part = tuple[TopicPartition, memoryview, int, int]


class Reader:
    """Hands out what was set aside; one buffer for `poll`, `poll_arrow` and iteration.

    Two cursors move at different times. The *position* of a partition is behind the last record
    that was handed out. Its *consumed* offset, which auto-commit may commit, follows when the
    application asks for more, for then it is done with what it had.

    Args:
        partitions: The consumer's partitions.
        config: Settings.
    """

    def __init__(self, partitions: Partitions, config: ConsumerConfig) -> None:
        self._partitions = partitions
        self._config = config
        self._reading: PartitionState | None = None

    # -------------------------------------------------------------------------- one at a time

    def next(self) -> ConsumerRecord | None:
        """Return the next record; None when nothing more was set aside."""
        state = self._reading
        if state is not None:
            if self._partitions.stores_offsets:
                state.consumed = state.position  # the loop has returned from its last record
            record = self._one_of(state)
            if record is not None:
                return record
        for state in self._partitions:
            record = self._one_of(state)
            if record is not None:
                self._reading = state
                return record
        self._reading = None
        return None

    def _one_of(self, state: PartitionState) -> ConsumerRecord | None:
        chunk = state.current
        if chunk is None or not state.is_readable:
            return None
        try:
            record = chunk.take_one(state.partition, self._config)
        except (RemoteProtocolError, RecordDeserializationError) as error:
            state.failure = error
            return None
        if record is not None:
            state.leader_epoch = record.leader_epoch
        state.settle()
        return record

    # --------------------------------------------------------------------------- many at once

    def poll(self, count: int) -> Records:
        """Return the next records, at most `count`, one partition after the other.

        Raises:
            KohortError: There is nothing to return but the news that a partition cannot be read.
        """
        found: Records = {}
        with self._handing_out() as begun:
            for state in self._partitions:
                if count <= 0 or not state.is_taken:
                    continue
                begun.append(_Begun(state))
                records = self._take(state, count)
                if records:
                    found[state.partition] = records
                    count -= len(records)
            for each in begun:
                each.state.settle()
        if not found:
            self._raise_failure()
        return found

    def _take(self, state: PartitionState, count: int) -> list[ConsumerRecord]:
        assert state.current is not None
        try:
            records = state.current.take(state.partition, count, self._config)
        except (RemoteProtocolError, RecordDeserializationError) as error:
            state.failure = error
            return []
        if records:
            state.leader_epoch = records[-1].leader_epoch
        return records

    def _raise_failure(self) -> None:
        failure = failure_to_raise(self._partitions, is_idle=False)
        if failure is not None:
            raise failure

    @contextmanager
    def _handing_out(self) -> Iterator[list[_Begun]]:
        """Take everything back if an interrupt keeps it from reaching the application."""
        begun: list[_Begun] = []
        try:
            yield begun
        except BaseException:
            for each in begun:
                each.take_back()
            raise

    # ------------------------------------------------------------------------------ as columns

    def columns(self, count: int | None) -> pa.RecordBatch:
        """Return the next records as columns: what is there, at most `count` rows and some MB.

        Raises:
            KohortError: As `poll`.
        """
        with self._handing_out() as begun:
            parts = self._parts(count, begun)
            try:
                batch, ends = decode_columns(parts, self._config.check_crcs)
            except RemoteProtocolError:
                return self._singly(parts, begun)
            for each, part, end in zip(begun, parts, ends, strict=True):
                _advance(each.state, part[3], end)
        if not batch.num_rows:
            self._raise_failure()
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
        """Return what can be decoded of the first partition that has good records."""
        for each, part in zip(begun, parts, strict=True):
            batch, end, error = self._good_part(part)
            if batch is not None and end > part[2]:
                _advance(each.state, end, end)
                return batch
            if error is not None:
                each.state.failure = error
        self._raise_failure()
        return decode_columns([], self._config.check_crcs)[0]

    def _good_part(
        self, part: _Part
    ) -> tuple[pa.RecordBatch | None, int, RemoteProtocolError | None]:
        """Return the columns before a corrupt batch, where they end, and what is wrong there."""
        partition, records, first, end = part
        check_crcs = self._config.check_crcs
        size, good_end = 0, first
        failure: RemoteProtocolError | None = None
        try:
            for header, batch in iter_batches(records):
                decode_columns([(partition, batch, first, end)], check_crcs)
                size += len(batch)
                good_end = min(end, header.next_offset)
        except RemoteProtocolError as error:
            failure = error
        if not size:
            return None, first, failure
        columns, ends = decode_columns([(partition, records[:size], first, good_end)], check_crcs)
        return columns, max(good_end, ends[0]), failure


class _Begun:
    """A partition of which records are being handed out, and where it stood before."""

    __slots__ = ("_chunk", "_mark", "_position", "state")

    def __init__(self, state: PartitionState) -> None:
        assert state.current is not None
        self.state = state
        self._chunk: Chunk = state.current
        self._mark = self._chunk.mark()
        self._position = state.position

    def take_back(self) -> None:
        self._chunk.rewind(self._mark)
        self.state.current = self._chunk
        self.state.position = self._position


def _advance(state: PartitionState, wanted_end: int, decoded_end: int) -> None:
    """Take over where decoding ended; what was left out at the end counts as read."""
    chunk = state.current
    assert chunk is not None
    chunk.position = max(wanted_end, decoded_end)
    chunk.drop_read()
    state.settle()


def failure_to_raise(partitions: Partitions, *, is_idle: bool) -> KohortError | None:
    """Return why a partition cannot be read: once, and again whenever there is nothing else."""
    for state in partitions:
        if state.failure is not None and (is_idle or not state.is_reported):
            state.is_reported = True
            return state.failure
    return None
