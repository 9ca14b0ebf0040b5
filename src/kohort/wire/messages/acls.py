"""DescribeAcls, CreateAcls and DeleteAcls: permissions of users (KIP-140)."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
)


@message(api_key=29, versions=(1, 3), flexible_since=2)
class DescribeAclsRequest(Request["DescribeAclsResponse"], frozen=True, kw_only=True):
    """Ask for the ACLs that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


class AclDescription(Struct, frozen=True, kw_only=True):
    """A permission or a prohibition."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct, frozen=True, kw_only=True):
    """The ACLs of one resource."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    acls: tuple[AclDescription, ...]


@message(api_key=29, versions=(1, 3), flexible_since=2)
class DescribeAclsResponse(Message, frozen=True, kw_only=True):
    """The matching ACLs."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    resources: tuple[DescribeAclsResource, ...]


class AclCreation(Struct, frozen=True, kw_only=True):
    """An ACL to create."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(api_key=30, versions=(1, 3), flexible_since=2)
class CreateAclsRequest(Request["CreateAclsResponse"], frozen=True, kw_only=True):
    """Create ACLs."""

    creations: tuple[AclCreation, ...]


class AclCreationResult(Struct, frozen=True, kw_only=True):
    """The result for one ACL to create."""

    error_code: Int16
    error_message: NullableString = None


@message(api_key=30, versions=(1, 3), flexible_since=2)
class CreateAclsResponse(Message, frozen=True, kw_only=True):
    """The result for each ACL."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...]


class DeleteAclsFilter(Struct, frozen=True, kw_only=True):
    """A filter for ACLs to delete."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


@message(api_key=31, versions=(1, 3), flexible_since=2)
class DeleteAclsRequest(Request["DeleteAclsResponse"], frozen=True, kw_only=True):
    """Delete the ACLs that match filters."""

    filters: tuple[DeleteAclsFilter, ...]


class DeleteAclsMatchingAcl(Struct, frozen=True, kw_only=True):
    """An ACL that matched a filter."""

    error_code: Int16
    error_message: NullableString = None
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Struct, frozen=True, kw_only=True):
    """The matches of one filter."""

    error_code: Int16
    error_message: NullableString = None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...]


@message(api_key=31, versions=(1, 3), flexible_since=2)
class DeleteAclsResponse(Message, frozen=True, kw_only=True):
    """The matches of each filter."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...]
