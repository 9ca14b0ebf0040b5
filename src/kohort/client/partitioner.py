"""Which partition a record goes to: by its key as in Java, without one to each for a while."""

from __future__ import annotations

import random

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Return Java's `Utils.murmur2` of `data`, as an unsigned number of 32 bits."""
    data = bytes(data)
    whole = len(data) & ~3
    h = _SEED ^ len(data)
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """Return the partition of a key among so many, the same that every Java producer chooses."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses partitions for records without a key: one until a batch is full, then another.

    Full batches are what brokers and networks like (KIP-480, KIP-794).

    Args:
        sticky_bytes: After so many bytes another partition is chosen (`batch.size`).
        chance: Where the choice comes from.
    """

    def __init__(self, sticky_bytes: int, chance: random.Random | None = None) -> None:
        self._sticky_bytes = max(1, sticky_bytes)
        self._chance = chance or random.Random()
        self._current: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, partitions: int, size: int) -> int:
        """Return the partition of a record.

        Args:
            topic: Its topic.
            partitions: How many partitions the topic has.
            size: Bytes of the record.
        """
        chosen, used = self._current.get(topic, (-1, 0))
        if not 0 <= chosen < partitions or used >= self._sticky_bytes:
            chosen, used = self._other(chosen, partitions), 0
        self._current[topic] = chosen, used + size
        return chosen

    def _other(self, last: int, partitions: int) -> int:
        if partitions == 1:
            return 0
        if not 0 <= last < partitions:
            return self._chance.randrange(partitions)
        step = 1 + self._chance.randrange(partitions - 1)
        return (last + step) % partitions
