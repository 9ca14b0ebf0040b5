"""A compacted topic as a table: the last value of each key, as compaction would leave it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.spark")

KEY, VALUE = "key", "value"
# Minimum number of rows to read before those with an older value are dropped.
_TOGETHER = 200_000


def latest(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], where: str
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the last record of each key, except keys whose last record has no value.

    Memory grows with the number of keys. Records without a key are not rows of the table; the log
    says how many there were.

    Args:
        batches: All records of one partition in order, with their keys and values.
        columns: The requested columns.
        where: The partition, for messages.
    """
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    new = keyless = 0
    limit = _TOGETHER
    for batch in batches:
        keyless += batch[KEY].null_count
        kept.append(batch)
        new += len(batch)
        if new >= limit:
            table = _compacted(pa.Table.from_batches(kept))
            kept, new, limit = table.to_batches(), 0, max(_TOGETHER, len(table))
    if keyless:
        log.warning("%s: %d records without a key are left out of the table", where, keyless)
    if kept:
        yield from _compacted(pa.Table.from_batches(kept)).select(columns).to_batches()


def _compacted(table: pa.Table) -> pa.Table:
    """Return the last row of each key, without keys whose last row has no value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = table.filter(pc.is_valid(table[KEY]))
    numbered = pa.table({KEY: table[KEY], "at": pa.array(range(len(table)), pa.int64())})
    last = numbered.group_by(KEY).aggregate([("at", "max")])["at_max"]
    found = table.take(last.sort())
    return found.filter(pc.is_valid(found[VALUE])).combine_chunks()
