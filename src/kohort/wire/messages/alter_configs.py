"""AlterConfigs: replace all settings of resources (KIP-133); superseded by KIP-339."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Bool,
    Int8,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
)
from kohort.wire.messages.configs import AlterConfigsResourceResponse


class ReplacedConfig(Struct, frozen=True, kw_only=True):
    """One new setting of a resource."""

    name: String
    value: NullableString


class ReplacedConfigsResource(Struct, frozen=True, kw_only=True):
    """A resource, and all its new settings."""

    resource_type: Int8
    resource_name: String
    configs: tuple[ReplacedConfig, ...]


@message(api_key=33, versions=(0, 2), flexible_since=2)
class AlterConfigsRequest(Request["AlterConfigsResponse"], frozen=True, kw_only=True):
    """Replace the settings of resources; omitted ones return to their defaults."""

    resources: tuple[ReplacedConfigsResource, ...]
    validate_only: Bool


@message(api_key=33, versions=(0, 2), flexible_since=2)
class AlterConfigsResponse(Message, frozen=True, kw_only=True):
    """The result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...]
