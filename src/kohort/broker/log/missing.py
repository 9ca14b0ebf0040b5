"""Detects and reports missing files of a data directory, by means of the files that are left."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from kohort.broker.log.files import FileCache
from kohort.broker.log.folders import folders, owner_of
from kohort.broker.log.index import offset_index, time_index
from kohort.broker.log.topic import Topic

logger = logging.getLogger(__name__)

_FILE_OF_SEGMENT = re.compile(r"(\d{20})\.(?!producers).*")
# For each kind of index, its constructor and the entry field that is the relative offset.
_INDEXES = {".index": (offset_index, 0), ".timeindex": (time_index, 1)}


def topics_in_folders(path: Path) -> list[Topic]:
    """Return the topics that can be inferred from the folders of partitions.

    Settings of topics and partitions that were never used cannot be inferred.
    """
    found: dict[str, Topic] = {}
    for folder, name, number in sorted(folders(path)):
        topic_id = owner_of(folder)
        known = found.get(name)
        if topic_id is not None and (known is None or known.topic_id == topic_id):
            partitions = max(number + 1, known.partitions if known else 0)
            found[name] = Topic(name, topic_id, partitions)
    return list(found.values())


def tell_emptied(folder: Path) -> None:
    """Log that the log files of a folder are gone, which was created before."""
    if not any(folder.glob("*.log")):
        logger.error(
            "%s: there is no log file, so the partition starts at offset 0 and its records are"
            " lost, unless the broker ended while it created this folder; if you have a backup,"
            " stop the broker and restore it",
            folder,
        )


def left_by_segments(folder: Path, bases: Collection[int], files: FileCache) -> dict[str, int]:
    """Return the files that are left of segments without a log file.

    Args:
        folder: Folder of the partition.
        bases: Base offsets of the segments that have a log file.
        files: The cache of descriptors.

    Returns:
        For each remaining file, by name, the offset up to which it shows that there were records.
    """
    found: dict[str, int] = {}
    for path in folder.iterdir():
        match = _FILE_OF_SEGMENT.fullmatch(path.name)
        if match is not None and int(match[1]) not in bases:
            found[path.name] = int(match[1]) + _indexed(path, files)
    return found


def _indexed(path: Path, files: FileCache) -> int:
    """Return the relative offset after the last entry, or 0 if the index is empty or invalid."""
    if path.suffix not in _INDEXES:
        return 0
    opened, field = _INDEXES[path.suffix]
    last = None
    with suppress(OSError):
        last = opened(path, files).last()
    files.forget(path)
    return max(last[field] + 1, 0) if last else 0


def tell_missing(folder: Path, end: int, known: Mapping[str, int]) -> None:
    """Log that a log ends before the end that other files of its folder show.

    Args:
        folder: Folder of the partition.
        end: End offset of the log.
        known: Offsets up to which other files show that there were records, by file name.
    """
    witness = max(known, key=lambda name: known[name], default="")
    if witness and known[witness] > end:
        logger.error(
            "%s: the log ends at offset %d, but there were records up to at least offset %d"
            " (see %s): segment files (*.log) are missing, or the machine failed before they"
            " were on disk; new records get these offsets again; if you have a backup, stop the"
            " broker and restore it",
            folder,
            end,
            known[witness],
            witness,
        )
