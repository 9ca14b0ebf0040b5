"""ElectLeaders (KIP-460) and the reassignments of partitions to brokers (KIP-455)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
    since,
)


class TopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic."""

    topic: String
    partitions: tuple[Int32, ...]


@message(api_key=43, versions=(0, 2), flexible_since=2)
class ElectLeadersRequest(Request["ElectLeadersResponse"], frozen=True, kw_only=True):
    """Elect leaders: the preferred replica, or any live one; null means all partitions."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: Int32 = 60000


class PartitionResult(Struct, frozen=True, kw_only=True):
    """The result of one election."""

    partition_id: Int32
    error_code: Int16
    error_message: NullableString = None


class ReplicaElectionResult(Struct, frozen=True, kw_only=True):
    """The result of the elections of one topic."""

    topic: String
    partition_result: tuple[PartitionResult, ...]


@message(api_key=43, versions=(0, 2), flexible_since=2)
class ElectLeadersResponse(Message, frozen=True, kw_only=True):
    """The result of each election."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...]


class ReassignablePartition(Struct, frozen=True, kw_only=True):
    """The new brokers of a partition; null ends its reassignment."""

    partition_index: Int32
    replicas: tuple[Int32, ...] | None = None


class ReassignableTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[ReassignablePartition, ...]


@message(api_key=45, versions=(0, 1), flexible_since=0)
class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], frozen=True, kw_only=True
):
    """Move partitions to other brokers."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(Struct, frozen=True, kw_only=True):
    """Whether the move of a partition was started."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None


class ReassignableTopicResponse(Struct, frozen=True, kw_only=True):
    """The same for the partitions of one topic."""

    name: String
    partitions: tuple[ReassignablePartitionResponse, ...]


@message(api_key=45, versions=(0, 1), flexible_since=0)
class AlterPartitionReassignmentsResponse(Message, frozen=True, kw_only=True):
    """Whether each move was started."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), IGNORABLE] = True
    error_code: Int16
    error_message: NullableString = None
    responses: tuple[ReassignableTopicResponse, ...]


class ListPartitionReassignmentsTopics(Struct, frozen=True, kw_only=True):
    """The requested partitions of one topic."""

    name: String
    partition_indexes: tuple[Int32, ...]


@message(api_key=46, versions=(0, 0), flexible_since=0)
class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], frozen=True, kw_only=True
):
    """Ask for running moves; null means those of all partitions."""

    timeout_ms: Int32 = 60000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


class OngoingPartitionReassignment(Struct, frozen=True, kw_only=True):
    """A running move."""

    partition_index: Int32
    replicas: tuple[Int32, ...]
    adding_replicas: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...]


class OngoingTopicReassignment(Struct, frozen=True, kw_only=True):
    """The moves within one topic."""

    name: String
    partitions: tuple[OngoingPartitionReassignment, ...]


@message(api_key=46, versions=(0, 0), flexible_since=0)
class ListPartitionReassignmentsResponse(Message, frozen=True, kw_only=True):
    """The running moves."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    topics: tuple[OngoingTopicReassignment, ...]
