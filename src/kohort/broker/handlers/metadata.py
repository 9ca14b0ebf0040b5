"""Metadata and DescribeCluster: where things are."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.coordinator import OFFSETS_TOPIC
from kohort.broker.handlers.topics import creation_error
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import LEADER_EPOCH
from kohort.errors import ErrorCode
from kohort.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def metadata(broker: BrokerContext, request: MetadataRequest, caller: Caller) -> MetadataResponse:
    """Describe the topics asked for, making unknown ones where client and broker permit it."""
    host, port = broker.address
    node = MetadataResponseBroker(
        node_id=NODE_ID, host=host, port=port, rack=broker.config.broker_rack or None
    )
    everything = request.topics is None or (caller.version == 0 and not request.topics)
    if everything:
        topics = [_describe(topic) for topic in broker.data.topics.values()]
    else:
        topics = [_answer(broker, request, wanted) for wanted in request.topics or ()]
    return MetadataResponse(
        brokers=(node,),
        cluster_id=broker.data.cluster_id,
        controller_id=NODE_ID,
        topics=tuple(topics),
    )


def _answer(
    broker: BrokerContext, request: MetadataRequest, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    if wanted.name is None:
        by_id = broker.topic_by_id(wanted.topic_id)
        if by_id is None:
            return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted)
        return _describe(by_id)
    topic = broker.data.topics.get(wanted.name)
    if topic is None:
        refusal = creation_error(broker, wanted.name, broker.config.num_partitions)
        if refusal is ErrorCode.INVALID_TOPIC_EXCEPTION:
            return _error(refusal, wanted.name, wanted)
        if not (request.allow_auto_topic_creation and broker.config.auto_create_topics):
            return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name, wanted)
        topic = broker.data.create_topic(wanted.name, broker.config.num_partitions, {})
    return _describe(topic)


def _error(
    code: ErrorCode, name: str | None, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=wanted.topic_id, partitions=()
    )


def _describe(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name == OFFSETS_TOPIC,
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
    broker: BrokerContext, _request: DescribeClusterRequest, _caller: Caller
) -> DescribeClusterResponse:
    """Name the one broker there is."""
    host, port = broker.address
    rack = broker.config.broker_rack or None
    node = DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port, rack=rack)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=broker.data.cluster_id,
        controller_id=NODE_ID,
        brokers=(node,),
    )
