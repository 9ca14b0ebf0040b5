"""The APIs and versions that this broker serves, and their handlers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import cast
from uuid import UUID

from msgspec import Struct

from kohort.broker import faults
from kohort.broker.authorization.acls import ANONYMOUS, Rights
from kohort.broker.authorization.enforcement import handle_permitted
from kohort.broker.context import BrokerContext, Caller, Handler
from kohort.broker.handlers import (
    acls,
    alter_configs,
    configs,
    delete_records,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    replicas,
    scram,
    security,
    topic_partitions,
    topics,
    transactions,
)
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.codec.schema import Buffer, Message
from kohort.wire.messages.acls import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kohort.wire.messages.alter_configs import AlterConfigsRequest
from kohort.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.cluster import DescribeClusterRequest
from kohort.wire.messages.config_resources import ListConfigResourcesRequest
from kohort.wire.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kohort.wire.messages.delete_records import DeleteRecordsRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.fetch import FetchRequest, FetchResponse
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kohort.wire.messages.leader_epochs import OffsetForLeaderEpochRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kohort.wire.messages.produce import ProduceRequest
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.quotas import DescribeClientQuotasRequest
from kohort.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kohort.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kohort.wire.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kohort.wire.messages.topic_partitions import DescribeTopicPartitionsRequest
from kohort.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kohort.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

# Only Produce carries records. Any other request of this size would make the broker build millions
# of objects: each byte of an array of empty strings costs 32 bytes of memory.
_MAX_CONTROL_FRAME = 8 * 1024 * 1024


class Served(Struct, frozen=True):
    """An API and its served versions."""

    handler: Handler
    first: int
    last: int


# Version 6 is for prepared transactions (KIP-939), which Kafka 4.3 has not released.
_NEWEST = {InitProducerIdRequest.api_key: 5}


# Version 0 sends SASL tokens without request headers: only clients older than Kafka 1.0 need it.
_OLDEST = {SaslHandshakeRequest.api_key: 1}


def _served(*pairs: tuple[type[Message], object]) -> dict[int, Served]:
    return {
        cls.api_key: Served(
            cast("Handler", handler),
            _OLDEST.get(cls.api_key, cls.min_version),
            _NEWEST.get(cls.api_key, cls.max_version),
        )
        for cls, handler in pairs
    }


_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(
    broker: BrokerContext, request: ApiVersionsRequest, caller: Caller
) -> ApiVersionsResponse:
    """Return all served APIs to a client that names its software (KIP-511)."""
    names = request.client_software_name, request.client_software_version
    if caller.version >= 3 and not all(map(_SOFTWARE.fullmatch, names)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    return _versions(broker.config.protocols, broker.config.transaction_version)


SERVED = _served(
    (ProduceRequest, produce.produce),
    (FetchRequest, fetch.fetch),
    (ListOffsetsRequest, list_offsets.list_offsets),
    (MetadataRequest, metadata.metadata),
    (OffsetCommitRequest, groups.offset_commit),
    (OffsetFetchRequest, groups.offset_fetch),
    (FindCoordinatorRequest, groups.find_coordinator),
    (JoinGroupRequest, groups.one_group),
    (HeartbeatRequest, groups.one_group),
    (LeaveGroupRequest, groups.one_group),
    (SyncGroupRequest, groups.one_group),
    (DescribeGroupsRequest, groups.describe_groups),
    (ListGroupsRequest, groups.list_groups),
    (SaslHandshakeRequest, security.no_handshake),
    (ApiVersionsRequest, api_versions),
    (CreateTopicsRequest, topics.create_topics),
    (DeleteTopicsRequest, topics.delete_topics),
    (InitProducerIdRequest, transactions.init_producer_id),
    (OffsetForLeaderEpochRequest, list_offsets.offset_for_leader_epoch),
    (DescribeConfigsRequest, configs.describe_configs),
    (SaslAuthenticateRequest, security.no_authentication),
    (CreatePartitionsRequest, topics.create_partitions),
    (DeleteGroupsRequest, groups.delete_groups),
    (IncrementalAlterConfigsRequest, alter_configs.incremental_alter_configs),
    (OffsetDeleteRequest, groups.offset_delete),
    (DescribeClusterRequest, metadata.describe_cluster),
    (DeleteRecordsRequest, delete_records.delete_records),
    (AddPartitionsToTxnRequest, transactions.add_partitions),
    (AddOffsetsToTxnRequest, transactions.add_offsets),
    (EndTxnRequest, transactions.end_transaction),
    (WriteTxnMarkersRequest, transactions.write_markers),
    (TxnOffsetCommitRequest, transactions.commit_offsets),
    (DescribeAclsRequest, acls.describe_acls),
    (CreateAclsRequest, acls.create_acls),
    (DeleteAclsRequest, acls.delete_acls),
    (AlterConfigsRequest, alter_configs.alter_configs),
    (AlterReplicaLogDirsRequest, log_dirs.alter_replica_log_dirs),
    (DescribeLogDirsRequest, log_dirs.describe_log_dirs),
    (ElectLeadersRequest, replicas.elect_leaders),
    (AlterPartitionReassignmentsRequest, replicas.alter_partition_reassignments),
    (ListPartitionReassignmentsRequest, replicas.list_partition_reassignments),
    (DescribeClientQuotasRequest, security.describe_client_quotas),
    (DescribeUserScramCredentialsRequest, scram.describe_user_scram_credentials),
    (AlterUserScramCredentialsRequest, scram.alter_user_scram_credentials),
    (DescribeProducersRequest, producers.describe_producers),
    (DescribeTransactionsRequest, producers.describe_transactions),
    (ListTransactionsRequest, producers.list_transactions),
    (ListConfigResourcesRequest, configs.list_config_resources),
    (DescribeTopicPartitionsRequest, topic_partitions.describe_topic_partitions),
    (ConsumerGroupHeartbeatRequest, groups.one_group),
    (ConsumerGroupDescribeRequest, groups.consumer_group_describe),
    (ConsumerGroupPrepareAssignmentRequest, groups.one_group),
    (ConsumerGroupInstallAssignmentRequest, groups.one_group),
    (DraftJoinGroupRequest, groups.one_group),
    (DraftHeartbeatRequest, groups.one_group),
)

# Served only by a broker with this group protocol in its `protocols`.
_PROTOCOL = {
    ConsumerGroupHeartbeatRequest.api_key: "consumer",
    ConsumerGroupDescribeRequest.api_key: "consumer",
    ConsumerGroupPrepareAssignmentRequest.api_key: "consumer",
    ConsumerGroupInstallAssignmentRequest.api_key: "consumer",
    DraftJoinGroupRequest.api_key: "draft",
    DraftHeartbeatRequest.api_key: "draft",
}

# librdkafka compresses with gzip, snappy or lz4 only if the broker lists Produce 0, and sends
# uncompressed batches otherwise. It never sends version 0; Kafka lists it as well (KAFKA-18659).
_SAID_FIRST = {ProduceRequest.api_key: 0}


# KIP-890: from version 2 a write joins the transaction, and each transaction has its own epoch.
_SUPPORTED = (SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2),)


def served_with(protocols: tuple[str, ...]) -> dict[int, Served]:
    """Return the APIs, by key, that a broker with these group protocols serves."""
    return {key: api for key, api in SERVED.items() if _PROTOCOL.get(key, "classic") in protocols}


@lru_cache
def _versions(protocols: tuple[str, ...], transactions: int) -> ApiVersionsResponse:
    agreed = FinalizedFeatureKey(
        name="transaction.version", max_version_level=transactions, min_version_level=transactions
    )
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        supported_features=_SUPPORTED,
        finalized_features_epoch=0,
        finalized_features=(agreed,),
        api_keys=tuple(
            ApiVersion(
                api_key=key, min_version=_SAID_FIRST.get(key, served.first), max_version=served.last
            )
            for key, served in sorted(served_with(protocols).items())
        ),
    )


def serve(
    broker: BrokerContext, data: memoryview, host: str, principal: str = ANONYMOUS
) -> list[Buffer] | Awaitable[list[Buffer]] | None:
    """Answer one request frame.

    Args:
        broker: The broker.
        data: The frame, without its length.
        host: Address of the client.
        principal: Principal of the client, as "User:alice".

    Returns:
        The pieces of the response frame, now or later; None if the request expects no response.

    Raises:
        RemoteProtocolError: The bytes are not a request that this broker serves.
    """
    key, version, correlation_id = frame.peek_request(data)
    if len(data) > _MAX_CONTROL_FRAME and key != ProduceRequest.api_key:
        raise RemoteProtocolError(f"request {key} of {len(data)} bytes")
    served = SERVED.get(key)
    if served is None or _PROTOCOL.get(key, "classic") not in broker.config.protocols:
        raise RemoteProtocolError(f"API key {key} is not served")
    if not served.first <= version <= served.last:
        return _unsupported(broker, key, version, correlation_id)
    request = frame.decode_request(data)
    rights = Rights(broker.acls, principal, host.removeprefix("/"))
    caller = Caller(version, request.client_id or "", host, rights)

    fault = _fault(broker, request.message, caller) if any(broker.faults) else None
    pause_ms = 0 if fault is None else fault.pause_ms

    def encoded(answer: Message) -> list[Buffer]:
        return _encoded(faults.throttled(answer, pause_ms), version, correlation_id)

    def handled() -> list[Buffer] | Awaitable[list[Buffer]] | None:
        answer = handle_permitted(served.handler, broker, request.message, caller)
        if isinstance(answer, Awaitable):
            return _later(answer, encoded)
        return None if answer is None else encoded(answer)

    if fault is None:
        return handled()
    return faults.suffer(fault, request.message, version, handled, encoded)


def _fault(broker: BrokerContext, request: Message, caller: Caller) -> faults.Injected | None:
    def name_of(topic_id: object) -> str:
        topic = broker.topic_by_id(topic_id) if isinstance(topic_id, UUID) else None
        return "" if topic is None else topic.name

    api = type(request).__name__.removesuffix("Request")
    topics = faults.topics_of(request, name_of)
    return broker.faults.of(api, caller.client_id, topics, faults.groups_of(request))


async def _later(
    answer: Awaitable[Message], encoded: Callable[[Message], list[Buffer]]
) -> list[Buffer]:
    return encoded(await answer)


def _encoded(answer: Message, version: int, correlation_id: int) -> list[Buffer]:
    if isinstance(answer, FetchResponse):
        return frame.encode_response_pieces(answer, version, correlation_id)
    return [frame.encode_response(answer, version, correlation_id)]


def _unsupported(
    broker: BrokerContext, key: int, version: int, correlation_id: int
) -> list[Buffer]:
    """List the served APIs for a client newer than this broker (KIP-35), in version 0."""
    if key != ApiVersionsRequest.api_key:
        name = apis.request_class(key).__name__
        raise RemoteProtocolError(f"{name} version {version} is not served")
    served = _versions(broker.config.protocols, broker.config.transaction_version).api_keys
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served)
    return _encoded(answer, 0, correlation_id)
