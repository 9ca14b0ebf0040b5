"""Converts rows returned by the application's function to a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def table_of(rows: object, schema: pa.Schema | None) -> pa.Table:
    """Return rows as a table; missing fields become null.

    Args:
        rows: An iterable of mappings.
        schema: The columns; None: the rows' own.

    Raises:
        TypeError: `rows` is not an iterable of mappings, or a value's type differs from its
            column's.
        ValueError: A row has a field that is not a column, or a value does not fit its column.
    """
    import pyarrow as pa

    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"{_shown(rows)}; rows are an iterable of mappings, or an Arrow table")
    given: list[Any] = list(rows)
    names = None if schema is None else frozenset(schema.names)
    for row in given:
        _check_row(row, names)
    if schema is None:
        return pa.Table.from_pylist(given)
    columns = [_column(given, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _check_row(row: object, names: frozenset[str] | None) -> None:
    if not isinstance(row, Mapping):
        raise TypeError(f"{_shown(row)} as a row; a row is a mapping from columns to values")
    unknown = sorted(map(str, row.keys() - names)) if names is not None else []
    if unknown:
        raise ValueError(
            f"a row has the field {unknown[0]!r}, which is not a column of the sink's schema: "
            f"{', '.join(sorted(names or ()))}"
        )


def _column(rows: list[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    values = [row.get(field.name) for row in rows]
    if pa.types.is_integer(field.type):  # Arrow would truncate it to an integer
        for value in values:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"column {field.name!r} is {field.type} and cannot have {value!r}")
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise ValueError(f"column {field.name!r} is {field.type}: {error}") from error
    except (pa.ArrowTypeError, TypeError) as error:
        raise TypeError(f"column {field.name!r} is {field.type}: {error}") from error


def _shown(value: object) -> str:
    return f"{value!r:.80} of type {type(value).__name__}"
