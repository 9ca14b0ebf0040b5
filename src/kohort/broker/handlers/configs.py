"""DescribeConfigs (KIP-133) and ListConfigResources: the settings that this broker acts on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from kohort.broker.config import BrokerConfig
from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.config import log_config
from kohort.broker.log.directory import Topic
from kohort.broker.topic_settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SETTINGS,
    STRING,
)
from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer import configs as groups
from kohort.wire.messages.config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kohort.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
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
# A whole number is an INT, except in these and where the type of a topic's setting is known.
_LONG_KEYS = frozenset(
    {
        "connections.max.idle.ms",
        "log.retention.bytes",
        "log.retention.ms",
        "offsets.retention.check.interval.ms",
    }
)
_LIST_KEYS = frozenset({"advertised.listeners", "group.consumer.assignors", "listeners"})
_MINUTE_MS = 60_000


def describe_configs(
    broker: BrokerContext, request: DescribeConfigsRequest, _caller: Caller
) -> DescribeConfigsResponse:
    """Return the settings of topics, of the broker and of groups; nothing else has any here."""
    results = tuple(_describe(broker, resource) for resource in request.resources)
    return DescribeConfigsResponse(results=results)


def list_config_resources(
    broker: BrokerContext, request: ListConfigResourcesRequest, caller: Caller
) -> ListConfigResourcesResponse:
    """Name what can be asked for its settings; before version 1 that was client metrics alone."""
    named: dict[int, Iterable[str]] = {
        TOPIC: broker.data.topics,
        BROKER: (str(NODE_ID),),
        BROKER_LOGGER: (),
        CLIENT_METRICS: (),
        GROUP: _groups_with_settings(broker),
    }
    wanted = request.resource_types or tuple(named) if caller.version else (CLIENT_METRICS,)
    if not {*wanted} <= {*named}:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=()
        )
    found = (
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in dict.fromkeys(wanted)
        for name in named[kind]
    )
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=tuple(found))


def _groups_with_settings(broker: BrokerContext) -> Iterable[str]:
    for shard in broker.coordinator.shards:
        yield from shard.log.group_configs


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


def own_settings(broker: BrokerContext, kind: int, name: str) -> Mapping[str, str]:
    """Return what a topic or a group has set for itself."""
    if kind == TOPIC:
        topic = broker.data.topics.get(name)
        return {} if topic is None else topic.configs
    if kind == GROUP and name:
        shard = broker.coordinator.shards[broker.coordinator.shard_of(name)]
        return shard.log.group_configs.get(name) or {}
    return {}


def _of_topic(broker: BrokerContext, topic: Topic) -> dict[str, DescribeConfigsResourceResult]:
    effective = log_config(broker.config.log_defaults(), topic.configs)
    policies = {"compact": effective.compact, "delete": effective.delete}
    usual: dict[str, object] = {
        "cleanup.policy": tuple(name for name, is_on in policies.items() if is_on),
        "delete.retention.ms": effective.delete_retention_ms,
        "max.message.bytes": effective.max_message_bytes,
        "message.timestamp.after.max.ms": effective.timestamp_after_max_ms,
        "message.timestamp.type": "LogAppendTime" if effective.log_append_time else "CreateTime",
        "min.cleanable.dirty.ratio": effective.min_cleanable_dirty_ratio,
        "retention.bytes": effective.retention_bytes,
        "retention.ms": effective.retention_ms,
        "segment.bytes": effective.segment_bytes,
    }
    own = {
        name: SETTINGS[name].normal(value)
        for name, value in topic.configs.items()
        if name in SETTINGS
    }
    return _settings(usual | own, {*own}, _TOPIC_SOURCE, read_only=False)


def _of_broker(broker: BrokerContext) -> dict[str, DescribeConfigsResourceResult]:
    config = broker.config
    host, port = broker.address
    values: dict[str, object] = {key: getattr(config, name) for key, name in _BROKER_KEYS.items()}
    usual = BrokerConfig()
    own = {key for key, name in _BROKER_KEYS.items() if values[key] != getattr(usual, name)}
    values["broker.rack"] = config.broker_rack or None
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
    shard = broker.coordinator.shards[broker.coordinator.shard_of(name)]
    own = shard.log.group_configs.get(name) or groups.NO_CONFIGS
    held = groups.effective(config.coordinator(), own)
    values = {key: getattr(held, setting.usual) for key, setting in groups.SETTINGS.items()}
    started_with = {
        key
        for key, setting in groups.SETTINGS.items()
        if getattr(config, setting.usual) != getattr(usual, setting.usual)
    }
    described = _settings(values, started_with, _STATIC_BROKER_SOURCE, read_only=False)
    own_values = {key: values[key] for key in own if key in values}
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
    if name in SETTINGS:
        return SETTINGS[name].kind
    if isinstance(value, int) and not isinstance(value, bool):
        return LONG if name in _LONG_KEYS else INT
    if name in _LIST_KEYS:
        return LIST
    if isinstance(value, bool):
        return BOOLEAN
    return DOUBLE if isinstance(value, float) else STRING


def _text(value: object) -> str | None:
    """Return a value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
