"""DescribeConfigs: the settings that this broker acts on, by Kafka's names (KIP-133)."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.config import BrokerConfig
from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.config import log_config
from kohort.broker.log.directory import Topic
from kohort.errors import ErrorCode
from kohort.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_TOPIC, _BROKER, _GROUP = 2, 4, 32
# Where a value comes from: the topic's own, what the broker was started with, or its default.
_TOPIC_SOURCE, _STATIC_BROKER_SOURCE, _DEFAULT_SOURCE = 1, 4, 5

_BROKER_KEYS = {
    "auto.create.topics.enable": "auto_create_topics",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "group.consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "group.consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "group_initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "group_max_session_timeout_ms",
    "group.max.size": "group_max_size",
    "group.min.session.timeout.ms": "group_min_session_timeout_ms",
    "log.retention.bytes": "log_retention_bytes",
    "log.retention.ms": "log_retention_ms",
    "log.segment.bytes": "log_segment_bytes",
    "max.connections": "max_connections",
    "message.max.bytes": "message_max_bytes",
    "num.partitions": "num_partitions",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
    "offsets.topic.num.partitions": "offsets_topic_num_partitions",
    "offsets.topic.segment.bytes": "offsets_topic_segment_bytes",
}
_GROUP_KEYS = {
    "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
}
_MINUTE_MS = 60_000


def describe_configs(
    broker: BrokerContext, request: DescribeConfigsRequest, _caller: Caller
) -> DescribeConfigsResponse:
    """Return the settings of topics, of the broker and of groups; nothing else has any here."""
    results = tuple(_describe(broker, resource) for resource in request.resources)
    return DescribeConfigsResponse(results=results)


def _describe(broker: BrokerContext, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    name, code, message = resource.resource_name, ErrorCode.NONE, None
    configs: dict[str, DescribeConfigsResourceResult] = {}
    if resource.resource_type == _TOPIC:
        topic = broker.data.topics.get(name)
        if topic is not None:
            configs = _of_topic(broker, topic)
        elif is_legal(name):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif resource.resource_type == _BROKER and name in ("", str(NODE_ID)):
        configs = _of_broker(broker.config)
    elif resource.resource_type == _GROUP and name:
        configs = _of_group(broker.config)
    else:
        code = ErrorCode.INVALID_REQUEST
        message = f"nothing of type {resource.resource_type} is called {name!r} here"
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=name,
        configs=tuple(
            setting for key, setting in configs.items() if wanted is None or key in wanted
        ),
    )


def _of_topic(broker: BrokerContext, topic: Topic) -> dict[str, DescribeConfigsResourceResult]:
    effective = log_config(broker.config.log_defaults(), topic.configs)
    policies = {"compact": effective.compact, "delete": effective.delete}
    values = {
        "cleanup.policy": ",".join(name for name, is_on in policies.items() if is_on),
        "delete.retention.ms": effective.delete_retention_ms,
        "max.message.bytes": effective.max_message_bytes,
        "message.timestamp.type": "LogAppendTime" if effective.log_append_time else "CreateTime",
        "min.cleanable.dirty.ratio": effective.min_cleanable_dirty_ratio,
        "retention.bytes": effective.retention_bytes,
        "retention.ms": effective.retention_ms,
        "segment.bytes": effective.segment_bytes,
    }
    own = dict(topic.configs)
    return _settings(values | own, set(own), _TOPIC_SOURCE, read_only=False)


def _of_broker(config: BrokerConfig) -> dict[str, DescribeConfigsResourceResult]:
    values: dict[str, object] = {key: getattr(config, name) for key, name in _BROKER_KEYS.items()}
    usual = BrokerConfig()
    own = {key for key, name in _BROKER_KEYS.items() if values[key] != getattr(usual, name)}
    values["offsets.retention.minutes"] = config.offsets_retention_ms // _MINUTE_MS
    if config.offsets_retention_ms != usual.offsets_retention_ms:
        own.add("offsets.retention.minutes")
    return _settings(values, own, _STATIC_BROKER_SOURCE, read_only=True)


def _of_group(config: BrokerConfig) -> dict[str, DescribeConfigsResourceResult]:
    """What a consumer group could override (KIP-848), and what holds while none of them does."""
    usual = BrokerConfig()
    values = {key: getattr(config, name) for key, name in _GROUP_KEYS.items()}
    own = {key for key, name in _GROUP_KEYS.items() if values[key] != getattr(usual, name)}
    return _settings(values, own, _STATIC_BROKER_SOURCE, read_only=False)


def _settings(
    values: Mapping[str, object], own: set[str], source: int, *, read_only: bool
) -> dict[str, DescribeConfigsResourceResult]:
    return {
        name: DescribeConfigsResourceResult(
            name=name,
            value=str(value).lower() if isinstance(value, bool) else str(value),
            read_only=read_only,
            config_source=source if name in own else _DEFAULT_SOURCE,
            is_sensitive=False,
            synonyms=(),
        )
        for name, value in sorted(values.items())
    }
