"""The folders of partitions: whose records are in them, and which of them are removed.

A folder is removed only if it is marked, that is renamed, for this; a mark is made before the list
of topics forgets the topic, and taken back if that does not come about. What the list of topics
does not know is renamed, too, but kept.
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
# The second form, without a partition, is that of earlier versions.
_MARKED = re.compile(r"([0-9a-f]{32})\.(\d+)-delete|[0-9a-f]{32}-delete")
_CONTENT = re.compile(r"version:\s*0\s+topic_id:\s*([A-Za-z0-9_-]{22})\s*", re.ASCII)
# Ids are random: those of two topics differ in about 60 bits. Fewer than this are damage.
_DAMAGED_BITS = 20
_NAME_IN_STRAY = 200  # a file's name has 255 bytes at most


def kafka_uuid(value: uuid.UUID) -> str:
    """Return an id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def claim(folder: Path, topic: Topic) -> bool:
    """Write whose log a folder holds, unless it says so; it is made if it is not there.

    Returns:
        Whether it said so.

    Raises:
        OSError: It is not known that what is in the folder is the topic's, or the operating system
            refuses.
    """
    owner = folder / _METADATA
    if owner.exists():
        if _read_owner(owner.read_bytes()) != topic.topic_id:
            raise OSError(f"{owner} does not name topic {topic.name}; {_advice(folder, topic)}")
        return True
    folder.mkdir(exist_ok=True)
    if any(each.suffix != ".tmp" for each in folder.iterdir()):
        raise OSError(
            f"{folder} holds files that are not of topic {topic.name}: there is no {_METADATA}; "
            f"{_advice(folder, topic)}"
        )
    replace_file(owner, _metadata(topic.topic_id))
    sync_directory(folder.parent)
    return False


def mark_deleted(path: Path, topics: Collection[Topic]) -> list[tuple[Path, Path]]:
    """Rename the folders of topics that are about to be deleted, so that they may be removed.

    Args:
        path: The data directory.
        topics: The topics.

    Returns:
        Names before and after.

    Raises:
        OSError: A folder could not be renamed, and none is.
    """
    by_name = {topic.name: topic for topic in topics}
    marks: list[tuple[Path, Path]] = []
    try:
        for folder, name, number in tuple(folders(path)):
            topic = by_name.get(name)
            # Any other folder becomes a stray: it is not known that its records are the topic's.
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
    """Give folders their names back, because their topics are not deleted after all."""
    for folder, mark in marks:
        try:
            mark.rename(folder)
        except OSError as error:
            logger.error(
                "%s: cannot be renamed to %s: %s; the next start does it",
                mark,
                folder.name,
                error,
            )


def remove_marked(path: Path, topics: Mapping[str, Topic]) -> None:
    """Remove what is marked; the mark of a topic that is still there is taken back.

    Args:
        path: The data directory.
        topics: The topics there are.
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
            _set_aside(mark, folder.name, f"there is another {folder.name}")
        else:
            mark.rename(folder)


def set_strays_aside(path: Path, topics: Mapping[str, Topic]) -> None:
    """Rename folders of partitions that the list of topics does not know, as Kafka does.

    Args:
        path: The data directory.
        topics: The topics there are.
    """
    for folder, name, number in tuple(folders(path)):
        topic = topics.get(name)
        if topic is None:
            _set_aside(folder, folder.name, f"topics.json does not know topic {name}")
        elif number >= topic.partitions:
            reason = f"topics.json gives topic {name} {topic.partitions} partitions"
            _set_aside(folder, folder.name, reason)
        elif _is_of_another(owner_of(folder), topic.topic_id):
            reason = f"topics.json knows a topic {name} with another id"
            _set_aside(folder, folder.name, reason)


def _is_of_another(owner: uuid.UUID | None, topic_id: uuid.UUID) -> bool:
    """Whether it is sure whose a folder is; a damaged file says nothing, and `claim` tells it."""
    return owner is not None and (owner.int ^ topic_id.int).bit_count() >= _DAMAGED_BITS


def folders(path: Path) -> Iterator[tuple[Path, str, int]]:
    """Yield the folders of partitions, each with its topic's name and its number."""
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
        "%s: %s; the folder is kept as %s and not used: stop the broker, put topics.json back as "
        "it was and rename the folder to %s to have its records again, or remove it",
        folder,
        reason,
        stray.name,
        wanted,
    )


def owner_of(folder: Path) -> uuid.UUID | None:
    """Return the id of the topic whose a folder is; None when that cannot be read."""
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
        "nothing in the folder is touched: if its records are the topic's, write two lines into "
        f"{folder / _METADATA}, 'version: 0' and 'topic_id: {kafka_uuid(topic.topic_id)}', "
        "else move the folder away"
    )
