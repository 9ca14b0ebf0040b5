"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Bytes,
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


@message(api_key=15, versions=(0, 6), flexible_since=5)
class DescribeGroupsRequest(Request["DescribeGroupsResponse"], frozen=True, kw_only=True):
    """Ask for the members of groups."""

    groups: tuple[String, ...]
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribedGroupMember(Struct, frozen=True, kw_only=True):
    """A member, its subscription and its assignment as the protocol's bytes."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(4), IGNORABLE] = None
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct, frozen=True, kw_only=True):
    """One group: its state, protocol and members."""

    error_code: Int16
    error_message: Annotated[NullableString, since(6)] = None
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: tuple[DescribedGroupMember, ...]
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


@message(api_key=15, versions=(0, 6), flexible_since=5)
class DescribeGroupsResponse(Message, frozen=True, kw_only=True):
    """The groups, with their members."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    groups: tuple[DescribedGroup, ...]


@message(api_key=16, versions=(0, 5), flexible_since=3)
class ListGroupsRequest(Request["ListGroupsResponse"], frozen=True, kw_only=True):
    """Ask for the groups a broker coordinates, by state (KIP-518) and type (KIP-848)."""

    states_filter: Annotated[tuple[String, ...], since(4)] = ()
    types_filter: Annotated[tuple[String, ...], since(5)] = ()


class ListedGroup(Struct, frozen=True, kw_only=True):
    """One group."""

    group_id: String
    protocol_type: String
    group_state: Annotated[String, since(4), IGNORABLE] = ""
    group_type: Annotated[String, since(5), IGNORABLE] = ""


@message(api_key=16, versions=(0, 5), flexible_since=3)
class ListGroupsResponse(Message, frozen=True, kw_only=True):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    error_code: Int16
    groups: tuple[ListedGroup, ...]


@message(api_key=42, versions=(0, 2), flexible_since=2)
class DeleteGroupsRequest(Request["DeleteGroupsResponse"], frozen=True, kw_only=True):
    """Delete groups that have no members (KIP-229)."""

    groups_names: tuple[String, ...]


class DeletableGroupResult(Struct, frozen=True, kw_only=True):
    """The result for one group to delete."""

    group_id: String
    error_code: Int16


@message(api_key=42, versions=(0, 2), flexible_since=2)
class DeleteGroupsResponse(Message, frozen=True, kw_only=True):
    """The result for each group."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...]
