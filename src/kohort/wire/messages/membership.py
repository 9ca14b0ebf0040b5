"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic group protocol."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableSince,
    NullableString,
    Request,
    String,
    Struct,
    message,
    since,
    until,
)


class JoinGroupRequestProtocol(Struct, frozen=True, kw_only=True):
    """An assignor that the member knows, and its subscription in that assignor's format."""

    name: String
    metadata: Bytes


@message(api_key=11, versions=(0, 9), flexible_since=6)
class JoinGroupRequest(Request["JoinGroupResponse"], frozen=True, kw_only=True):
    """Join a group, or rejoin it because it is rebalancing."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1), IGNORABLE] = -1
    member_id: String
    group_instance_id: Annotated[NullableString, since(5)] = None
    protocol_type: String
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: Annotated[NullableString, since(8), IGNORABLE] = None


class JoinGroupResponseMember(Struct, frozen=True, kw_only=True):
    """A member as the leader sees it."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(5), IGNORABLE] = None
    metadata: Bytes


@message(api_key=11, versions=(0, 9), flexible_since=6)
class JoinGroupResponse(Message, frozen=True, kw_only=True):
    """The new generation; only the leader gets the list of members."""

    throttle_time_ms: Annotated[Int32, since(2), IGNORABLE] = 0
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, since(7), IGNORABLE] = None
    protocol_name: Annotated[NullableString, NullableSince(7)]
    leader: String
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String
    members: tuple[JoinGroupResponseMember, ...]


class SyncGroupRequestAssignment(Struct, frozen=True, kw_only=True):
    """The assignment of one member, as the protocol's bytes."""

    member_id: String
    assignment: Bytes


@message(api_key=14, versions=(0, 5), flexible_since=4)
class SyncGroupRequest(Request["SyncGroupResponse"], frozen=True, kw_only=True):
    """Send the assignment (leader), or ask for it (the others)."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None
    protocol_type: Annotated[NullableString, since(5), IGNORABLE] = None
    protocol_name: Annotated[NullableString, since(5), IGNORABLE] = None
    assignments: tuple[SyncGroupRequestAssignment, ...]


@message(api_key=14, versions=(0, 5), flexible_since=4)
class SyncGroupResponse(Message, frozen=True, kw_only=True):
    """The assignment of the sender."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    error_code: Int16
    protocol_type: Annotated[NullableString, since(5), IGNORABLE] = None
    protocol_name: Annotated[NullableString, since(5), IGNORABLE] = None
    assignment: Bytes


@message(api_key=12, versions=(0, 4), flexible_since=4)
class HeartbeatRequest(Request["HeartbeatResponse"], frozen=True, kw_only=True):
    """Report that a member is alive, and ask whether the group is rebalancing."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, since(3)] = None


@message(api_key=12, versions=(0, 4), flexible_since=4)
class HeartbeatResponse(Message, frozen=True, kw_only=True):
    """Whether the member may continue."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    error_code: Int16


class MemberIdentity(Struct, frozen=True, kw_only=True):
    """A member that leaves."""

    member_id: String
    group_instance_id: NullableString = None
    reason: Annotated[NullableString, since(5), IGNORABLE] = None


@message(api_key=13, versions=(0, 5), flexible_since=4)
class LeaveGroupRequest(Request["LeaveGroupResponse"], frozen=True, kw_only=True):
    """Remove members from a group; several at once since version 3 (KIP-345)."""

    group_id: String
    member_id: Annotated[String, until(2)] = ""
    members: Annotated[tuple[MemberIdentity, ...], since(3)] = ()


class MemberResponse(Struct, frozen=True, kw_only=True):
    """The result for a member that leaves."""

    member_id: String
    group_instance_id: NullableString
    error_code: Int16


@message(api_key=13, versions=(0, 5), flexible_since=4)
class LeaveGroupResponse(Message, frozen=True, kw_only=True):
    """The result for each member."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    error_code: Int16
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()
