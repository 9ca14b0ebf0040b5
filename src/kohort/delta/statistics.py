"""Statistics of a file for a Delta table's log, so that readers can skip it.

Bounds follow the Delta protocol, and are wide enough for the way readers use them: times are
rounded outward to milliseconds, and long texts are shortened to a lower or higher text.

If a file has bounds for some columns, deltalake assumes that no row matches a column without bounds
(seen in 1.6.6). So a file has bounds for every column that can have them, or none at all: NaN,
infinities, years without exactly four digits and bytes that are not UTF-8 have no bound.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

# Longer bounds add little.
LONGEST_TEXT = 64
# A text without a shorter upper bound (all U+10FFFF) is its own bound up to this length.
LONGEST_BOUND = 4096
_HIGHEST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # times without a zone are written like this
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}

_encode = msgspec.json.Encoder(order="sorted").encode
# The JSON of a lowest and a highest value; None if they cannot be written.
_Bounds = tuple[object, object] | None


class FileStatistics:
    """Counts the rows of a file and computes the bounds of its columns while it is written."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: dict[str, _Column] = {}

    def add(self, rows: pa.Table) -> None:
        """Add rows written to the file; the columns are the same each time."""
        self._rows += rows.num_rows
        for name, values in zip(rows.schema.names, rows.columns, strict=True):
            if name not in self._columns:
                self._columns[name] = _column(values.type)
            self._columns[name].add(values)

    def json(self) -> str:
        """Return the statistics for the log, as JSON text."""
        bounds = {name: column.bounds() for name, column in self._columns.items()}
        nulls = {name: column.nulls() for name, column in self._columns.items()}
        found: dict[str, object] = {"numRecords": self._rows, "nullCount": _present(nulls)}
        if not any(column.is_unbounded for column in self._columns.values()):
            found["minValues"] = _present({name: low for name, (low, _) in bounds.items()})
            found["maxValues"] = _present({name: high for name, (_, high) in bounds.items()})
        return _encode(found).decode()


class _Column:
    """A column with neither bounds nor a count of nulls: a list, a map."""

    is_unbounded = False

    def add(self, values: pa.ChunkedArray) -> None:
        pass

    def nulls(self) -> object:
        return None

    def bounds(self) -> tuple[object, object]:
        return None, None


class _Struct(_Column):
    """A column of structs: its statistics are those of its fields.

    A field without bounds does not remove those of other columns.
    """

    def __init__(self, kind: pa.StructType) -> None:
        self._fields = {each.name: _column(each.type) for each in kind}

    def add(self, values: pa.ChunkedArray) -> None:
        for column, inner in zip(self._fields.values(), values.flatten(), strict=True):
            column.add(inner)

    def nulls(self) -> object:
        return _present({name: each.nulls() for name, each in self._fields.items()}) or None

    def bounds(self) -> tuple[object, object]:
        found = {name: each.bounds() for name, each in self._fields.items()}
        low = _present({name: low for name, (low, _) in found.items()})
        high = _present({name: high for name, (_, high) in found.items()})
        return low, high


class _Binary(_Column):
    """A column with a null count but no bounds: Delta has none for bytes."""

    def __init__(self) -> None:
        self._nulls = 0

    def add(self, values: pa.ChunkedArray) -> None:
        self._nulls += values.null_count

    def nulls(self) -> object:
        return self._nulls


class _Plain(_Binary):
    """A column with bounds.

    Args:
        limits: Returns the minimum and maximum of some values, in a comparable form.
        written: Converts both to JSON; returns None if one cannot be written.

    Attributes:
        is_unbounded: Whether it has values but no bounds.
    """

    def __init__(
        self,
        limits: Callable[[pa.ChunkedArray], tuple[Any, Any] | None],
        written: Callable[[Any, Any], _Bounds],
    ) -> None:
        super().__init__()
        self.is_unbounded = False
        self._limits, self._written = limits, written
        self._range: tuple[Any, Any] | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        super().add(values)
        if self.is_unbounded or values.null_count == len(values):
            return
        found = self._limits(values)
        if found is None or self._written(*found) is None:
            self.is_unbounded = True
        else:
            low, high = self._range or found
            self._range = min(low, found[0]), max(high, found[1])

    def bounds(self) -> tuple[object, object]:
        if self._range is None or self.is_unbounded:
            return None, None
        return self._written(*self._range) or (None, None)


