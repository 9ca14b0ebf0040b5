"""Choose the partition of a record: by its key, as in Java or as in librdkafka.

Records without a key go to one partition until a batch is full, then to another.
"""

from __future__ import annotations

import zlib

from kohort.client.config.definitions import Partitioner
from kohort.client.producer._open_batches import StickyPartitioner, murmur2

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key", "partitioner_named"]


def partition_for_key(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """Return the partition of a key, the same one that Java producers choose."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def consistent_random(_topic: str, key: bytes | None, partitions: int) -> int | None:
    """Return the partition that librdkafka chooses by default; None for an empty or missing key."""
    return zlib.crc32(key) % partitions if key else None


def partitioner_named(given: str | Partitioner) -> Partitioner | None:
    """Return the partitioner for the setting `partitioner`; None for Java's, which is built in."""
    if callable(given):
        return given
    return consistent_random if given == "consistent_random" else None
