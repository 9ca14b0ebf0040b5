"""A sink that writes a directory of Parquet files, with a manifest for each checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict, cast

from kohort.region.errors import SinkError
from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.names import in_file_names
from kohort.region.sinks.owners import lost, others
from kohort.region.sinks.rows import table_of
from kohort.region.sinks.sink import (
    CutWriter,
    TaskFile,
    TaskWriter,
    check_shown,
    missing_list,
    storing,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class FileEntry(TypedDict):
    """A visible file: its path below the directory, its size in bytes and its number of rows."""

    path: str
    bytes: int
    rows: int


class CheckpointFiles(TypedDict):
    """The files that a checkpoint has added."""

    checkpoint: int
    files: list[FileEntry]


_MANIFESTS = "_region"
_OWNER = "region.json"


class ParquetDirectory:
    """A directory of Parquet files with a manifest for each checkpoint.

    Files are in `data`; those named by a manifest in `_region` are visible. A manifest appears
    atomically, so a reader that uses the manifests, like `read_directory` and
    `ParquetDirectory.files`, sees a consistent cut.

    Args:
        path: The directory, on a file system shared by all processes of the region.
        schema: Columns; by default those of the first rows of each file.

    Raises:
        ValueError: The path is a URI of an object store.
    """

    def __init__(self, path: str | Path, schema: pa.Schema | None = None) -> None:
        if "://" in str(path):
            raise ValueError(
                f"{path} is not a directory of a file system; object stores have no links"
            )
        self.path = Path(path)
        self._schema = schema

    def open(self, region: str, region_id: str, shown: int) -> None:
        """Create the directories, and check that they belong to this region.

        Raises:
            SinkError: The directory belongs to another region, or does not show what was published.
        """
        self.check(shown)
        owner = {"region": region, "id": region_id}
        place = self.path / _MANIFESTS / _OWNER
        with storing(self.path):
            for each in (self.path / "data", self.path / _MANIFESTS):
                each.mkdir(parents=True, exist_ok=True)
            is_new = _create(place, {**owner, "output": uuid.uuid4().hex})
        if not is_new:
            found = json.loads(place.read_text())
            if not owner.items() <= found.items():
                name = str(found.get("region"))
                raise (
                    lost(self.path, region) if name == region else others(self.path, [name], region)
                )

    def check(self, shown: int) -> None:
        """Check that the manifest of a published checkpoint exists."""
        if shown and not self._manifest(shown).is_file():
            older = (int(each.stem) for each in self._listed() if int(each.stem) < shown)
            check_shown(self.path, max(older, default=0), shown)

    def regions(self) -> tuple[set[str], str]:
        """Return the name of the region that uses the directory, and its path."""
        place = self.path / _MANIFESTS / _OWNER
        names = {str(json.loads(place.read_text()).get("region"))} if place.is_file() else set()
        return names, str(self.path)

    def identity(self) -> tuple[str, str]:
        """Return the id given to the directory when it was created, and its path."""
        owner = json.loads((self.path / _MANIFESTS / _OWNER).read_text())
        return owner.get("output", ""), str(self.path)

    def _manifest(self, checkpoint: int) -> Path:
        return self.path / _MANIFESTS / f"{checkpoint:012d}.json"

    def writer(self, operator: OperatorId, attempt: int) -> CutWriter:
        """Return a writer for the output of an `operator` in an `attempt`."""
        return _ParquetWriter(self.path, self._schema, f"{attempt}-{operator.name}")

    def task_writer(self, operator: str, attempt: int) -> Callable[[], TaskWriter]:
        """Return a factory for the writer of a task."""
        return partial(_ParquetTask, self.path, self._schema, f"{attempt}-{operator}")

    def hand_over(
        self, operator: OperatorId, checkpoint: int, attempt: int, files: Sequence[TaskFile]
    ) -> str:
        """Write a list of the files."""
        return _list(self.path, f"{checkpoint:012d}-{attempt}-{operator.name}", files)

    def remove(self, files: Sequence[TaskFile]) -> None:
        """Remove files of tasks."""
        for each in files:
            (self.path / each["path"]).unlink(missing_ok=True)

    def publish(self, checkpoint: int, outputs: Mapping[OperatorId, str]) -> None:
        """Write the manifest of a checkpoint.

        Raises:
            SinkError: A file is missing or damaged, or another writer uses the directory.
        """
        files = []
        for output in (outputs[each] for each in sorted(outputs)):
            files += self._files_of(output)
        for each in files:
            found = self.path / each["path"]
            if not found.is_file() or found.stat().st_size != each["bytes"]:
                raise SinkError(
                    f"{found} belongs to checkpoint {checkpoint} and is missing or truncated, "
                    "not by this region. Nothing of this checkpoint becomes visible until it is "
                    "back"
                )
        place = self._manifest(checkpoint)
        manifest = {"checkpoint": checkpoint, "files": files}
        if files and not _create(place, manifest) and json.loads(place.read_text()) != manifest:
            raise SinkError(f"{place} is not what this region wrote: another writer uses it")

    def _files_of(self, output: str) -> list[dict[str, Any]]:
        name, digest = output.rsplit("#", 1)
        place = self.path / name
        try:
            listed = place.read_bytes()
        except OSError as error:
            raise SinkError(missing_list(error)) from error
        if _digest(listed) != digest:
            raise SinkError(f"{place} was changed after it had been handed over")
        files: list[dict[str, Any]] = json.loads(listed)
        return files

    def manifests(self) -> Iterator[CheckpointFiles]:
        """Yield the visible manifests, in the order of their checkpoints.

        A listing that runs while manifests appear may contain a later one and miss an earlier one.
        So this lists twice, and ends at the last manifest of the first listing: by the second
        listing, all before it exist.
        """
        last = max(self._listed(), default=None)
        for place in sorted(self._listed()):
            if last is None or place > last:
                return
            yield cast("CheckpointFiles", json.loads(place.read_text()))

    def _listed(self) -> list[Path]:
        return list((self.path / _MANIFESTS).glob("[0-9]*.json"))

    def files(self) -> list[Path]:
        """Return the visible files."""
        return [self.path / each["path"] for m in self.manifests() for each in m["files"]]


class _ParquetWriter:
    def __init__(self, path: Path, schema: pa.Schema | None, prefix: str) -> None:
        self._path = path
        self._schema = schema
        self._prefix = prefix
        self._tables: list[pa.Table] = []
        self._types: dict[str, pa.DataType] | None = None

    def write(self, _partition: RegionPartition, rows: object) -> None:
        import pyarrow as pa

        if isinstance(rows, pa.RecordBatch):
            self._tables.append(pa.Table.from_batches([rows]))
        elif isinstance(rows, pa.Table):
            self._tables.append(rows)
        else:
            self._tables.append(table_of(rows, self._schema))

    def prepare(self, checkpoint: int, _attempt: int) -> str:
        import pyarrow as pa

        tables = self._tables
        self.abort()
        tables = [each for each in tables if each.num_rows]
        if not tables:
            return ""
        self._check_types(tables)
        table = pa.concat_tables(tables, promote_options="default")
        prefix = f"{checkpoint:012d}-{self._prefix}"
        task = _ParquetTask(self._path, table.schema, prefix)
        with storing(self._path):
            task.write(table)
            return _list(self._path, prefix, task.close())

    def _check_types(self, tables: Sequence[pa.Table]) -> None:
        """Refuse a column whose type differs from the directory's: readers could not combine them.

        Raises:
            SinkError: A column differs.
        """
        import pyarrow as pa

        if self._schema is not None:
            return
        if self._types is None:
            self._types = _types_in(self._path)
        for field in (field for table in tables for field in table.schema):
            known = self._types.setdefault(field.name, field.type)
            if pa.types.is_null(known):
                self._types[field.name] = field.type
            elif field.type != known and not pa.types.is_null(field.type):
                raise SinkError(
                    f"{self._path}: column {field.name!r} is {field.type}, and was {known} before: "
                    "readers could not combine them. Give the sink a schema, or return one "
                    "type. Nothing of this checkpoint is stored"
                )

    def abort(self) -> None:
        self._tables = []


class _ParquetTask:
    """Writes one file."""

    def __init__(self, path: Path, schema: pa.Schema | None, prefix: str) -> None:
        self._path = path
        self._schema = schema
        self._name = f"data/{in_file_names(prefix)}-{uuid.uuid4().hex}.parquet"
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not table.num_rows:
            return
        if self._writer is None:
            self._schema = self._schema or table.schema
            self._file = (self._path / self._name).open("xb")
            self._writer = pq.ParquetWriter(self._file, self._schema)
        assert self._schema is not None
        self._writer.write_table(table.select(self._schema.names).cast(self._schema))
        self._rows += table.num_rows

    def close(self) -> list[TaskFile]:
        if self._writer is None or self._file is None:
            return []
        self._writer.close()
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        _sync(self._path / "data")
        return [{"path": self._name, "bytes": size, "rows": self._rows}]

    def discard(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            (self._path / self._name).unlink()


def _list(path: Path, prefix: str, files: Sequence[TaskFile]) -> str:
    """Write a list of files, and return its name with its digest."""
    if not files:
        return ""
    listed = json.dumps(list(files)).encode()
    listing = f"data/{in_file_names(prefix)}-{uuid.uuid4().hex}.json"
    _write(path / listing, listed)
    _sync(path / "data")
    return f"{listing}#{_digest(listed)}"


def _types_in(path: Path) -> dict[str, pa.DataType]:
    """Return the column types of the newest visible file."""
    import pyarrow.parquet as pq

    files = ParquetDirectory(path).files()
    return {each.name: each.type for each in pq.read_schema(files[-1])} if files else {}


def read_directory(path: str | Path) -> pa.Table:
    """Return the visible rows of a `ParquetDirectory` whose directory is `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(each) for each in ParquetDirectory(path).files()]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def _create(place: Path, content: object) -> bool:
    """Create a file atomically; return False if it already exists."""
    temporary = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    _write(temporary, json.dumps(content, sort_keys=True).encode())
    try:
        os.link(temporary, place)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    _sync(place.parent)
    return True


def _write(place: Path, content: bytes) -> None:
    with place.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
