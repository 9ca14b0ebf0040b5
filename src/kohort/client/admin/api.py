"""The admin client: topics, groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast

from kohort.client.admin.acl_values import AclBinding, AclBindingFilter
from kohort.client.admin.aio import AsyncAdminClient, internals_of
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
from kohort.client.blocking.facade import BlockingFacade
from kohort.client.blocking.loop_thread import LoopThread
from kohort.client.config import arguments
from kohort.client.config.definitions import AdminConfig, from_kafka
from kohort.client.measures import Metrics
from kohort.client.net.metadata import Node, PartitionMetadata
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client.config.settings import AdminSettings

__all__ = [
    "AdminClient",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "NewTopic",
]


class AdminClient(BlockingFacade):
    """Manages topics and groups.

        with AdminClient(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("flights", partitions=8)])

    Each call takes at most `default_api_timeout_ms`, and raises `KafkaError` when the brokers
    refuse or do not answer. A call for several items does as much as it can:
    `PartialFailureError.errors` has the error of each failed item, and `results` the results of the
    others.

    Args:
        **settings: Kafka's settings in snake_case; see `AdminSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    def __init__(self, **settings: Unpack[AdminSettings]) -> None:
        self._async = AsyncAdminClient(**settings)
        super().__init__("kohort-admin", internals_of(self._async))

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a client from Kafka's setting names (`bootstrap.servers`); values may be strings."""
        known = cast("AdminSettings", from_kafka(AdminConfig, settings))
        return cls(**known)

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

        Args:
            topics: The topics, with partitions, replicas and settings.

        Raises:
            PartialFailureError: Some could not be created.
        """
        wanted = arguments.instances(topics, "topics", NewTopic)
        self._open.run(lambda: self._async.create_topics(wanted))

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Add partitions to topics (KIP-195).

        Args:
            counts: The new number of partitions of each topic; not fewer than it has.

        Raises:
            PartialFailureError: Some topics could not be changed.
        """
        self._open.run(lambda: self._async.create_partitions(counts))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics.

        Args:
            names: Names of the topics.

        Raises:
            PartialFailureError: Some could not be deleted.
        """
        wanted = arguments.texts(names, "names")
        self._open.run(lambda: self._async.delete_topics(wanted))

    def list_topics(self) -> frozenset[str]:
        """Return the names of all topics except Kafka's internal ones."""
        return self._open.run(self._async.list_topics)

    def describe_topics(self, topics: Iterable[str]) -> dict[str, tuple[PartitionMetadata, ...]]:
        """Return the partitions of topics, in order.

        Args:
            topics: Names of the topics.

        Raises:
            PartialFailureError: Some do not exist, or the user may not see them.
        """
        wanted = arguments.texts(topics, "topics")
        return self._open.run(lambda: self._async.describe_topics(wanted))

    def list_offsets(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of timestamps.

        Args:
            targets: Milliseconds since the epoch for each partition; -1 for the end, -2 for the
                start, -3 for the record with the highest timestamp (KIP-734).

        Returns:
            The first offset at or after the timestamp; None when there is none.

        Raises:
            KafkaError: There was no answer in time, or the brokers have reported for 5 seconds that
                the topic or partition does not exist.
            PartialFailureError: The same, for some of the partitions.
        """
        return self._open.run(lambda: self._async.list_offsets(targets))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition (KIP-107).

        Args:
            offsets: The first offset to keep, by partition; -1 deletes all records.

        Returns:
            The new start offset of each partition.

        Raises:
            PartialFailureError: Records of some partitions could not be deleted.
        """
        return self._open.run(lambda: self._async.delete_records(offsets))

    def describe_cluster(self) -> tuple[Node, ...]:
        """Return the brokers."""
        return self._open.run(self._async.describe_cluster)

    # ---------------------------------------------------------------------------- settings

    def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of topics, brokers and groups (KIP-133).

            topic = ConfigResource("topic", "flights")
            print(admin.describe_configs([topic])[topic]["retention.ms"].value)

        Args:
            resources: The resources. All their settings are returned, even unset ones.

        Raises:
            PartialFailureError: Some do not exist, or the user may not see them.
        """
        wanted = arguments.instances(resources, "resources", ConfigResource)
        return self._open.run(lambda: self._async.describe_configs(wanted))

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change individual settings of topics, brokers and groups (KIP-339).

            admin.alter_configs({ConfigResource("topic", "flights"): {"retention.ms": "60000"}})

        Args:
            changes: The changes by resource and setting: a new value, None for the default, or an
                operation with a value: "set", "delete", and for lists "append" and "subtract".
            validate_only: Whether the brokers only check the changes.

        Raises:
            PartialFailureError: Settings of some resources could not be changed.
        """
        self._open.run(lambda: self._async.alter_configs(changes, validate_only=validate_only))

    # -------------------------------------------------------------------------------- ACLs

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Allow or deny operations to users (KIP-140); existing ACLs are kept.

            reads = AclBinding(
                resource_type="topic", name="flights", principal="User:alice", operation="read"
            )
            admin.create_acls([reads])

        Args:
            acls: The permissions and denials.

        Raises:
            PartialFailureError: Some could not be created. Brokers without an authorizer have no
                ACLs (SECURITY_DISABLED).
        """
        wanted = arguments.instances(acls, "acls", AclBinding)
        self._open.run(lambda: self._async.create_acls(wanted))

    def describe_acls(self, acl_filter: AclBindingFilter | None = None) -> list[AclBinding]:
        """Return ACLs, in order.

        Args:
            acl_filter: Which ACLs to return; None for all.

        Raises:
            KafkaError: The user may not see ACLs, or the cluster has none (SECURITY_DISABLED).
        """
        return self._open.run(lambda: self._async.describe_acls(acl_filter))

    def delete_acls(
        self, acl_filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match filters.

        Args:
            acl_filters: Which ACLs to delete. An empty filter matches all.

        Returns:
            The ACLs that each filter deleted.

        Raises:
            PartialFailureError: Some filters did not delete all ACLs that match.
        """
        wanted = arguments.instances(acl_filters, "acl_filters", AclBindingFilter)
        return self._open.run(lambda: self._async.delete_acls(wanted))

    # ------------------------------------------------------------------------------ groups

    def list_groups(
        self, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return groups of all brokers, ordered by id.

        Args:
            states_filter: Only groups in one of these states ("Stable", "Empty" and so on); all
                states by default (KIP-518).
            types_filter: Only groups of one of these types ("classic", "consumer"); all types by
                default (KIP-848).

        Raises:
            PartialFailureError: Some brokers did not list their groups (keyed by broker id);
                `results` has the groups of the others.
        """
        states = arguments.texts(states_filter, "states_filter")
        types = arguments.texts(types_filter, "types_filter")
        return self._open.run(lambda: self._async.list_groups(states, types))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups and their members.

        Args:
            group_ids: Ids of the groups.

        Raises:
            PartialFailureError: Some do not exist, or the user may not see them.
        """
        wanted = arguments.texts(group_ids, "group_ids")
        return self._open.run(lambda: self._async.describe_groups(wanted))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members.

        Args:
            group_ids: Ids of the groups.

        Raises:
            PartialFailureError: Some could not be deleted.
        """
        wanted = arguments.texts(group_ids, "group_ids")
        self._open.run(lambda: self._async.delete_groups(wanted))

    def remove_group_members(
        self, group_id: str, member_ids: Iterable[str], reason: str = ""
    ) -> None:
        """Remove members from a group, including static ones; their partitions go to the others.

        A member that is still running joins again as soon as it learns of its removal.

        Args:
            group_id: The group.
            member_ids: Ids of the members, as returned by `describe_groups`.
            reason: A reason for the broker's log (KIP-800); not sent for members of KIP-848.

        Raises:
            PartialFailureError: Some are not members, or no longer.
            KafkaError: The group does not exist, or the broker refuses.
        """
        wanted = arguments.texts(member_ids, "member_ids")
        self._open.run(lambda: self._async.remove_group_members(group_id, wanted, reason))

    def list_group_offsets(
        self, group_id: str | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets.

        Args:
            group_id: The group; the setting `group_id` by default.
            partitions: The partitions; all by default. Those without an offset are left out.

        Raises:
            PartialFailureError: The user may not see some partitions.
        """
        wanted = None if partitions is None else arguments.partitions(partitions)
        return self._open.run(lambda: self._async.list_group_offsets(group_id, wanted))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group named by the setting `group_id`.

        Args:
            partitions: The partitions.
        """
        wanted = arguments.partitions(partitions)
        return self._open.run(lambda: self._async.committed(wanted))

    def alter_group_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_id: str | None = None,
    ) -> None:
        """Set a group's committed offsets; the group must have no members.

        Args:
            offsets: The next offset to read, by partition, with or without metadata.
            group_id: The group; the setting `group_id` by default.

        Raises:
            ValueError: An offset is negative.
            KafkaError: The group has members, or the broker refuses.
            PartialFailureError: Some partitions do not exist or are refused; the others are set.
        """
        self._open.run(lambda: self._async.alter_group_offsets(offsets, group_id))

    def reset_group_offsets(
        self,
        offset_specs: Mapping[TopicPartition, OffsetSpec],
        group_id: str | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set a group's committed offsets by a position for each partition.

            today = datetime.now(UTC).replace(hour=0, minute=0)
            admin.reset_group_offsets({TopicPartition("flights", 0): today}, "delays")

        An offset outside the partition is replaced by its start or end, as in Kafka's tools; the
        result notes this. The group must have no members.

        Args:
            offset_specs: For each partition "earliest" or "latest", an offset, or a `datetime` with
                a time zone: the first record at or after it.
            group_id: The group; the setting `group_id` by default. It is created if it does not
                exist.
            validate_only: Whether to look up the offsets without setting them.

        Returns:
            The offset of each partition.

        Raises:
            ValueError: A time has no time zone, or an offset is negative.
            KafkaError: The group has members, no partition exists, or the broker refuses.
            PartialFailureError: Some partitions do not exist or are refused; the others are set.
        """
        return self._open.run(
            lambda: self._async.reset_group_offsets(
                offset_specs, group_id, validate_only=validate_only
            )
        )

    def delete_group_offsets(
        self, partitions: Iterable[TopicPartition], group_id: str | None = None
    ) -> None:
        """Delete committed offsets of a group (KIP-496).

        Args:
            partitions: The partitions; one without an offset is not an error.
            group_id: The group; the setting `group_id` by default.

        Raises:
            PartialFailureError: Members subscribe to some of the topics, whose offsets are kept.
            KafkaError: The group does not exist, or its members are not consumers.
        """
        wanted = arguments.partitions(partitions)
        self._open.run(lambda: self._async.delete_group_offsets(wanted, group_id))

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._async.client_id

    def metrics(self) -> Metrics:
        """Return the client's metrics; see `AsyncAdminClient.metrics`."""

        async def call() -> Metrics:
            return self._async.metrics()

        return self._open.run(call)

    def close(self) -> None:
        """Close the connections."""
        self._thread.close(lambda _: self._async.close())

    @property
    def _open(self) -> LoopThread:
        """The thread that runs the calls; raises when the client is closed."""
        return self._thread
