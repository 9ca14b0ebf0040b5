"""A data directory: its lock, its identity, its topics, and the logs of their partitions.

.lock                 held while a broker uses the directory
meta.properties       cluster id and node id, as Kafka writes them
topics.json           the topics; replaced as a whole, so a crash cannot tear it
topics.json.reserve   room for its next version, so that a full disk lets topics be deleted
producer-ids          first producer id not handed out yet
<topic>-<partition>/  one log each, made when it is first used; `partition.metadata` says whose
<id>.<n>-delete/      partition n of the topic with this id, which is being deleted
<topic>-<n>.<x>-stray/  a partition that topics.json does not know; kept

Other files and directories are never touched.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from kohort.broker.log.config import LogConfig, log_config
from kohort.broker.log.files import FileCache, replace_file
from kohort.broker.log.folders import (
    claim,
    kafka_uuid,
    mark_deleted,
    remove_marked,
    set_strays_aside,
    take_back,
)
from kohort.broker.log.partition_log import PartitionLog
from kohort.broker.log.reserve import Reserve
from kohort.broker.log.storage import Storage
from kohort.broker.log.topic import Topic
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.types import TopicPartition

__all__ = ["DataDirectory", "DataDirectoryError", "Topic", "log_config"]

_META = "meta.properties"
_TOPICS = "topics.json"
_PRODUCER_IDS = "producer-ids"
_NODE_ID = 1
# Ids are reserved on disk this many at a time; a crash wastes the rest, and none comes twice.
_PRODUCER_ID_BLOCK = 1000


class DataDirectoryError(KohortError):
    """The data directory cannot be used, and why."""


class DataDirectory:
    """Everything a broker keeps. Not safe for several threads; the broker has one.

    Attributes:
        path: Where it is.
        cluster_id: Kafka's id of the cluster, made with the directory.
        topics: The topics by name; for reading.
    """

    def __init__(self, path: Path, defaults: LogConfig, max_open_files: int = 256) -> None:
        """Take possession of the directory, which is made if it is not there.

        Args:
            path: The directory.
            defaults: Settings of logs whose topic does not say otherwise.
            max_open_files: Bound on open descriptors.

        Raises:
            DataDirectoryError: Another broker holds it, what is in it is not a broker's, or the
                operating system refuses.
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
        # Closing is not enough: a child that this process is about to start has the file open, too.
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
        """Add a topic; its partitions' directories appear when they are first used.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, or KAFKA_STORAGE_ERROR and there is no topic.
        """
        if name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, name)
        topic = Topic(name, uuid.uuid4(), partitions, dict(configs))
        self.add_topics([topic])
        return topic

    def add_topics(self, topics: Iterable[Topic]) -> None:
        """Add topics whose names nobody has, all of them or none.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        added = {topic.name: topic for topic in topics}
        if added:
            self._store_topics(self.topics | added)

    def change_topics(self, topics: Iterable[Topic]) -> None:
        """Replace what is stored of topics: more partitions, or other settings.

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
        """Remove topics and their records.

        They are gone at the instant the list of topics is replaced, which needs no room on the
        disk. Their folders are marked before it: the next start after a crash removes these, or
        takes the marks back.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and the topics are still there.
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
        """Remove what was marked, and set aside what nobody knows; a start does the rest."""
        remove_marked(self.path, self.topics)
        set_strays_aside(self.path, self.topics)

    def _store_topics(self, topics: dict[str, Topic], *, from_reserve: bool = False) -> None:
        rows = [
            {
                "name": topic.name,
                "id": str(topic.topic_id),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
            }
            for topic in topics.values()
        ]
        content = json.dumps(rows, indent=1).encode()
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
        if not path.exists():
            if (self.path / _META).exists():
                raise DataDirectoryError(
                    f"{self.path} is a data directory of Apache Kafka ({_META} without {_TOPICS}); "
                    "choose another one"
                )
            return {}
        try:
            topics = [
                Topic(row["name"], uuid.UUID(row["id"]), row["partitions"], row["configs"])
                for row in json.loads(path.read_text())
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(f"{path} is not a broker's: {error}") from error
        return {topic.name: topic for topic in topics}

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
                claim(directory, topic)
                log = PartitionLog(directory, config, self._files)
            self._logs[partition] = log
        return log

    @property
    def storage(self) -> Storage:
        """What tells of operations that the operating system refuses."""
        return self._files.storage

    @property
    def open_logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that have been used since the start."""
        return self._logs

    def has_log(self, partition: TopicPartition) -> bool:
        """Whether a partition was ever written to, without opening it."""
        return self._directory_of(partition).is_dir()

    def size_on_disk(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition's segments, without opening its log."""
        files = self._directory_of(partition).glob("*.log")
        return sum(file.stat().st_size for file in files)

    def _directory_of(self, partition: TopicPartition) -> Path:
        return self.path / f"{partition.topic}-{partition.partition}"

    # ------------------------------------------------------------------------------- identity

    def _read_cluster_id(self) -> str:
        path = self.path / _META
        if path.exists():
            lines = (line.partition("=") for line in path.read_text().splitlines())
            known = {key.strip(): value.strip() for key, _, value in lines}
            if not known.get("cluster.id"):
                raise DataDirectoryError(f"{path} is not a broker's: it has no cluster.id")
            return known["cluster.id"]
        cluster_id = kafka_uuid(uuid.uuid4())
        if not (self.path / _TOPICS).exists():
            self._store_topics({})  # first, for what has only the other file is Apache Kafka's
        content = f"version=1\ncluster.id={cluster_id}\nnode.id={_NODE_ID}\n"
        replace_file(path, content.encode())
        return cluster_id

    # ------------------------------------------------------------------------------- producer ids

    def next_producer_id(self) -> int:
        """Return a producer id that no producer of this directory ever had.

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
            return int((self.path / _PRODUCER_IDS).read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise DataDirectoryError(f"{self.path / _PRODUCER_IDS}: {error}") from error

    # ------------------------------------------------------------------------------- end

    def flush(self) -> None:
        """Make everything that was appended survive the machine (fsync).

        Raises:
            OSError: The disk did not take it.
        """
        for log in self._logs.values():
            log.flush()

    def close(self) -> None:
        """Flush and let go of the directory.

        Raises:
            OSError: The disk did not take it; everything is let go of all the same.
        """
        try:
            for log in self._logs.values():
                log.close()
        finally:
            self._logs.clear()
            self._files.close()
            self._free_lock()
