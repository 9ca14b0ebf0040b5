"""The permissions that each request needs, as in Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from kohort.broker.authorization.acls import Operation, Resource, Rights
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID, Buffer, Message
from kohort.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kohort.wire.messages.alter_configs import AlterConfigsRequest
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.config_resources import ListConfigResourcesRequest
from kohort.wire.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kohort.wire.messages.delete_records import DeleteRecordsRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kohort.wire.messages.leader_epochs import OffsetForLeaderEpochRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
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
from kohort.wire.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kohort.wire.messages.topic_partitions import DescribeTopicPartitionsRequest
from kohort.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
)
from kohort.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
)
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

# Returns the error for the whole request, or for one item of it; None if it is allowed.
Whole = Callable[[BrokerContext, Any, Rights], ErrorCode | None]
Each = Callable[[BrokerContext, Any, Rights, Any], ErrorCode | None]

_FAILED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Items(Struct, frozen=True):
    """The items of a request, such as its topics.

    Attributes:
        field: Field of the request that has them.
        results: Field of the response that has their results.
        need: Returns the error of an item that the client may not use.
        is_always: Whether the request is handled even if no item is left.
        shown: Removes from an error what the client may not see.
    """

    field: str
    results: str
    need: Each
    is_always: bool = False
    shown: Callable[[BrokerContext, Rights, Any], object] = lambda _broker, _rights, it: it


class Rule(Struct, frozen=True):
    """The permissions that a request needs.

    Attributes:
        whole: Checks the request as a whole.
        items: Checks its items; each version of a request has one of these fields.
    """

    whole: Whole | None = None
    items: tuple[Items, ...] = ()


# ------------------------------------------------------------------------------- the whole request


def _one(operation: Operation, resource: Resource, field: str) -> Whole:
    """Require a permission for the one resource that the request names."""

    def need(_broker: BrokerContext, request: object, rights: Rights) -> ErrorCode | None:
        is_allowed = rights.may(operation, resource, getattr(request, field))
        return None if is_allowed else _FAILED[resource]

    return need


def _group(operation: Operation) -> Whole:
    return _one(operation, Resource.GROUP, "group_id")


def _transaction(operation: Operation) -> Whole:
    return _one(operation, Resource.TRANSACTIONAL_ID, "transactional_id")


def _cluster(*operations: Operation) -> Whole:
    """Require one of these permissions for the cluster."""

    def need(_broker: BrokerContext, _request: object, rights: Rights) -> ErrorCode | None:
        is_allowed = any(rights.may(each, Resource.CLUSTER) for each in operations)
        return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    return need


def _all(*needs: Whole) -> Whole:
    def need(broker: BrokerContext, request: object, rights: Rights) -> ErrorCode | None:
        codes = (each(broker, request, rights) for each in needs)
        return next((code for code in codes if code is not None), None)

    return need


def _produce(broker: BrokerContext, request: ProduceRequest, rights: Rights) -> ErrorCode | None:
    batches = (part.records for topic in request.topic_data for part in topic.partition_data)
    if not any(map(_is_transactional, batches)):
        return None
    return _transaction(Operation.WRITE)(broker, request, rights)


def _is_transactional(records: Buffer | None) -> bool:
    """Whether a batch is transactional, a bit in the second byte of its attributes (KIP-98)."""
    return records is not None and len(records) > 22 and bool(records[22] & 1 << 4)


def _init_producer_id(
    broker: BrokerContext, request: InitProducerIdRequest, rights: Rights
) -> ErrorCode | None:
    if request.transactional_id is not None:
        return _transaction(Operation.WRITE)(broker, request, rights)
    if rights.may_any(Operation.WRITE, Resource.TOPIC):  # KIP-679
        return None
    return _cluster(Operation.IDEMPOTENT_WRITE)(broker, request, rights)


def _add_partitions(
    broker: BrokerContext, request: AddPartitionsToTxnRequest, rights: Rights
) -> ErrorCode | None:
    if request.transactions:  # since version 4, which brokers send
        return _cluster(Operation.CLUSTER_ACTION)(broker, request, rights)
    field = "v3_and_below_transactional_id"
    return _one(Operation.WRITE, Resource.TRANSACTIONAL_ID, field)(broker, request, rights)


def _member(
    broker: BrokerContext, request: ConsumerGroupHeartbeatRequest, rights: Rights
) -> ErrorCode | None:
    code = _group(Operation.READ)(broker, request, rights)
    if code is not None:
        return code
    names = request.subscribed_topic_names or ()
    is_allowed = all(rights.may(Operation.DESCRIBE, Resource.TOPIC, name) for name in names)
    return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _coordinator(
    _broker: BrokerContext, request: FindCoordinatorRequest, rights: Rights
) -> ErrorCode | None:
    return None if request.coordinator_keys else _coordinator_of(request, rights, request.key)


def _coordinator_of(request: FindCoordinatorRequest, rights: Rights, key: str) -> ErrorCode | None:
    kinds = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}
    resource = kinds.get(request.key_type)
    if resource is None or rights.may(Operation.DESCRIBE, resource, key):
        return None
    return _FAILED[resource]


# ------------------------------------------------------------------------------------ each thing


def _topic(operation: Operation) -> Each:
    """Require a permission for a topic by name or id; an unknown id is not denied."""

    def need(
        broker: BrokerContext, _request: object, rights: Rights, item: object
    ) -> ErrorCode | None:
        name = _topic_name(broker, item)
        if name is None or rights.may(operation, Resource.TOPIC, name):
            return None
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return need


def _topic_name(broker: BrokerContext, item: object) -> str | None:
    name = item if isinstance(item, str) else getattr(item, "name", getattr(item, "topic", None))
    if name:
        return str(name)
    topic = broker.topic_by_id(item.topic_id) if hasattr(item, "topic_id") else None
    return None if topic is None else topic.name


def _named(operation: Operation, resource: Resource) -> Each:
    """Require a permission for the named resource."""

    def need(
        _broker: BrokerContext, _request: object, rights: Rights, item: str
    ) -> ErrorCode | None:
        return None if rights.may(operation, resource, item) else _FAILED[resource]

    return need


def _described(
    broker: BrokerContext, request: MetadataRequest, rights: Rights, item: object
) -> ErrorCode | None:
    """Require DESCRIBE on a topic, and CREATE if the request would create it."""
    code = _topic(Operation.DESCRIBE)(broker, request, rights, item)
    name = _topic_name(broker, item)
    is_there = name is None or name in broker.data.topics
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics
    if code is not None or is_there or not may_create:
        return code
    return _created(broker, request, rights, item)


def _fetched(
    broker: BrokerContext, request: FetchRequest, rights: Rights, item: object
) -> ErrorCode | None:
    """Require READ on a topic, or that the client is a replica that follows its leader."""
    if max(request.replica_id, request.replica_state.replica_id) < 0:
        return _topic(Operation.READ)(broker, request, rights, item)
    is_allowed = rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER)
    return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _deleted(
    broker: BrokerContext, request: DeleteTopicsRequest, rights: Rights, item: object
) -> ErrorCode | None:
    """Require DELETE on a topic, and DESCRIBE to learn that it does not exist."""
    name = _topic_name(broker, item)
    is_missing = name is not None and name not in broker.data.topics
    needed = Operation.DESCRIBE if is_missing else Operation.DELETE
    return _topic(needed)(broker, request, rights, item)


def _without_name(
    _broker: BrokerContext, _rights: Rights, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    """Remove the name of a topic that the client asked for by id."""
    return topic if topic.topic_id == ZERO_UUID else replace(topic, name=None)


def _with_name(
    broker: BrokerContext, rights: Rights, result: DeletableTopicResult
) -> DeletableTopicResult:
    """Add the name of a topic that the client asked for by id, if it may see the topic."""
    name = _topic_name(broker, result)
    is_seen = name is not None and rights.may(Operation.DESCRIBE, Resource.TOPIC, name)
    return replace(result, name=name) if is_seen else result


def _created(
    broker: BrokerContext, request: object, rights: Rights, item: object
) -> ErrorCode | None:
    if rights.may(Operation.CREATE, Resource.CLUSTER):
        return None
    return _topic(Operation.CREATE)(broker, request, rights, item)


# Resource types with settings; all others belong to the cluster.
_CONFIGURED = {2: Resource.TOPIC, 32: Resource.GROUP}


class _Configured(Protocol):
    """A resource that has settings."""

    resource_type: int
    resource_name: str


def _configured(operation: Operation) -> Each:
    def need(
        _broker: BrokerContext, _request: object, rights: Rights, item: _Configured
    ) -> ErrorCode | None:
        resource = _CONFIGURED.get(item.resource_type, Resource.CLUSTER)
        name = (item.resource_name,) if item.resource_type in _CONFIGURED else ()
        return None if rights.may(operation, resource, *name) else _FAILED[resource]

    return need


def _looked_up(
    _broker: BrokerContext, request: FindCoordinatorRequest, rights: Rights, key: str
) -> ErrorCode | None:
    return _coordinator_of(request, rights, key)


def _topics(operation: Operation, results: str = "topics", field: str = "topics") -> Items:
    return Items(field, results, _topic(operation))


_MEMBER = Rule(_group(Operation.READ))
_SEEING, _CHANGING = Rule(_cluster(Operation.DESCRIBE)), Rule(_cluster(Operation.ALTER))
RULES: dict[type[Message], Rule] = {
    # records
    ProduceRequest: Rule(_produce, (_topics(Operation.WRITE, "responses", "topic_data"),)),
    FetchRequest: Rule(None, (Items("topics", "responses", _fetched),)),
    ListOffsetsRequest: Rule(None, (_topics(Operation.DESCRIBE),)),
    OffsetForLeaderEpochRequest: Rule(None, (_topics(Operation.DESCRIBE),)),
    DeleteRecordsRequest: Rule(None, (_topics(Operation.DELETE),)),
    DescribeProducersRequest: Rule(None, (_topics(Operation.READ),)),
    # topics
    MetadataRequest: Rule(
        None, (Items("topics", "topics", _described, is_always=True, shown=_without_name),)
    ),
    DescribeTopicPartitionsRequest: Rule(None, (_topics(Operation.DESCRIBE),)),
    CreateTopicsRequest: Rule(None, (Items("topics", "topics", _created),)),
    CreatePartitionsRequest: Rule(None, (_topics(Operation.ALTER, "results"),)),
    DeleteTopicsRequest: Rule(
        None,
        tuple(
            Items(field, "responses", _deleted, shown=_with_name)
            for field in ("topics", "topic_names")
        ),
    ),
    # groups
    FindCoordinatorRequest: Rule(
        _coordinator, (Items("coordinator_keys", "coordinators", _looked_up),)
    ),
    JoinGroupRequest: _MEMBER,
    SyncGroupRequest: _MEMBER,
    HeartbeatRequest: _MEMBER,
    LeaveGroupRequest: _MEMBER,
    ConsumerGroupHeartbeatRequest: Rule(_member),
    ConsumerGroupPrepareAssignmentRequest: _MEMBER,
    ConsumerGroupInstallAssignmentRequest: _MEMBER,
    DraftJoinGroupRequest: _MEMBER,
    DraftHeartbeatRequest: _MEMBER,
    OffsetCommitRequest: Rule(_group(Operation.READ), (_topics(Operation.READ),)),
    OffsetFetchRequest: Rule(
        lambda broker, request, rights: (
            None if request.groups else _group(Operation.DESCRIBE)(broker, request, rights)
        ),
        (
            Items(
                "groups",
                "groups",
                lambda broker, _request, rights, item: _group(Operation.DESCRIBE)(
                    broker, item, rights
                ),
            ),
        ),
    ),
    OffsetDeleteRequest: Rule(_group(Operation.DELETE), (_topics(Operation.READ),)),
    DescribeGroupsRequest: Rule(
        None, (Items("groups", "groups", _named(Operation.DESCRIBE, Resource.GROUP)),)
    ),
    ConsumerGroupDescribeRequest: Rule(
        None, (Items("group_ids", "groups", _named(Operation.DESCRIBE, Resource.GROUP)),)
    ),
    DeleteGroupsRequest: Rule(
        None, (Items("groups_names", "results", _named(Operation.DELETE, Resource.GROUP)),)
    ),
    # transactions
    InitProducerIdRequest: Rule(_init_producer_id),
    AddPartitionsToTxnRequest: Rule(_add_partitions),
    AddOffsetsToTxnRequest: Rule(_all(_transaction(Operation.WRITE), _group(Operation.READ))),
    EndTxnRequest: Rule(_transaction(Operation.WRITE)),
    TxnOffsetCommitRequest: Rule(
        _all(_transaction(Operation.WRITE), _group(Operation.READ)), (_topics(Operation.READ),)
    ),
    WriteTxnMarkersRequest: Rule(_cluster(Operation.ALTER, Operation.CLUSTER_ACTION)),
    DescribeTransactionsRequest: Rule(
        None,
        (
            Items(
                "transactional_ids",
                "transaction_states",
                _named(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),
            ),
        ),
    ),
    # settings
    DescribeConfigsRequest: Rule(
        None, (Items("resources", "results", _configured(Operation.DESCRIBE_CONFIGS)),)
    ),
    AlterConfigsRequest: Rule(
        None, (Items("resources", "responses", _configured(Operation.ALTER_CONFIGS)),)
    ),
    IncrementalAlterConfigsRequest: Rule(
        None, (Items("resources", "responses", _configured(Operation.ALTER_CONFIGS)),)
    ),
    ListConfigResourcesRequest: Rule(_cluster(Operation.DESCRIBE_CONFIGS)),
    DescribeClientQuotasRequest: Rule(_cluster(Operation.DESCRIBE_CONFIGS)),
    # the cluster
    DescribeAclsRequest: _SEEING,
    CreateAclsRequest: _CHANGING,
    DeleteAclsRequest: _CHANGING,
    DescribeLogDirsRequest: _SEEING,
    AlterReplicaLogDirsRequest: _CHANGING,
    ElectLeadersRequest: _CHANGING,
    AlterPartitionReassignmentsRequest: _CHANGING,
    ListPartitionReassignmentsRequest: _SEEING,
    DescribeUserScramCredentialsRequest: _SEEING,
    AlterUserScramCredentialsRequest: _CHANGING,
}
