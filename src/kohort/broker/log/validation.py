"""Checks batches before they are appended."""

from __future__ import annotations

from kohort.broker.log.config import LogConfig
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.codec.schema import Buffer
from kohort.wire.records._check import flaw, refused
from kohort.wire.records.compression import decompress
from kohort.wire.records.header import HEADER_SIZE, BatchHeader, iter_batches, verify_crc

# Maximum number of refused records that are listed, for a batch and for a response.
MOST_NAMED = 10_000
_ANY_TIME = (1 << 63) - 1


class RefusedRecordsError(KafkaError):
    """A topic refuses records of a batch, and so the whole batch (KIP-467).

    Attributes:
        indexes: Indexes of the first of them in the batch.
        reason: Why they are refused.
    """

    def __init__(self, code: ErrorCode, total: int, indexes: list[int], reason: str) -> None:
        """Create the error for `total` records, the first of which are at `indexes`."""
        self.indexes = indexes
        self.reason = reason
        what = f"{total} records are refused, the first is record {indexes[0]}: {reason}"
        super().__init__(code, what)


def only_batch(records: Buffer, config: LogConfig) -> tuple[BatchHeader, memoryview]:
    """Return the only batch in `records`, with its header, after checking it.

    This checks the records as well, as invalid ones would reach every reader.

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
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition takes exactly one whole batch")
    header, batch = batches[0]
    if not verify_crc(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match the batch")
    if header.base_offset != 0 or header.record_count != header.last_offset_delta + 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, "offsets of a new batch must start at 0")
    if header.is_transactional and header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.has_delete_horizon:
        raise KafkaError(ErrorCode.INVALID_RECORD, "only compaction sets a delete horizon")
    _check_records(header, batch, keyed=config.compact)
    return header, batch


def check_time(header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int) -> None:
    """Check that no record's timestamp is too far in the future (KIP-937).

    Raises:
        KafkaError: INVALID_TIMESTAMP; a RefusedRecordsError if it is in records, and not only in
            the batch header.
    """
    latest = now_ms + config.timestamp_after_max_ms
    if header.max_timestamp > latest:
        after_base = min(latest - header.base_timestamp, _ANY_TIME)
        total, first = refused(
            _decompressed(header, batch), header.record_count, False, after_base, MOST_NAMED
        )
        reason = f"its time is more than {config.timestamp_after_max_ms} ms ahead of the broker's"
        if not total:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"the batch's header: {reason}")
        raise RefusedRecordsError(ErrorCode.INVALID_TIMESTAMP, total, first, reason)


def _check_records(header: BatchHeader, batch: memoryview, *, keyed: bool) -> None:
    records = _decompressed(header, batch)
    wrong = flaw(records, header.record_count)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, wrong)
    if keyed:
        total, first = refused(records, header.record_count, True, _ANY_TIME, MOST_NAMED)
        if total:
            reason = "it has no key, which a compacted topic requires"
            raise RefusedRecordsError(ErrorCode.INVALID_RECORD, total, first, reason)


def _decompressed(header: BatchHeader, batch: memoryview) -> memoryview:
    try:
        return decompress(header.compression, batch[HEADER_SIZE:])
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
