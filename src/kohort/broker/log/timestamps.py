"""Look for the first record of a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kohort.broker.log.segment import Segment
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.records import decode_records


def since(segments: Iterable[Segment], timestamp: int) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of records that are not older than a time, oldest offset first.

    Raises:
        KafkaError: CORRUPT_MESSAGE when a batch cannot be read.
    """
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
