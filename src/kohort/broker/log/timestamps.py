"""Search records by timestamp, ignoring deleted records before the start of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kohort.broker.log.segment import Segment
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.records import decode_records


def first_since(segments: Iterable[Segment], timestamp: int, start: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record at or after a timestamp.

    Args:
        segments: Segments of the log, oldest first.
        timestamp: Milliseconds since the epoch.
        start: First offset of the log.

    Raises:
        KafkaError: CORRUPT_MESSAGE if a batch cannot be read.
    """
    return next((each for each in _since(segments, timestamp) if each[0] >= start), None)


def newest(segments: Sequence[Segment], start: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record with the largest timestamp.

    Args:
        segments: Segments of the log, oldest first.
        start: First offset of the log.

    Raises:
        KafkaError: CORRUPT_MESSAGE if a batch cannot be read.
    """
    largest = max((each.max_timestamp for each in segments), default=-1)
    found = first_since(segments, largest, start) if largest >= 0 else None
    if found is not None or largest < 0:
        return found
    largest = max(_largest(each, start) for each in segments)  # without deleted records
    return first_since(segments, largest, start) if largest >= 0 else None


def are_older(segment: Segment, timestamp: int, start: int) -> bool:
    """Whether all records of a segment are older than a timestamp; false if it is unreadable.

    Args:
        segment: The segment.
        timestamp: Milliseconds since the epoch.
        start: First offset of the log.
    """
    if segment.max_timestamp < timestamp or segment.base_offset >= start:
        return segment.max_timestamp < timestamp
    try:
        return first_since([segment], timestamp, start) is None
    except KafkaError:
        return False


def _largest(segment: Segment, start: int) -> int:
    if segment.base_offset >= start:
        return segment.max_timestamp
    times = (
        timestamp
        for header, batch in segment.all_batches()
        if header.last_offset >= start
        for offset, timestamp in _records(batch)
        if offset >= start
    )
    return max(times, default=-1)


def _since(segments: Iterable[Segment], timestamp: int) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.max_timestamp < timestamp and not segment.damaged:
            continue
        for batch in segment.find_timestamp(timestamp):
            for record in _records(batch):
                if record[1] >= timestamp:
                    yield record


def _records(batch: memoryview) -> Iterator[tuple[int, int]]:
    try:
        records = decode_records(batch)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    for record in records:
        yield record.offset, record.timestamp
