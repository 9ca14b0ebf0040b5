"""LeaveGroup, of one member or of several (C47, KIP-345)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState, member_error
from kohort.group.coordinator.services import Leave
from kohort.group.events import Cause
from kohort.wire.messages.membership import MemberIdentity


def leave(decision: ClassicDecision, leaving: Leave) -> None:
    """C47: remove the given members, then react once.

    A member that is not in it, or a missing group, is an error of each member, not of the call.
    """
    leavers = services.leavers(leaving)
    results = [(identity, _take_out(decision, identity)) for identity in leavers]
    services.answer_leave(decision, leaving, results)
    gone = [identity for identity, error in results if error is ErrorCode.NONE]
    if gone and decision.state is not GroupState.EMPTY:
        cause, reason = Cause.MEMBER_LEFT, gone[0].reason or ""
        rebalance.start_or_continue(decision, cause, gone[0].member_id, reason)


def _take_out(decision: ClassicDecision, identity: MemberIdentity) -> ErrorCode:
    group, instance = decision.group, identity.group_instance_id
    member_id = identity.member_id
    if not member_id and instance is not None:
        # An operator removes a static member by its instance id.
        member_id = group.static.get(instance, "")
    if member_id not in group.pending:
        error = member_error(group, member_id, instance)
        if error is not None:
            return error
    rebalance.remove_member(decision, member_id, Cause.MEMBER_LEFT, identity.reason or "")
    return ErrorCode.NONE
