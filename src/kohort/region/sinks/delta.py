"""The output of a region in a Delta Lake table: one commit for each checkpoint.

The files of a cut are in the table's directory; readers ignore them until a commit names them. The
commit of checkpoint n also sets the region's application transaction to n, so a controller that
retries sees that the commit exists. Another transaction identifies the control topic to which the
numbers belong.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from kohort.delta.columns import SchemaMode, check_types, completed, fit_columns, nullable
from kohort.delta.compaction import add_action
from kohort.delta.opening import open_or_make
from kohort.delta.parquet import FileLayout, TableWriter, remove_files
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import WrittenFile
from kohort.delta.rules import check_rules, dotted, null_in, required_fields
from kohort.delta.storage import TableStorage, table_storage
from kohort.region.errors import SinkError
from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.names import in_file_names
from kohort.region.sinks.owners import PREFIX, lost, regions_in
from kohort.region.sinks.rows import table_of
from kohort.region.sinks.sink import check_shown, missing_list, one_line, storing

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

    from kohort.region.sinks.sink import CutWriter, TaskFile, TaskWriter

# Delta ignores names that start with an underscore, and so does its vacuum.
_LISTS = "_kohort"
# Each attempt reads the table again, so one lost race costs one attempt.
_ATTEMPTS = 20
_BITS = 62
# Names the region in the commit information.
_MARK = "kohort-region"


class DeltaPublisher:
    """Publishes the output of a region in a Delta table; it writes no rows itself.

    A controller without an operator needs only this. Operators have a `DeltaSink`.

    Args:
        table: A directory that all processes of the region share, or a URI of an object store.
        storage_options: deltalake's options for the object store, such as credentials.

    Raises:
        ValueError: The table's scheme is not supported.
    """

    def __init__(
        self, table: str | Path, *, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._storage = table_storage(table, storage_options)
        self._region = ""
        self._application = ""
        self._owner = ("", 0)
        # Up to this version, no RESTORE has taken the table back behind that checkpoint.
        self._looked_at = -1
        self._shown = 0
        # The columns of the table that the files of the last checkpoint matched.
        self._fitted: tuple[str, list[str]] | None = None

    def open(self, region: str, region_id: str, shown: int) -> None:
        """Check that the table belongs to this region, if an operator has created it already.

        Raises:
            SinkError: It belongs to another region of this name, needs an unsupported writer
                feature, or does not show what was published.
        """
        self._note_region(region, region_id)
        self.check(shown)
        if self._exists():
            self._check_table(self._table())

    def identity(self) -> tuple[str, str]:
        """Return the id of the table, empty if there is none yet, and its URI."""
        known = str(self._table().metadata().id) if self._exists() else ""
        return known, self._storage.uri

    def regions(self) -> tuple[set[str], str]:
        """Return the names of the regions that have published in the table, and its URI."""
        return regions_in(self._storage.file_system()), self._storage.uri

    def _note_region(self, region: str, region_id: str) -> None:
        self._region = region
        self._application = f"{PREFIX}{region}@{region_id}"
        self._owner = (f"{PREFIX}{region}", _number(region_id))

    def check(self, shown: int) -> None:
        """Check that the table has a published checkpoint, and that no RESTORE has undone it.

        Raises:
            SinkError: It does not have it.
        """
        if not shown:
            return
        uri = self._storage.uri
        if not self._exists():
            check_shown(uri, 0, shown)
        table = self._table()
        check_shown(uri, table.transaction_version(self._application) or 0, shown)
        self._shown = shown
        self._check_history(table)

    def _check_history(self, table: DeltaTable) -> None:
        restored = self._restored_to(table) if self._shown else None
        if restored is not None:
            check_shown(self._storage.uri, self._shown_at(restored), self._shown)
        self._looked_at = table.version()

    def _restored_to(self, table: DeltaTable) -> int | None:
        """Return the version of the newest RESTORE since the last check or commit, or None.

        A RESTORE removes rows but no transaction: only the table's history shows it.
        """
        count = table.version() - self._looked_at if self._looked_at >= 0 else None
        if count == 0:
            return None
        for each in table.history(count):
            if each.get("operation") == "RESTORE":
                version = each.get("operationParameters", {}).get("version")
                return int(version) if str(version).isdigit() else -1
            if count is None and each.get(_MARK) == self._application:
                return None
        return None

    def _shown_at(self, version: int) -> int:
        """Return the newest checkpoint in a version of the table; 0: none, or unknown."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if version < 0:  # a RESTORE to a time
            return 0
        try:
            options = dict(self._storage.options)
            table = DeltaTable(self._storage.uri, version=version, storage_options=options)
        except DeltaError:  # the log no longer has that version
            return 0
        return table.transaction_version(self._application) or 0

    def _exists(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self._storage.uri, dict(self._storage.options)))

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._storage.uri, storage_options=dict(self._storage.options))
        except TableNotFoundError as error:
            where = self._storage.uri
            raise SinkError(f"{where} no longer has a transaction log: {error}") from error

    def _check_table(self, table: DeltaTable) -> None:
        uri = self._storage.uri
        try:
            check_rules(table, uri)
        except DeltaAppendError as error:
            raise SinkError(str(error)) from error
        known = table.transaction_version(self._owner[0])
        if known is not None and known != self._owner[1]:
            raise lost(uri, self._region)

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        """Commit the files of a checkpoint, unless the table already has it.

        Raises:
            SinkError: A file or the table's log is missing, others kept winning the commit, the
                table was reverted meanwhile, or it is not writable.
        """
        from deltalake.exceptions import CommitFailedError

        files = self._files(outputs)
        table = self._table()
        self._check_table(table)
        for _ in range(_ATTEMPTS):
            if (table.transaction_version(self._application) or 0) >= checkpoint or not files:
                return
            self._check_history(table)
            self._check_files(checkpoint, files)
            self._check_columns(table, files)
            self._check_nulls(table, files)
            try:
                self._commit(table, checkpoint, files)
            except CommitFailedError:
                table.update_incremental()
                self._check_table(table)
        raise SinkError(f"{self._storage.uri}: others won the commit {_ATTEMPTS} times")

    def _commit(self, table: DeltaTable, checkpoint: int, files: Sequence[WrittenFile]) -> None:
        """Commit right after the version that was checked: no RESTORE may come in between.

        Raises:
            CommitFailedError: Another commit came first.
            SinkError: The table is not writable.
        """
        from deltalake import CommitProperties
        from deltalake.transaction import Transaction

        mark = {_MARK: self._application}
        numbers = [Transaction(self._application, checkpoint), Transaction(*self._owner)]
        try:
            table.create_write_transaction(
                [add_action(each) for each in files],
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata=mark, app_transactions=numbers, max_commit_retries=0
                ),
            )
        except OSError as error:
            raise SinkError(
                f"checkpoint {checkpoint} cannot be committed to {self._storage.uri}: "
                f"{one_line(error)}. Nothing of it is visible, and its files are kept: it becomes "
                "visible once the table can be written to again"
            ) from error

    def _files(self, outputs: Mapping[OperatorId, str]) -> list[WrittenFile]:
        files: list[WrittenFile] = []
        place = self._storage.file_system()
        for output in (outputs[each] for each in sorted(outputs)):
            name, digest = output.rsplit("#", 1)
            listed = _content(place, name)
            if _digest(listed) != digest:
                raise SinkError(f"{name} was changed after an operator had handed it over")
            files += [WrittenFile(**each) for each in json.loads(listed)]
        return files

    def _check_columns(self, table: DeltaTable, files: Iterable[WrittenFile]) -> None:
        """Refuse files whose columns no longer match the table, which another writer changed."""
        shape = table.schema().to_json(), table.metadata().partition_columns
        if shape == self._fitted:
            return
        for file in files:
            if set(file.partition_values) != set(shape[1]):
                now, then = (
                    ", ".join(each) or "nothing" for each in (shape[1], file.partition_values)
                )
                raise self._misfit(
                    f"{self._storage.uri} is partitioned by {now}, and rows were written by {then}"
                )
            try:
                fit_columns(table, self._columns_of(file, table), "strict", self._storage.uri)
            except DeltaAppendError as error:
                raise self._misfit(str(error)) from error
        self._fitted = shape

    def _misfit(self, why: str) -> SinkError:
        return SinkError(
            f"{why}. Nothing of this checkpoint becomes visible until the table is as it was"
        )

    def _columns_of(self, file: WrittenFile, table: DeltaTable) -> pa.Schema:
        """Return the columns of a file, including its partition values."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        partitions = [pa.schema(table.schema().to_arrow()).field(n) for n in file.partition_values]
        with self._storage.file_system().open_input_file(file.path) as source:
            return pa.schema([*pq.read_schema(source), *partitions])

    def _check_nulls(self, table: DeltaTable, files: Iterable[WrittenFile]) -> None:
        """Refuse files that violate a NOT NULL added to the table after they were written."""
        required = required_fields(table)
        for file in files:
            broken = null_in(file, required)
            if broken is not None:
                raise SinkError(
                    f"{self._storage.uri}: column {dotted(broken)!r} became NOT NULL after rows "
                    f"were written in which it is null ({file.path}). Nothing of this checkpoint "
                    "becomes visible until the table allows null there"
                )

    def _check_files(self, checkpoint: int, files: Iterable[WrittenFile]) -> None:
        found = self._storage.file_system().get_file_info([each.path for each in files])
        for file, info in zip(files, found, strict=True):
            if info.size != file.size:
                raise SinkError(
                    f"{self._storage.uri}/{file.path} belongs to checkpoint {checkpoint} and is "
                    "missing or truncated, not by this region. Nothing of this checkpoint becomes "
                    "visible until it is back"
                )


class DeltaSink(DeltaPublisher):
    """Writes the output of each checkpoint to a Delta table, in one commit.

    Args:
        table: A directory that all processes of the region share, or a URI of an object store.
        schema: Columns of the rows; the function returns mappings, record batches or tables.
        partition_by: Columns by which to partition the table when it is created.
        storage_options: deltalake's options for the object store, such as credentials.
        schema_mode: `merge` adds columns that the table lacks, `strict` refuses them.
        target_file_bytes: Size in bytes at which a new file begins; None: one file per cut.

    Raises:
        ValueError: The table's scheme is not supported.
    """

    def __init__(
        self,
        table: str | Path,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        schema_mode: SchemaMode = "strict",
        target_file_bytes: int | None = None,
    ) -> None:
        super().__init__(table, storage_options=storage_options)
        self._schema = nullable(schema)
        self._partition_by = tuple(partition_by)
        self._schema_mode: SchemaMode = schema_mode
        self._target_file_bytes = target_file_bytes

    def open(self, region: str, region_id: str, shown: int) -> None:
        """Create the table unless it exists; check its columns, and that it belongs to this region.

        Raises:
            SinkError: It belongs to another region of this name, needs an unsupported writer
                feature, or does not show what was published.
            DeltaAppendError: Its columns do not fit.
        """
        self._note_region(region, region_id)
        self.check(shown)
        uri = self._storage.uri
        check_types(self._schema, uri)
        with storing(uri):
            table = open_or_make(self._storage, self._schema, self._partition_by)
        self._check_table(table)
        fit_columns(table, self._schema, self._schema_mode, uri)

    def writer(self, operator: OperatorId, attempt: int) -> CutWriter:
        """Return a writer for the output of an operator in an attempt."""
        return _DeltaWriter(self._storage, self._layout, self._schema, f"{attempt}-{operator.name}")

    def _layout(self) -> FileLayout:
        """Return how to write the rows of a cut; the table may have changed since the last one."""
        table = self._table() if self._exists() else None
        schema = self._schema if table is None else completed(self._schema, table)
        return FileLayout(
            schema.serialize().to_pybytes(),
            self._partition_by,
            self._target_file_bytes,
            () if table is None else required_fields(table),
            self._storage.uri,
        )

    def task_writer(self, operator: str, attempt: int) -> Callable[[], TaskWriter]:  # noqa: ARG002  # the protocol's
        """Return a factory for the writer of a task."""
        return partial(_DeltaTask, self._storage, self._layout())

    def hand_over(
        self, operator: OperatorId, checkpoint: int, attempt: int, files: Sequence[TaskFile]
    ) -> str:
        """Write a list of the files."""
        return _list(self._storage, f"{checkpoint:012d}-{attempt}-{operator.name}", files)

    def remove(self, files: Sequence[TaskFile]) -> None:
        """Remove files of tasks."""
        remove_files(self._storage.file_system(), [each["path"] for each in files])


class _DeltaWriter:
    def __init__(
        self,
        storage: TableStorage,
        layout: Callable[[], FileLayout],
        schema: pa.Schema,
        prefix: str,
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._schema = schema
        self._prefix = prefix
        self._task: _DeltaTask | None = None

    def write(self, _partition: RegionPartition, rows: object) -> None:
        import pyarrow as pa

        if not isinstance(rows, pa.RecordBatch | pa.Table):
            rows = table_of(rows, self._schema)
        with storing(self._storage.uri):
            self._task = self._task or _DeltaTask(self._storage, self._layout())
            self._task.write(rows)

    def prepare(self, checkpoint: int, _attempt: int) -> str:
        task, self._task = self._task, None
        with storing(self._storage.uri):
            files = task.close() if task is not None else []
            return _list(self._storage, f"{checkpoint:012d}-{self._prefix}", files)

    def abort(self) -> None:
        if self._task is not None:
            self._task.discard()
            self._task = None


class _DeltaTask:
    """Writes files that no commit names yet."""

    def __init__(self, storage: TableStorage, layout: FileLayout) -> None:
        self._storage = storage
        self._writer = TableWriter(storage.file_system(), layout)

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if table.num_rows:
            self._writer.write(table)

    def close(self) -> list[TaskFile]:
        files = self._writer.close()
        if self._storage.is_local and files:
            _sync_files(Path(self._storage.uri), files)
        return [asdict(each) for each in files]

    def discard(self) -> None:
        self._writer.discard()


def _list(storage: TableStorage, prefix: str, files: Sequence[TaskFile]) -> str:
    """Write a list of files, and return its name with its digest."""
    if not files:
        return ""
    name = f"{_LISTS}/{in_file_names(prefix)}-{uuid.uuid4().hex}.json"
    listed = json.dumps(list(files)).encode()
    _store(storage, storage.file_system(), name, listed)
    return f"{name}#{_digest(listed)}"


def _store(storage: TableStorage, place: FileSystem, name: str, content: bytes) -> None:
    if storage.is_local:
        path = Path(storage.uri) / name
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _sync(path.parent)
    else:  # a put that has returned is durable
        with place.open_output_stream(name) as stream:
            stream.write(content)


def _sync_files(root: Path, files: Iterable[WrittenFile]) -> None:
    directories = {root}
    for each in files:
        _sync(root / each.path)
        directories.add((root / each.path).parent)
    for directory in directories:
        _sync(directory)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _content(place: FileSystem, name: str) -> bytes:
    try:
        with place.open_input_stream(name) as stream:
            return bytes(stream.read())
    except OSError as error:
        raise SinkError(missing_list(error)) from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _number(text: str) -> int:
    """Return a number for a text: Delta transactions can hold only numbers."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> (
        64 - _BITS
    )
