"""A data directory: its lock, its identity, its topics, and the logs of their partitions.

.lock                 held while a broker uses the directory
meta.properties       cluster id and node id, as Kafka writes them
topics.json           the topics; replaced as a whole, so a crash cannot tear it
topics.json.proposal  the topics as far as folders show, if topics.json is missing
topics.json.reserve   space for the next topics.json, so that a full disk lets topics be deleted
producer-ids          the first producer id that is not reserved yet
scram-credentials.json  set by clients; read and written by `kohort.broker.net.credentials`
<topic>-<partition>/  a log, created on first use; `partition.metadata` has the topic's id
<id>.<n>-delete/      partition n of the topic with this id, which is being deleted
<topic>-<n>.<x>-stray/  a partition that topics.json does not list; kept

The broker never touches other files and directories.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kohort.broker.log.config import LogConfig, log_config
from kohort.broker.log.files import FileCache, Reserve, replace_file
from kohort.broker.log.folders import (
    claim,
    kafka_uuid,
    mark_deleted,
    remove_marked,
    set_strays_aside,
    take_back,
)
from kohort.broker.log.missing import tell_emptied, topics_in_folders
from kohort.broker.log.partition_log import PartitionLog
from kohort.broker.log.storage import Storage, advice
from kohort.broker.log.topic import Topic, as_json, from_json
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.types import TopicPartition

logger = logging.getLogger(__name__)

__all__ = ["DataDirectory", "DataDirectoryError", "Topic", "log_config"]

_CLUSTER_ID = re.compile("[!-~]+")
_META = "meta.properties"
_TOPICS = "topics.json"
_PROPOSAL = "topics.json.proposal"
_PRODUCER_IDS = "producer-ids"
_NODE_ID = 1
# Number of ids reserved on disk at once; a crash wastes the rest, and no id is used twice.
_PRODUCER_ID_BLOCK = 1000
# A new directory's ids start at one of this many blocks, so that ids can be read as a float.
_PRODUCER_ID_STARTS = 2**42
_PRODUCER_ID_LAST = 2**62  # half of the range of an id, which is never reached
# Number of partitions that a log line names.
_NAMED = 20
_CHECKED = "the next start checks them as after a crash"
_UNMARKED = (
    "their producer state and clean-shutdown marks were not written; no acknowledged record is"
    f" lost, and {_CHECKED}"
)
_UNSYNCED = f"their last records were acknowledged but may not have reached the disk; {_CHECKED}"


class DataDirectoryError(KohortError):
    """The data directory cannot be used, with the reason."""


class DataDirectory:
    """All data of a broker. Not thread-safe; the broker has one thread.

    Attributes:
        path: The directory.
        cluster_id: Kafka's cluster id, created with the directory.
        topics: The topics by name; read-only.
    """

    def __init__(self, path: Path, defaults: LogConfig, max_open_files: int = 256) -> None:
        """Lock and open the directory, and create it if it is missing.

        Args:
            path: The directory.
            defaults: Settings of logs that their topic does not override.
            max_open_files: Maximum number of open descriptors.

        Raises:
            DataDirectoryError: Another broker uses the directory, it is not a broker's, or an
                operating system call failed.
        """
        self.path = path
        self._defaults = defaults
        self._files = FileCache(max_open_files)
        self._reserve = Reserve(path / _TOPICS)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise DataDirectoryError(f"cannot use {path} for data: {error}") from error
        try:
            self._open()
        except BaseException as error:
            self._free_lock()
            if isinstance(error, OSError):
                raise DataDirectoryError(f"cannot use {path} for data: {error}") from error
            raise

    def _take_lock(self) -> int:
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
            os.close(lock)
            raise DataDirectoryError(
                f"{self.path} is in use by another broker (process {holder or 'unknown'}); "
                "stop it, or choose another directory"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _free_lock(self) -> None:
        # Closing the file is not enough: a child process being started may have it open, too.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)

    def _open(self) -> None:
        self.topics = self._read_topics()
        self.cluster_id = self._read_cluster_id()
        self._tidy_folders()
        self._reserve.keep()
        self._next_producer_id = self._reserved_producer_ids = self._read_producer_ids()

    # ------------------------------------------------------------------------------- topics

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Add a topic; the directories of its partitions are created on first use.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, or KAFKA_STORAGE_ERROR, and the topic is not created.
        """
        if name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, name)
        topic = Topic(name, uuid.uuid4(), partitions, dict(configs))
        self.add_topics([topic])
        return topic

    def add_topics(self, topics: Iterable[Topic]) -> None:
        """Add topics with unused names, all of them or none.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        added = {topic.name: topic for topic in topics}
        if added:
            self._store_topics(self.topics | added)

    def change_topics(self, topics: Iterable[Topic]) -> None:
        """Store topics with more partitions or other settings.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and nothing has changed.
        """
        changed = {topic.name: topic for topic in topics}
        if not changed:
            return
        self._store_topics(self.topics | changed)
        for partition, log in self._logs.items():
            topic = changed.get(partition.topic)
            if topic is not None:
                log.config = log_config(self._defaults, topic.configs)

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics with their records.

        The topics are gone at the instant the list of topics is replaced, which needs no disk
        space. Their folders are marked before that: after a crash, the next start removes marked
        folders, or unmarks them if the topic still exists.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and the topics still exist.
        """
        left = {name: topic for name, topic in self.topics.items() if name not in names}
        doomed = [topic for name, topic in self.topics.items() if name in names]
        with self.storage.writing(self.path):
            marks = mark_deleted(self.path, doomed)
        try:
            self._store_topics(left, from_reserve=True)
        except KafkaError:
            take_back(marks)
            raise
        for partition in [each for each in self._logs if each.topic in names]:
            self._logs.pop(partition).abandon()
        with suppress(KafkaError), self.storage.writing(self.path):
            self._tidy_folders()
        self._reserve.keep()

    def _tidy_folders(self) -> None:
        """Remove marked folders, and move unknown ones aside; the next start does the rest."""
        remove_marked(self.path, self.topics)
        set_strays_aside(self.path, self.topics)

    def _store_topics(self, topics: dict[str, Topic], *, from_reserve: bool = False) -> None:
        content = as_json(topics.values())
        with self.storage.writing(self.path / _TOPICS):
            try:
                replace_file(self.path / _TOPICS, content)
            except OSError as error:
                if not from_reserve or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._reserve.replace_target(content)
        self.topics = topics
        if not from_reserve:
            self._reserve.keep()

    def _read_topics(self) -> dict[str, Topic]:
        path = self.path / _TOPICS
        has_served = self._reserve.is_there or (self.path / _PRODUCER_IDS).exists()
        if not path.exists():
            if has_served:
                raise self._without_topics("is missing")
            if (self.path / _META).exists():
                raise DataDirectoryError(
                    f"{self.path} is a data directory of Apache Kafka ({_META} without {_TOPICS}); "
                    f"choose another directory, or restore {_TOPICS} if it was lost"
                )
            return {}
        try:
            return from_json(path.read_bytes())
        except ValueError as error:
            if has_served:
                raise self._without_topics(f"is damaged ({error})") from error
            raise DataDirectoryError(f"{path} is not a kohort broker's: {error}") from error

    def _without_topics(self, what: str) -> DataDirectoryError:
        """Return the error for a directory that has lost its list of topics.

        The folders do not show settings, and a topic that loses its retention may lose records. So
        they only yield a proposal, which a person has to complete.
        """
        found = topics_in_folders(self.path)
        proposal = self.path / _PROPOSAL
        replace_file(proposal, as_json(found))
        return DataDirectoryError(
            f"{self.path}: {_TOPICS}, the list of the topics, {what}; restore it from a backup. "
            f"Without a backup, complete {proposal}, which lists the {len(found)} topics found in "
            "partition folders: correct the partition counts (partitions that were never used "
            "have no folder) and add the topics' settings (configs), which are in no folder; "
            f"then rename it to {_TOPICS}"
        )

    # ------------------------------------------------------------------------------- logs

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition of a known topic, opening it on first use.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get(partition)
        if log is None:
            topic = self.topics[partition.topic]
            config = log_config(self._defaults, topic.configs)
            directory = self._directory_of(partition)
            with self._files.storage.reading(directory):
                if claim(directory, topic):
                    tell_emptied(directory)
                log = PartitionLog(directory, config, self._files)
            self._logs[partition] = log
        return log

    @property
    def storage(self) -> Storage:
        """Reports errors of the operating system."""
        return self._files.storage

    @property
    def open_logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that have been used since the start."""
        return self._logs

    def has_log(self, partition: TopicPartition) -> bool:
        """Whether a partition was ever written to; does not open it."""
        return self._directory_of(partition).is_dir()

    def size_on_disk(self, partition: TopicPartition) -> int:
        """Return the total size of a partition's segments in bytes, without opening its log."""
        files = self._directory_of(partition).glob("*.log")
        return sum(file.stat().st_size for file in files)

    def _directory_of(self, partition: TopicPartition) -> Path:
        return self.path / f"{partition.topic}-{partition.partition}"

    # ------------------------------------------------------------------------------- identity

    def _read_cluster_id(self) -> str:
        path = self.path / _META
        if path.exists():
            text = path.read_bytes().decode(errors="replace")
            lines = (line.partition("=") for line in text.splitlines())
            known = {key.strip(): value.strip() for key, _, value in lines}
            is_whole = known.get("node.id") == str(_NODE_ID)  # written last
            if not is_whole or not _CLUSTER_ID.fullmatch(known.get("cluster.id", "")):
                raise DataDirectoryError(
                    f"{path} has no cluster.id, or is damaged; restore it from a backup, or remove "
                    "it if the directory is a broker's: clients then see a new cluster id"
                )
            return known["cluster.id"]
        cluster_id = kafka_uuid(uuid.uuid4())
        if not (self.path / _TOPICS).exists():
            self._store_topics({})  # first: a directory with only meta.properties is Apache Kafka's
        content = f"version=1\ncluster.id={cluster_id}\nnode.id={_NODE_ID}\n"
        replace_file(path, content.encode())
        return cluster_id

    # ------------------------------------------------------------------------------- producer ids

    def next_producer_id(self) -> int:
        """Return a producer id that no producer of this directory has had.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._next_producer_id >= self._reserved_producer_ids:
            reserved = self._next_producer_id + _PRODUCER_ID_BLOCK
            with self._files.storage.writing(self.path / _PRODUCER_IDS):
                replace_file(self.path / _PRODUCER_IDS, str(reserved).encode())
            self._reserved_producer_ids = reserved
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def _read_producer_ids(self) -> int:
        try:
            return _reserved_ids((self.path / _PRODUCER_IDS).read_bytes())
        except FileNotFoundError:
            return _new_ids()
        except ValueError:
            logger.error(
                "%s is damaged, so the first unused producer id is unknown;"
                " new producers get ids from a random number on, so that no id is used twice,"
                " and no record is lost",
                self.path / _PRODUCER_IDS,
            )
            return _new_ids()

    # ------------------------------------------------------------------------------- end

    def flush(self) -> None:
        """Write everything that was appended to the disk (fsync).

        Raises:
            OSError: A write failed.
        """
        for log in self._logs.values():
            log.flush()

    def close(self) -> None:
        """Flush and release the directory; errors of the disk are logged."""
        try:
            _close_all(self._logs)
        finally:
            self._logs.clear()
            self._files.close()
            self._free_lock()


def _new_ids() -> int:
    """Return the start of the producer ids if it is unknown which ones were used.

    A producer that outlives a broker may connect to a new one at the same address. The new broker's
    ids must differ, or new records would be taken for duplicates.
    """
    return secrets.randbelow(_PRODUCER_ID_STARTS) * _PRODUCER_ID_BLOCK


def _reserved_ids(content: bytes) -> int:
    """Read the first producer id that is not reserved yet.

    Raises:
        ValueError: The content is invalid: a truncated number, for example, is no whole block.
    """
    reserved = int(content)
    if not 0 < reserved <= _PRODUCER_ID_LAST or reserved % _PRODUCER_ID_BLOCK:
        raise ValueError(reserved)
    return reserved


class _Cause(Struct, frozen=True):
    """Why logs could not be closed cleanly, and what that means for them."""

    reason: str
    meaning: str
    advice: str


def _close_all(logs: Mapping[TopicPartition, PartitionLog]) -> None:
    """Close logs; if some cannot be closed cleanly, log each cause once."""
    failed: dict[_Cause, list[TopicPartition]] = {}
    for partition, log in logs.items():
        try:
            log.close()
        except OSError as error:
            meaning = _UNMARKED if log.is_flushed else _UNSYNCED
            cause = _Cause(error.strerror or str(error), meaning, advice(error))
            failed.setdefault(cause, []).append(partition)
    for cause, partitions in failed.items():
        logger.error(
            "%s: partitions could not be closed cleanly: %s; %s; %s",
            cause.reason,
            _listed(partitions),
            cause.meaning,
            cause.advice,
        )


def _listed(partitions: list[TopicPartition]) -> str:
    named = [f"{each.topic}-{each.partition}" for each in sorted(partitions)]
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} others" if more > 0 else "")
