"""Whether a stream fits a Delta table: columns, their types, and what partitions the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from kohort.delta.positions import DeltaAppendError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

# What to do with a column of the stream that the table lacks: refuse it, or add it.
SchemaMode = Literal["strict", "merge"]
# Others may be adding columns at the same time.
ATTEMPTS = 20


def fit_columns(table: DeltaTable, schema: pa.Schema, mode: SchemaMode, uri: str) -> None:
    """Make sure that rows with `schema` can be appended, by adding columns where that is allowed.

    Args:
        table: The table; up to date afterwards.
        schema: Columns of the rows.
        mode: Whether columns may be added.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: Names the column that does not fit.
    """
    import pyarrow as pa
    from deltalake import Schema
    from deltalake.exceptions import DeltaError

    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        missing = _missing(table, schema, uri)
        if not missing:
            return
        if mode != "merge":
            raise DeltaAppendError(
                f"{uri}: the table has no column {missing[0].name!r}; pass schema_mode='merge' to "
                "add new columns, or leave it out of the stream"
            )
        try:
            table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        except DeltaError as error:  # another writer may have added it, or committed in between
            failure = error
        table.update_incremental()
    names = ", ".join(repr(column.name) for column in _missing(table, schema, uri))
    raise DeltaAppendError(f"{uri}: the columns {names} could not be added: {failure}")


def check_types(schema: pa.Schema, uri: str) -> None:
    """Refuse columns of types that Delta tables do not have.

    Args:
        schema: Columns of the rows.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: Names the column.
    """
    import pyarrow as pa
    from deltalake import Schema

    for column in schema:
        try:
            Schema.from_arrow(pa.schema([column]))
        except Exception as error:  # deltalake raises a bare Exception
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} is {column.type}, which a Delta table cannot have; "
                "cast it in the stream, or leave it out"
            ) from error


def _missing(table: DeltaTable, schema: pa.Schema, uri: str) -> list[pa.Field]:
    """Return the columns that the table lacks; refuse what cannot be made to fit."""
    import pyarrow as pa

    present = {column.name: column for column in pa.schema(table.schema().to_arrow())}
    alike = {name.lower(): name for name in present}
    for column in schema:
        twin = alike.get(column.name.lower(), column.name)
        if twin != column.name:
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} differs from the table's {twin!r} in case only"
            )
        if column.name in present and column.type != present[column.name].type:
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} is {present[column.name].type} in the table "
                f"and {column.type} in the stream; cast it in the stream, types do not change"
            )
    absent = [
        name for name, column in present.items() if not column.nullable and name not in schema.names
    ]
    if absent:
        raise DeltaAppendError(
            f"{uri}: column {absent[0]!r} of the table must not be null and the stream lacks it"
        )
    return [column for column in schema if column.name not in present]


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str], uri: str) -> None:
    """Refuse partition columns that a new table cannot have.

    Args:
        schema: Columns of the table.
        partition_by: Partition columns.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: Names the column.
    """
    import pyarrow.types as types

    for name in partition_by:
        if name not in schema.names:
            raise DeltaAppendError(
                f"{uri}: partition_by names {name!r}, and the stream has {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        fits = (types.is_string, types.is_integer, types.is_boolean, types.is_date)
        if not any(fit(kind) for fit in fits):
            raise DeltaAppendError(
                f"{uri}: partition_by names {name!r}, which is {kind}; a partition column is a "
                "string, integer, boolean or date"
            )
    if partition_by and len(partition_by) == len(schema.names):
        raise DeltaAppendError(f"{uri}: partition_by names all columns; one must remain")


def check_same_partitions(present: Iterable[str], wanted: Sequence[str] | None, uri: str) -> None:
    """Refuse another partitioning than the table has.

    Args:
        present: Partition columns of the table.
        wanted: What the caller asks for, None when it does not matter.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: Names both.
    """
    found = list(present)
    if wanted and list(wanted) != found:
        raise DeltaAppendError(
            f"{uri}: the table is partitioned by {', '.join(found) or 'nothing'}, not by "
            f"{', '.join(wanted)}; partition_by counts only when the table is created"
        )
