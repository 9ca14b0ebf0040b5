"""Inspects, copies and changes the files of a checkpoint, on this machine or in a store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from kohort.spark.checkpoint.log import ArrowStore, CheckpointError, local_folder, remote_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

# Names, sizes and modification times of the files that every batch changes.
Look: TypeAlias = frozenset[tuple[str, int, object]]

LOGS = ("offsets", "commits")
# Written last: Spark treats a folder without it as that of a new query.
METADATA = "metadata"
POLL_S = 0.5


class CheckpointFiles:
    """One checkpoint.

    Args:
        location: A path, or a URI supported by pyarrow.

    Raises:
        CheckpointError: The scheme of the URI is unknown.
    """

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") or location
        self._files, self._path = _opened(self.location)
        self.store = ArrowStore(self._files, self._path)

    def check_copy(self, target: CheckpointFiles) -> None:
        """Refuse a copy onto existing files.

        Raises:
            CheckpointError: The target has files, or one folder is inside the other.
        """
        ours, theirs = f"{self._path}/", f"{target._path}/"
        if ours.startswith(theirs) or theirs.startswith(ours):
            raise CheckpointError(
                f"{target.location} overlaps {self.location}: give the copy a folder of "
                "its own, or use --in-place"
            )
        if target._entries():
            raise CheckpointError(
                f"{target.location} is not empty, and nothing is ever overwritten: give the name "
                "of a new folder"
            )

    def look(self) -> Look:
        """Return a snapshot that shows later whether a query has written."""
        return frozenset(
            (info.path, info.size, info.mtime_ns) for info in self._log_files() if info.is_file
        )

    def watch(self, quiet_s: float) -> Look:
        """Wait until the last batch is some seconds old, and return a snapshot.

        Args:
            quiet_s: Time in seconds within which a running query would have written.

        Raises:
            CheckpointError: A file was written meanwhile.
        """
        before = self.look()
        newest = max((info.mtime_ns or 0 for info in self._log_files()), default=0)
        until = time.time() + min(quiet_s, newest / 1e9 + quiet_s - time.time())
        while (left := until - time.time()) > 0:
            time.sleep(min(left, POLL_S))
            self.refuse_change(before)
        return before

    def refuse_change(self, before: Look) -> None:
        """Refuse to change the checkpoint of a running query.

        Raises:
            CheckpointError: It has written since `before`.
        """
        new = sorted(str(name) for name, _, _ in self.look() - before)
        if new or self.look() != before:
            raise CheckpointError(
                f"the query of {self.location} is running: it has just written "
                f"{', '.join(new[:3]) or 'there'}. Stop it first"
            )

    def copy_to(self, target: CheckpointFiles, changes: Mapping[str, str | None]) -> None:
        """Copy the checkpoint with some files changed.

        Args:
            target: An empty location.
            changes: See `change`; the copy's `offsets` has only these files.
        """
        for info in self._entries():
            if info.base_name not in ("offsets", METADATA):
                self._copy(info, target)
        target.change(changes)
        for info in self._entries():
            if info.base_name == METADATA:
                self._copy(info, target)

    def back_up(self) -> CheckpointFiles:
        """Copy everything into a new folder next to this one, and return the new one."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        backup = CheckpointFiles(f"{self.location}.backup-{stamp}")
        self.check_copy(backup)
        for info in self._entries():
            self._copy(info, backup)
        return backup

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Write files, or remove those that are None, together with Hadoop's checksums.

        Args:
            changes: New text by file name relative to the checkpoint, old batches first.
        """
        for name in sorted(changes, key=_batch_last):
            folder, _, base = name.rpartition("/")
            self._remove(f"{folder}/.{base}.crc")
            text = changes[name]
            if text is None:
                self._remove(name)
            else:
                self._write(name, text)

    def _entries(self) -> list[FileInfo]:
        return self._list(self._path)

    def _log_files(self) -> list[FileInfo]:
        return [info for folder in LOGS for info in self._list(f"{self._path}/{folder}")]

    def _list(self, path: str) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        found: list[FileInfo] = self._files.get_file_info(FileSelector(path, allow_not_found=True))
        return found

    def _copy(self, info: FileInfo, target: CheckpointFiles) -> None:
        from pyarrow.fs import copy_files

        to = f"{target._path}/{info.base_name}"
        target._files.create_dir(target._path if info.is_file else to, recursive=True)
        copy_files(
            info.path, to, source_filesystem=self._files, destination_filesystem=target._files
        )

    def _write(self, name: str, text: str) -> None:
        path = f"{self._path}/{name}"
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(path) as stream:
            stream.write(text.encode())

    def _remove(self, name: str) -> None:
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).is_file:
            self._files.delete_file(path)


def _batch_last(name: str) -> tuple[bool, int]:
    base = name.rpartition("/")[2]
    return name.startswith("offsets/"), int(base) if base.isdecimal() else 0


def _opened(location: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import LocalFileSystem

    folder = local_folder(location)
    if folder is None:
        files, path = remote_folder(location)
        return files, path.rstrip("/")
    return LocalFileSystem(), str(folder.absolute())
