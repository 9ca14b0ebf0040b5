"""DescribeConfigs and IncrementalAlterConfigs: settings of brokers, topics and groups."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
    since,
)


class DescribeConfigsResource(Struct, frozen=True, kw_only=True):
    """A resource whose settings are requested."""

    resource_type: Int8
    resource_name: String
    configuration_keys: tuple[String, ...] | None


@message(api_key=32, versions=(1, 4), flexible_since=4)
class DescribeConfigsRequest(Request["DescribeConfigsResponse"], frozen=True, kw_only=True):
    """Ask for the settings of resources."""

    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(Struct, frozen=True, kw_only=True):
    """Another place that sets the same setting."""

    name: String
    value: NullableString
    source: Int8


class DescribeConfigsResourceResult(Struct, frozen=True, kw_only=True):
    """One setting."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: tuple[DescribeConfigsSynonym, ...]
    config_type: Annotated[Int8, since(3), IGNORABLE] = 0
    documentation: Annotated[NullableString, since(3), IGNORABLE] = None


class DescribeConfigsResult(Struct, frozen=True, kw_only=True):
    """The settings of one resource."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    configs: tuple[DescribeConfigsResourceResult, ...]


@message(api_key=32, versions=(1, 4), flexible_since=4)
class DescribeConfigsResponse(Message, frozen=True, kw_only=True):
    """The settings of each resource."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...]


class AlterableConfig(Struct, frozen=True, kw_only=True):
    """A change of one setting."""

    name: String
    config_operation: Int8
    value: NullableString


class AlterConfigsResource(Struct, frozen=True, kw_only=True):
    """A resource, and the changes of its settings."""

    resource_type: Int8
    resource_name: String
    configs: tuple[AlterableConfig, ...]


@message(api_key=44, versions=(0, 1), flexible_since=1)
class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], frozen=True, kw_only=True
):
    """Change single settings of resources (KIP-339)."""

    resources: tuple[AlterConfigsResource, ...]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct, frozen=True, kw_only=True):
    """The result for one resource."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


@message(api_key=44, versions=(0, 1), flexible_since=1)
class IncrementalAlterConfigsResponse(Message, frozen=True, kw_only=True):
    """The result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...]
