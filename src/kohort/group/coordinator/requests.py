"""Which group, and which of its rules, a request is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator import describe
from kohort.group.coordinator.consumer import configs, offsets, route
from kohort.group.coordinator.consumer import describe as consumer_describe
from kohort.group.coordinator.draft import router as draft_router
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets.fetch import fetch
from kohort.group.coordinator.refusals import refuse
from kohort.group.coordinator.session import ShardDecision
from kohort.group.effects import Reply
from kohort.values import replace
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.configs import IncrementalAlterConfigsRequest
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kohort.wire.schema import Message, Request

_ForOneGroup = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetDeleteRequest
    | DraftJoinGroupRequest
    | DraftHeartbeatRequest
)

_PROTOCOL_NAMED_SINCE = 5


def answer(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Answer a request, or let the group park it.

    Raises:
        KeyError: The request is not of the group APIs: the shell must not send it here.
    """
    decision.wall_ms = arrived.wall_ms
    if draft_router.refuses(decision, arrived):
        return
    ROUTES[type(arrived.request)](decision, arrived)


def _reply(decision: ShardDecision, arrived: RequestArrived[Message], response: Message) -> None:
    decision.replies.append(Reply(arrived.token, response, arrived.version))


def refuse_all(decision: ShardDecision, arrived: RequestArrived[Message], code: ErrorCode) -> None:
    """Refuse a request, whatever it is."""
    _reply(
        decision, arrived, refuse(cast("Request[Message]", arrived.request), arrived.version, code)
    )


def _member_request(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C4: the membership APIs, and OffsetDelete, need a group id."""
    group_id = cast("_ForOneGroup", arrived.request).group_id
    if group_id:
        decision.run_group(group_id, type(arrived.request), arrived)
    else:
        refuse_all(decision, arrived, ErrorCode.INVALID_GROUP_ID)


def _sync(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C40 (KIP-559): from version 5 on a sync names what the group is, before all else."""
    request = cast("SyncGroupRequest", arrived.request)
    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and arrived.version >= _PROTOCOL_NAMED_SINCE:
        refuse_all(decision, arrived, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    else:
        _member_request(decision, arrived)


def _commit(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """C4: commits may have an empty group id, as old clients without a group send it."""
    request = cast("OffsetCommitRequest", arrived.request)
    decision.run_group(request.group_id, OffsetCommitRequest, arrived)


def _fetch(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    request = cast("OffsetFetchRequest", arrived.request)
    errors = {
        entry.group_id: error
        for entry in request.groups
        if (group := decision.consumer_group(entry.group_id)) is not None
        and (error := offsets.fetch_error(group, entry)) is not None
    }
    _reply(decision, arrived, fetch(decision.log, request, arrived.version, errors))


def _describe(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    request = cast("DescribeGroupsRequest", arrived.request)
    described = [
        draft_router.described(decision, group_id)
        or describe.describe(
            decision.log, decision.session.group(decision.log, group_id), arrived.version
        )
        if decision.consumer_group(group_id) is None
        else describe.not_classic(group_id, arrived.version)
        for group_id in request.groups
    ]
    if request.include_authorized_operations:
        described = [
            group
            if group.error_code
            else replace(group, authorized_operations=describe.ALL_OPERATIONS)
            for group in described
        ]
    _reply(decision, arrived, DescribeGroupsResponse(groups=tuple(described)))


def _list(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    request = cast("ListGroupsRequest", arrived.request)
    ids = decision.session.group_ids(decision.log)
    listed = (
        draft_router.listed(decision, group_id)
        or describe.listed(decision.session.group(decision.log, group_id))
        if (group := decision.consumer_group(group_id)) is None
        else consumer_describe.listed(group)
        for group_id in ids
    )
    passed = tuple(entry for entry in listed if describe.passes(entry, request))
    _reply(decision, arrived, ListGroupsResponse(error_code=ErrorCode.NONE, groups=passed))


def _delete(decision: ShardDecision, arrived: RequestArrived[Message]) -> None:
    """Ask each group by itself, each once, and answer for all together."""
    request = cast("DeleteGroupsRequest", arrived.request)
    for group_id in dict.fromkeys(request.groups_names):
        decision.run_group(group_id, DeleteGroupsRequest, arrived)
    answers = [reply.response for reply in decision.replies if reply.token == arrived.token]
    # Whoever waited for something of a group that is gone hears of that, too.
    decision.replies = [reply for reply in decision.replies if reply.token != arrived.token]
    results = tuple(
        result for each in answers for result in cast("DeleteGroupsResponse", each).results
    )
    _reply(decision, arrived, DeleteGroupsResponse(results=results))


ROUTES: dict[type[Message], Callable[[ShardDecision, RequestArrived[Message]], None]] = {
    JoinGroupRequest: _member_request,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _member_request,
    LeaveGroupRequest: _member_request,
    DraftJoinGroupRequest: _member_request,
    DraftHeartbeatRequest: _member_request,
    OffsetCommitRequest: _commit,
    ConsumerGroupHeartbeatRequest: lambda decision, arrived: route.answer_heartbeat(
        decision, cast("RequestArrived[ConsumerGroupHeartbeatRequest]", arrived)
    ),
    ConsumerGroupDescribeRequest: lambda decision, arrived: route.answer_describe(
        decision, cast("RequestArrived[ConsumerGroupDescribeRequest]", arrived)
    ),
    ConsumerGroupPrepareAssignmentRequest: lambda decision, arrived: route.answer_prepare(
        decision, cast("RequestArrived[ConsumerGroupPrepareAssignmentRequest]", arrived)
    ),
    ConsumerGroupInstallAssignmentRequest: lambda decision, arrived: route.answer_install(
        decision, cast("RequestArrived[ConsumerGroupInstallAssignmentRequest]", arrived)
    ),
    OffsetDeleteRequest: _member_request,
    OffsetFetchRequest: _fetch,
    DescribeGroupsRequest: _describe,
    ListGroupsRequest: _list,
    DeleteGroupsRequest: _delete,
    IncrementalAlterConfigsRequest: lambda decision, arrived: configs.alter(
        decision, cast("RequestArrived[IncrementalAlterConfigsRequest]", arrived)
    ),
}
