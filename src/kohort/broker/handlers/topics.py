"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.coordination.transactions import INTERNAL_TOPICS
from kohort.broker.log.directory import Topic
from kohort.broker.topic_settings import problem
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
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

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Each partition in use is a directory; a typing error should not create a million.
_MAX_PARTITIONS = 10_000
_TOPIC_CONFIG_SOURCE = 1
_NO_ASSIGNMENT = f"the only possible replica of a partition is on broker {NODE_ID}"


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


class NewTopics:
    """Topics that one request creates: checked one by one, and written to disk together."""

    def __init__(self, broker: BrokerContext) -> None:
        """Start without topics."""
        self._broker = broker
        self._made: list[Topic] = []
        self._partitions = 0
        # Names of metrics have underscores instead of dots.
        self._taken = {name.replace(".", "_"): name for name in broker.data.topics}

    def check_name(self, name: str) -> None:
        """Check that a new topic may have this name.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION or TOPIC_ALREADY_EXISTS.
        """
        if not is_legal(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic name")
        if name in self._broker.data.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._taken.get(name.replace(".", "_"))
        if other is not None:
            message = f"Topic '{name}' collides with '{other}'."
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def add(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Return a topic that exists once all are stored; its settings have been checked.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or
                POLICY_VIOLATION.
        """
        self.check_name(name)
        if partitions < 1:
            message = f"{partitions} is not a valid number of partitions"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        if self._partitions + partitions > _MAX_PARTITIONS:
            message = f"more than {_MAX_PARTITIONS} partitions in one request"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        topic = Topic(name, uuid.uuid4(), partitions, dict(configs))
        self._made.append(topic)
        self._partitions += partitions
        self._taken[name.replace(".", "_")] = name
        return topic

    def store(self) -> None:
        """Write the topics to disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, and no topic is created.
        """
        self._broker.data.add_topics(self._made)


# ------------------------------------------------------------------------------------- create


def create_topics(
    broker: BrokerContext, request: CreateTopicsRequest, _caller: Caller
) -> CreateTopicsResponse:
    """Create topics, or only check whether they can be created."""
    counted = Counter(topic.name for topic in request.topics)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_not_created(name, twice) for name, count in counted.items() if count > 1]
    new = NewTopics(broker)
    results += [_create(broker, new, each) for each in request.topics if counted[each.name] == 1]
    if not request.validate_only:
        try:
            new.store()
        except KafkaError as error:
            results = [r if r.error_code else _not_created(r.name, error) for r in results]
    return CreateTopicsResponse(topics=tuple(results))


def _create(broker: BrokerContext, new: NewTopics, wanted: CreatableTopic) -> CreatableTopicResult:
    try:
        new.check_name(wanted.name)
        configs = _configs(wanted)
        topic = new.add(wanted.name, _number_of_partitions(broker, wanted), configs)
    except KafkaError as error:
        return _not_created(wanted.name, error)
    return _created(topic)


def _number_of_partitions(broker: BrokerContext, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            message = "use either the numbers of partitions and replicas, or assignments, not both"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        numbers = sorted(each.partition_index for each in wanted.assignments)
        if numbers != [*range(len(numbers))]:
            message = "assignments must be for partitions numbered from 0, each once"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_replicas(each.broker_ids for each in wanted.assignments)
        return len(numbers)
    if wanted.replication_factor not in (-1, 1):
        message = "there is only one broker, so the replication factor must be 1"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return broker.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions


def _check_replicas(replicas: Iterable[tuple[int, ...]]) -> None:
    if any(each != (NODE_ID,) for each in replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, _NO_ASSIGNMENT)


def _configs(wanted: CreatableTopic) -> dict[str, str]:
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            message = f"Null value not supported for topic configs: {config.name}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        configs[config.name] = config.value
    check_configs(configs)
    return configs


def check_configs(configs: Mapping[str, str]) -> None:
    """Check that a topic may have these settings.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    wrong = problem(configs)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)


def _not_created(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=clipped(error.message)
    )


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
    """Delete topics by name or id, with their records and the committed offsets of groups."""
    wanted = [*request.topics]
    wanted += [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    counted = Counter(wanted)
    doomed: dict[str, Topic] = {}
    results = [_delete(broker, doomed, *each) for each in counted.items()]
    try:
        _delete_together(broker, doomed)
    except KafkaError as error:
        results = [r if r.error_code else _not_deleted(r, error) for r in results]
    return DeleteTopicsResponse(responses=tuple(results))


def _delete_together(broker: BrokerContext, doomed: Mapping[str, Topic]) -> None:
    if not doomed:
        return
    broker.data.delete_topics(doomed)
    for topic in doomed.values():
        for number in range(topic.partitions):
            broker.appends.appended(TopicPartition(topic.name, number))
    broker.coordinator.topics_deleted(frozenset(doomed))


def _delete(
    broker: BrokerContext, doomed: dict[str, Topic], state: DeleteTopicState, times: int
) -> DeletableTopicResult:
    """Return the result for a topic, and add it to `doomed` if it can be deleted."""
    result = DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=ErrorCode.NONE
    )
    try:
        if times > 1 or (state.name is None) == (state.topic_id == ZERO_UUID):
            message = "name each topic once, by its name or its id"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        topic = _to_delete(broker, state)
    except KafkaError as error:
        return _not_deleted(result, error)
    doomed[topic.name] = topic
    return replace(result, name=topic.name, topic_id=topic.topic_id)


def _not_deleted(result: DeletableTopicResult, error: KafkaError) -> DeletableTopicResult:
    return replace(result, error_code=error.code, error_message=clipped(error.message))


def _to_delete(broker: BrokerContext, state: DeleteTopicState) -> Topic:
    if state.name is None:
        topic = broker.topic_by_id(state.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.data.topics.get(state.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise KafkaError(missing, "the topic does not exist")
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is internal")
    return topic


# ------------------------------------------------------------------------- create partitions


def create_partitions(
    broker: BrokerContext, request: CreatePartitionsRequest, _caller: Caller
) -> CreatePartitionsResponse:
    """Add partitions to topics; their number never decreases."""
    counted = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if counted[topic.name] == 1]
    repeated = tuple(
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="named more than once"
        )
        for name, count in counted.items()
        if count > 1
    )
    grown: list[Topic] = []
    results = [_grow(broker, grown, topic) for topic in once]
    if not request.validate_only:
        try:
            broker.data.change_topics(grown)
        except KafkaError as error:
            results = [r if r.error_code else _not_grown(r.name, error) for r in results]
    return CreatePartitionsResponse(results=(*repeated, *results))


def _grow(
    broker: BrokerContext, grown: list[Topic], wanted: CreatePartitionsTopic
) -> CreatePartitionsTopicResult:
    try:
        grown.append(_grown(broker, wanted))
    except KafkaError as error:
        return _not_grown(wanted.name, error)
    return CreatePartitionsTopicResult(name=wanted.name, error_code=ErrorCode.NONE)


def _not_grown(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=clipped(error.message)
    )


def _grown(broker: BrokerContext, wanted: CreatePartitionsTopic) -> Topic:
    topic = broker.data.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
    if not topic.partitions < wanted.count <= _MAX_PARTITIONS:
        message = f"{topic.name} has {topic.partitions} partitions; the number can only increase"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - topic.partitions:
            message = "each new partition needs an assignment"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_replicas(each.broker_ids for each in wanted.assignments)
    return replace(topic, partitions=wanted.count)
