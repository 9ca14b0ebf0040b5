"""Classic groups, eager and cooperative, for the explorer."""

from __future__ import annotations

from kohort.group.assignors import BUILTIN_ASSIGNORS, Assignor
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.member.classic.machine import (
    ClassicMember,
    ClassicMemberSession,
    ClassicMemberState,
)
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import MemberEvent, RejoinAsked
from tests.simulation.exploring.state import GROUP, Coordinator, GroupProtocol, MemberKind

_AT_REST = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)
_SETTLED = (ClassicMemberState.STABLE, ClassicMemberState.ASSIGNING)


def classic(assignor: str) -> GroupProtocol:
    """Return the classic protocol with an assignor, eager or cooperative."""
    chosen: Assignor = BUILTIN_ASSIGNORS[assignor]
    member = MemberKind(
        name="classic",
        machine=ClassicMember(MemberConfig(group_id=GROUP), (chosen,)),
        blank=lambda _id: ClassicMemberSession(),
        can_close=_can_close,
        calls=_calls,
    )
    return GroupProtocol(
        kinds=(member,),
        epoch=_epoch,
        is_current=_is_current,
        is_at_rest=lambda coordinator: _group(coordinator).state in _AT_REST,
        wrong=_wrong,
    )


def _group(coordinator: Coordinator) -> ClassicGroup:
    return coordinator.session.group(coordinator.fold, GROUP)


def _can_close(session: ClassicMemberSession) -> bool:
    leaving = session.state is ClassicMemberState.LEAVING
    return session.after_leaving is ClassicMemberState.CLOSED and not leaving


def _calls(session: ClassicMemberSession) -> tuple[tuple[str, MemberEvent], ...]:
    """KIP-568: a member of a generation may ask for the next one."""
    return (("rejoins", RejoinAsked("because")),) if session.state in _SETTLED else ()


def _epoch(coordinator: Coordinator) -> int:
    stored = coordinator.fold.groups.get(GROUP)
    return stored.generation if stored else 0


def _is_current(coordinator: Coordinator, member_id: str, generation: int) -> bool:
    group = _group(coordinator)
    return member_id in group.members and generation == group.generation


def _wrong(coordinator: Coordinator) -> str:
    group = _group(coordinator)
    if group.members and group.leader not in group.members:
        return "S3: the leader is no member"
    return ""
