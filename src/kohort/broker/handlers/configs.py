"""DescribeConfigs (KIP-133) and ListConfigResources: the settings that this broker uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.broker.config import BrokerConfig
from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.config import LogConfig
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
from kohort.values import defaults, replace
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
    DescribeConfigsSynonym,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# The source of a value: the topic or group itself, the broker's configuration, or the default.
_TOPIC_SOURCE, _STATIC_BROKER_SOURCE, _DEFAULT_SOURCE, _GROUP_SOURCE = 1, 4, 5, 8

# Kafka's name of a setting is that of the field, with dots; these differ.
_BROKER_KEYS = {
    name.replace("_", "."): name
    for name in (
        "broker_rack",
        "connections_max_idle_ms",
        "fetch_max_bytes",
        *(name for name in defaults(BrokerConfig) if name.startswith("group_")),
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
# Integers are INT, except for these, and where the type of a topic's setting is known.
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

# Settings of topics whose names differ from the broker's default for them.
_NAMES_OF_TOPIC_SETTINGS = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
}
# Kafka's defaults of settings that no topic can change here.
_AS_IT_IS: dict[str, object] = {
    "compression.type": "producer",
    "min.insync.replicas": 1,
    "preallocate": False,
    "remote.storage.enable": False,
    "unclean.leader.election.enable": False,
}


def describe_configs(
    broker: BrokerContext, request: DescribeConfigsRequest, _caller: Caller
) -> DescribeConfigsResponse:
    """Return the settings of topics, groups and the broker, the only resources that have any."""
    results = (_describe(broker, resource) for resource in request.resources)
    if not request.include_synonyms:
        results = (replace(each, configs=_without_synonyms(each.configs)) for each in results)
    return DescribeConfigsResponse(results=tuple(results))


def _without_synonyms(
    settings: Iterable[DescribeConfigsResourceResult],
) -> tuple[DescribeConfigsResourceResult, ...]:
    return tuple(replace(setting, synonyms=()) for setting in settings)


def list_config_resources(
    broker: BrokerContext, request: ListConfigResourcesRequest, caller: Caller
) -> ListConfigResourcesResponse:
    """List the resources that have settings; before version 1, that is client metrics alone."""
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
        message = f"there is no resource {name!r} of type {resource.resource_type}"
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=clipped(message),
        resource_type=resource.resource_type,
        resource_name=name,
        configs=tuple(setting for key, setting in configs.items() if not wanted or key in wanted),
    )


def own_settings(broker: BrokerContext, kind: int, name: str) -> Mapping[str, str]:
    """Return the settings of a topic or a group itself."""
    if kind == TOPIC:
        topic = broker.data.topics.get(name)
        return {} if topic is None else topic.configs
    if kind == GROUP and name:
        shard = broker.coordinator.shards[broker.coordinator.shard_of(name)]
        return shard.log.group_configs.get(name) or {}
    return {}


# The values of a setting, each with its name and source; the first one applies.
_Layers = list[tuple[str, object, int]]


def _of_topic(broker: BrokerContext, topic: Topic) -> dict[str, DescribeConfigsResourceResult]:
    layers: dict[str, _Layers] = {
        name: [(name, SETTINGS[name].normal(value), _TOPIC_SOURCE)]
        for name, value in topic.configs.items()
        if name in SETTINGS
    }
    held = _usual_of_topics(broker.config.log_defaults())
    usual = _usual_of_topics(BrokerConfig().log_defaults())
    for name, value in held.items():
        source = _DEFAULT_SOURCE if value == usual[name] else _STATIC_BROKER_SOURCE
        broker_name = _NAMES_OF_TOPIC_SETTINGS.get(name, name)
        layers.setdefault(name, []).append((broker_name, value, source))
    return _settings(layers, read_only=False)


def _usual_of_topics(config: LogConfig) -> dict[str, object]:
    """Return the settings of a topic that has none of its own."""
    policies = {"compact": config.compact, "delete": config.delete}
    return _AS_IT_IS | {
        "cleanup.policy": tuple(name for name, is_on in policies.items() if is_on),
        "delete.retention.ms": config.delete_retention_ms,
        "max.message.bytes": config.max_message_bytes,
        "message.timestamp.after.max.ms": config.timestamp_after_max_ms,
        "message.timestamp.type": "LogAppendTime" if config.log_append_time else "CreateTime",
        "min.cleanable.dirty.ratio": config.min_cleanable_dirty_ratio,
        "retention.bytes": config.retention_bytes,
        "retention.ms": config.retention_ms,
        "segment.bytes": config.segment_bytes,
    }


def _of_broker(broker: BrokerContext) -> dict[str, DescribeConfigsResourceResult]:
    config, usual = broker.config, BrokerConfig()
    host, port = broker.address
    layers: dict[str, _Layers] = {}
    for key, name in _BROKER_KEYS.items():
        layers[key] = _layers(key, getattr(config, name), getattr(usual, name))
    layers["broker.rack"] = _layers("broker.rack", config.broker_rack or None, None)
    minutes = "offsets.retention.minutes"
    held, default = (each.offsets_retention_ms // _MINUTE_MS for each in (config, usual))
    layers[minutes] = _layers(minutes, held, default)
    for key in ("advertised.listeners", "listeners"):
        layers[key] = [(key, f"PLAINTEXT://{host}:{port}", _STATIC_BROKER_SOURCE)]
    return _settings(layers, read_only=True)


def _layers(name: str, value: object, usual: object) -> _Layers:
    """Return the broker's configured value, if it is not the default."""
    started_with = [] if value == usual else [(name, value, _STATIC_BROKER_SOURCE)]
    return [*started_with, (name, usual, _DEFAULT_SOURCE)]


def _of_group(broker: BrokerContext, name: str) -> dict[str, DescribeConfigsResourceResult]:
    """Return the settings that a consumer group may have (KIP-848), with their current values."""
    config, usual = broker.config, BrokerConfig()
    shard = broker.coordinator.shards[broker.coordinator.shard_of(name)]
    own = shard.log.group_configs.get(name) or groups.NO_CONFIGS
    held = groups.effective(config.coordinator(), own)
    layers: dict[str, _Layers] = {}
    for key, setting in groups.SETTINGS.items():
        field = setting.usual
        usually = _layers(f"group.{key}", getattr(config, field), getattr(usual, field))
        of_group = [(key, getattr(held, field), _GROUP_SOURCE)] if key in own else []
        layers[key] = [*of_group, *usually]
    return _settings(layers, read_only=False)


def _settings(
    layers: Mapping[str, _Layers], *, read_only: bool
) -> dict[str, DescribeConfigsResourceResult]:
    settings = {}
    for name, values in sorted(layers.items()):
        _, value, source = values[0]
        settings[name] = DescribeConfigsResourceResult(
            name=name,
            value=_text(value),
            read_only=read_only,
            config_source=source,
            is_sensitive=False,
            synonyms=tuple(
                DescribeConfigsSynonym(name=each, value=_text(set_to), source=where)
                for each, set_to, where in values
            ),
            config_type=_type(name, value),
        )
    return settings


def _type(name: str, value: object) -> int:
    """Return the number of a setting's type; a setting without a value is a string."""
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
    """Format a value as Kafka does."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
