"""What a producer may append."""

from __future__ import annotations

from kohort.broker.log.config import LogConfig
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.records import decode_records
from kohort.wire.records.header import BatchHeader, iter_batches, verify_crc
from kohort.wire.schema import Buffer


def only_batch(records: Buffer, config: LogConfig) -> tuple[BatchHeader, memoryview]:
    """Return the one sound batch that `records` holds, with its header.

    The records inside are looked at only where compaction will need their keys.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD or MESSAGE_TOO_LARGE.
    """
    if len(records) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(records)} bytes; max.message.bytes is {config.max_message_bytes}",
        )
    try:
        batches = list(iter_batches(records))
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if len(batches) != 1 or batches[0][0].size_in_bytes != len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition is sent one whole batch at once")
    header, batch = batches[0]
    if not verify_crc(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC does not fit the batch")
    if header.base_offset != 0 or header.record_count != header.last_offset_delta + 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, "offsets of a new batch count from 0")
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.has_delete_horizon:
        raise KafkaError(ErrorCode.INVALID_RECORD, "only compaction sets a delete horizon")
    if config.compact:
        _check_keys(batch)
    return header, batch


def _check_keys(batch: memoryview) -> None:
    try:
        records = decode_records(batch, check_crc=False)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if any(record.key is None for record in records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without key")
