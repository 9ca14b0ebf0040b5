"""The admin client: topics, groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from kohort.client.admin_core import AdminCore
from kohort.client.admin_values import GroupDescription, GroupListing, NewTopic
from kohort.client.backoff import Deadline
from kohort.client.config import AdminConfig, from_kafka, make
from kohort.client.loop_thread import LoopThread
from kohort.client.metadata import Node, PartitionMetadata
from kohort.errors import ConfigError, LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition

__all__ = ["AdminClient", "GroupDescription", "GroupListing", "NewTopic"]


class AdminClient:
    """Looks after topics and groups.

        with AdminClient(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("flights", partitions=8)])

    Each call takes at most `default_api_timeout_ms`, and raises `KafkaError` when the brokers
    refuse or do not answer.

    Args:
        **settings: Kafka's settings in snake_case; see `AdminConfig`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    def __init__(self, **settings: object) -> None:
        self._config = make(AdminConfig, settings)
        self._thread = LoopThread("kohort-admin")
        self._made: AdminCore | None = None
        self._is_closed = False

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a client of Kafka's own keys (`bootstrap.servers`); values may be strings."""
        return cls(**from_kafka(AdminConfig, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------ topics

    def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics.

        Raises:
            KafkaError: The first that could not be created, and why.
        """
        self._thread.run(lambda: self._core.create_topics(list(topics), self._deadline()))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics.

        Raises:
            KafkaError: The first that could not be deleted, and why.
        """
        self._thread.run(lambda: self._core.delete_topics(list(names), self._deadline()))

    def list_topics(self) -> frozenset[str]:
        """Return the names of all topics, Kafka's own left out."""
        return self._thread.run(lambda: self._core.list_topics(self._deadline()))

    def describe_topics(self, topics: Iterable[str]) -> dict[str, tuple[PartitionMetadata, ...]]:
        """Return the partitions of topics, in order.

        Raises:
            KafkaError: A topic does not exist.
        """
        return self._thread.run(lambda: self._core.describe_topics(list(topics), self._deadline()))

    def list_offsets(self, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of timestamps.

        Args:
            targets: Milliseconds since the epoch for each partition; -1 is the end, -2 the start.

        Returns:
            The first offset at or after it; -1 when there is none.
        """
        return self._thread.run(lambda: self._core.list_offsets(targets, self._deadline()))

    def describe_cluster(self) -> tuple[Node, ...]:
        """Return the brokers."""
        return self._thread.run(lambda: self._core.describe_cluster(self._deadline()))

    # ------------------------------------------------------------------------------ groups

    def list_groups(self) -> list[GroupListing]:
        """Return all groups of all brokers, in order of their ids."""
        return self._thread.run(lambda: self._core.list_groups(self._deadline()))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return groups with their members.

        Raises:
            KafkaError: A group does not exist.
        """
        wanted = list(group_ids)
        return self._thread.run(lambda: self._core.describe_groups(wanted, self._deadline()))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members.

        Raises:
            KafkaError: The first that could not be deleted, and why.
        """
        self._thread.run(lambda: self._core.delete_groups(list(group_ids), self._deadline()))

    def list_group_offsets(
        self, group_id: str | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets.

        Args:
            group_id: The group; the setting `group_id` by default.
            partitions: Which; all by default. Those without an offset are left out.
        """
        group = self._group(group_id)
        wanted = None if partitions is None else list(partitions)
        return self._thread.run(
            lambda: self._core.list_group_offsets(group, wanted, self._deadline())
        )

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group named by the setting `group_id`."""
        found = self.list_group_offsets(None, partitions)
        return {partition: stored.offset for partition, stored in found.items()}

    def alter_group_offsets(
        self, offsets: Mapping[TopicPartition, int], group_id: str | None = None
    ) -> None:
        """Set a group's committed offsets; the group must have no members.

        Raises:
            KafkaError: It has members, or the broker refuses.
        """
        group = self._group(group_id)
        self._thread.run(lambda: self._core.alter_group_offsets(group, offsets, self._deadline()))

    def close(self) -> None:
        """Close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        made = self._made
        try:
            if made is not None:
                self._thread.run(made.close)
        finally:
            self._thread.close()

    @property
    def _core(self) -> AdminCore:
        if self._is_closed:
            raise LocalProtocolError("the admin client is closed")
        if self._made is None:
            self._made = AdminCore(self._config)
        return self._made

    def _deadline(self) -> Deadline:
        return Deadline(self._config.default_api_timeout_ms)

    def _group(self, group_id: str | None) -> str:
        found = group_id or self._config.group_id
        if not found:
            raise ConfigError("name a group, or set group_id")
        return found
