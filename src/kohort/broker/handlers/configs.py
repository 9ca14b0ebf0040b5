"""DescribeConfigs: the settings that this broker acts on, by Kafka's names (KIP-133)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from kohort.broker.config import BrokerConfig
from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.config import log_config
from kohort.broker.log.directory import Topic
from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer.configs import NO_CONFIGS, SETTINGS, effective
from kohort.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC, BROKER, GROUP = 2, 4, 32
# Where a value comes from: the topic's or the group's own, what the broker was started with, or its
# default.
_TOPIC_SOURCE, _STATIC_BROKER_SOURCE, _DEFAULT_SOURCE, _GROUP_SOURCE = 1, 4, 5, 8

# Kafka's name of a setting is the field's, with dots; save one.
_BROKER_KEYS = {
    name.replace("_", "."): name
    for name in (
        "broker_rack",
        "connections_max_idle_ms",
        "fetch_max_bytes",
        *(each.name for each in fields(BrokerConfig) if each.name.startswith("group_")),
        "log_retention_bytes",
        "log_retention_ms",
        "log_segment_bytes",
        "max_connections",
        "message_max_bytes",
        "num_partitions",
        "offset_metadata_max_bytes",
        "offsets_retention_check_interval_ms",
        "offsets_topic_num_partitions",
        "offsets_topic_segment_bytes",
    )
} | {"auto.create.topics.enable": "auto_create_topics"}
TOPIC_KEYS = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }
)
"""What a topic may set; this broker acts on nothing else."""

# Numbers of types (KIP-569). A whole number is an INT, except in these, which are a LONG.
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_LONG_KEYS = frozenset(
    {
        "connections.max.idle.ms",
        "delete.retention.ms",
        "log.retention.bytes",
        "log.retention.ms",
        "offsets.retention.check.interval.ms",
        "retention.bytes",
        "retention.ms",
    }
)
_LIST_KEYS = frozenset(
    {"advertised.listeners", "cleanup.policy", "group.consumer.assignors", "listeners"}
)
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
    if resource.resource_type == TOPIC:
        topic = broker.data.topics.get(name)
        if topic is not None:
            configs = _of_topic(broker, topic)
        elif is_legal(name):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif resource.resource_type == BROKER and name in ("", str(NODE_ID)):
        configs = _of_broker(broker)
    elif resource.resource_type == GROUP and name:
        configs = _of_group(broker, name)
    else:
        code = ErrorCode.INVALID_REQUEST
        message = f"nothing of type {resource.resource_type} is called {name!r} here"
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=clipped(message),
        resource_type=resource.resource_type,
        resource_name=name,
        configs=tuple(
            setting for key, setting in configs.items() if wanted is None or key in wanted
        ),
    )


def _of_topic(broker: BrokerContext, topic: Topic) -> dict[str, DescribeConfigsResourceResult]:
    effective = log_config(broker.config.log_defaults(), topic.configs)
    policies = {"compact": effective.compact, "delete": effective.delete}
    policy = tuple(name for name, is_on in policies.items() if is_on)
    values = {
        "cleanup.policy": topic.configs.get("cleanup.policy", policy),
        "delete.retention.ms": effective.delete_retention_ms,
        "max.message.bytes": effective.max_message_bytes,
        "message.timestamp.type": "LogAppendTime" if effective.log_append_time else "CreateTime",
        "min.cleanable.dirty.ratio": effective.min_cleanable_dirty_ratio,
        "retention.bytes": effective.retention_bytes,
        "retention.ms": effective.retention_ms,
        "segment.bytes": effective.segment_bytes,
    }
    return _settings(values, set(topic.configs), _TOPIC_SOURCE, read_only=False)


def _of_broker(broker: BrokerContext) -> dict[str, DescribeConfigsResourceResult]:
    config = broker.config
    host, port = broker.address
    values: dict[str, object] = {key: getattr(config, name) for key, name in _BROKER_KEYS.items()}
    usual = BrokerConfig()
    own = {key for key, name in _BROKER_KEYS.items() if values[key] != getattr(usual, name)}
    values["offsets.retention.minutes"] = config.offsets_retention_ms // _MINUTE_MS
    if config.offsets_retention_ms != usual.offsets_retention_ms:
        own.add("offsets.retention.minutes")
    for key in ("advertised.listeners", "listeners"):
        values[key] = f"PLAINTEXT://{host}:{port}"
        own.add(key)
    return _settings(values, own, _STATIC_BROKER_SOURCE, read_only=True)


def _of_group(broker: BrokerContext, name: str) -> dict[str, DescribeConfigsResourceResult]:
    """What a consumer group may set for itself (KIP-848), and what holds while it does not."""
    config, usual = broker.config, BrokerConfig()
    own = broker.coordinator.shards[broker.coordinator.shard_of(name)].log.group_configs.get(name)
    held = effective(config.coordinator(), own or NO_CONFIGS)
    values = {key: getattr(held, setting.usual) for key, setting in SETTINGS.items()}
    started_with = {
        key
        for key, setting in SETTINGS.items()
        if getattr(config, setting.usual) != getattr(usual, setting.usual)
    }
    described = _settings(values, started_with, _STATIC_BROKER_SOURCE, read_only=False)
    own_values = {key: values[key] for key in own or () if key in values}
    return described | _settings(own_values, {*own_values}, _GROUP_SOURCE, read_only=False)


def _settings(
    values: Mapping[str, object], own: set[str], source: int, *, read_only: bool
) -> dict[str, DescribeConfigsResourceResult]:
    return {
        name: DescribeConfigsResourceResult(
            name=name,
            value=_text(value),
            read_only=read_only,
            config_source=source if name in own else _DEFAULT_SOURCE,
            is_sensitive=False,
            synonyms=(),
            config_type=_type(name, value),
        )
        for name, value in sorted(values.items())
    }


def _type(name: str, value: object) -> int:
    """Return the number of a setting's type; what has no value could have a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _LONG if name in _LONG_KEYS else _INT
    if name in _LIST_KEYS:
        return _LIST
    if isinstance(value, bool):
        return _BOOLEAN
    return _DOUBLE if isinstance(value, float) else _STRING


def _text(value: object) -> str | None:
    """Return a value as Kafka writes it; nothing said is null."""
    if value in (None, ""):
        return None
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
