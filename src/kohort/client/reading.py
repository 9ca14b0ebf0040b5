"""Hands out what was fetched: decoding happens here, in the application's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.client.config import ConsumerConfig
from kohort.client.partitions import Partitions, PartitionState
from kohort.client.records import ConsumerRecord, decode_columns
from kohort.errors import KohortError, RemoteProtocolError
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Records = dict[TopicPartition, list[ConsumerRecord]]

_COLUMNS_BYTES = 16 * 1024 * 1024


def read_records(partitions: Partitions, config: ConsumerConfig, count: int) -> Records:
    """Return the next records, at most `count`, one partition after the other."""
    found: Records = {}
    for state in partitions:
        while count > 0 and state.is_taken:
            records = _read_state(state, config, count)
            if records:
                found.setdefault(state.partition, []).extend(records)
                count -= len(records)
    return found


def _read_state(state: PartitionState, config: ConsumerConfig, count: int) -> list[ConsumerRecord]:
    chunk = state.current
    assert chunk is not None
    try:
        records = chunk.take(
            state.partition, count, config.key_deserializer, config.value_deserializer
        )
    except RemoteProtocolError as error:
        state.failure = error
        return []
    if records:
        state.leader_epoch = records[-1].leader_epoch
    state.settle()
    return records


def read_columns(
    partitions: Partitions, config: ConsumerConfig, count: int | None
) -> pa.RecordBatch:
    """Return the next records as columns: whatever is there, at most `count` rows and some MB."""
    parts, states = _parts(partitions, count)
    try:
        batch, ends = decode_columns(parts, config.check_crcs)
    except RemoteProtocolError:
        return _read_singly(parts, states, config)
    for state, part, end in zip(states, parts, ends, strict=True):
        _advance(state, part[3], end)
    return batch


_Part = tuple[TopicPartition, memoryview, int, int]


def _parts(partitions: Partitions, count: int | None) -> tuple[list[_Part], list[PartitionState]]:
    parts: list[_Part] = []
    states: list[PartitionState] = []
    size = 0
    for state in partitions:
        if size >= _COLUMNS_BYTES or (count is not None and count <= 0):
            break
        if not state.is_taken:
            continue
        chunk = state.current
        assert chunk is not None
        records, first, end = chunk.arrow_part(count)
        parts.append((state.partition, records, first, end))
        states.append(state)
        size += len(records)
        if count is not None:
            count -= end - first
    return parts, states


def _advance(state: PartitionState, wanted_end: int, decoded_end: int) -> None:
    """Take over where decoding ended; what was left out at the end counts as read."""
    chunk = state.current
    assert chunk is not None
    chunk.position = max(wanted_end, decoded_end)
    chunk.drop_read()
    state.settle()


def _read_singly(
    parts: list[_Part], states: list[PartitionState], config: ConsumerConfig
) -> pa.RecordBatch:
    """Return what can be decoded of the first good partition; note what is wrong with bad ones."""
    for state, part in zip(states, parts, strict=True):
        try:
            batch, ends = decode_columns([part], config.check_crcs)
        except RemoteProtocolError as error:
            state.failure = error
        else:
            _advance(state, part[3], ends[0])
            return batch
    return decode_columns([], config.check_crcs)[0]


def failure_to_raise(partitions: Partitions, *, is_idle: bool) -> KohortError | None:
    """Return why a partition cannot be read: once, and again whenever there is nothing else."""
    for state in partitions:
        if state.failure is not None and (is_idle or not state.is_reported):
            state.is_reported = True
            return state.failure
    return None
