"""IncrementalAlterConfigs: settings of topics and groups, not the broker's own (KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.handlers.configs import BROKER, GROUP, TOPIC, TOPIC_KEYS
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.config import log_config
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LISTS = ("cleanup.policy",)


def incremental_alter_configs(
    broker: BrokerContext, request: IncrementalAlterConfigsRequest, caller: Caller
) -> IncrementalAlterConfigsResponse:
    """Change settings, those of each resource all together or not at all."""
    asked = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for resource in request.resources:
        try:
            if asked[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            _check(resource.configs)
            responses.append(_altered(broker, request, resource, caller))
        except KafkaError as error:
            responses.append(_answer(resource, ErrorCode(error.code), str(error)))
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _check(operations: Sequence[AlterableConfig]) -> None:
    names = [each.name for each in operations]
    if len({*names}) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A setting appears more than once.")
    for each in operations:
        if not _SET <= each.config_operation <= _SUBTRACT:
            message = f"{each.config_operation} is no operation on a setting."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if each.value is None and each.config_operation != _DELETE:
            message = f"{each.name} has no value."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _altered(
    broker: BrokerContext,
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
    caller: Caller,
) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        _alter_topic(broker, resource, validate_only=request.validate_only)
    elif kind == GROUP and name:
        return _alter_group(broker, request, resource, caller)
    elif kind == BROKER:
        message = "The settings of this broker are those it was started with."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    else:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"nothing of type {kind} is called {name!r} here"
        )
    return _answer(resource, ErrorCode.NONE, None)


def _alter_group(
    broker: BrokerContext,
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
    caller: Caller,
) -> AlterConfigsResourceResponse:
    """Let the shard of the group write it to its log; it never parks such a request."""
    coordinator = broker.coordinator
    number = coordinator.shard_of(resource.resource_name)
    alone = replace(request, resources=(resource,))
    answer = coordinator.request(number, alone, caller.version, caller.client_id, caller.host)
    return cast("IncrementalAlterConfigsResponse", answer).responses[0]


def _alter_topic(
    broker: BrokerContext, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    topic = broker.data.topics.get(name)
    if topic is None:
        legal = is_legal(name)
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"there is no topic {name!r}",
        )
    configs = dict(topic.configs)
    for operation in resource.configs:
        _apply(configs, operation)
    try:
        log_config(broker.config.log_defaults(), configs)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not validate_only:
        broker.data.change_topic(replace(topic, configs=configs))


def _apply(configs: dict[str, str], operation: AlterableConfig) -> None:
    name, value = operation.name, operation.value or ""
    if name not in TOPIC_KEYS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if operation.config_operation == _DELETE:
        configs.pop(name, None)
    elif operation.config_operation == _SET:
        configs[name] = value
    elif name in _LISTS:
        present = [each for each in configs.get(name, "delete").split(",") if each]
        kept = [each for each in present if each not in value.split(",")]
        added = value.split(",") if operation.config_operation == _APPEND else []
        configs[name] = ",".join(kept + added)
    else:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is no list of values.")


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=clipped(message),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
