"""Checks that a stream fits a Delta table: columns, types, and partition columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from kohort.delta.positions import DeltaAppendError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

# How to treat a column of the stream that the table lacks: refuse or add it.
SchemaMode = Literal["strict", "merge"]
# The key under which PySpark passes a column's metadata.
_SPARK_METADATA = b"SPARK::metadata::json"
# Other writers may add columns at the same time.
ATTEMPTS = 20


def fit_columns(table: DeltaTable, schema: pa.Schema, mode: SchemaMode, uri: str) -> None:
    """Ensure that rows with `schema` can be appended; add columns if allowed.

    Args:
        table: The table; updated to the latest version.
        schema: Columns of the rows.
        mode: Whether columns may be added.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: A column does not fit; the message names it.
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
        check_times_in_maps(pa.schema(missing), table, uri)
        try:
            table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        except DeltaError as error:  # another writer may have added it, or committed meanwhile
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
        DeltaAppendError: A column has such a type; the message names it.
    """
    import pyarrow as pa
    from deltalake import Schema

    _check_case(schema.names, uri)
    for column in schema:
        if "null" in _words(column.type):
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} is {column.type}, and null (VOID in Spark) is not "
                "a type of Delta tables: it holds only nulls, and does not say of which "
                "type; cast it in the stream, or leave it out"
            )
        try:
            Schema.from_arrow(pa.schema([column]))
        except Exception as error:  # deltalake raises a bare Exception
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} is {column.type}, which a Delta table cannot have "
                f"({error}); cast it in the stream, or leave it out"
            ) from error


def _check_case(names: Iterable[str], uri: str) -> None:
    """Refuse names that differ only in case: to Delta they are one column."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise DeltaAppendError(
                f"{uri}: the columns {other!r} and {name!r} differ only in case, and a Delta table "
                "cannot have both; rename one in the stream, or leave it out"
            )


def _words(kind: pa.DataType) -> set[str]:
    """Return the types that a type consists of, without names."""
    import pyarrow as pa

    inner = [kind.field(number).type for number in range(kind.num_fields)]
    if isinstance(kind, pa.MapType):
        inner = [kind.key_type, kind.item_type]
    return set().union(*map(_words, inner)) if inner else {str(kind)}


def check_times_in_maps(schema: pa.Schema, table: DeltaTable | None, uri: str) -> None:
    """Refuse a map with times without a zone, which would make the table unreadable.

    deltalake 1.6.6 does not search maps for types that need the feature timestampNtz.

    Args:
        schema: Columns of the future table.
        table: The table; None if it is to be created.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: A column contains such a map; the message names it.
    """
    features = table.protocol().writer_features if table is not None else ()
    places = {each.name: set(_times_without_zone(each.type)) for each in schema}
    if "timestampNtz" in (features or ()) or any(False in found for found in places.values()):
        return
    inside = [name for name, found in places.items() if found]
    if inside:
        raise DeltaAppendError(
            f"{uri}: column {inside[0]!r} is a map with times that have no zone, for which "
            "deltalake cannot prepare the table; cast them to TIMESTAMP in the stream"
        )


def _times_without_zone(kind: pa.DataType, in_map: bool = False) -> Iterator[bool]:
    """Yield, for each time without a zone in a type, whether it is inside a map."""
    import pyarrow as pa

    if isinstance(kind, pa.TimestampType) and kind.tz is None:
        yield in_map
    if isinstance(kind, pa.MapType):
        yield from _times_without_zone(kind.key_type, in_map=True)
        yield from _times_without_zone(kind.item_type, in_map=True)
    elif isinstance(kind, pa.ListType):
        yield from _times_without_zone(kind.value_type, in_map)
    elif isinstance(kind, pa.StructType):
        for each in kind:
            yield from _times_without_zone(each.type, in_map)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a fully nullable schema, like Spark's own writers of Delta tables."""
    import pyarrow as pa

    return pa.schema([_nullable_field(each) for each in schema])


def _nullable_field(column: pa.Field) -> pa.Field:
    """Return the column with its comment; other metadata may be rules of its original table."""
    import pyarrow as pa

    comment = _comment(column.metadata or {})
    kept = {"comment": comment} if comment else None
    return pa.field(column.name, nullable_type(column.type), metadata=kept)


def _comment(metadata: Mapping[bytes, bytes]) -> str:
    if _SPARK_METADATA in metadata:
        return str(json.loads(metadata[_SPARK_METADATA]).get("comment", ""))
    return metadata.get(b"comment", b"").decode()


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with all fields nullable except the keys of maps."""
    import pyarrow as pa

    if isinstance(kind, pa.StructType):
        return pa.struct([_nullable_field(each) for each in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(nullable_type(kind.value_type))
    if isinstance(kind, pa.MapType):
        return pa.map_(nullable_type(kind.key_type), nullable_type(kind.item_type))
    return kind


def _is_same(column: pa.Field, present: pa.Field) -> bool:
    """Whether a column has the table's type; nulls are checked in the rows."""
    return bool(nullable_type(column.type) == nullable_type(present.type))


def _missing(table: DeltaTable, schema: pa.Schema, uri: str) -> list[pa.Field]:
    """Return the columns that the table lacks; refuse columns that cannot fit."""
    import pyarrow as pa

    present = {column.name: column for column in pa.schema(table.schema().to_arrow())}
    alike = {name.lower(): name for name in present}
    for column in schema:
        twin = alike.get(column.name.lower(), column.name)
        if twin != column.name:
            raise DeltaAppendError(
                f"{uri}: column {column.name!r} differs from the table's {twin!r} only in case"
            )
        if column.name in present and not _is_same(column, present[column.name]):
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


def completed(schema: pa.Schema, table: DeltaTable) -> pa.Schema:
    """Return columns with the table's missing ones added, which files then store as nulls.

    Readers that look for nulls in a column skip a file without information about the column
    (deltalake 1.6.6).

    Args:
        schema: Columns of the rows, which fit the table.
        table: The table.
    """
    import pyarrow as pa

    present = pa.schema(table.schema().to_arrow())
    missing = [
        each
        for each in present
        # a variant has fields that must not be null
        if each.name not in schema.names and each.type == nullable_type(each.type)
    ]
    return pa.schema([*schema, *nullable(pa.schema(missing))])


def check_partition_columns(schema: pa.Schema, partition_by: Sequence[str], uri: str) -> None:
    """Refuse partition columns that a new table cannot have.

    Args:
        schema: Columns of the table.
        partition_by: Partition columns.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: A partition column is unsuitable; the message names it.
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
    """Refuse a partitioning that differs from the table's.

    Args:
        present: Partition columns of the table.
        wanted: The requested partition columns, None for any.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: They differ; the message names both.
    """
    found = list(present)
    if wanted and list(wanted) != found:
        raise DeltaAppendError(
            f"{uri}: the table is partitioned by {', '.join(found) or 'nothing'}, not by "
            f"{', '.join(wanted)}; partition_by counts only when the table is created"
        )
