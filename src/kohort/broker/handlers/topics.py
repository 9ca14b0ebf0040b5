"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.coordinator import OFFSETS_TOPIC
from kohort.broker.log.directory import Topic, log_config
from kohort.errors import ErrorCode, clipped
from kohort.types import TopicPartition
from kohort.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kohort.wire.schema import ZERO_UUID

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Each partition is a directory once it is used; a typing error should not make a million.
_MAX_PARTITIONS = 10_000
_TOPIC_CONFIG_SOURCE = 1


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def creation_error(broker: BrokerContext, name: str, partitions: int) -> ErrorCode | None:
    """Return why a topic cannot be created, None when it can."""
    if not is_legal(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if name in broker.data.topics:
        return ErrorCode.TOPIC_ALREADY_EXISTS
    if not 1 <= partitions <= _MAX_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS
    return None


# ------------------------------------------------------------------------------------- create


def create_topics(
    broker: BrokerContext, request: CreateTopicsRequest, _caller: Caller
) -> CreateTopicsResponse:
    """Create topics, or only say whether they could be."""
    names = [topic.name for topic in request.topics]
    results = (
        _create(broker, topic, request.validate_only, repeated=names.count(topic.name) > 1)
        for topic in request.topics
    )
    return CreateTopicsResponse(topics=tuple(results))


def _create(
    broker: BrokerContext, wanted: CreatableTopic, validate_only: bool, repeated: bool
) -> CreatableTopicResult:
    partitions = len(wanted.assignments) or wanted.num_partitions
    partitions = broker.config.num_partitions if partitions == -1 else partitions
    configs = {config.name: config.value or "" for config in wanted.configs}
    code = creation_error(broker, wanted.name, partitions)
    message: str | None = None
    if repeated:
        code = ErrorCode.INVALID_REQUEST
    elif code is None and wanted.replication_factor not in (-1, 1) and not wanted.assignments:
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        message = "there is one broker, so the replication factor is 1"
    elif code is None:
        message = _config_problem(broker, configs)
        code = ErrorCode.INVALID_CONFIG if message else None
    if code is not None:
        return CreatableTopicResult(
            name=wanted.name, error_code=code, error_message=clipped(message)
        )
    topic = Topic(wanted.name, ZERO_UUID, partitions, configs)
    if not validate_only:
        topic = broker.data.create_topic(wanted.name, partitions, configs)
    return _created(topic)


def _config_problem(broker: BrokerContext, configs: dict[str, str]) -> str | None:
    try:
        log_config(broker.config.log_defaults(), configs)
    except ValueError as error:
        return f"a setting is not a number: {error}"
    return None


def _created(topic: Topic) -> CreatableTopicResult:
    configs = (
        CreatableTopicConfigs(
            name=name,
            value=value,
            read_only=False,
            config_source=_TOPIC_CONFIG_SOURCE,
            is_sensitive=False,
        )
        for name, value in topic.configs.items()
    )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=tuple(configs),
    )


# ------------------------------------------------------------------------------------- delete


def delete_topics(
    broker: BrokerContext, request: DeleteTopicsRequest, _caller: Caller
) -> DeleteTopicsResponse:
    """Delete topics by name or id, with their records and the positions groups had in them."""
    wanted = [*request.topics]
    wanted += [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    results = tuple(_delete(broker, state) for state in wanted)
    gone = frozenset(r.name for r in results if r.error_code == ErrorCode.NONE and r.name)
    if gone:
        broker.coordinator.topics_deleted(gone)
    return DeleteTopicsResponse(responses=results)


def _delete(broker: BrokerContext, state: DeleteTopicState) -> DeletableTopicResult:
    if state.name is None:
        topic = broker.topic_by_id(state.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.data.topics.get(state.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=missing)
    if topic.name == OFFSETS_TOPIC:
        return DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="the offsets topic is the broker's own",
        )
    broker.data.delete_topic(topic.name)
    for number in range(topic.partitions):
        broker.appends.appended(TopicPartition(topic.name, number))
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)


# ------------------------------------------------------------------------------------- grow


def create_partitions(
    broker: BrokerContext, request: CreatePartitionsRequest, _caller: Caller
) -> CreatePartitionsResponse:
    """Give topics more partitions; they never get fewer."""
    counted = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if counted[topic.name] == 1]
    repeated = tuple(
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="named more than once"
        )
        for name, count in counted.items()
        if count > 1
    )
    results = tuple(_grow(broker, topic, request.validate_only) for topic in once)
    return CreatePartitionsResponse(results=repeated + results)


def _grow(
    broker: BrokerContext, wanted: CreatePartitionsTopic, validate_only: bool
) -> CreatePartitionsTopicResult:
    topic = broker.data.topics.get(wanted.name)
    code, message = ErrorCode.NONE, None
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif not topic.partitions < wanted.count <= _MAX_PARTITIONS:
        code = ErrorCode.INVALID_PARTITIONS
        message = f"{topic.name} has {topic.partitions} partitions; it can only get more"
    elif not validate_only:
        broker.data.change_topic(replace(topic, partitions=wanted.count))
    return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)
