"""Files that were removed from a data directory: what is left of them, and how to report it."""

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
# How each kind of index is opened, and which field of an entry is the relative offset.
_INDEXES = {".index": (offset_index, 0), ".timeindex": (time_index, 1)}


def topics_in_folders(path: Path) -> list[Topic]:
    """Return the topics that the folders of partitions name, as far as these know them.

    The settings of the topics and the partitions that were never used are not among it.
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
    """Tell of the folder of a partition whose log files are gone; it was made before."""
    if not any(folder.glob("*.log")):
        logger.error(
            "%s: there is no log file, and the partition begins at offset 0: its records are lost,"
            " unless the broker ended while it made this folder; if there is a copy, stop the"
            " broker and put it back",
            folder,
        )


def left_by_segments(folder: Path, bases: Collection[int], files: FileCache) -> dict[str, int]:
    """Return what is left of segments whose log files are gone.

    Args:
        folder: The partition's.
        bases: Base offsets of the segments that have a log file.
        files: Where descriptors come from.

    Returns:
        By name of the file that is left: the offset up to which it says that there were records.
    """
    found: dict[str, int] = {}
    for path in folder.iterdir():
        match = _FILE_OF_SEGMENT.fullmatch(path.name)
        if match is not None and int(match[1]) not in bases:
            found[path.name] = int(match[1]) + _indexed(path, files)
    return found


def _indexed(path: Path, files: FileCache) -> int:
    """Return the relative offset after the last entry, 0 if the file is no index or has none."""
    if path.suffix not in _INDEXES:
        return 0
    opened, field = _INDEXES[path.suffix]
    last = None
    with suppress(OSError):
        last = opened(path, files).last()
    files.forget(path)
    return max(last[field] + 1, 0) if last else 0


def tell_missing(folder: Path, end: int, known: Mapping[str, int]) -> None:
    """Tell of a log that ends earlier than other files of its folder say.

    Args:
        folder: The partition's.
        end: The log's end offset.
        known: Offsets up to which the other files say that there were records, by their names.
    """
    witness = max(known, key=lambda name: known[name], default="")
    if witness and known[witness] > end:
        logger.error(
            "%s: the log ends at offset %d, although there were at least records up to offset"
            " %d (see %s): files of segments (*.log) are missing, or the machine failed"
            " before they were on disk; new records get these offsets again; if there is a copy,"
            " stop the broker and put it back",
            folder,
            end,
            known[witness],
            witness,
        )
