"""Checks of a heartbeat's form and of its sender's identity (K5 to K8)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

from kohort.errors import ErrorCode, Portable, clipped
from kohort.group.coordinator.consumer.state.group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    Member,
)
from kohort.wire.messages.consumer_group import ClientAssignor, ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
# KIP-1082: from this version on, a member generates its own id.
_OWN_MEMBER_ID_SINCE = 1
# The limit for one member's assignors; the config limits those of all members together.
_MOST_ASSIGNORS = 16
MOST_METADATA_BYTES = 64 * 1024
# The partitions that a member reports; None: the request has no report.
Reported = Mapping[uuid.UUID, Collection[int]] | None


class Refused(Portable, Exception):
    """The request is answered with this error and has no other effect.

    The decision's effects so far are dropped, because it was not installed yet.

    Attributes:
        code: The error.
        message: Text of the error, None if the code is enough.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = clipped(message)


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """K5: refuse an incomplete request.

    Raises:
        Refused: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def check_size(request: ConsumerGroupHeartbeatRequest, most: int) -> None:
    """Refuse a subscription that takes more space than one member may have (C14).

    Raises:
        Refused: UNKNOWN_SERVER_ERROR, as by Kafka, whose log takes no record so large.
    """
    names = request.subscribed_topic_names or ()
    if sum(map(len, names)) + len(request.subscribed_topic_regex or "") > most:
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The subscription has more than {most} characters."
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(
        request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request."
    )
    _require(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    _require(
        names is not None or regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _not_blank(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def check_client_assignors(request: ConsumerGroupHeartbeatRequest) -> None:
    """K60: refuse invalid or too many assignors of a member.

    Raises:
        Refused: INVALID_REQUEST.
    """
    assignors = request.client_assignors
    if not assignors:
        return
    names = {each.name for each in assignors}
    if len(assignors) > _MOST_ASSIGNORS or sum(map(assignor_size, assignors)) > MOST_METADATA_BYTES:
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors are too many or too large.")
    if len(names) < len(assignors) or any(not name.strip() for name in names):
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors must have names, each once.")
    if any(not each.minimum_version <= each.version <= each.maximum_version for each in assignors):
        raise Refused(ErrorCode.INVALID_REQUEST, "A version of ClientAssignors is out of range.")


def assignor_size(assignor: ClientAssignor) -> int:
    """Return the size of an assignor's name and metadata."""
    return len(assignor.name) + len(assignor.metadata)


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """K6: a full group accepts no new member.

    Raises:
        Refused: GROUP_MAX_SIZE_REACHED.
    """
    if len(group.members) >= max_size and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def check_epoch(member: Member, received: int, reported: Reported) -> None:
    """K7: accept a member's epoch, or the previous one if our answer may have been lost.

    Raises:
        Refused: FENCED_MEMBER_EPOCH.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return
    if received == member.previous_epoch and received < member.epoch and _is_part(reported, member):
        return
    size = "greater" if received > member.epoch else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_part(reported: Reported, member: Member) -> bool:
    """Return whether all partitions that a member reports were assigned to it."""
    if reported is None:
        return False
    assigned = member.assigned
    return all(
        topic_id in assigned and number in assigned[topic_id]
        for topic_id, numbers in reported.items()
        for number in numbers
    )


def unknown_group(group_id: str) -> Refused:
    """K6: return the error for a group that does not exist or has another protocol."""
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def unknown_member(group_id: str, member_id: str) -> Refused:
    """K6: return the error for a member that does not exist."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
