"""A reader of the table of `kohort demo`, which polls it while the applications write.

The output of a region must be a consistent cut at every moment: the records of each partition from
the first one without a gap, each exactly once, with the totals of an undisturbed run. The reader
checks this against the topic's order and the data set's own figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.demo.actors import commands, say
from kohort.demo.settings import PARTITIONS
from kohort.demo.totals import TOTAL, totals

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from deltalake import DeltaTable

    from kohort.client import Consumer

_LOOK_S = 0.05
_POLL_MS = 200
_COLUMNS = ("partition", "offset", "id", TOTAL)


class Truth:
    """The expected content of each partition: the flights in order, with their totals.

    Args:
        flights: The data set.
    """

    def __init__(self, flights: pa.Table) -> None:
        self._aircraft = flights["tailnum"].to_pylist()
        self._delays = flights["dep_delay"].to_pylist()
        self._states: dict[int, dict[str, int]] = {}
        self._ids: dict[int, list[int]] = {}
        self._totals: dict[int, list[int]] = {}

    def add(self, partition: int, ids: Iterable[int]) -> None:
        """Add the next records of a partition, by the flights' row numbers."""
        new = list(ids)
        flights = ((self._aircraft[each], self._delays[each]) for each in new)
        state = self._states.setdefault(partition, {})
        self._totals.setdefault(partition, []).extend(totals(flights, state))
        self._ids.setdefault(partition, []).extend(new)

    def known(self, partition: int) -> int:
        """Return how many records of a partition are known."""
        return len(self._ids.get(partition, ()))

    def prefix(self, partition: int, count: int) -> tuple[list[int], list[int]]:
        """Return row numbers and totals of a partition's first records."""
        return self._ids.get(partition, [])[:count], self._totals.get(partition, [])[:count]


def what_is_wrong(columns: Mapping[str, np.ndarray], truth: Truth) -> str:
    """Return why a snapshot is not a consistent cut; empty if it is.

    Args:
        columns: Partition, offset, id and total of all rows.
        truth: The expected content, with all records of the snapshot.
    """
    import numpy as np

    order = np.lexsort((columns["offset"], columns["partition"]))
    ordered = {name: columns[name][order] for name in _COLUMNS}
    for partition in np.unique(ordered["partition"]).tolist():
        is_here = ordered["partition"] == partition
        rows = {name: column[is_here] for name, column in ordered.items()}
        wrong = _wrong_in(rows, *truth.prefix(partition, int(is_here.sum())))
        if wrong:
            return f"partition {partition}{wrong}"
    return ""


def _wrong_in(rows: Mapping[str, np.ndarray], ids: list[int], wanted: list[int]) -> str:
    """Return how the ordered rows of a partition differ from its first records."""
    import numpy as np

    count = len(rows["offset"])
    odd = np.flatnonzero(rows["offset"] != np.arange(count))
    if odd.size:
        at, found = int(odd[0]), int(rows["offset"][odd[0]])
        what = "is there twice" if found < at else "is the next one: records are missing"
        return f": after {at} records offset {found} {what}"
    if rows["id"].tolist() != ids:
        return f": its first {count} records are others"
    odd = np.flatnonzero(rows[TOTAL] != np.array(wanted))
    if odd.size:
        at = int(odd[0])
        return f", offset {at}: total {rows[TOTAL][at]} instead of {wanted[at]}"
    return ""


class Reader:
    """Checks every version of the table, one after the other.

    Args:
        table: Path of the table.
        consumer: Reads the topic from its beginning, without a group.
        truth: The records read so far.
    """

    def __init__(self, table: str, consumer: Consumer, truth: Truth) -> None:
        self._path = table
        self._consumer = consumer
        self._truth = truth
        self._version = 0
        self._table: DeltaTable | None = None
        # Files never change, so each is read once; a version determines which are visible.
        self._files: dict[str, pa.Table] = {}

    def look(self) -> bool:
        """Check new versions, and report to the demo; return False once one is wrong."""
        from deltalake import DeltaTable

        if self._table is None:
            if not DeltaTable.is_deltatable(self._path):
                return True
            self._table = DeltaTable(self._path)
        newest = DeltaTable(self._path).version()
        while self._version < newest:
            self._version += 1
            self._table.load_as_version(self._version)
            if not self._check(self._table.file_uris()):
                return False
        return True

    def _check(self, files: Iterable[str]) -> bool:
        import numpy as np

        columns = self._read(files)
        self._learn(np.bincount(columns["partition"], minlength=PARTITIONS).tolist())
        wrong = what_is_wrong(columns, self._truth)
        rows = len(columns["partition"])
        if wrong:
            say("wrong", why=f"version {self._version} with {rows:,} flights: {wrong}")
            return False
        say("snapshot", records=rows)
        return True

    def _read(self, files: Iterable[str]) -> dict[str, np.ndarray]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(files)
        for name in names:
            if name not in self._files:
                self._files[name] = pq.ParquetFile(name).read(columns=list(_COLUMNS))
        rows = pa.concat_tables([self._files[name] for name in names])
        return {name: rows[name].to_numpy() for name in _COLUMNS}

    def _learn(self, counts: Sequence[int]) -> None:
        """Read the topic as far as a snapshot goes; do not wait for records beyond that."""
        ends = self._consumer.end_offsets(self._consumer.assignment())
        wanted = {tp.partition: min(counts[tp.partition], end) for tp, end in ends.items()}
        while any(self._truth.known(each) < count for each, count in wanted.items()):
            for place, records in self._consumer.poll(_POLL_MS).items():
                ids = (json.loads(record.value or b"")["id"] for record in records)
                self._truth.add(place.partition, ids)


def main() -> None:
    """Check until asked to stop, then once more; end early if a version is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("bootstrap", "topic", "table"):
        parser.add_argument(f"--{option}", required=True)
    arguments = parser.parse_args()
    from kohort.client import Consumer
    from kohort.demo.flights import load_table
    from kohort.types import TopicPartition

    orders, truth = commands(), Truth(load_table())
    with Consumer(
        bootstrap_servers=arguments.bootstrap,
        client_id="reader",
        auto_offset_reset="earliest",
        max_poll_records=20_000,
    ) as consumer:
        consumer.assign([TopicPartition(arguments.topic, number) for number in range(PARTITIONS)])
        reader = Reader(arguments.table, consumer, truth)
        say("ready")
        is_good = True
        while orders.empty() and is_good:
            is_good = reader.look()
            time.sleep(_LOOK_S)
        if is_good:
            reader.look()
    say("drained")


if __name__ == "__main__":
    main()