def _column(kind: pa.DataType) -> _Column:
    """Return the collector of statistics for a type."""
    import pyarrow.types as types

    if types.is_struct(kind):
        return _Struct(kind)
    for fits, limits, written in _plain_types():
        if fits(kind):
            return _Plain(limits, written(kind))
    return _Binary() if types.is_binary(kind) or types.is_large_binary(kind) else _Column()


def _plain_types() -> Iterator[tuple[Callable[[pa.DataType], bool], Any, Any]]:
    import pyarrow.types as types

    for fits in (types.is_boolean, types.is_integer):
        yield fits, _min_max, lambda _: _as_they_are
    yield types.is_floating, _min_max_of_numbers, lambda _: _as_they_are
    yield types.is_decimal, _min_max, lambda _: _decimals
    yield types.is_date32, _min_max_as_numbers, lambda _: _dates
    yield types.is_timestamp, _min_max_as_numbers, _times
    for fits in (types.is_string, types.is_large_string):
        yield fits, _min_max, lambda _: _texts


def _min_max(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    import pyarrow.compute as pc

    found = pc.min_max(values)
    try:
        return found["min"].as_py(), found["max"].as_py()
    except UnicodeDecodeError:
        return None


def _min_max_of_numbers(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return None if a value is NaN, which Spark sorts last, or not finite, which JSON lacks."""
    import pyarrow.compute as pc

    return _min_max(values) if pc.all(pc.is_finite(values)).as_py() else None


def _min_max_as_numbers(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return days or ticks since 1970: Python's dates do not cover all years of a column."""
    import pyarrow as pa

    number = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    return _min_max(values.cast(number))


def _as_they_are(low: object, high: object) -> _Bounds:
    return low, high


def _decimals(low: decimal.Decimal, high: decimal.Decimal) -> _Bounds:
    """Return all digits without an exponent, the only form that deltalake reads."""
    return msgspec.Raw(f"{low:f}".encode()), msgspec.Raw(f"{high:f}".encode())


def _dates(low: int, high: int) -> _Bounds:
    try:
        first, last = (datetime.date.fromordinal(_EPOCH_DAY + days) for days in (low, high))
    except (ValueError, OverflowError):
        return None
    return first.isoformat(), last.isoformat()


def _times(kind: pa.TimestampType) -> Callable[[int, int], _Bounds]:
    """Return times in milliseconds, as in Delta: the lower bound rounded down, the upper one up."""
    more, fewer = _PER_MS[kind.unit]
    zone = "Z" if kind.tz else ""

    def text(ms: int) -> str:
        moment = _EPOCH + datetime.timedelta(milliseconds=ms)
        return moment.isoformat(timespec="milliseconds") + zone

    def written(low: int, high: int) -> _Bounds:
        try:
            return text(low * more // fewer), text(-(-high * more // fewer))
        except OverflowError:
            return None

    return written


def _texts(low: str, high: str) -> _Bounds:
    upper = _upper_bound(high)
    return None if upper is None else (low[:LONGEST_TEXT], upper)


def _upper_bound(text: str) -> str | None:
    """Return the text or a shorter one that is greater; None if it is long and there is none."""
    if len(text) <= LONGEST_TEXT:
        return text
    for last in range(LONGEST_TEXT - 1, -1, -1):
        code = ord(text[last]) + 1
        if code <= _HIGHEST_CHARACTER:
            return text[:last] + chr(_SURROGATES.stop if code in _SURROGATES else code)
    return text if len(text) <= LONGEST_BOUND else None


def _present(values: Mapping[str, object]) -> dict[str, object]:
    """Return the entries that are not None."""
    return {name: value for name, value in values.items() if value is not None}
