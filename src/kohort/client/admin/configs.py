"""Settings of topics, brokers and groups: describe and change them (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kohort.client.admin.errors import ask_apart, ask_broker, check_results, error_of, lacking
from kohort.client.admin.values import ConfigEntry, ConfigResource, ResourceType
from kohort.client.config.arguments import instances, mapping, shown, text
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.errors import KafkaError, KohortError
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
)

R = TypeVar("R", bound=Message)

Changes = Mapping[ConfigResource, Mapping[str, tuple[int, str | None]]]

_TYPES: dict[ResourceType, int] = {
    "topic": 2,
    "broker": 4,
    "broker_logger": 8,
    "client_metrics": 16,
    "group": 32,
}
_SOURCES = {
    1: "dynamic_topic",
    2: "dynamic_broker",
    3: "dynamic_default_broker",
    4: "static_broker",
    5: "default",
    6: "dynamic_broker_logger",
    7: "dynamic_client_metrics",
    8: "dynamic_group",
}
_VALUE_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}
_OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}


def checked_changes(value: object) -> Changes:
    """Check changes of settings by resource; see `AdminClient.alter_configs`.

    Raises:
        TypeError: It is not such a mapping.
        ValueError: An operation is unknown.
    """
    given = mapping(value, "changes")
    resources = instances(list(given), "changes", ConfigResource)
    return {
        each: {
            text(name, f"changes[{each.name!r}]: a name"): _operation(f"changes of {name}", change)
            for name, change in mapping(given[each], f"changes[{each.name!r}]").items()
        }
        for each in resources
    }


def _operation(argument: str, change: object) -> tuple[int, str | None]:
    operation: object
    value: object
    if change is None:
        operation, value = "delete", None
    elif isinstance(change, tuple) and len(change) == 2:
        operation, value = change
    else:
        operation, value = "set", change
    if not isinstance(operation, str) or operation.lower() not in _OPERATIONS:
        known = ", ".join(_OPERATIONS)
        raise ValueError(f"{argument}: the operation is {shown(operation)}; it can be {known}")
    number = _OPERATIONS[operation.lower()]
    if number == _OPERATIONS["delete"]:
        return number, None
    return number, text(value, argument, may_be_empty=True)


async def describe_configs(
    cluster: Cluster, resources: Sequence[ConfigResource], deadline: Deadline
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings of resources."""
    asked = [
        DescribeConfigsResource(
            resource_type=_TYPES[each.resource_type],
            resource_name=each.name,
            configuration_keys=None,
        )
        for each in resources
    ]
    answers = await _ask_each(
        cluster,
        dict(zip(resources, asked, strict=True)),
        lambda some: DescribeConfigsRequest(resources=tuple(some)),
        deadline,
    )
    found = check_results(_results(answers, lambda answer: answer.results, "DESCRIBE_CONFIGS of"))
    return {each: {c.name: _entry(c) for c in those.configs} for each, those in found.items()}


async def alter_configs(
    cluster: Cluster, changes: Changes, validate_only: bool, deadline: Deadline
) -> None:
    """Change individual settings of resources."""
    asked = {
        each: AlterConfigsResource(
            resource_type=_TYPES[each.resource_type],
            resource_name=each.name,
            configs=tuple(
                AlterableConfig(name=name, config_operation=operation, value=value)
                for name, (operation, value) in those.items()
            ),
        )
        for each, those in changes.items()
    }
    answers = await _ask_each(
        cluster,
        asked,
        lambda some: IncrementalAlterConfigsRequest(
            resources=tuple(some), validate_only=validate_only
        ),
        deadline,
    )
    check_results(_results(answers, lambda answer: answer.responses, "ALTER_CONFIGS of"))


T = TypeVar("T")
Result = TypeVar("Result", DescribeConfigsResult, AlterConfigsResourceResponse)


async def _ask_each(
    cluster: Cluster,
    asked: Mapping[ConfigResource, T],
    make: Callable[[list[T]], Request[R]],
    deadline: Deadline,
) -> dict[ConfigResource, R | KohortError]:
    """Ask each broker about itself, and any broker about the rest; return the answer for each."""
    if not cluster.metadata.nodes:
        await cluster.refresh(deadline)
    by_node: dict[int | None, list[T]] = {}
    for resource, each in asked.items():
        by_node.setdefault(resource.node_id, []).append(each)

    async def ask(node: int | None, until: Deadline) -> R:
        return await _ask(cluster, node, make(by_node[node]), until)

    answers = await ask_apart(by_node, ask, deadline)
    return {resource: answers[resource.node_id] for resource in asked}


async def _ask(cluster: Cluster, node: int | None, request: Request[R], deadline: Deadline) -> R:
    if node is None:
        return await cluster.send_any_until(request, deadline)
    return await ask_broker(cluster, node, request, deadline)


def _results(
    answers: Mapping[ConfigResource, R | KohortError],
    results_of: Callable[[R], Iterable[Result]],
    needs: str,
) -> dict[ConfigResource, Result | KohortError]:
    """Return the result of each resource in the answers, or why there is none."""
    return {
        each: answer
        if isinstance(answer, KohortError)
        else _result(each, results_of(answer), needs)
        for each, answer in answers.items()
    }


def _result(resource: ConfigResource, results: Iterable[Result], needs: str) -> Result | KafkaError:
    asked = _TYPES[resource.resource_type], resource.name
    name = f"{resource.resource_type} {resource.name}"
    for result in results:
        if (result.resource_type, result.resource_name) == asked:
            message = result.error_message
            return error_of(result.error_code, name, message, needs=needs) or result
    return lacking(name)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_SOURCES.get(config.config_source, "unknown"),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=_VALUE_TYPES.get(config.config_type, "unknown"),
    )
