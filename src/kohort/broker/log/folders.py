"""The folders of partitions: which topic each belongs to, and which ones are removed.

A folder is removed only after it was renamed, which marks it for removal. The mark is set before
the topic is removed from the list of topics, and undone if that fails. Folders that the list does
not contain are renamed as well, but kept.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from kohort.broker.log.files import replace_file, sync_directory
from kohort.broker.log.topic import Topic

logger = logging.getLogger(__name__)

_METADATA = "partition.metadata"
# The second form, without a partition, is from earlier versions.
_MARKED = re.compile(r"([0-9a-f]{32})\.(\d+)-delete|[0-9a-f]{32}-delete")
_CONTENT = re.compile(r"version:\s*0\s+topic_id:\s*([A-Za-z0-9_-]{22})\s*", re.ASCII)
# Ids are random, so two topics' ids differ in about 60 bits. Fewer differences mean damage.
_DAMAGED_BITS = 20
_NAME_IN_STRAY = 200  # file names have at most 255 bytes


def kafka_uuid(value: uuid.UUID) -> str:
    """Return an id in Kafka's notation: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def claim(folder: Path, topic: Topic) -> bool:
    """Record which topic a folder belongs to, unless it is recorded; create the folder if missing.

    Returns:
        Whether it was recorded before.

    Raises:
        OSError: The folder's contents may belong to another topic, or an operating system call
            failed.
    """
    owner = folder / _METADATA
    if owner.exists():
        if _read_owner(owner.read_bytes()) != topic.topic_id:
            raise OSError(f"{owner} does not name topic {topic.name}; {_advice(folder, topic)}")
        return True
    folder.mkdir(exist_ok=True)
    if any(each.suffix != ".tmp" for each in folder.iterdir()):
        raise OSError(
            f"{folder} holds files that may not belong to topic {topic.name}: it has no "
            f"{_METADATA}; {_advice(folder, topic)}"
        )
    replace_file(owner, _metadata(topic.topic_id))
    sync_directory(folder.parent)
    return False


def mark_deleted(path: Path, topics: Collection[Topic]) -> list[tuple[Path, Path]]:
    """Mark the folders of topics for removal, by renaming them.

    Args:
        path: The data directory.
        topics: The topics.

    Returns:
        The names before and after.

    Raises:
        OSError: A folder could not be renamed; no folder is.
    """
    by_name = {topic.name: topic for topic in topics}
    marks: list[tuple[Path, Path]] = []
    try:
        for folder, name, number in tuple(folders(path)):
            topic = by_name.get(name)
            # Any other folder becomes a stray, as its records may not be the topic's.
            if topic is not None and owner_of(folder) == topic.topic_id:
                mark = path / f"{topic.topic_id.hex}.{number}-delete"
                folder.rename(mark)
                marks.append((folder, mark))
        sync_directory(path)
    except OSError:
        take_back(marks)
        raise
    return marks


def take_back(marks: Collection[tuple[Path, Path]]) -> None:
    """Rename folders back, because their topics are not deleted after all."""
    for folder, mark in marks:
        try:
            mark.rename(folder)
        except OSError as error:
            logger.error(
                "%s: cannot be renamed to %s: %s; the next start retries",
                mark,
                folder.name,
                error,
            )


def remove_marked(path: Path, topics: Mapping[str, Topic]) -> None:
    """Remove marked folders; undo the mark if the topic still exists.

    Args:
        path: The data directory.
        topics: The existing topics.
    """
    by_id = {topic.topic_id.hex: topic for topic in topics.values()}
    for mark in tuple(path.iterdir()):
        match = _MARKED.fullmatch(mark.name)
        if match is None:
            continue
        topic = by_id.get(match[1])
        if topic is None:
            shutil.rmtree(mark, ignore_errors=True)
            continue
        folder = path / f"{topic.name}-{match[2]}"
        if folder.exists():
            _set_aside(mark, folder.name, f"another {folder.name} exists")
        else:
            mark.rename(folder)


def set_strays_aside(path: Path, topics: Mapping[str, Topic]) -> None:
    """Rename folders of partitions that the list of topics does not contain, as Kafka does.

    Args:
        path: The data directory.
        topics: The existing topics.
    """
    for folder, name, number in tuple(folders(path)):
        topic = topics.get(name)
        if topic is None:
            _set_aside(folder, folder.name, f"topics.json does not list topic {name}")
        elif number >= topic.partitions:
            reason = f"topics.json gives topic {name} {topic.partitions} partitions"
            _set_aside(folder, folder.name, reason)
        elif _is_of_another(owner_of(folder), topic.topic_id):
            reason = f"topics.json lists a topic {name} with another id"
            _set_aside(folder, folder.name, reason)


def _is_of_another(owner: uuid.UUID | None, topic_id: uuid.UUID) -> bool:
    """Whether a folder surely belongs to another topic; `claim` reports damaged metadata."""
    return owner is not None and (owner.int ^ topic_id.int).bit_count() >= _DAMAGED_BITS


def folders(path: Path) -> Iterator[tuple[Path, str, int]]:
    """Yield the folders of partitions, each with the topic's name and the partition number."""
    for folder in path.iterdir():
        name, _, number = folder.name.rpartition("-")
        is_partition = name and number.isdecimal() and str(int(number)) == number
        if is_partition and (folder / _METADATA).is_file():
            yield folder, name, int(number)


def _set_aside(folder: Path, wanted: str, reason: str) -> None:
    name, _, number = wanted.rpartition("-")
    stray = folder.with_name(f"{name[:_NAME_IN_STRAY]}-{number}.{uuid.uuid4().hex}-stray")
    folder.rename(stray)
    sync_directory(folder.parent)
    logger.warning(
        "%s: %s; the folder is kept as %s and not used: to recover its records, stop the broker,"
        " restore topics.json and rename the folder to %s; else remove it",
        folder,
        reason,
        stray.name,
        wanted,
    )


def owner_of(folder: Path) -> uuid.UUID | None:
    """Return the id of the topic that a folder belongs to; None if it cannot be read."""
    try:
        return _read_owner((folder / _METADATA).read_bytes())
    except OSError:
        return None


def _read_owner(content: bytes) -> uuid.UUID | None:
    match = _CONTENT.fullmatch(content.decode(errors="replace"))
    if match is None:
        return None
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(match[1] + "=="))
    except (binascii.Error, ValueError):
        return None


def _metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {kafka_uuid(topic_id)}\n".encode()


def _advice(folder: Path, topic: Topic) -> str:
    return (
        "nothing in the folder was changed: if its records are the topic's, write two lines into "
        f"{folder / _METADATA}, 'version: 0' and 'topic_id: {kafka_uuid(topic.topic_id)}'; "
        "otherwise move the folder away"
    )
