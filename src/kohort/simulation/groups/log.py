"""The group log of the simulated cluster: durable bytes, and their faults.

A batch is complete or missing: a torn or damaged batch fails its checksum, and the next opening of
the log truncates it and everything after it. Only the leader with the highest epoch may append, so
a former coordinator can do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct, field

from kohort.broker.log.partition_log import LEADER_EPOCH
from kohort.broker.log.recovery import sound
from kohort.errors import RemoteProtocolError
from kohort.wire import group_log
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.records import Record, decode_records, encode_batch
from kohort.wire.records.header import BatchHeader, iter_batches

Encoded = tuple[bytes, bytes | None]
# Cached: the ledger reads each record when it is written, a coordinator reads all when it loads.
decoded = lru_cache(maxsize=10_000)(group_log.decode_record)


class Batch(Struct, frozen=True):
    """Records that were appended together.

    Attributes:
        offset: Offset of the first of them; compaction does not change it.
        records: Key and value of each.
    """

    offset: int
    records: tuple[Encoded, ...]


class GroupLog(Struct):
    """One partition of `__consumer_offsets`.

    Attributes:
        leader_epoch: Epoch of the only node that may append.
        batches: Its records as bytes, batch by batch.
        end: Offset of the next record.
    """

    leader_epoch: int = 0
    batches: list[Batch] = field(default_factory=list)
    end: int = 0
    # After a flipped bit: the unread bytes on disk, from an offset on.
    _damaged: tuple[int, bytes] | None = None
    _cleaned_to: int = 0

    def append(self, records: tuple[GroupRecord, ...]) -> None:
        """Append records as one batch."""
        encoded = tuple(group_log.encode_record(r.key, r.value) for r in records)
        self.batches.append(Batch(self.end, encoded))
        self.end += len(encoded)

    def lose_end(self, count: int = 1) -> int:
        """Lose the last batches, which were not written completely or not synced to the disk.

        Returns:
            The new end of the log.
        """
        lost = self._last(count)
        if lost:
            del self.batches[-len(lost) :]
            self.end = lost[0].offset
        return self.end

    def flip_bit(self, count: int, number: int) -> int:
        """Flip one bit of the last batches, as a bad disk does.

        The checksums must detect it.

        Args:
            count: How many batches.
            number: Number of the bit in these batches, modulo the number of bits.

        Returns:
            The offset of the batch that was hit.
        """
        written = [(batch.offset, _written(batch)) for batch in self._last(count)]
        data = bytearray(b"".join(each for _, each in written))
        if not data:
            return self.end
        at, bit = divmod(number % (8 * len(data)), 8)
        data[at] ^= 1 << bit
        self._damaged = (written[0][0], bytes(data))
        for offset, each in written:
            if at < len(each):
                return offset
            at -= len(each)
        raise AssertionError("the bit is in none of the batches")

    def _last(self, count: int) -> list[Batch]:
        """Return the last batches that compaction has not processed.

        Compacted batches are synced, and truncation cannot restore the batches that they replaced.
        """
        return [batch for batch in self.batches[-count:] if batch.offset >= self._cleaned_to]

    def open(self) -> None:
        """Open the log like a starting broker, which truncates damaged batches."""
        if self._damaged is None:
            return
        first, data = self._damaged
        self._damaged = None
        self.batches = [batch for batch in self.batches if batch.offset < first]
        self.end = first
        for header, batch in sound(_whole(data), first, LEADER_EPOCH):
            records = tuple((each.key or b"", each.value) for each in decode_records(batch))
            self.batches.append(Batch(header.base_offset, records))
            self.end = header.next_offset

    def compact(self) -> None:
        """Compact all batches but the last: keep the newest record of each key.

        Tombstones stay, as they do in Kafka for a day. Damaged batches are not touched.
        """
        last = self.end if self._damaged is None else self._damaged[0]
        cleaned = [batch for batch in self.batches[:-1] if batch.offset < last]
        newest: dict[bytes, tuple[int, Encoded]] = {}
        self._cleaned_to = max([self._cleaned_to, *(b.offset + len(b.records) for b in cleaned)])
        for batch in cleaned:
            for offset, record in enumerate(batch.records, batch.offset):
                newest[record[0]] = (offset, record)
        kept = sorted(newest.values(), key=lambda entry: entry[0])
        self.batches[: len(cleaned)] = [Batch(offset, (record,)) for offset, record in kept]

    def read(self, start: int = 0, end: int | None = None) -> list[GroupRecord]:
        """Return records, oldest first.

        Args:
            start: Offset of the first.
            end: Offset after the last; None: to the end.
        """
        end = self.end if end is None else end
        return [
            record
            for batch in self.batches
            if start <= batch.offset < end
            for encoded in batch.records
            if (record := decoded(*encoded)) is not None
        ]

    @property
    def middle(self) -> int:
        """Return the offset of a batch in the middle of the log."""
        half = self.end // 2
        return next((each.offset for each in self.batches if each.offset >= half), self.end)

    def __len__(self) -> int:
        return len(self.batches)


def _written(batch: Batch) -> bytes:
    """Return a batch as the bytes on a broker's disk."""
    records = [Record(at, 0, *each) for at, each in enumerate(batch.records, batch.offset)]
    return encode_batch(records, leader_epoch=LEADER_EPOCH)


def _whole(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches at the start of some bytes, up to an invalid header."""
    with suppress(RemoteProtocolError):
        yield from iter_batches(data)
