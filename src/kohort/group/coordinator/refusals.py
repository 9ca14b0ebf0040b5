"""For each request of the group APIs, the response with only an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.events import RequestArrived
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kohort.wire.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
)
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kohort.wire.messages.txn_requests import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

R = TypeVar("R", bound=Message)


# KIP-430: a bit set by AclOperation. Nothing is forbidden here, so it has all operations that
# Kafka defines on groups: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
# KIP-1043: from this version on, a missing group is an error.
_NOT_FOUND_SINCE = 6


def refuse(request: Request[R], version: int, code: ErrorCode) -> R:
    """Return the response of the right class and shape with the error `code`.

    Raises:
        KeyError: The request is not of the group APIs.
    """
    return cast("R", _REFUSALS[type(request)](request, version, code))


def refused_with(code: ErrorCode) -> Callable[[RequestArrived[Message]], Message]:
    """Return the function that answers a request with an error."""
    return lambda arrived: refuse(cast("Request[Message]", arrived.request), arrived.version, code)


def needs_group_id(arrived: RequestArrived[Message]) -> ErrorCode | None:
    """C4: return whether a request needs a group id: membership APIs and OffsetDelete do."""
    group_id = arrived.request.group_id  # type: ignore[attr-defined]  # see `group_id_of`
    return None if group_id else ErrorCode.INVALID_GROUP_ID


def group_id_of(arrived: RequestArrived[Message]) -> str:
    """Return the group of a request for one group."""
    return arrived.request.group_id  # type: ignore[attr-defined,no-any-return]  # it is for one group


def join_refused(
    request: JoinGroupRequest, version: int, code: ErrorCode, member_id: str | None = None
) -> JoinGroupResponse:
    """Refuse a join; `member_id` is the id in the answer if it differs from the request's."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=request.member_id if member_id is None else member_id,
        members=(),
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """Refuse a sync."""
    return SyncGroupResponse(error_code=code, assignment=b"")


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Refuse a commit with the error in every partition: the answer has no other field for it."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                    for p in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _fetch_refused(
    request: OffsetFetchRequest, version: int, code: ErrorCode
) -> OffsetFetchResponse:
    if version >= 8:
        groups = (
            OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
            for group in request.groups
        )
        return OffsetFetchResponse(groups=tuple(groups))
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    topics = (
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    )
    return OffsetFetchResponse(topics=tuple(topics))


def _describe_refused(
    request: DescribeGroupsRequest, _version: int, code: ErrorCode
) -> DescribeGroupsResponse:
    groups = (
        DescribedGroup(
            error_code=code,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
        )
        for group_id in request.groups
    )
    return DescribeGroupsResponse(groups=tuple(groups))


def _consumer_describe_refused(
    request: ConsumerGroupDescribeRequest, _version: int, code: ErrorCode
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=tuple(consumer_describe_failed(group_id, code) for group_id in request.group_ids)
    )


def consumer_describe_failed(
    group_id: str, code: ErrorCode, message: str | None = None
) -> DescribedConsumerGroup:
    """Return the description of a consumer group with only an error."""
    return DescribedConsumerGroup(
        error_code=code,
        error_message=clipped(message),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def not_found(group_id: str, version: int, message: str) -> DescribedGroup:
    """Return the DescribeGroups entry of a missing or non-classic group."""
    newer = version >= _NOT_FOUND_SINCE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.NONE,
        error_message=clipped(message) if newer else None,
        group_id=group_id,
        group_state="Dead",
        protocol_type="",
        protocol_data="",
        members=(),
    )


def _delete_refused(
    request: DeleteGroupsRequest, _version: int, code: ErrorCode
) -> DeleteGroupsResponse:
    results = (
        DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names
    )
    return DeleteGroupsResponse(results=tuple(results))


def _draft_join_refused(
    request: DraftJoinGroupRequest, _version: int, code: ErrorCode
) -> DraftJoinGroupResponse:
    return DraftJoinGroupResponse(
        error_code=code, group_id=request.group_id, consumer_id=request.consumer_id
    )


def altered(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None = None
) -> AlterConfigsResourceResponse:
    """Return the result of changing the settings of one group."""
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _alter_refused(
    request: IncrementalAlterConfigsRequest, _version: int, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    responses = (altered(resource, code) for resource in request.resources)
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def txn_commit_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Refuse a commit in a transaction with the error in every partition."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


_Refusal = Callable[[Message, int, ErrorCode], Message]
_REFUSALS: dict[type[Message], _Refusal] = {
    JoinGroupRequest: cast("_Refusal", join_refused),
    SyncGroupRequest: lambda _request, _version, code: sync_refused(code),
    HeartbeatRequest: lambda _request, _version, code: HeartbeatResponse(error_code=code),
    LeaveGroupRequest: lambda _request, _version, code: LeaveGroupResponse(error_code=code),
    OffsetCommitRequest: lambda request, _version, code: commit_refused(
        cast("OffsetCommitRequest", request), code
    ),
    TxnOffsetCommitRequest: lambda request, _version, code: txn_commit_refused(
        cast("TxnOffsetCommitRequest", request), code
    ),
    OffsetDeleteRequest: lambda _request, _version, code: OffsetDeleteResponse(
        error_code=code, topics=()
    ),
    OffsetFetchRequest: cast("_Refusal", _fetch_refused),
    DraftJoinGroupRequest: cast("_Refusal", _draft_join_refused),
    DraftHeartbeatRequest: lambda _request, _version, code: DraftHeartbeatResponse(error_code=code),
    DescribeGroupsRequest: cast("_Refusal", _describe_refused),
    ConsumerGroupHeartbeatRequest: lambda _request, _version, code: ConsumerGroupHeartbeatResponse(
        error_code=code
    ),
    ConsumerGroupDescribeRequest: cast("_Refusal", _consumer_describe_refused),
    ConsumerGroupPrepareAssignmentRequest: lambda _request, _version, code: (
        ConsumerGroupPrepareAssignmentResponse(error_code=code)
    ),
    ConsumerGroupInstallAssignmentRequest: lambda _request, _version, code: (
        ConsumerGroupInstallAssignmentResponse(error_code=code)
    ),
    DeleteGroupsRequest: cast("_Refusal", _delete_refused),
    IncrementalAlterConfigsRequest: cast("_Refusal", _alter_refused),
    # C59: a shard that is not loaded lists no groups, without an error.
    ListGroupsRequest: lambda _request, _version, _code: ListGroupsResponse(
        error_code=ErrorCode.NONE, groups=()
    ),
}

REFUSABLE = frozenset(_REFUSALS) - {ListGroupsRequest}
"""The requests of the group APIs whose answers can report an error."""
