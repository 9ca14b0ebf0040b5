"""What a history has to end with: no record lost, and none twice but where the documentation says.

Two sinks are counted. The Delta table of `DeltaAppend` has each record once, whatever happened. The
other one only appends: a line for each batch that came. There a record may be again what was in the
last batch of a run that did not end in order, and what was set back for the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Record = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """A batch that came to the sink.

    Attributes:
        run: Which start of which query.
        number: The batch's number.
        records: Partition and offset of each.
    """

    run: str
    number: int
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Setback:
    """The group was set back, or deleted.

    Attributes:
        offsets: Where to, by partition.
    """

    offsets: Mapping[int, int]


def problems(
    produced: Mapping[int, int],
    table: Counter[Record],
    batches: Iterable[Batch],
    unfinished: Iterable[str],
    setbacks: Iterable[Setback],
) -> Iterator[str]:
    """Yield what is wrong with the end of a history.

    Args:
        produced: How many records each partition has.
        table: The records in the Delta table.
        batches: What the appending sink was given, in any order.
        unfinished: Runs that did not end in order.
        setbacks: What was done to the group's offsets.
    """
    expected = {(p, offset) for p, count in produced.items() for offset in range(count)}
    given = list(batches)
    appended = Counter(record for batch in given for record in batch.records)
    yield from _compared("DeltaAppend", expected, table, Counter())
    allowed = _allowed(given, frozenset(unfinished), list(setbacks))
    yield from _compared("the sink that appends", expected, appended, allowed)


def _compared(
    sink: str, expected: set[Record], found: Counter[Record], allowed: Counter[Record]
) -> Iterator[str]:
    for what, records in (
        ("lost", expected - found.keys()),
        ("never produced", found.keys() - expected),
        ("repeated", {record for record, n in found.items() if n - 1 > allowed[record]}),
    ):
        if records:
            yield f"{sink}: {len(records)} records {what}: {ranges(records)}"


def _allowed(
    batches: list[Batch], unfinished: frozenset[str], setbacks: list[Setback]
) -> Counter[Record]:
    """How often each record may be there again."""
    last: dict[str, int] = {}
    for batch in batches:
        last[batch.run] = max(batch.number, last.get(batch.run, -1))
    allowed: Counter[Record] = Counter()
    for batch in batches:
        if batch.run in unfinished and batch.number == last[batch.run]:
            allowed.update(batch.records)
    appended = {record for batch in batches for record in batch.records}
    for setback in setbacks:
        allowed.update(r for r in appended if r[1] >= setback.offsets.get(r[0], 0))
    return allowed


def ranges(records: Iterable[Record]) -> str:
    """Show records as ranges: `0: 5-9, 12; 1: 0`."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(records):
        offsets[partition].append(offset)
    return "; ".join(f"{p}: {', '.join(_runs(found))}" for p, found in offsets.items())


def _runs(offsets: list[int]) -> Iterator[str]:
    first = last = offsets[0]
    for offset in [*offsets[1:], -1]:
        if offset != last + 1:
            yield str(first) if first == last else f"{first}-{last}"
            first = offset
        last = offset
