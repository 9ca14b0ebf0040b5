"""LeaveGroup, of one member or of several (C47, KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.classic.identity import member_error
from kohort.group.coordinator.events import RequestArrived
from kohort.group.events import Cause
from kohort.wire.messages.membership import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

Leave: TypeAlias = RequestArrived[LeaveGroupRequest]

_SEVERAL_SINCE = 3


def leave(decision: ClassicDecision, leaving: Leave) -> None:
    """C47: take out who belongs to the group, then see once what that means for it.

    That somebody is not in it, or that there is no group, is an error of each, not of the call.
    """
    leavers = identities(leaving)
    results = [(identity, _take_out(decision, identity)) for identity in leavers]
    _answer(decision, leaving, results)
    gone = [identity for identity, error in results if error is ErrorCode.NONE]
    if gone and decision.state is not GroupState.EMPTY:
        cause, reason = Cause.MEMBER_LEFT, gone[0].reason or ""
        rebalance.start_or_continue(decision, cause, gone[0].member_id, reason)


def identities(leaving: Leave) -> tuple[MemberIdentity, ...]:
    """Return who is to go; before version 3 that is one member."""
    if leaving.version >= _SEVERAL_SINCE:
        return leaving.request.members
    return (MemberIdentity(member_id=leaving.request.member_id),)


def _take_out(decision: ClassicDecision, identity: MemberIdentity) -> ErrorCode:
    group, instance = decision.group, identity.group_instance_id
    member_id = identity.member_id
    if not member_id and instance is not None:
        # An operator removes a static member by the name it has.
        member_id = group.static.get(instance, "")
    if member_id not in group.pending:
        error = member_error(group, member_id, instance)
        if error is not None:
            return error
    rebalance.remove_member(decision, member_id, Cause.MEMBER_LEFT, identity.reason or "")
    return ErrorCode.NONE


def _answer(
    decision: ClassicDecision, leaving: Leave, results: list[tuple[MemberIdentity, ErrorCode]]
) -> None:
    answers = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=error,
        )
        for identity, error in results
    ]
    decision.reply(leaving.token, leave_response(leaving, answers), leaving.version)


def leave_response(leaving: Leave, answers: Sequence[MemberResponse]) -> LeaveGroupResponse:
    """Return the answer to a request; before version 3 the one member's error is the answer's."""
    if leaving.version >= _SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=tuple(answers))
    return LeaveGroupResponse(error_code=answers[0].error_code)
