"""Opens a table, or creates it if it does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.delta.columns import (
    check_partition_columns,
    check_same_partitions,
    check_times_in_maps,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kohort.delta.storage import TableStorage


def open_or_make(
    storage: TableStorage, schema: pa.Schema, partition_by: Sequence[str]
) -> DeltaTable:
    """Return a table, which other writers may create at the same time.

    Args:
        storage: The table's location.
        schema: Its columns if it is created.
        partition_by: Its partition columns; None: those of the existing table.

    Raises:
        DeltaAppendError: A new table cannot have such columns, or the partition columns differ.
    """
    from deltalake import DeltaTable

    uri, options = storage.uri, dict(storage.options)
    if not DeltaTable.is_deltatable(uri, options):
        _make(storage, schema, partition_by)
    table = DeltaTable(uri, storage_options=options)
    check_same_partitions(table.metadata().partition_columns, partition_by, uri)
    return table


def _make(storage: TableStorage, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    uri, options = storage.uri, dict(storage.options)
    check_partition_columns(schema, partition_by, uri)
    check_times_in_maps(schema, None, uri)
    if storage.is_local:
        Path(uri).mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            uri,
            schema=Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=options,
        )
    except DeltaError:  # another application has created it meanwhile
        if not DeltaTable.is_deltatable(uri, options):
            raise
