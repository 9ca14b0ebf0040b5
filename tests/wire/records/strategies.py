"""Records and batches of every shape, for property tests."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from kohort.wire.records import Compression, Record
from kohort.wire.records._crc32c import crc32c

# Spark's columns have microseconds; the years a clock can show are far inside.
TIMESTAMPS = st.integers(-(2**50), 2**50) | st.integers(1_700_000_000_000, 1_700_000_100_000)

PAYLOADS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=8)), max_size=3).map(tuple)

CODECS = st.sampled_from(Compression)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = True) -> list[Record]:
    """Return records at rising offsets; with `gaps` as compaction leaves them."""
    offset = draw(st.integers(0, 2**40)) if gaps else 0
    records = []
    for _ in range(draw(st.integers(1, 12))):
        headers = draw(st.just(()) | HEADERS)
        records.append(Record(offset, draw(TIMESTAMPS), draw(PAYLOADS), draw(PAYLOADS), headers))
        offset += draw(st.integers(1, 300)) if gaps else 1
    return records


def with_crc(batch: bytes) -> bytes:
    """Return the batch with the CRC that its bytes have."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def batch_of(
    section: bytes, count: int, last_offset_delta: int = 100, attributes: int = 0
) -> bytes:
    """Return a batch around bytes that claim to be its records."""
    length = 49 + len(section)
    head = struct.pack(">qiibI", 0, length, 0, 2, 0)
    rest = struct.pack(">hiqqqhii", attributes, last_offset_delta, 1000, 1000, -1, -1, -1, count)
    return with_crc(head + rest + section)
