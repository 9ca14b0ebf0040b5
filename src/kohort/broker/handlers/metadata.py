"""Metadata and DescribeCluster: where things are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.coordinator import OFFSETS_TOPIC
from kohort.broker.handlers.security import EVERYTHING_WITH_A_TOPIC, cluster_operations
from kohort.broker.handlers.topics import NewTopics, is_legal
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import LEADER_EPOCH
from kohort.errors import ErrorCode, KafkaError
from kohort.values import replace
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

_BROKERS, _CONTROLLERS = 1, 2
_MADE_AT_ONCE = 100
_NAME_MAY_BE_NULL = 12  # since this version, where a topic is asked for by an id


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
        once = dict.fromkeys(request.topics or ())
        if request.allow_auto_topic_creation and broker.config.auto_create_topics:
            _make_missing(broker, once)
        topics = [_answer(broker, caller.version, wanted) for wanted in once]
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


def _answer(
    broker: BrokerContext, version: int, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    if wanted.name is None:
        by_id = broker.topic_by_id(wanted.topic_id)
        if by_id is None:
            no_name = None if version >= _NAME_MAY_BE_NULL else ""
            return _error(ErrorCode.UNKNOWN_TOPIC_ID, no_name, wanted)
        return _describe(by_id)
    topic = broker.data.topics.get(wanted.name)
    if topic is None:
        legal = is_legal(wanted.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return _error(code, wanted.name, wanted)
    return _describe(topic)


def _make_missing(broker: BrokerContext, wanted: Iterable[MetadataRequestTopic]) -> None:
    """Make the topics that a client wants to use; they are there with the answer.

    Kafka answers that they are not there yet, and every client asks again (decision 0017). So it
    does here for what cannot be made, and for more at once than anybody wants.
    """
    missing = (each.name for each in wanted if each.name and each.name not in broker.data.topics)
    new: NewTopics | None = None
    for name in islice(missing, _MADE_AT_ONCE):
        new = new or NewTopics(broker)
        with suppress(KafkaError):
            new.add(name, broker.config.num_partitions, {})
    if new is not None:
        with suppress(KafkaError):
            new.store()


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
    broker: BrokerContext, request: DescribeClusterRequest, _caller: Caller
) -> DescribeClusterResponse:
    """Name the one broker there is; nobody else can be asked for its controller (KIP-919)."""
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
