"""A region's output for the flights: each with its aircraft's total delay so far, in minutes.

The totals are state that moves with its partition. After a kill they are correct only if state,
position and output were restored together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.region import KeyedState
    from kohort.types import TopicPartition

TOTAL = "late_so_far"


def flight_fields() -> pa.Schema:
    """Return the columns of a flight in the topic."""
    import pyarrow as pa

    texts = dict.fromkeys(("carrier", "tailnum", "origin", "dest"), pa.string())
    types = texts | dict.fromkeys(("flight", "month", "day"), pa.int32())
    names = ("id", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "month", "day")
    return pa.schema([(name, types.get(name, pa.int64())) for name in names])


def columns() -> pa.Schema:
    """Return the columns of the table written by a region."""
    import pyarrow as pa

    place = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
    made = [("application", pa.string()), (TOTAL, pa.int64())]
    return pa.schema([*place, *flight_fields(), *made])


def totals(flights: Iterable[tuple[str | None, int | None]], state: dict[str, int]) -> list[int]:
    """Return the accumulated minutes of delay of each flight's aircraft, including this flight.

    Args:
        flights: Aircraft and departure delay, in the order of the partition.
        state: The previous minutes of each aircraft; changed in place.
    """
    found = []
    for aircraft, delay in flights:
        known = aircraft or ""
        state[known] = state.get(known, 0) + (delay or 0)
        found.append(state[known])
    return found


def with_totals(rows: pa.Table, state: dict[str, int]) -> pa.Table:
    """Return rows of one partition with the column of totals added."""
    import pyarrow as pa

    flights = zip(rows["tailnum"].to_pylist(), rows["dep_delay"].to_pylist(), strict=True)
    return rows.append_column(TOTAL, pa.array(totals(flights, state), pa.int64()))


def totals_of_batches(
    _place: TopicPartition, batches: Iterable[pa.RecordBatch], state: KeyedState
) -> Iterator[pa.RecordBatch]:
    """Do the same in a function for `kohort.spark.region_sink`."""
    import pyarrow as pa

    for batch in batches:
        yield from with_totals(pa.Table.from_batches([batch]), state).to_batches()
