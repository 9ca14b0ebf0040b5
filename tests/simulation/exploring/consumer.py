"""Groups of the consumer protocol (KIP-848) for the explorer."""

from __future__ import annotations

from kohort.group.assignors import Assignor
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, GroupState
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMember, ConsumerMemberSession
from tests.simulation.exploring.state import GROUP, Coordinator, GroupProtocol, MemberKind


def consumer(*assignors: Assignor) -> GroupProtocol:
    """Return the consumer protocol: the coordinator assigns, or its members' assignors do."""
    machine = ConsumerMember(MemberConfig(group_id=GROUP), "", assignors=assignors)
    member = MemberKind(
        name="consumer",
        machine=machine,
        blank=lambda unique: ConsumerMemberSession(member_id=unique),
        can_close=lambda session: session.closing is None,
    )
    return GroupProtocol(
        kinds=(member,),
        epoch=lambda coordinator: _group(coordinator).epoch,
        is_current=_is_current,
        is_at_rest=lambda coordinator: (
            _group(coordinator).state in (GroupState.STABLE, GroupState.EMPTY)
        ),
        wrong=_wrong,
    )


def _group(coordinator: Coordinator) -> ConsumerGroup:
    group = coordinator.fold.consumer_groups.get(GROUP)
    return group or ConsumerGroup(group_id=GROUP)


def _is_current(coordinator: Coordinator, member_id: str, epoch: int) -> bool:
    member = _group(coordinator).members.get(member_id)
    return member is not None and epoch > 0 and epoch in (member.epoch, member.previous_epoch)


def _wrong(coordinator: Coordinator) -> str:
    """Compare what the log has: S3 one holder, S5 epochs in order, S7 the target when stable."""
    group = _group(coordinator)
    holders: dict[tuple[object, int], str] = {}
    for member_id, member in sorted(group.members.items()):
        for owned in (member.assigned, member.revoking):
            for topic, numbers in owned.items():
                for number in numbers:
                    if holders.setdefault((topic, number), member_id) != member_id:
                        return f"S3: {number} is had by two members"
        if not member.epoch <= group.assignment_epoch <= group.epoch:
            return "S5: epochs out of order"
        if group.state is GroupState.STABLE and (member.revoking or member.epoch != group.epoch):
            return "S7: a member on its way in a stable group"
    return ""
