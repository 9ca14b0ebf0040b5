"""Metadata and DescribeCluster: topics, partitions and the broker's address."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.coordination.transactions import INTERNAL_TOPICS
from kohort.broker.handlers.security import EVERYTHING_WITH_A_TOPIC, cluster_operations
from kohort.broker.handlers.topics import NewTopics, is_legal
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import LEADER_EPOCH
from kohort.errors import ErrorCode, KafkaError
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_BROKERS, _CONTROLLERS = 1, 2
_MADE_AT_ONCE = 100
_BY_ID_SINCE = 12  # the version in which topic ids were added to requests


def metadata(broker: BrokerContext, request: MetadataRequest, caller: Caller) -> MetadataResponse:
    """Describe the requested topics; create unknown ones if client and broker permit it."""
    if caller.version < _BY_ID_SINCE and _asks_by_id(request):
        return _asked_too_early(request)
    host, port = broker.address
    node = MetadataResponseBroker(
        node_id=NODE_ID, host=host, port=port, rack=broker.config.broker_rack or None
    )
    everything = request.topics is None or (caller.version == 0 and not request.topics)
    if everything:
        topics = [_describe(topic) for topic in broker.data.topics.values()]
    else:
        topics = _asked_for(broker, request)
    if request.include_topic_authorized_operations:
        operations = EVERYTHING_WITH_A_TOPIC
        topics = [replace(topic, topic_authorized_operations=operations) for topic in topics]
    return MetadataResponse(
        brokers=(node,),
        cluster_id=broker.data.cluster_id,
        controller_id=NODE_ID,
        topics=tuple(topics),
        cluster_authorized_operations=cluster_operations(
            request.include_cluster_authorized_operations
        ),
    )


def _asks_by_id(request: MetadataRequest) -> bool:
    return any(each.name is None or each.topic_id != ZERO_UUID for each in request.topics or ())


def _asked_too_early(request: MetadataRequest) -> MetadataResponse:
    """Reject a request with topic ids in a version that has them only in responses."""
    code = ErrorCode.INVALID_REQUEST
    topics = (_error(code, each.name or "", each.topic_id) for each in request.topics or ())
    return MetadataResponse(brokers=(), topics=tuple(topics))


def _asked_for(broker: BrokerContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    """Describe topics by id, or by name if the request has no ids."""
    asked = request.topics or ()
    ids = dict.fromkeys(each.topic_id for each in asked if each.topic_id != ZERO_UUID)
    if ids:
        return [_by_id(broker, topic_id) for topic_id in ids]
    once = dict.fromkeys(each.name for each in asked)
    if request.allow_auto_topic_creation and broker.config.auto_create_topics:
        _make_missing(broker, once)
    return [_by_name(broker, name) for name in once]


def _by_id(broker: BrokerContext, topic_id: uuid.UUID) -> MetadataResponseTopic:
    topic = broker.topic_by_id(topic_id)
    if topic is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return _describe(topic)


def _by_name(broker: BrokerContext, name: str | None) -> MetadataResponseTopic:
    if name is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, ZERO_UUID)
    topic = broker.data.topics.get(name)
    if topic is not None:
        return _describe(topic)
    legal = is_legal(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _error(code, name, ZERO_UUID)


def _make_missing(broker: BrokerContext, wanted: Iterable[str | None]) -> None:
    """Create the topics that a client wants to use; the response contains them.

    Kafka answers that they do not exist yet, and clients ask again (decision 0017). This broker
    does the same for topics that cannot be created, and for too many at once.
    """
    missing = (name for name in wanted if name and name not in broker.data.topics)
    new: NewTopics | None = None
    for name in islice(missing, _MADE_AT_ONCE):
        new = new or NewTopics(broker)
        with suppress(KafkaError):
            new.add(name, broker.config.num_partitions, {})
    if new is not None:
        with suppress(KafkaError):
            new.store()


def _error(code: ErrorCode, name: str | None, topic_id: uuid.UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=())


def _describe(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partitions(range(topic.partitions))),
    )


def _partitions(numbers: Iterable[int]) -> Iterable[MetadataResponsePartition]:
    for number in numbers:
        yield MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=number,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=(NODE_ID,),
            isr_nodes=(NODE_ID,),
        )


def describe_cluster(
    broker: BrokerContext, request: DescribeClusterRequest, _caller: Caller
) -> DescribeClusterResponse:
    """Return the only broker; there is no separate controller (KIP-919)."""
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="this is the endpoint of a broker",
            cluster_id="",
            brokers=(),
        )
    host, port = broker.address
    rack = broker.config.broker_rack or None
    node = DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port, rack=rack)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=broker.data.cluster_id,
        controller_id=NODE_ID,
        brokers=(node,),
        cluster_authorized_operations=cluster_operations(
            request.include_cluster_authorized_operations
        ),
    )
