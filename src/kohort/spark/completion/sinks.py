"""Detects whether Spark's file sink has skipped a batch.

A file sink keeps a list of finished batches in `_spark_metadata` and skips every batch whose number
is already in it. That makes a replayed batch harmless, but it silently loses records if another
query wrote the list: two queries with one directory, or a checkpoint that is deleted while the
directory is kept. The source cannot see the sink, so `kohort.spark.install` checks it with the data
of a query's progress report.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from kohort.errors import KohortError
from kohort.spark.checkpoint.log import arrow_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

METADATA = "_spark_metadata"
# In the checkpoint of a query without a group, whose offsets could hold a note.
REFUSED = "kohort-refused.json"
_FILE_SINK = re.compile(r"^FileSink\[(.*)\]$")
_BATCH = re.compile(r"^(\d+)(\.compact)?$")

# The sink has skipped the batch, or could not be checked.
Problem: TypeAlias = Literal["skipped", "unseen"]


class SinkError(KohortError, RuntimeError):
    """The query's sink has skipped a batch, or may have, or another query also writes to it."""


class Finding(Struct, frozen=True):
    """A problem with the sink of a query.

    Attributes:
        problem: `skipped`: the batch is not in the directory, and the query must neither continue
            nor commit it. `unseen`: unknown, which deserves a warning.
        directory: The sink's directory.
        batch_id: The batch that was checked.
        text: The finding, its meaning, and the remedy.
    """

    problem: Problem
    directory: str
    batch_id: int
    text: str


def file_sink_directory(description: str) -> str | None:
    """Return the directory of a file sink, or None for every other sink.

    Args:
        description: `query.lastProgress["sink"]["description"]`.
    """
    found = _FILE_SINK.match(description.strip())
    return found[1] if found else None


def directory_digest(directory: str) -> str:
    """Return a digest of a file sink's directory, the same for every spelling of its path.

    Args:
        directory: The result of `file_sink_directory`.
    """
    scheme, colon, path = directory.partition(":")
    if not colon or "/" in scheme:
        scheme, path = "file", directory
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    plain = re.sub(r"/+", "/", path).rstrip("/")
    return hashlib.sha256(f"{scheme}:{plain}".encode()).hexdigest()[:16]


def check_sink(description: str, checkpoint: str, batch_id: int) -> Finding | None:
    """Check whether Spark's file sink has skipped a batch; other sinks are not checked.

    Call it after the first batch of each run of a query, before its offsets are committed to the
    group: from then on the sink's list is the query's own.

    Args:
        description: `query.lastProgress["sink"]["description"]`.
        checkpoint: The query's checkpointLocation.
        batch_id: The batch that was just finished.

    Returns:
        The problem; None if there is none.
    """
    directory = file_sink_directory(description)
    if directory is None:
        return None
    try:
        latest = _latest(_listing(f"{directory.rstrip('/')}/{METADATA}"))
        begun = _file(f"{checkpoint.rstrip('/')}/offsets/{batch_id}")
    except (OSError, ValueError) as error:
        return Finding(
            "unseen",
            directory,
            batch_id,
            f"{directory}: it is unknown whether this directory belongs to the query ({error}); "
            "make sure that no other query writes to it, and that it is new when the checkpoint is",
        )
    if latest is None or begun is None or latest[0] < batch_id:
        return None
    number, entry = latest
    if number > batch_id:
        return _skipped(directory, batch_id, f"lists batches up to {number}")
    if entry.mtime_ns is not None and entry.mtime_ns < begun.mtime_ns:
        return _skipped(directory, batch_id, "listed that batch before the query began it")
    return None


def query_id(checkpoint: str) -> str | None:
    """Return the id of the query that a checkpoint belongs to; None for a new checkpoint.

    Args:
        checkpoint: The query's checkpointLocation.
    """
    files, path = _open(f"{checkpoint.rstrip('/')}/metadata")
    if _file(f"{checkpoint.rstrip('/')}/metadata") is None:
        return None
    with files.open_input_stream(path) as stream:
        found: str = json.loads(bytes(stream.read()))["id"]
    return found


def note_refusal(checkpoint: str, why: str) -> None:
    """Leave a note in a checkpoint that the records of a batch are not in the sink.

    Args:
        checkpoint: The query's checkpointLocation.
        why: The finding and the remedy.

    Raises:
        OSError: The file cannot be written.
        ValueError: pyarrow cannot open the location.
    """
    files, path = _open(f"{checkpoint.rstrip('/')}/{REFUSED}")
    with files.open_output_stream(path) as stream:
        stream.write(json.dumps({"refused": why}).encode())


def noted_refusal(checkpoint: str) -> str:
    """Return the message why an earlier run was refused; empty if none was.

    Args:
        checkpoint: The query's checkpointLocation.

    Raises:
        OSError: The file cannot be read.
        ValueError: pyarrow cannot open the location.
    """
    location = f"{checkpoint.rstrip('/')}/{REFUSED}"
    if _file(location) is None:
        return ""
    files, path = _open(location)
    with files.open_input_stream(path) as stream:
        found = json.loads(bytes(stream.read()))
    return (
        f"an earlier run with this checkpoint was refused ({found['refused']}). The checkpoint is "
        "behind records that are not in the directory, and no group could take note of that. To "
        f"go on without them, remove {location}"
    )


def _skipped(directory: str, batch_id: int, evidence: str) -> Finding:
    return Finding(
        "skipped",
        directory,
        batch_id,
        f"{directory}/{METADATA} {evidence}, so Spark's file sink has skipped batch {batch_id}: "
        "its records are not in the directory. Another query writes there, or the checkpoint is "
        "newer than the directory. Start the query with a new checkpoint and a new directory of "
        "its own; applications that share a group share a table with DeltaAppend",
    )


def _latest(entries: Iterable[FileInfo]) -> tuple[int, FileInfo] | None:
    numbered = [
        (int(found[1]), entry) for entry in entries if (found := _BATCH.match(entry.base_name))
    ]
    return max(numbered, key=lambda item: (item[0], item[1].mtime_ns), default=None)


def _listing(uri: str) -> list[FileInfo]:
    from pyarrow.fs import FileSelector

    files, path = _open(uri)
    found: list[FileInfo] = files.get_file_info(FileSelector(path, allow_not_found=True))
    return found


def _file(uri: str) -> FileInfo | None:
    files, path = _open(uri)
    found = files.get_file_info(path)
    return found if found.is_file else None


def _open(location: str) -> tuple[FileSystem, str]:
    """Return a file system and the path in it, for a location as printed by Spark.

    That is Hadoop's `Path.toString`, which encodes nothing: a `%20` is part of a name, as in the
    directories of Hive's partitions (`hour=10%3A00`).
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    if location.startswith("file:"):
        return LocalFileSystem(), re.sub(r"^file:/*", "/", location)
    if ":" not in location.split("/", 1)[0]:
        return LocalFileSystem(), location
    files, path = FileSystem.from_uri(arrow_uri(re.sub(r"^s3[an]:", "s3:", location)))
    return files, str(path)
