"""The table rules that writers must follow (Delta protocol, "Requirements for Writers").

kohort supports those of `FEATURES` and NOT NULL. It refuses a table with any other rule before
writing a record; the error names the rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from kohort.delta.positions import DeltaAppendError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kohort.delta.reports import WrittenFile


class Asked(Struct, frozen=True):
    """The demands that a table feature makes on a program that writes files.

    Attributes:
        appends: A rule of columns or settings that is checked below: a table may list
            checkConstraints without having a constraint. Empty: none.
        compaction: Why files cannot be replaced with others that have the same rows; empty if they
            can be.
    """

    appends: str = ""
    compaction: str = ""


# Tables with any other feature are refused.
FEATURES: Mapping[str, Asked] = {
    "appendOnly": Asked(),
    "changeDataFeed": Asked(),
    "checkConstraints": Asked(appends="CHECK"),
    "columnMapping": Asked(appends="a mode other than none", compaction="names may differ"),
    "deletionVectors": Asked(compaction="deleted rows would come back"),
    "generatedColumns": Asked(appends="a generated column"),
    "invariants": Asked(appends="an invariant"),
    "timestampNtz": Asked(),
    "v2Checkpoint": Asked(),
    "variantType": Asked(compaction="variants are not read"),
}
_CONSTRAINT = "delta.constraints."
_COLUMN_RULES = {
    "delta.generationExpression": "a generated column",
    "delta.invariants": "an invariant",
    "delta.identity.step": "an identity column",
}
# The writer version with identity columns, which deltalake does not write.
_IDENTITY_VERSION = 6
_FEATURES_VERSION = 7

# The path of a value in a row: the column, and the fields inside it; `element` in a list, `value`
# in a map.
FieldPath: TypeAlias = tuple[str, ...]


def check_rules(table: DeltaTable, uri: str) -> None:
    """Refuse a table with a rule that rows might violate, or that affects how files are written.

    Args:
        table: The table.
        uri: Its name for error messages.

    Raises:
        DeltaAppendError: The table has such a rule; the message names it.
    """
    rule = next(_rules(table), None)
    if rule is not None:
        raise DeltaAppendError(
            f"{uri}: the table has {rule}, which kohort cannot keep, so nothing is appended. "
            "Append to a table without it, and copy from there with a writer that keeps it"
        )


def compaction_obstacles(table: DeltaTable) -> dict[str, str]:
    """Return the features that forbid replacing files with others of the same rows, and why.

    Args:
        table: The table.
    """
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    unknown = Asked(compaction="kohort does not know it")
    asked = {name: FEATURES.get(name, unknown).compaction for name in sorted(features)}
    return {name: why for name, why in asked.items() if why}


def _rules(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    unknown = {*(protocol.writer_features or ())} - FEATURES.keys()
    if unknown:
        yield f"the feature {', '.join(sorted(unknown))}"
    if _IDENTITY_VERSION <= protocol.min_writer_version != _FEATURES_VERSION:
        yield f"the writer version {protocol.min_writer_version}"
    configuration = table.metadata().configuration
    for name, value in sorted(configuration.items()):
        if name.startswith(_CONSTRAINT):
            yield f"the constraint {name.removeprefix(_CONSTRAINT)}: CHECK ({value})"
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "column mapping"
    for path, metadata in _metadata(table.schema().to_arrow()):
        for key, kind in _COLUMN_RULES.items():
            if key in metadata:
                yield f"{kind}, {dotted(path)} ({metadata[key]})"
    yield from _required_in_nullable(table)


def _required_in_nullable(table: DeltaTable) -> Iterator[str]:
    """Return a non-nullable field in a nullable struct.

    Arrow has a null there under each null struct, which deltalake then refuses to read.
    """
    fields = dict(_table_fields(table))
    for path, each in fields.items():
        around = (fields[path[:depth]] for depth in range(1, len(path)))
        is_of_struct = len(path) > 1 and path[-1] not in ("element", "key", "value")
        if is_of_struct and not each.nullable and any(one.nullable for one in around):
            yield f"a field that must not be null in one that may be, {dotted(path)}"


def _metadata(schema: object) -> Iterator[tuple[FieldPath, Mapping[str, str]]]:
    """Yield the metadata of each column and each nested field."""
    for path, each in _fields(schema):
        found = each.metadata or {}
        yield path, {key.decode(): value.decode() for key, value in found.items()}


def required_fields(table: DeltaTable) -> tuple[FieldPath, ...]:
    """Return the non-nullable columns and nested fields."""
    fields = _table_fields(table)
    return tuple(path for path, each in fields if not each.nullable and path[-1:] != ("key",))


def _table_fields(table: DeltaTable) -> Iterator[tuple[FieldPath, pa.Field]]:
    """Yield each column and each nested field, without Arrow's fields of a variant."""
    variants = {*_variants(json.loads(table.schema().to_json()))}
    for path, each in _fields(table.schema().to_arrow()):
        if path[:-1] not in variants:
            yield path, each


