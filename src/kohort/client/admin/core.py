"""The core of the admin client, which sends the requests, on a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import TypeVar

from kohort.client.admin.acl_values import AclBinding, AclBindingFilter
from kohort.client.admin.acls import create_acls, delete_acls, describe_acls
from kohort.client.admin.configs import Changes, alter_configs, describe_configs
from kohort.client.admin.errors import (
    ask_apart,
    ask_broker,
    check,
    check_each,
    check_results,
    error_of,
    lacking,
)
from kohort.client.admin.group_descriptions import classic_group, consumer_group
from kohort.client.admin.members import remove_members
from kohort.client.admin.records import delete_records
from kohort.client.admin.resets import Resets, resolved
from kohort.client.admin.values import (
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    NewTopic,
    OffsetReset,
)
from kohort.client.config.definitions import AdminConfig
from kohort.client.consumer.commits.committer import Committer
from kohort.client.consumer.commits.offsets import (
    OffsetAndTimestamp,
    fetch_committed,
    is_missing,
    list_offsets,
    missing_error,
)
from kohort.client.measures import ADMIN, Metrics
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.metadata import ClusterMetadata, Node, PartitionMetadata
from kohort.errors import (
    ErrorCode,
    KafkaError,
    PartialFailureError,
    RequestTimedOutError,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID, Message, Request
from kohort.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

R = TypeVar("R", bound=Message)

# Not every broker knows a topic that was just created; one that is missing for this long
# does not exist.
_MISSING_MS = 5_000
_DEAD = "Dead"
# The answer to a commit without a member id while the group has members.
_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class AdminCore:
    """Runs the calls of an admin client on the loop.

    Args:
        config: Settings.
    """

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._cluster = Cluster(config)
        self._cluster.allow_auto_topic_creation = False

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    def metrics(self, now: float) -> Metrics:
        """Return the metrics at a time in milliseconds of the loop's clock."""
        return {ADMIN: self._cluster.traffic.values(now)}

    # ------------------------------------------------------------------------------ topics

    async def create_topics(self, topics: Sequence[NewTopic], deadline: Deadline) -> None:
        """Create topics."""
        request = CreateTopicsRequest(
            topics=tuple(_creatable(topic) for topic in topics),
            timeout_ms=deadline.left_ms(self._config.request_timeout_ms),
        )
        response = await self._ask(request, deadline)
        lost = deadline.lost
        check_each(
            {
                t.name: error_of(t.error_code, t.name, t.error_message, lost, needs="CREATE")
                for t in response.topics
            }
        )

    async def create_partitions(self, counts: Mapping[str, int], deadline: Deadline) -> None:
        """Add partitions to topics."""
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ),
            timeout_ms=deadline.left_ms(self._config.request_timeout_ms),
            validate_only=False,
        )
        response = await self._ask(request, deadline)
        lost = deadline.lost
        check_each(
            {
                r.name: error_of(r.error_code, r.name, r.error_message, lost, needs="ALTER")
                for r in response.results
            }
        )

    async def delete_topics(self, names: Iterable[str], deadline: Deadline) -> None:
        """Delete topics."""
        given = tuple(names)
        request = DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in given),
            timeout_ms=deadline.left_ms(self._config.request_timeout_ms),
        )
        response = await self._ask(request, deadline)
        self._cluster.forget_topics(given)
        lost = deadline.lost
        results = [(result.name or "", result) for result in response.responses]
        check_each(
            {
                name: error_of(r.error_code, name, r.error_message, lost, needs="DELETE")
                for name, r in results
            }
        )

    async def list_topics(self, deadline: Deadline) -> frozenset[str]:
        """Return the names of all topics except Kafka's internal ones."""
        await self._known(deadline)
        metadata = await self._cluster.describe(None, deadline)
        return frozenset(name for name, each in metadata.topics.items() if not each.is_internal)

    async def describe_topics(
        self, names: Iterable[str], deadline: Deadline
    ) -> dict[str, tuple[PartitionMetadata, ...]]:
        """Return the partitions of topics."""
        await self._known(deadline)
        wanted = tuple(names)
        metadata = await self._cluster.describe(wanted, deadline)
        return check_results({name: _partitions(metadata, name) for name in wanted})

    async def list_offsets(
        self, targets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of timestamps; None where there is none."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        failure = None
        try:
            await list_offsets(
                self._cluster, targets, deadline, found=found, missing_ms=_MISSING_MS
            )
        except KafkaError as error:
            if not found:
                raise
            failure = error
        offsets = {at: where.offset if where.offset >= 0 else None for at, where in found.items()}
        if failure is not None:
            errors: dict[object, KafkaError] = {
                each: self._unlisted(each, failure) for each in targets if each not in found
            }
            raise PartialFailureError(errors, dict(offsets)) from failure
        return offsets

    def _unlisted(self, partition: TopicPartition, failure: KafkaError) -> KafkaError:
        """Return why an offset is not known: the call's failure, unless the topic is missing."""
        if isinstance(failure, RequestTimedOutError) or not is_missing(self._cluster, partition):
            return failure
        return missing_error(self._cluster, partition)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition."""
        await self._known(deadline)
        return await delete_records(self._cluster, offsets, deadline)

    # ---------------------------------------------------------------------------- settings

    async def describe_configs(
        self, resources: Sequence[ConfigResource], deadline: Deadline
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings of resources."""
        return await describe_configs(self._cluster, resources, deadline)

    async def alter_configs(
        self, changes: Changes, validate_only: bool, deadline: Deadline
    ) -> None:
        """Change individual settings of resources."""
        await alter_configs(self._cluster, changes, validate_only, deadline)

    # -------------------------------------------------------------------------------- ACLs

    async def create_acls(self, acls: Sequence[AclBinding], deadline: Deadline) -> None:
        """Create ACLs."""
        await create_acls(self._cluster, acls, deadline)

    async def describe_acls(self, wanted: AclBindingFilter, deadline: Deadline) -> list[AclBinding]:
        """Return the ACLs that match a filter."""
        return await describe_acls(self._cluster, wanted, deadline)

    async def delete_acls(
        self, filters: Sequence[AclBindingFilter], deadline: Deadline
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match filters."""
        return await delete_acls(self._cluster, filters, deadline)

    async def describe_cluster(self, deadline: Deadline) -> tuple[Node, ...]:
        """Return the brokers."""
        metadata = await self._cluster.refresh(deadline)
        return tuple(metadata.nodes[each] for each in sorted(metadata.nodes))

    # ------------------------------------------------------------------------------ groups

    async def list_groups(
        self, states: tuple[str, ...], types: tuple[str, ...], deadline: Deadline
    ) -> list[GroupListing]:
        """Return the groups of all brokers."""
        metadata = await self._cluster.refresh(deadline)
        request = ListGroupsRequest(states_filter=states, types_filter=types)

        async def listed(node: int, until: Deadline) -> list[GroupListing]:
            return await self._list_groups_of(node, request, until)

        found = check_results(await ask_apart(metadata.nodes, listed, deadline))
        return sorted(chain.from_iterable(found.values()), key=lambda group: group.group_id)

    async def _list_groups_of(
        self, node: int, request: ListGroupsRequest, deadline: Deadline
    ) -> list[GroupListing]:
        pause = self._cluster.retry_backoff()
        async with self._cluster.within(deadline, f"the groups of broker {node}"):
            while True:
                response = await ask_broker(self._cluster, node, request, deadline)
                code = response.error_code
                if not code:
                    break
                error = KafkaError(code, f"groups of broker {node}")
                await self._cluster.wait_after(error, pause, deadline)
        return [
            GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)
            for each in response.groups
        ]

    async def describe_groups(
        self, group_ids: Sequence[str], deadline: Deadline
    ) -> dict[str, GroupDescription]:
        """Describe groups and their members."""
        await self._known(deadline)
        return check_results(await ask_apart(group_ids, self._describe, deadline))

    async def _describe(self, group_id: str, deadline: Deadline) -> GroupDescription:
        """Describe a group, first with KIP-848: DescribeGroups reports such a group as dead."""
        coordinator = Coordinator(self._cluster, group_id)
        found = await self._describe_consumer_group(coordinator, deadline)
        found = found or await self._describe_classic_group(coordinator, deadline)
        node = self._cluster.metadata.nodes.get(_known_node(coordinator))
        return replace(found, coordinator=node)

    async def _describe_consumer_group(
        self, coordinator: Coordinator, deadline: Deadline
    ) -> GroupDescription | None:
        """Return the group; None if it is of another kind, or the broker lacks KIP-848."""
        group_id = coordinator.group_id
        try:
            response = await coordinator.call(
                ConsumerGroupDescribeRequest(group_ids=(group_id,)),
                lambda answer: [group.error_code for group in answer.groups],
                deadline,
            )
        except KafkaError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        group = next((each for each in response.groups if each.group_id == group_id), None)
        if group is None:
            raise lacking(group_id)
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        check(group.error_code, group_id, group.error_message, needs="DESCRIBE")
        return consumer_group(group)

    async def _describe_classic_group(
        self, coordinator: Coordinator, deadline: Deadline
    ) -> GroupDescription:
        group_id = coordinator.group_id
        response = await coordinator.call(
            DescribeGroupsRequest(groups=(group_id,)),
            lambda answer: [group.error_code for group in answer.groups],
            deadline,
        )
        group = next((each for each in response.groups if each.group_id == group_id), None)
        if group is None:
            raise lacking(group_id)
        if group.group_state == _DEAD and not group.error_code:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        check(group.error_code, group_id, group.error_message, needs="DESCRIBE")
        return classic_group(group)

    async def delete_groups(self, group_ids: Sequence[str], deadline: Deadline) -> None:
        """Delete groups."""
        await self._known(deadline)
        check_results(await ask_apart(group_ids, self._delete_group, deadline))

    async def _delete_group(self, group_id: str, deadline: Deadline) -> None:
        response = await Coordinator(self._cluster, group_id).call(
            DeleteGroupsRequest(groups_names=(group_id,)),
            lambda answer: [result.error_code for result in answer.results],
            deadline,
        )
        for result in response.results:
            error = error_of(
                result.error_code, result.group_id, None, deadline.lost, needs="DELETE"
            )
            if error is not None:
                raise error

    async def remove_group_members(
        self, group_id: str, member_ids: Sequence[str], reason: str, deadline: Deadline
    ) -> None:
        """Remove members from a group."""
        await self._known(deadline)
        group = await self._describe(group_id, deadline)
        coordinator = Coordinator(self._cluster, group_id)
        await remove_members(coordinator, group, member_ids, reason, deadline)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets."""
        await self._known(deadline)
        return await fetch_committed(Coordinator(self._cluster, group_id), partitions, deadline)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> None:
        """Set a group's committed offsets."""
        await self._cluster.refresh(deadline)  # recreated topics have new ids
        committer = Committer(self._cluster, Coordinator(self._cluster, group_id), None)
        try:
            await committer.commit(offsets, deadline)
        except KafkaError as error:
            if error.code not in _HAS_MEMBERS:
                raise
            raise KafkaError(
                error.code,
                f"group {group_id} has members, and only they may set its offsets: close its"
                " consumers, or wait until their sessions and the last rebalance have ended",
            ) from error

    async def reset_group_offsets(
        self, group_id: str, resets: Resets, validate_only: bool, deadline: Deadline
    ) -> dict[TopicPartition, OffsetReset]:
        """Set a group's committed offsets by a position for each partition."""
        found, errors = await resolved(resets, lambda each: self.list_offsets(each, deadline))
        if not validate_only and found:
            offsets = {where: OffsetAndMetadata(each.offset) for where, each in found.items()}
            try:
                await self.alter_group_offsets(group_id, offsets, deadline)
            except PartialFailureError as error:
                errors.update(error.errors)
        if errors:
            raise PartialFailureError(
                errors, {where: each for where, each in found.items() if where not in errors}
            )
        return found

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> None:
        """Delete committed offsets of a group."""
        await self._known(deadline)
        by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
        topics = tuple(
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=each.partition) for each in those
                ),
            )
            for topic, those in by_topic
        )
        response = await Coordinator(self._cluster, group_id).call(
            OffsetDeleteRequest(group_id=group_id, topics=topics),
            lambda answer: [answer.error_code],
            deadline,
        )
        check(response.error_code, group_id, None, needs="DELETE")
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        check_each(
            {
                where: error_of(code, f"{where.topic}-{where.partition}", None, needs="READ")
                for where, code in codes.items()
            }
        )

    # ------------------------------------------------------------------------------- inside

    async def _known(self, deadline: Deadline) -> None:
        """Fetch metadata if no broker is known."""
        if not self._cluster.metadata.nodes:
            await self._cluster.refresh(deadline)

    async def _ask(self, request: Request[R], deadline: Deadline) -> R:
        await self._known(deadline)
        return await self._cluster.send_any_until(request, deadline)


def _partitions(metadata: ClusterMetadata, name: str) -> tuple[PartitionMetadata, ...] | KafkaError:
    topic = metadata.topics.get(name)
    if topic is None:
        return lacking(name)
    if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        return error_of(topic.error_code, name, None, needs="DESCRIBE") or lacking(name)
    return tuple(topic.partitions[each] for each in sorted(topic.partitions))


def _known_node(coordinator: Coordinator) -> int:
    assert coordinator.node_id is not None  # set once it has answered
    return coordinator.node_id


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ),
    )
