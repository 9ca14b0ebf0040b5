"""Elections and reassignments in a cluster with one broker, which leads every partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

_ELECTION_TYPES = (0, 1)  # the preferred leader; an unclean one
_NOT_NEEDED = "Leader election not needed for topic partition."


def elect_leaders(
    broker: BrokerContext, request: ElectLeadersRequest, caller: Caller
) -> ElectLeadersResponse:
    """Answer that each partition has its preferred leader.

    Asked for all partitions, Kafka lists only those with another result: none.
    """
    is_known = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None:
        wanted: Iterable[tuple[str, Sequence[int]]] = ((name, ()) for name in broker.data.topics)
    else:
        wanted = ((each.topic, each.partitions) for each in request.topic_partitions)
    results = (
        ReplicaElectionResult(
            topic=topic,
            partition_result=tuple(
                _elected(broker, topic, number) if is_known else _no_such_election(number)
                for number in numbers
            ),
        )
        for topic, numbers in wanted
    )
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known or not caller.version else ErrorCode.INVALID_REQUEST,
        replica_election_results=tuple(results),
    )


def _no_such_election(number: int) -> PartitionResult:
    return PartitionResult(
        partition_id=number,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="unknown election type",
    )


def _elected(broker: BrokerContext, topic: str, number: int) -> PartitionResult:
    if broker.has(TopicPartition(topic, number)):
        code, message = ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
    else:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {number} does not exist"
    return PartitionResult(partition_id=number, error_code=code, error_message=message)


def alter_partition_reassignments(
    broker: BrokerContext, request: AlterPartitionReassignmentsRequest, _caller: Caller
) -> AlterPartitionReassignmentsResponse:
    """Accept the current replica, and reject any other."""
    responses = (
        ReassignableTopicResponse(
            name=topic.name,
            partitions=tuple(_reassigned(broker, topic.name, each) for each in topic.partitions),
        )
        for topic in request.topics
    )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        responses=tuple(responses),
    )


def _reassigned(
    broker: BrokerContext, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    if not broker.has(TopicPartition(topic, wanted.partition_index)):
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist"
    elif wanted.replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    elif wanted.replicas != (NODE_ID,):
        code, message = ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {NODE_ID}"
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def list_partition_reassignments(
    _broker: BrokerContext, _request: ListPartitionReassignmentsRequest, _caller: Caller
) -> ListPartitionReassignmentsResponse:
    """Return no reassignments, as there is only one broker."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=())
