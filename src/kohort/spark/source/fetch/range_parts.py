"""The part of a range in one response of a broker, and its decoding to Arrow batches."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from kohort.client.consumer.records import ClippedTimes
from kohort.wire.codec.schema import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.client")

# Approximate size of an Arrow batch; well-compressed records are split into several.
BATCH_BYTES = 16 * 1024 * 1024

_BATCH_PREFIX = struct.Struct(">qi")
_ATTRIBUTES_AND_DELTA = struct.Struct(">hi")
_ATTRIBUTES_AT = 21
_HEADER_SIZE = 61
_LENGTH_END = 12
_TRANSACTIONAL = 0x10


class Scanned(NamedTuple):
    """Facts from the headers of fetched batches.

    Attributes:
        end: Offset after the last whole batch.
        is_transactional: Whether any of them belongs to a transaction.
    """

    end: int
    is_transactional: bool


class Part(Struct, frozen=True):
    """The records of one response.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        records: Record batches, in memory that the next response overwrites.
        start: The first requested offset.
        end: Offset after the last whole batch, or the range's end.
        to_offset: The range's end.
    """

    topic: str
    partition: int
    records: Buffer
    start: int
    end: int
    to_offset: int

    def decoded(
        self, columns: Sequence[str], check_crc: bool, clipped_times: ClippedTimes
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as non-empty Arrow batches of about `BATCH_BYTES`.

        Args:
            columns: The columns to decode.
            check_crc: Whether to check each batch's CRC.
            clipped_times: Reports timestamps that the columns cannot hold.

        Raises:
            RemoteProtocolError: The bytes are not record batches.
        """
        from kohort.wire.records.arrow import Fetched, decode_to_arrow

        at = self.start
        while at < self.end:
            fetched = Fetched(self.topic, self.partition, self.records, at, self.to_offset)
            batch, (following,), clipped = decode_to_arrow(
                [fetched], columns=columns, check_crc=check_crc, max_bytes=BATCH_BYTES
            )
            clipped_times.note(clipped)
            if batch.num_rows:
                yield batch
            if following <= at:
                return  # the rest was aborted
            at = following


def scan(records: Buffer, start: int) -> Scanned:
    """Read the headers of fetched batches; `end` is `start` if there is no whole batch.

    It reads only lengths, offsets and flags, so that the next request can be sent at once; decoding
    checks whether the bytes are record batches.

    Args:
        records: Record batches, the last one possibly truncated.
        start: The first requested offset.
    """
    end = start
    at = 0
    flags = 0
    while len(records) - at >= _HEADER_SIZE:
        base_offset, length = _BATCH_PREFIX.unpack_from(records, at)
        if length < _HEADER_SIZE - _LENGTH_END or at + _LENGTH_END + length > len(records):
            break
        attributes, delta = _ATTRIBUTES_AND_DELTA.unpack_from(records, at + _ATTRIBUTES_AT)
        flags |= attributes
        end = base_offset + delta + 1
        at += _LENGTH_END + length
    return Scanned(max(end, start), bool(flags & _TRANSACTIONAL))


class TransactionNotes:
    """Logs once per topic that records of aborted transactions are also read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()

    def met(self, bootstrap_servers: str, topic: str) -> None:
        """Report transactional batches that are read with isolation.level=read_uncommitted.

        Args:
            bootstrap_servers: The cluster.
            topic: The topic of the batches.
        """
        with self._lock:
            if (bootstrap_servers, topic) in self._told:
                return
            self._told.add((bootstrap_servers, topic))
        log.warning(
            "topic %s is written with transactions and read with isolation.level=read_uncommitted:"
            " records of aborted and of open transactions are read too. Set"
            " isolation.level=read_committed (in Spark the option kafka.isolation.level) to read"
            " committed records only, up to the last stable offset",
            topic,
        )


NOTES = TransactionNotes()
