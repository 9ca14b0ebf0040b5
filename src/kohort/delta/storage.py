"""The location of a Delta table: a directory shared by all machines, or an object store.

pyarrow accesses both as a file system rooted at the table. An object store is reached through
deltalake's own client, so that data files and the table's log use the same credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# Stores where deltalake commits with a conditional put that fails if the file already exists, so
# that two writers cannot overwrite each other's commit.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "azure", "adl")
# What to use instead of schemes that are common in Spark programs.
INSTEAD = {
    "dbfs": "use /dbfs/... where that is mounted on driver and executors, or the URI of the bucket "
    "beneath it (s3://, abfss:// or gs://)",
    "hdfs": "use the directory where HDFS is mounted (NFS gateway or FUSE), or an object store",
    "s3n": "use s3://",
    "wasb": "use abfss://",
    "wasbs": "use abfss://",
    "memory": "executors could not see it; use a shared directory",
}
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")
_UNSAFE = ("allow_unsafe_rename", "aws_s3_allow_unsafe_rename")


class TableStorage(Struct, frozen=True):
    """The location of one table; small enough to be sent to every task.

    Attributes:
        uri: Absolute path of a directory, or URI of an object store.
        options: Options of deltalake's object store client; they include credentials, so `repr`
            shows only their names.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"TableStorage({self.uri!r}, options={sorted(self.options)})"

    @property
    def is_local(self) -> bool:
        """Whether the table is a directory."""
        return self.uri.startswith("/")

    def file_system(self) -> FileSystem:
        """Return a file system whose root is the table."""
        from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

        if self.is_local:
            return SubTreeFileSystem(self.uri, LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


def table_storage(table: str | Path, options: Mapping[str, str] | None = None) -> TableStorage:
    """Return the storage of `table`.

    Args:
        table: A directory, or a URI with one of the schemes `file`, `s3`, `s3a`, `gs`, `gcs`,
            `abfs`, `abfss`, `az`, `azure` and `adl`.
        options: deltalake's storage options.

    Raises:
        ValueError: The scheme is not supported, or an option makes concurrent commits unsafe.
    """
    options = dict(options or {})
    for name, value in options.items():
        if name.lower() in _UNSAFE and str(value).lower() not in ("false", "0", ""):
            raise ValueError(
                f"storage option {name}: two writers could overwrite each other's commit, and "
                "records would be lost; leave it out, deltalake commits by conditional puts"
            )
    text = str(table)
    found = None if isinstance(table, Path) else _SCHEME.match(text)
    if found is None:
        if not text:
            raise ValueError("the table's directory or URI is empty")
        return TableStorage(str(Path(text).absolute()), options)
    scheme = found[1].lower()
    if scheme == "file":
        return TableStorage(_directory(text), options)
    if scheme not in OBJECT_STORES:
        remedy = INSTEAD.get(scheme, f"for a local directory of that name write ./{text}")
        raise ValueError(
            f"{text}: DeltaAppend cannot write to {scheme}: (it can to directories that driver "
            f"and executors share, and to {', '.join(OBJECT_STORES)}); {remedy}"
        )
    if not urlsplit(text).netloc:
        raise ValueError(
            f"{text}: the URI names no bucket or container; write {scheme}://bucket/table"
        )
    return TableStorage(text, options)


def _directory(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError(f"{uri}: a file URI needs an absolute path, such as file:///shared/table")
    return unquote(parts.path)
