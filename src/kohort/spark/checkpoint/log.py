"""Determines from a query's checkpoint whether a batch is finished.

Spark writes `offsets/N` before batch N and `commits/N` once it is in the sink. So the batch whose
manifest is in `offsets/N` is finished if `commits/N` exists. This needs no code in the application:
it works in SQL, in pipelines and with Spark Connect, where no listener reaches the source's
process.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote

from kohort.errors import KohortError
from kohort.spark.checkpoint.manifest import OffsetJson

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger("kohort.spark")

# Batches are searched from the newest: the wanted one is the last or the one before.
NEWEST = 3
# Minimum interval between requests to a remote store.
REMOTE_INTERVAL_S = 1.0
# The formats of Spark 4.3: version 2 of the offset log has a name before each source's offset.
OFFSET_VERSIONS = ("v1", "v2")
COMMIT_VERSIONS = ("v1", "v2", "v3")

SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
# Hadoop's scheme names with pyarrow's equivalents.
SCHEMES = {"s3a": "s3", "s3n": "s3", "viewfs": "hdfs"}


class CheckpointError(KohortError):
    """A checkpoint cannot be read, or this version does not support it."""


class Store(Protocol):
    """The store of a checkpoint."""

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files; none if it does not exist."""

    def text(self, file: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""


class CheckpointLog:
    """The checkpoint of the query that a source belongs to.

    Args:
        location: The query's `checkpointLocation`: a path, or a URI supported by pyarrow.

    Raises:
        CheckpointError: The scheme of the URI is unknown.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._store, self._interval_s = _store(location)
        self._asked_at = -float("inf")
        self._finished: OffsetJson | None = None
        self._has_warned = False

    def is_finished(self, end: OffsetJson) -> bool:
        """Whether a batch is in the sink and in Spark's commit log.

        Cheap enough for ten calls per second: a remote store is checked once a second, and the
        result is False in between.

        Args:
            end: The batch's manifest, as the source passed it to Spark.

        Raises:
            CheckpointError: The checkpoint was written by an unsupported version of Spark, or the
                store cannot be read.
        """
        if self._finished == end:
            return True
        now = time.monotonic()
        if now - self._asked_at < self._interval_s:
            return False
        self._asked_at = now
        if self._look(end):
            self._finished = end
            return True
        return False

    def confirm(self, end: OffsetJson) -> None:
        """Check that the checkpoint has a batch that Spark itself has reported as finished.

        Warns once if it does not: then the location belongs to another query.

        Args:
            end: The batch's manifest.

        Raises:
            CheckpointError: See `is_finished`.
        """
        if self._has_warned or self._finished == end:
            return
        if self._look(end):
            self._finished = end
            return
        self._has_warned = True
        log.warning(
            "checkpointLocation %s does not hold the batch that Spark has just finished: set the "
            "source's option to the checkpointLocation of its query; until then a finished batch "
            "looks open until the next trigger",
            self._location,
        )

    def _look(self, end: OffsetJson) -> bool:
        try:
            offered = sorted(numbers(self._store.names("offsets")), reverse=True)[:NEWEST]
            return any(self._holds(batch, end) and self._is_over(batch) for batch in offered)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint at {self._location} cannot be read: {error}. Without the option "
                "checkpointLocation the source reads none"
            ) from error

    def _holds(self, batch: int, end: OffsetJson) -> bool:
        lines = self._lines(f"offsets/{batch}", OFFSET_VERSIONS)
        # The second line is Spark's; each of the others belongs to a source.
        return any(_offset(line, lines[0]) == end for line in lines[2:])

    def _is_over(self, batch: int) -> bool:
        lines = self._lines(f"commits/{batch}", COMMIT_VERSIONS)
        return len(lines) > 1 and isinstance(_json(lines[1]), dict)

    def _lines(self, file: str, versions: tuple[str, ...]) -> list[str]:
        """Return the lines of a file of a known version; none if it is missing or empty."""
        text = self._store.text(file)
        if not text:
            return []
        lines = text.split("\n")
        if lines[0] not in versions:
            raise CheckpointError(
                f"{self._location}/{file} begins with {lines[0][:40]!r}, and this version of "
                f"kohort knows {', '.join(versions)} there. Remove the option checkpointLocation, "
                "or update kohort"
            )
        return lines


class _LocalStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in (self._folder / folder).iterdir()]
        except FileNotFoundError:
            return []

    def text(self, file: str) -> str | None:
        try:
            return (self._folder / file).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None


class ArrowStore:
    """A folder of a pyarrow file system.

    Args:
        files: The file system.
        folder: The checkpoint's path in it.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder.rstrip("/")

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files; none if it does not exist."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(f"{self._folder}/{folder}", allow_not_found=True)
        return [info.base_name for info in self._files.get_file_info(selector)]

    def text(self, file: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        try:
            with self._files.open_input_stream(f"{self._folder}/{file}") as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        return content.decode(errors="replace")


def _store(location: str) -> tuple[Store, float]:
    """Return the store of a checkpoint, and the minimum interval between requests."""
    folder = local_folder(location)
    if folder is not None:
        return _LocalStore(folder), 0.0
    try:
        return ArrowStore(*remote_folder(location)), REMOTE_INTERVAL_S
    except CheckpointError as error:
        raise CheckpointError(f"{error}, or remove the source's option") from error


def local_folder(location: str) -> Path | None:
    """Return the local directory of a path or URI; None for remote locations.

    Spark takes `%20` literally as part of the name. If no directory has that name, it is decoded to
    a space.
    """
    found = SCHEME.fullmatch(location)
    if found is None:
        return Path(location)
    if found["scheme"].lower() == "file":  # Hadoop writes one slash or three
        plain = Path("/" + found["rest"].lstrip("/"))
        decoded = Path(unquote(str(plain)))
        return decoded if decoded.exists() and not plain.exists() else plain
    return None


def arrow_uri(location: str) -> str:
    """Return the percent-encoded pyarrow URI of a Spark location, which is not encoded."""
    return quote(location, safe=":/@")


def remote_folder(location: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI, and the path in it.

    Raises:
        CheckpointError: pyarrow does not support the scheme, or the store cannot be reached.
    """
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    scheme, _, rest = location.partition(":")
    try:
        known = SCHEMES.get(scheme.lower(), scheme.lower())
        files, folder = FileSystem.from_uri(arrow_uri(f"{known}:{rest}"))
    except (ArrowException, ValueError, OSError) as error:
        raise CheckpointError(
            f"checkpointLocation {location!r} cannot be opened here: {error}. Give a path or a URI "
            "that pyarrow can read (file, s3, gs, abfss, hdfs)"
        ) from error
    return files, str(folder)


def numbers(names: Iterable[str]) -> Iterator[int]:
    """Return the numbers of batches among a folder's files, without drafts and checksums."""
    return (int(name) for name in names if name.isascii() and name.isdecimal())


def _offset(line: str, version: str) -> object:
    return _json(line.partition(":")[2] if version == "v2" else line)


def _json(text: str) -> object:
    try:
        read: object = json.loads(text)
    except ValueError:  # a truncated file, or a source whose offsets are not JSON
        return None
    return read
