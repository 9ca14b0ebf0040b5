"""A data directory: its lock, its identity, its topics, and the logs of their partitions.

.lock                 held while a broker uses the directory
meta.json             cluster id and the topics; replaced as a whole, so a crash cannot tear it
producer-ids          first producer id not handed out yet
<topic>-<partition>/  one log each, made when it is first used
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kohort.broker.log.files import FileCache, replace_file, sync_directory
from kohort.broker.log.partition_log import LogConfig, PartitionLog
from kohort.errors import KohortError
from kohort.types import TopicPartition

_META = "meta.json"
_PRODUCER_IDS = "producer-ids"
# Ids are reserved on disk this many at a time; a crash wastes the rest, and none comes twice.
_PRODUCER_ID_BLOCK = 1000


class DataDirectoryError(KohortError):
    """The data directory cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of this broker.

    Attributes:
        name: Its name.
        topic_id: Its id (KIP-516); a topic that is deleted and made again has another.
        partitions: How many it has.
        configs: Its own settings, by Kafka's dotted names.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


class DataDirectory:
    """Everything a broker keeps. Not safe for several threads; the broker has one."""

    def __init__(self, path: Path, defaults: LogConfig, max_open_files: int = 256) -> None:
        """Take possession of the directory, which is made if it is not there.

        Args:
            path: The directory.
            defaults: Settings of logs whose topic does not say otherwise.
            max_open_files: Bound on open descriptors.

        Raises:
            DataDirectoryError: Another broker holds it, or what is in it is not a broker's.
        """
        self.path = path
        self._defaults = defaults
        self._files = FileCache(max_open_files)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        path.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self.cluster_id, self.topics = self._read_meta()
            self._remove_deleted()
            self._next_producer_id = self._reserved_producer_ids = self._read_producer_ids()
        except BaseException:
            os.close(self._lock)
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

    # ------------------------------------------------------------------------------- topics

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Add a topic; its partitions' directories appear when they are first used."""
        topic = Topic(name, uuid.uuid4(), partitions, dict(configs))
        self._store_topic(topic)
        return topic

    def change_topic(self, topic: Topic) -> None:
        """Replace what is stored of a topic: more partitions, or other settings."""
        self._store_topic(topic)
        for partition, log in self._logs.items():
            if partition.topic == topic.name:
                log.config = log_config(self._defaults, topic.configs)

    def _store_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._write_meta()

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records; a crash in between leaves either all of it or nothing."""
        topic = self.topics.pop(name)
        for number in range(topic.partitions):
            partition = TopicPartition(name, number)
            log = self._logs.pop(partition, None)
            if log is not None:
                log.close()
        self._write_meta()
        self._remove_deleted()

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition of a known topic, opening it on first use."""
        log = self._logs.get(partition)
        if log is None:
            topic = self.topics[partition.topic]
            config = log_config(self._defaults, topic.configs)
            directory = self.path / f"{partition.topic}-{partition.partition}"
            log = self._logs[partition] = PartitionLog(directory, config, self._files)
        return log

    @property
    def open_logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that have been used since the start."""
        return self._logs

    def has_log(self, partition: TopicPartition) -> bool:
        """Whether a partition was ever written to, without opening it."""
        return (self.path / f"{partition.topic}-{partition.partition}").is_dir()

    def _remove_deleted(self) -> None:
        """Remove directories of topics that are not registered (any more)."""
        for directory in self.path.iterdir():
            topic, dash, number = directory.name.rpartition("-")
            if not (directory.is_dir() and dash):
                continue
            if number.isdigit() and not self._is_registered(topic, int(number)):
                shutil.rmtree(directory)

    def _is_registered(self, name: str, number: int) -> bool:
        topic = self.topics.get(name)
        return topic is not None and number < topic.partitions

    # ------------------------------------------------------------------------------- identity

    def _read_meta(self) -> tuple[str, dict[str, Topic]]:
        path = self.path / _META
        if not path.exists():
            return uuid.uuid4().hex[:22], {}
        try:
            meta = json.loads(path.read_text())
            topics = [
                Topic(row["name"], uuid.UUID(row["id"]), row["partitions"], row["configs"])
                for row in meta["topics"]
            ]
            return meta["cluster_id"], {topic.name: topic for topic in topics}
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(f"{path} is not a broker's: {error}") from error

    def _write_meta(self) -> None:
        topics = [
            {
                "name": topic.name,
                "id": str(topic.topic_id),
                "partitions": topic.partitions,
                "configs": dict(topic.configs),
            }
            for topic in self.topics.values()
        ]
        content = {"cluster_id": self.cluster_id, "topics": topics}
        replace_file(self.path / _META, json.dumps(content, indent=1).encode())

    # ------------------------------------------------------------------------------- producer ids

    def next_producer_id(self) -> int:
        """Return a producer id that no producer of this directory ever had."""
        if self._next_producer_id >= self._reserved_producer_ids:
            self._reserved_producer_ids = self._next_producer_id + _PRODUCER_ID_BLOCK
            content = str(self._reserved_producer_ids).encode()
            replace_file(self.path / _PRODUCER_IDS, content)
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
        """Make everything that was appended survive the machine (fsync)."""
        for log in self._logs.values():
            log.flush()
        sync_directory(self.path)

    def close(self) -> None:
        """Flush and let go of the directory."""
        if not (self.path / _META).exists():
            self._write_meta()
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._files.close()
        os.close(self._lock)


def log_config(defaults: LogConfig, configs: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic's logs: the broker's, and over them the topic's own."""
    policy = configs.get("cleanup.policy", "compact" if defaults.compact else "delete")
    time_type = configs.get("message.timestamp.type")
    return LogConfig(
        segment_bytes=int(configs.get("segment.bytes", defaults.segment_bytes)),
        max_message_bytes=int(configs.get("max.message.bytes", defaults.max_message_bytes)),
        log_append_time=(
            time_type == "LogAppendTime" if time_type is not None else defaults.log_append_time
        ),
        compact="compact" in policy.split(","),
        retention_ms=int(configs.get("retention.ms", defaults.retention_ms)),
        retention_bytes=int(configs.get("retention.bytes", defaults.retention_bytes)),
        delete_retention_ms=int(configs.get("delete.retention.ms", defaults.delete_retention_ms)),
    )
