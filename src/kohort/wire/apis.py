"""The requests this package can read and write, by Kafka's API key."""

from __future__ import annotations

from kohort.errors import RemoteProtocolError
from kohort.wire.messages import (
    acls,
    alter_configs,
    api_versions,
    client_assignors,
    cluster,
    config_resources,
    configs,
    consumer_group,
    delete_records,
    draft,
    fetch,
    find_coordinator,
    groups,
    leader_epochs,
    list_offsets,
    log_dirs,
    membership,
    metadata,
    offsets,
    produce,
    producer_ids,
    quotas,
    replicas,
    sasl,
    scram,
    topic_partitions,
    topics,
    transactions,
)
from kohort.wire.schema import Message

# Request and response of each API. What a broker serves of these is its own decision.
PAIRS: tuple[tuple[type[Message], type[Message]], ...] = (
    (produce.ProduceRequest, produce.ProduceResponse),
    (fetch.FetchRequest, fetch.FetchResponse),
    (list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    (metadata.MetadataRequest, metadata.MetadataResponse),
    (offsets.OffsetCommitRequest, offsets.OffsetCommitResponse),
    (offsets.OffsetFetchRequest, offsets.OffsetFetchResponse),
    (find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    (membership.JoinGroupRequest, membership.JoinGroupResponse),
    (membership.HeartbeatRequest, membership.HeartbeatResponse),
    (membership.LeaveGroupRequest, membership.LeaveGroupResponse),
    (membership.SyncGroupRequest, membership.SyncGroupResponse),
    (groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
    (groups.ListGroupsRequest, groups.ListGroupsResponse),
    (sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse),
    (api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    (topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    (topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    (producer_ids.InitProducerIdRequest, producer_ids.InitProducerIdResponse),
    (leader_epochs.OffsetForLeaderEpochRequest, leader_epochs.OffsetForLeaderEpochResponse),
    (configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
    (sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse),
    (topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    (groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
    (offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse),
    (configs.IncrementalAlterConfigsRequest, configs.IncrementalAlterConfigsResponse),
    (cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
    (
        consumer_group.ConsumerGroupHeartbeatRequest,
        consumer_group.ConsumerGroupHeartbeatResponse,
    ),
    (consumer_group.ConsumerGroupDescribeRequest, consumer_group.ConsumerGroupDescribeResponse),
    (delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse),
    (acls.DescribeAclsRequest, acls.DescribeAclsResponse),
    (acls.CreateAclsRequest, acls.CreateAclsResponse),
    (acls.DeleteAclsRequest, acls.DeleteAclsResponse),
    (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    (log_dirs.AlterReplicaLogDirsRequest, log_dirs.AlterReplicaLogDirsResponse),
    (log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse),
    (replicas.ElectLeadersRequest, replicas.ElectLeadersResponse),
    (
        replicas.AlterPartitionReassignmentsRequest,
        replicas.AlterPartitionReassignmentsResponse,
    ),
    (
        replicas.ListPartitionReassignmentsRequest,
        replicas.ListPartitionReassignmentsResponse,
    ),
    (quotas.DescribeClientQuotasRequest, quotas.DescribeClientQuotasResponse),
    (scram.DescribeUserScramCredentialsRequest, scram.DescribeUserScramCredentialsResponse),
    (transactions.DescribeProducersRequest, transactions.DescribeProducersResponse),
    (transactions.ListTransactionsRequest, transactions.ListTransactionsResponse),
    (config_resources.ListConfigResourcesRequest, config_resources.ListConfigResourcesResponse),
    (
        topic_partitions.DescribeTopicPartitionsRequest,
        topic_partitions.DescribeTopicPartitionsResponse,
    ),
)

# APIs that Kafka does not have, under keys that it will not come to.
PRIVATE_PAIRS: tuple[tuple[type[Message], type[Message]], ...] = (
    (draft.DraftJoinGroupRequest, draft.DraftJoinGroupResponse),
    (draft.DraftHeartbeatRequest, draft.DraftHeartbeatResponse),
    (
        client_assignors.ConsumerGroupPrepareAssignmentRequest,
        client_assignors.ConsumerGroupPrepareAssignmentResponse,
    ),
    (
        client_assignors.ConsumerGroupInstallAssignmentRequest,
        client_assignors.ConsumerGroupInstallAssignmentResponse,
    ),
)

_REQUESTS = {request.api_key: request for request, _ in (*PAIRS, *PRIVATE_PAIRS)}
_RESPONSES = {response.api_key: response for _, response in (*PAIRS, *PRIVATE_PAIRS)}


def request_class(api_key: int) -> type[Message]:
    """Return the class of the request with this API key.

    Raises:
        RemoteProtocolError: No such API is known here.
    """
    try:
        return _REQUESTS[api_key]
    except KeyError:
        raise RemoteProtocolError(f"API key {api_key} is not known") from None


def response_class(api_key: int) -> type[Message]:
    """Return the class of the response with this API key; errors as `request_class`."""
    try:
        return _RESPONSES[api_key]
    except KeyError:
        raise RemoteProtocolError(f"API key {api_key} is not known") from None
