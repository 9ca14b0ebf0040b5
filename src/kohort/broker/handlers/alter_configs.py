"""IncrementalAlterConfigs (KIP-339) and AlterConfigs: settings of topics and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.handlers.configs import BROKER, GROUP, TOPIC, own_settings
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.directory import Topic
from kohort.broker.topic_settings import LIST, SETTINGS, problem, words_of
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.values import replace
from kohort.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ReplacedConfigsResource,
)
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DEFAULTS = {"cleanup.policy": "delete"}


def incremental_alter_configs(
    broker: BrokerContext, request: IncrementalAlterConfigsRequest, caller: Caller
) -> IncrementalAlterConfigsResponse:
    """Change settings; for each resource, all changes succeed or none."""
    asked = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses: list[AlterConfigsResourceResponse] = []
    changed: list[Topic] = []
    for resource in request.resources:
        try:
            if asked[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            _check(resource.configs)
            responses.append(_altered(broker, changed, request, resource, caller))
        except KafkaError as error:
            responses.append(_answer(resource, ErrorCode(error.code), error.message))
    if not request.validate_only:
        try:
            broker.data.change_topics(changed)
        except KafkaError as error:
            code = ErrorCode(error.code)
            responses = [
                r if r.error_code or r.resource_type != TOPIC else replace(r, error_code=code)
                for r in responses
            ]
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def alter_configs(
    broker: BrokerContext, request: AlterConfigsRequest, caller: Caller
) -> AlterConfigsResponse:
    """Replace all settings of resources (KIP-133); settings that are not named are deleted."""
    resources = tuple(_as_operations(broker, resource) for resource in request.resources)
    incremental = IncrementalAlterConfigsRequest(
        resources=resources, validate_only=request.validate_only
    )
    answer = incremental_alter_configs(broker, incremental, caller)
    return AlterConfigsResponse(responses=answer.responses)


def _as_operations(
    broker: BrokerContext, resource: ReplacedConfigsResource
) -> AlterConfigsResource:
    """Convert the request to KIP-339's: set the named settings, and delete the others."""
    kind, name = resource.resource_type, resource.resource_name
    named = {each.name for each in resource.configs}
    present = own_settings(broker, kind, name)
    operations = [
        AlterableConfig(name=each.name, config_operation=_SET, value=each.value)
        for each in resource.configs
    ]
    operations += [
        AlterableConfig(name=each, config_operation=_DELETE, value=None)
        for each in present
        if each not in named
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=tuple(operations))


def _check(operations: Sequence[AlterableConfig]) -> None:
    names = [each.name for each in operations]
    if len({*names}) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A setting appears more than once.")
    for each in operations:
        if not _SET <= each.config_operation <= _SUBTRACT:
            message = f"{each.config_operation} is not an operation on settings."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if each.value is None and each.config_operation != _DELETE:
            message = f"{each.name} has no value."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _altered(
    broker: BrokerContext,
    changed: list[Topic],
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
    caller: Caller,
) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        changed.append(_topic_with(broker, resource))
    elif kind == GROUP and name:
        return _alter_group(broker, request, resource, caller)
    elif kind == BROKER and not _changes_nothing(resource):
        message = "The settings of this broker cannot change while it runs."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    elif kind != BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no resource {name!r} of type {kind}")
    return _answer(resource, ErrorCode.NONE, None)


def _changes_nothing(resource: AlterConfigsResource) -> bool:
    """Whether the request only deletes settings of this broker, none of which can be deleted."""
    deletes = all(each.config_operation == _DELETE for each in resource.configs)
    return deletes and resource.resource_name in ("", str(NODE_ID))


def _alter_group(
    broker: BrokerContext,
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
    caller: Caller,
) -> AlterConfigsResourceResponse:
    """Have the group's shard write the settings to its log; it never parks such a request."""
    coordinator = broker.coordinator
    number = coordinator.shard_of(resource.resource_name)
    alone = replace(request, resources=(resource,))
    answer = coordinator.request(number, alone, caller.version, caller.client_id, caller.host)
    return cast("IncrementalAlterConfigsResponse", answer).responses[0]


def _topic_with(broker: BrokerContext, resource: AlterConfigsResource) -> Topic:
    name = resource.resource_name
    topic = broker.data.topics.get(name)
    if topic is None:
        legal = is_legal(name)
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} does not exist",
        )
    configs = dict(topic.configs)
    for operation in resource.configs:
        _apply(configs, operation)
    wrong = problem(configs)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)
    return replace(topic, configs=configs)


def _apply(configs: dict[str, str], operation: AlterableConfig) -> None:
    name, value = operation.name, operation.value or ""
    if name not in SETTINGS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if operation.config_operation == _DELETE:
        configs.pop(name, None)
    elif operation.config_operation == _SET:
        configs[name] = value
    elif SETTINGS[name].kind == LIST:
        words = words_of(value)
        present = words_of(configs.get(name, _DEFAULTS.get(name, "")))
        kept = [each for each in present if each not in words]
        added = words if operation.config_operation == _APPEND else []
        configs[name] = ",".join(kept + added)
    else:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list of values.")


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=clipped(message),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