def _variants(kind: object, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of variants in a type from the table's log."""
    if kind == "variant":
        yield path
    if not isinstance(kind, dict):
        return
    for each in kind.get("fields", ()):
        yield from _variants(each["type"], (*path, each["name"]))
    for key, name in (("elementType", "element"), ("keyType", "key"), ("valueType", "value")):
        yield from _variants(kind.get(key), (*path, name))


def check_nulls(
    rows: pa.Table, required: Iterable[FieldPath], partition_by: Sequence[str], uri: str
) -> None:
    """Refuse rows with a null that the table does not allow.

    Args:
        rows: The rows; columns that the paths name may be missing.
        required: The non-nullable fields; a null in an enclosing value is allowed.
        partition_by: Columns in which an empty text is written as null, as in Delta's protocol.
        uri: Name of the table for error messages.

    Raises:
        DeltaAppendError: There is such a null; the message names the column and the first record.
    """
    for path in required:
        if path[0] not in rows.schema.names:
            continue
        is_partition = path[0] in partition_by
        if _has_null(rows[path[0]], path, is_partition):
            column = [rows[path[0]].slice(number, 1) for number in range(len(rows))]
            first = next(n for n, each in enumerate(column) if _has_null(each, path, is_partition))
            empty = ", and an empty text in a partition column is null" if is_partition else ""
            raise DeltaAppendError(
                f"{uri}: column {dotted(path)!r} of the table must not be null{empty}; in "
                f"{_record(rows, first)} it is; leave such rows out of the stream, or give them a "
                "value"
            )


def _has_null(column: pa.ChunkedArray, path: FieldPath, is_partition: bool) -> bool:
    import pyarrow.compute as pc

    if is_partition and pc.any(pc.equal(column, "")).as_py():
        return True
    return bool(_inside(column, path[1:]).null_count)


def _record(rows: pa.Table, number: int) -> str:
    """Describe a row by its record's place in Kafka, which the output of a region may lack."""
    names = ("topic", "partition", "offset")
    if not set(names) <= set(rows.schema.names):
        return f"row {number + 1} of {len(rows)}"
    return "the record {}-{} offset {}".format(*(rows[name][number].as_py() for name in names))


def null_in(file: WrittenFile, required: Iterable[FieldPath]) -> FieldPath | None:
    """Return a non-nullable field that is null according to a file's statistics, or None.

    Args:
        file: The file. Values inside arrays and maps are not counted.
        required: The non-nullable fields.
    """
    counts: object = json.loads(file.stats or "{}").get("nullCount", {})
    for path in required:
        if path[0] in file.partition_values and file.partition_values[path[0]] is None:
            return path
        found = counts
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, int) and found:
            return path
    return None


def _inside(values: pa.ChunkedArray, path: FieldPath) -> pa.ChunkedArray:
    """Return the values of a nested field where no enclosing value is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in path:
        present = values.drop_null()
        if pa.types.is_map(present.type):
            entry = pa.struct([("key", present.type.key_type), ("value", present.type.item_type)])
            values = pc.struct_field(pc.list_flatten(present.cast(pa.list_(entry))), name)
        elif pa.types.is_struct(present.type):
            values = pc.struct_field(present, name)
        else:
            values = pc.list_flatten(present)
    return values


def dotted(path: FieldPath) -> str:
    """Return the dotted name of a column or a nested field."""
    return ".".join(path)


def _fields(within: object, path: FieldPath = ()) -> Iterator[tuple[FieldPath, pa.Field]]:
    """Yield each column and each nested field of a schema or a type."""
    for name, each in _inner(within):
        yield (*path, name), each
        yield from _fields(each.type, (*path, name))


def _inner(within: object) -> list[tuple[str, pa.Field]]:
    import pyarrow as pa

    if isinstance(within, pa.ListType | pa.LargeListType):
        return [("element", within.value_field)]
    if isinstance(within, pa.MapType):
        return [("key", within.key_field), ("value", within.item_field)]
    if isinstance(within, pa.DataType) and not isinstance(within, pa.StructType):
        return []
    schema = within if isinstance(within, pa.StructType) else pa.schema(within)
    return [(each.name, each) for each in schema]
