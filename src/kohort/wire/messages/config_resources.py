"""ListConfigResources: the resources with their own settings (KIP-1142)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    message,
    since,
)


@message(api_key=74, versions=(0, 1), flexible_since=0)
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], frozen=True, kw_only=True):
    """Ask for resources; without types, for all."""

    resource_types: Annotated[tuple[Int8, ...], since(1)] = ()


class ConfigResource(Struct, frozen=True, kw_only=True):
    """A resource that can have its own settings."""

    resource_name: String
    resource_type: Annotated[Int8, since(1), IGNORABLE] = 16


@message(api_key=74, versions=(0, 1), flexible_since=0)
class ListConfigResourcesResponse(Message, frozen=True, kw_only=True):
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: tuple[ConfigResource, ...]
