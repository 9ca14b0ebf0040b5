"""The admin client for asyncio: the methods of `AdminClient` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast

from kohort.client.admin.acl_values import AclBinding, AclBindingFilter
from kohort.client.admin.configs import checked_changes
from kohort.client.admin.core import AdminCore
from kohort.client.admin.resets import checked_resets
from kohort.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    NewTopic,
    OffsetReset,
    OffsetSpec,
)
from kohort.client.blocking.close_task import CloseTask
from kohort.client.blocking.facade import AsyncFacade, AsyncInternals
from kohort.client.blocking.lifecycle import Shutdown
from kohort.client.config import arguments
from kohort.client.config.definitions import AdminConfig, from_kafka, make
from kohort.client.measures import Metrics, precise_ms
from kohort.client.net.backoff import Deadline
from kohort.client.net.metadata import Node, PartitionMetadata
from kohort.errors import ConfigError, ErrorCode, KafkaError, LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client.config.settings import AdminSettings

# How long brokers may take to know a new topic, and how often to ask them.
_APPEARS_S = 30.0
_AGAIN_S = 0.1


class AdminInternals(AsyncInternals):
    """The internals of `AsyncAdminClient` and `AdminClient`; the core is created on their loop.

    Args:
        config: Settings.
    """

    kind = "admin client"

    def __init__(self, config: AdminConfig) -> None:
        super().__init__()
        self._config = config
        self._made: AdminCore | None = None
        self._is_closed = False
        self._close_task = CloseTask("the admin client")

    @property
    def core(self) -> AdminCore:
        """The core, which sends the requests; created when first needed, on the running loop."""
        if self._is_closed:
            raise LocalProtocolError("the admin client is closed")
        self.bind_loop()
        if self._made is None:
            self._made = AdminCore(self._config)
        return self._made

    async def close(self) -> None:
        """Close the connections."""
        made = self._made
        if made is not None:
            self.bind_loop()
        self._is_closed = True
        if made is not None:
            await self._close_task.wait(made.close, Deadline(None))
            self._made = None

    def shutdown(self) -> Shutdown | None:
        """Return what replaces `close` when it is not called."""
        return None if self._made is None or self._close_task.is_begun else self._made.close


class AsyncAdminClient(AsyncFacade):
    """Manages topics and groups.

        async with AsyncAdminClient(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", partitions=8)])

    Arguments, results and errors of each method are the same as in `AdminClient`.

    Args:
        **settings: Kafka's settings in snake_case; see `AdminSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    _internals: AdminInternals

    def __init__(self, **settings: Unpack[AdminSettings]) -> None:
        self._config = make(AdminConfig, settings)
        self._internals = AdminInternals(self._config)

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a client from Kafka's setting names (`bootstrap.servers`); values may be strings."""
        known = cast("AdminSettings", from_kafka(AdminConfig, settings))
        return cls(**known)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------------------ topics

    async def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics."""
        wanted = arguments.instances(topics, "topics", NewTopic)
        await self._core.create_topics(wanted, self._deadline())

    async def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Add partitions to topics."""
        wanted = arguments.counts(counts, "counts")
        await self._core.create_partitions(wanted, self._deadline())

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics."""
        wanted = arguments.texts(names, "names")
        await self._core.delete_topics(wanted, self._deadline())

    async def list_topics(self) -> frozenset[str]:
        """Return the names of all topics except Kafka's internal ones."""
        return await self._core.list_topics(self._deadline())

    async def describe_topics(
        self, topics: Iterable[str]
    ) -> dict[str, tuple[PartitionMetadata, ...]]:
        """Return the partitions of topics, in order."""
        wanted = arguments.texts(topics, "topics")
        return await self._core.describe_topics(wanted, self._deadline())

    async def list_offsets(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of timestamps."""
        wanted = arguments.targets(targets)
        return await self._core.list_offsets(wanted, self._deadline())

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition."""
        wanted = arguments.starts(offsets, "offsets")
        return await self._core.delete_records(wanted, self._deadline())

    async def describe_cluster(self) -> tuple[Node, ...]:
        """Return the brokers."""
        return await self._core.describe_cluster(self._deadline())

    # ---------------------------------------------------------------------------- settings

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers and groups."""
        wanted = arguments.instances(resources, "resources", ConfigResource)
        return await self._core.describe_configs(wanted, self._deadline())

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change individual settings of topics, brokers and groups."""
        wanted = checked_changes(changes)
        arguments.flag(validate_only, "validate_only")
        await self._core.alter_configs(wanted, validate_only, self._deadline())

    # -------------------------------------------------------------------------------- ACLs

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Allow or deny operations to users."""
        wanted = arguments.instances(acls, "acls", AclBinding)
        await self._core.create_acls(wanted, self._deadline())

    async def describe_acls(self, acl_filter: AclBindingFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that match a filter, in order; all ACLs without one."""
        (wanted,) = arguments.instances(
            [acl_filter or AclBindingFilter()], "acl_filter", AclBindingFilter
        )
        return await self._core.describe_acls(wanted, self._deadline())

    async def delete_acls(
        self, acl_filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match filters."""
        wanted = arguments.instances(acl_filters, "acl_filters", AclBindingFilter)
        return await self._core.delete_acls(wanted, self._deadline())

    # ------------------------------------------------------------------------------ groups

    async def list_groups(
        self, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return groups of all brokers, ordered by id."""
        states = arguments.texts(states_filter, "states_filter")
        types = arguments.texts(types_filter, "types_filter")
        return await self._core.list_groups(states, types, self._deadline())

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups and their members."""
        wanted = arguments.texts(group_ids, "group_ids")
        return await self._core.describe_groups(wanted, self._deadline())

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members."""
        wanted = arguments.texts(group_ids, "group_ids")
        await self._core.delete_groups(wanted, self._deadline())

    async def remove_group_members(
        self, group_id: str, member_ids: Iterable[str], reason: str = ""
    ) -> None:
        """Remove members from a group."""
        wanted = arguments.texts(member_ids, "member_ids")
        name = arguments.text(group_id, "group_id")
        why = arguments.text(reason, "reason", may_be_empty=True)
        await self._core.remove_group_members(name, wanted, why, self._deadline())

    async def list_group_offsets(
        self, group_id: str | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets."""
        wanted = None if partitions is None else arguments.partitions(partitions)
        return await self._core.list_group_offsets(self._group(group_id), wanted, self._deadline())

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group named by the setting `group_id`."""
        found = await self.list_group_offsets(None, partitions)
        return {partition: stored.offset for partition, stored in found.items()}

    async def alter_group_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_id: str | None = None,
    ) -> None:
        """Set a group's committed offsets; the group must have no members."""
        wanted = arguments.offsets(offsets)
        await self._core.alter_group_offsets(self._group(group_id), wanted, self._deadline())

    async def reset_group_offsets(
        self,
        offset_specs: Mapping[TopicPartition, OffsetSpec],
        group_id: str | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set a group's committed offsets by a position for each partition."""
        wanted = checked_resets(offset_specs)
        arguments.flag(validate_only, "validate_only")
        return await self._core.reset_group_offsets(
            self._group(group_id), wanted, validate_only, self._deadline()
        )

    async def delete_group_offsets(
        self, partitions: Iterable[TopicPartition], group_id: str | None = None
    ) -> None:
        """Delete committed offsets of a group."""
        wanted = arguments.partitions(partitions)
        await self._core.delete_group_offsets(self._group(group_id), wanted, self._deadline())

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._config.client_id

    def metrics(self) -> Metrics:
        """Return the metrics of Kafka's Java client, by the names of group and metrics.

        Rates cover at most the last minute, totals the lifetime of the client.

        Returns:
            "admin-client-metrics": connections, requests, bytes.
        """
        return self._core.metrics(precise_ms())

    async def close(self) -> None:
        """Close the connections."""
        await self._internals.close()

    @property
    def _core(self) -> AdminCore:
        return self._internals.core

    def _deadline(self) -> Deadline:
        return Deadline(self._config.default_api_timeout_ms)

    def _group(self, group_id: str | None) -> str:
        if group_id is not None:
            return arguments.text(group_id, "group_id")
        if not self._config.group_id:
            raise ConfigError("no group is named: set group_id, or pass it to a call that takes it")
        return self._config.group_id


def internals_of(admin: AsyncAdminClient) -> AdminInternals:
    """Return the internals of an admin client, for the blocking admin client."""
    return admin._internals  # noqa: SLF001  # of this module


async def partitions_and_policy(admin: AsyncAdminClient, topic: str) -> tuple[int, str]:
    """Return how many partitions a topic has, and its `cleanup.policy`.

    The topic may just have been created: not every broker knows it at once, so this retries.

    Args:
        admin: Asks the brokers.
        topic: Name of the topic.

    Raises:
        KafkaError: The brokers cannot be reached, or refuse; or none knows the topic in time.
    """
    resource = ConfigResource("topic", topic)
    now = asyncio.get_running_loop().time
    end = now() + _APPEARS_S
    while True:
        try:
            partitions = await admin.describe_topics([topic])
            configs = await admin.describe_configs([resource])
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or now() > end:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return len(partitions[topic]), configs[resource]["cleanup.policy"].value or ""
