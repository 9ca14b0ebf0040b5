"""Settings of a consumer group that override the broker's (KIP-848, K57).

They belong to the group id: they need no member, and they outlive the group. A change takes
effect at the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import cast

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.validate import Refused
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.records import GroupsPart, L
from kohort.group.coordinator.refusals import altered
from kohort.group.coordinator.session import ShardDecision
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.wire.messages.group_config_records import (
    GroupConfigEntry,
    GroupConfigKey,
    GroupConfigValue,
)
from kohort.wire.messages.group_records import GroupRecord

GroupConfigs = Map[str, str]
NO_CONFIGS: GroupConfigs = Map()
CONFIGS: GroupsPart[GroupConfigs] = GroupsPart("group configs")
"""Settings of groups that differ from the broker's; the groups need not exist."""

# The operations on a setting (KIP-339); two others exist only for lists.
SET, DELETE = 0, 1
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Setting(Struct, frozen=True):
    """A setting that a group may override, as names of fields of `CoordinatorConfig`.

    Attributes:
        usual: The field with the default.
        least: The field with the smallest value.
        most: The field with the largest value.
    """

    usual: str
    least: str
    most: str


def _setting(name: str) -> Setting:
    kinds = ("", "min_", "max_")
    return Setting(*(f"group_consumer_{kind}{name}" for kind in kinds))


SETTINGS: Mapping[str, Setting] = {
    "consumer.assignment.interval.ms": _setting("assignment_interval_ms"),
    _HEARTBEAT: _setting("heartbeat_interval_ms"),
    _SESSION: _setting("session_timeout_ms"),
}


@lru_cache(maxsize=1_000)
def effective(config: CoordinatorConfig, own: GroupConfigs) -> CoordinatorConfig:
    """Return the effective settings of a group.

    A value that was set under former bounds is clamped to the current ones.

    Args:
        config: Settings of the coordinator.
        own: Settings of the group.
    """
    values: dict[str, int] = {}
    for name, setting in SETTINGS.items():
        if name in own:
            least, most = getattr(config, setting.least), getattr(config, setting.most)
            values[setting.usual] = min(max(int(own[name]), least), most)
    return replace(config, **values)  # type: ignore[arg-type]  # the names are of numbers


def config_of(shard: ShardDecision, group_id: str) -> CoordinatorConfig:
    """Return the effective settings of a group from the log."""
    own = CONFIGS.of(shard.log).get(group_id)
    return shard.config if own is None else effective(shard.config, own)


def read(log: L, record: GroupRecord) -> L:
    """Apply a record to the log state; unknown settings are kept without effect."""
    key, value = cast("GroupConfigKey", record.key), record.value
    own = None
    if isinstance(value, GroupConfigValue):
        own = Map({entry.name: entry.value for entry in value.configs})
    return CONFIGS.with_entry(log, key.group, own)


# --------------------------------------------------------------------------------- changing them


def alter(shard: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Change the settings of groups; each group's changes apply together or not at all."""
    request = cast("IncrementalAlterConfigsRequest", arrived.request)
    responses = [_altered(shard, request, each) for each in request.resources]
    shard.reply(arrived, IncrementalAlterConfigsResponse(responses=tuple(responses)))


def _altered(
    shard: ShardDecision,
    request: IncrementalAlterConfigsRequest,
    resource: AlterConfigsResource,
) -> AlterConfigsResourceResponse:
    group_id = resource.resource_name
    before = CONFIGS.of(shard.log).get(group_id, NO_CONFIGS)
    try:
        after = _changed(shard.config, before, resource.configs)
    except Refused as error:
        return altered(resource, error.code, error.message)
    if after != before and not request.validate_only:
        shard.records.append(_record(group_id, after))
    return altered(resource, ErrorCode.NONE)


def _changed(
    config: CoordinatorConfig, before: GroupConfigs, operations: Iterable[AlterableConfig]
) -> GroupConfigs:
    after = before
    for operation in operations:
        name = operation.name
        if operation.config_operation == DELETE:
            after = after.delete(name) if name in after else after
        elif operation.config_operation != SET:
            message = f"{name} is no list, so nothing can be added to it or taken from it."
            raise Refused(ErrorCode.INVALID_CONFIG, message)
        elif name not in SETTINGS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        else:
            after = after.set(name, str(_number(config, name, operation.value or "")))
    _check_session(config, after)
    return after


def _number(config: CoordinatorConfig, name: str, text: str) -> int:
    least, most = getattr(config, SETTINGS[name].least), getattr(config, SETTINGS[name].most)
    try:
        value = int(text)
    except ValueError:
        message = f"Invalid value {text} for configuration {name}: Not a number of type INT"
        raise Refused(ErrorCode.INVALID_CONFIG, message) from None
    if not least <= value <= most:
        message = f"{name} must be between {least} and {most}, not {value}."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    return value


def _check_session(config: CoordinatorConfig, own: GroupConfigs) -> None:
    """Refuse a session timeout that does not exceed the heartbeat interval."""
    held = effective(config, own)
    session = held.group_consumer_session_timeout_ms
    if own and session <= held.group_consumer_heartbeat_interval_ms:
        message = f"{_SESSION} must be greater than {_HEARTBEAT}."
        raise Refused(ErrorCode.INVALID_CONFIG, message)


def _record(group_id: str, configs: GroupConfigs) -> GroupRecord:
    entries = (GroupConfigEntry(name=name, value=configs[name]) for name in sorted(configs))
    value = GroupConfigValue(configs=tuple(entries)) if configs else None
    return GroupRecord(GroupConfigKey(group=group_id), value)
