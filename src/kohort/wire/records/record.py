"""A record as an object."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record of a partition.

    A named tuple, the fastest type to create in Python, as there are millions of them.

    Attributes:
        offset: Its offset.
        timestamp: Milliseconds since the epoch; the batch says by which clock.
        key: Its key, or None.
        value: Its value, or None, which in a compacted topic deletes the key.
        headers: Names and values (KIP-82), in order; names may repeat.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
