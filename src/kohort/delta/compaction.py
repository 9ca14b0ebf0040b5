"""Merges many small files into few large ones.

`DeltaTable.optimize.compact` is not used: with deltalake 1.6, two applications that compact at the
same time both commit, which duplicates every row. Here a commit is made only on a version of the
table that still has all the files being replaced.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import asdict

from kohort.delta.parquet import PartitionValues, TableFile, partition_text, remove_files
from kohort.delta.reports import WrittenFile
from kohort.delta.rules import compaction_obstacles

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction
    from pyarrow.fs import FileSystem

    from kohort.delta.storage import TableStorage

log = logging.getLogger("kohort.delta")

TARGET_BYTES = 128 * 1024 * 1024
# A file of at least this share of the target size is left alone.
LARGE_ENOUGH = 0.75
# Other writers may append meanwhile; each append costs one attempt.
ATTEMPTS = 20
READ_ROWS = 64 * 1024
# File names of this package, in the folder of the partition values if there are any.
_OWN_NAME = re.compile(r"(.*/)?part-[0-9a-f-]{36}\.parquet")


class SmallFile(Struct, frozen=True):
    """A file of the table.

    Attributes:
        path: Name relative to the table; percent-encoded in the log.
        size: Size in bytes.
    """

    path: str
    size: int


class Bin(Struct, frozen=True):
    """Files to merge into one.

    Attributes:
        values: Values of the partition columns, the same for all files.
        files: The files, oldest first.
    """

    values: PartitionValues
    files: tuple[SmallFile, ...]


def compact(table: DeltaTable, storage: TableStorage, target_bytes: int) -> bool:
    """Replace small files with large ones that have the same rows.

    Files of other writers are left alone.

    Args:
        table: The table; up to date afterwards.
        storage: The table's location.
        target_bytes: Target size of a file.

    Returns:
        Whether files were replaced; False if there was nothing to do, another writer was faster to
        replace one of them, or the table has a feature that forbids it.
    """
    obstacles = compaction_obstacles(table)
    if obstacles:
        names = ", ".join(f"{name} ({why})" for name, why in obstacles.items())
        log.warning(
            "%s: files are not compacted, as the table uses %s; run OPTIMIZE elsewhere and leave "
            "optimize_every out",
            storage.uri,
            names,
        )
        return False
    bins = plan(_files(table), target_bytes)
    if not bins:
        return False
    files = storage.file_system()
    written: list[WrittenFile] = []
    try:
        for each in bins:
            written.append(_merge(table, files, each))  # noqa: PERF401  # kept if the next one fails
        done = _replace(table, bins, written)
    except BaseException:
        remove_files(files, (file.path for file in written))
        raise
    count = sum(len(each.files) for each in bins)
    if done:
        log.info("%s: %d files became %d", storage.uri, count, len(written))
    else:
        remove_files(files, (file.path for file in written))
        log.info("%s: another writer was faster, %d files stay unchanged", storage.uri, count)
    return done


def plan(files: Iterable[tuple[PartitionValues, SmallFile]], target_bytes: int) -> list[Bin]:
    """Return the groups of files to merge.

    Args:
        files: Files with the values of their partition columns.
        target_bytes: Target size of a file.
    """
    small: dict[PartitionValues, list[SmallFile]] = {}
    for values, file in files:
        if file.size < target_bytes * LARGE_ENOUGH:
            small.setdefault(values, []).append(file)
    bins: list[Bin] = []
    for values, candidates in small.items():
        chosen: list[SmallFile] = []
        for file in candidates:
            if chosen and sum(each.size for each in chosen) + file.size > target_bytes:
                bins.append(Bin(values, tuple(chosen)))
                chosen = []
            chosen.append(file)
        bins.append(Bin(values, tuple(chosen)))
    return [each for each in bins if len(each.files) > 1]


def add_action(file: WrittenFile, *, data_change: bool = True) -> AddAction:
    """Return a commit's `add` action for a new file.

    Args:
        file: The file.
        data_change: Whether its rows are new to the table.
    """
    from deltalake.transaction import AddAction

    values = asdict(file)
    return AddAction(modification_time=values.pop("modified_ms"), data_change=data_change, **values)


def _files(table: DeltaTable) -> Iterator[tuple[PartitionValues, SmallFile]]:
    import pyarrow as pa

    columns = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    for row in sorted(rows, key=lambda row: (row["modification_time"], row["path"])):
        if _OWN_NAME.fullmatch(row["path"]):
            found = row.get("partition") or {}
            values = tuple((name, partition_text(found.get(name))) for name in columns)
            yield values, SmallFile(unquote(row["path"]), row["size_bytes"])


def _merge(table: DeltaTable, files: FileSystem, each: Bin) -> WrittenFile:
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    partition_columns = table.metadata().partition_columns
    schema = pa.schema([column for column in schema if column.name not in partition_columns])
    merged = TableFile(files, each.values)
    try:
        for file in each.files:
            for rows in _rows(files, file.path, schema):
                merged.write(rows)
        return merged.close()
    except BaseException:
        merged.discard()
        raise


def _rows(files: FileSystem, path: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a file's rows; a column added after the file is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with files.open_input_file(path) as source:
        for batch in pq.ParquetFile(source).iter_batches(READ_ROWS):
            columns = [
                batch[column.name].cast(column.type)
                if column.name in batch.schema.names
                else pa.nulls(batch.num_rows, column.type)
                for column in schema
            ]
            yield pa.table(columns, schema=schema)


def _replace(table: DeltaTable, bins: list[Bin], written: list[WrittenFile]) -> bool:
    """Commit, unless one of the files has been replaced or removed meanwhile."""
    import pyarrow as pa
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    old = {file.path for each in bins for file in each.files}
    actions: list[AddAction | RemoveAction] = [*_removals(bins)]
    actions += (add_action(file, data_change=False) for file in written)
    for _ in range(ATTEMPTS):
        table.update_incremental()
        present = pa.table(table.get_add_actions(flatten=False))["path"].to_pylist()
        if old - set(map(unquote, present)):
            return False
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                # No retry: it would not check the files again.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            continue
        table.update_incremental()
        return True
    return False


def _removals(bins: Iterable[Bin]) -> list[RemoveAction]:
    from deltalake.transaction import RemoveAction

    now_ms = time.time_ns() // 1_000_000
    return [
        RemoveAction(file.path, False, now_ms, file.size, dict(each.values))
        for each in bins
        for file in each.files
    ]
