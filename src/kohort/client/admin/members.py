"""Removal of members from their group by an administrator (KIP-345, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.client.admin.errors import ask_apart, check, check_results, error_of
from kohort.client.admin.values import GroupDescription, MemberDescription
from kohort.client.net.backoff import Deadline
from kohort.client.net.coordinator import Coordinator
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity

_CONSUMER = "consumer"
# Epoch in the heartbeat of a member that leaves permanently.
_LEAVES = -1


async def remove_members(
    coordinator: Coordinator,
    group: GroupDescription,
    member_ids: Iterable[str],
    reason: str,
    deadline: Deadline,
) -> None:
    """Remove members from a group.

    Args:
        coordinator: The group's coordinator.
        group: The current description of the group.
        member_ids: Ids of the members.
        reason: A reason for the broker's log; not sent for members of KIP-848.
        deadline: When to give up.

    Raises:
        PartialFailureError: Some are not members.
        KafkaError: The broker refuses.
    """
    known = {each.member_id: each for each in group.members}
    unknown = KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} does not have this member"
    )
    results: dict[str, KohortError | None] = {}
    consumers: list[str] = []
    classic: list[MemberDescription] = []
    for member_id in dict.fromkeys(member_ids):
        member = known.get(member_id)
        if member is None:
            results[member_id] = unknown
        elif member.type == _CONSUMER:
            consumers.append(member_id)
        else:
            classic.append(member)

    async def leave(member_id: str, until: Deadline) -> KafkaError | None:
        return await _leave(coordinator, group.group_id, member_id, until)

    results |= await ask_apart(consumers, leave, deadline)
    if classic:
        try:
            results |= await _remove(coordinator, group.group_id, classic, reason, deadline)
        except KohortError as error:
            results |= {each.member_id: error for each in classic}
    check_results(results)


async def _leave(
    coordinator: Coordinator, group_id: str, member_id: str, deadline: Deadline
) -> KafkaError | None:
    """Leave on behalf of a member of KIP-848: LeaveGroup is only for classic members."""
    response = await coordinator.call(
        ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=_LEAVES),
        lambda answer: [answer.error_code],
        deadline,
    )
    return error_of(
        response.error_code, member_id, response.error_message, deadline.lost, needs="READ"
    )


async def _remove(
    coordinator: Coordinator,
    group_id: str,
    members: list[MemberDescription],
    reason: str,
    deadline: Deadline,
) -> dict[str, KafkaError | None]:
    # A static member is identified by its instance id: its member id may have changed.
    leaving = tuple(
        MemberIdentity(
            member_id="" if each.group_instance_id is not None else each.member_id,
            group_instance_id=each.group_instance_id,
            reason=reason or None,
        )
        for each in members
    )
    response = await coordinator.call(
        LeaveGroupRequest(group_id=group_id, members=leaving),
        lambda answer: [answer.error_code],
        deadline,
    )
    check(response.error_code, group_id, None, needs="READ")
    answers = zip(members, response.members, strict=False)
    return {
        each.member_id: error_of(
            answer.error_code, each.member_id, None, deadline.lost, needs="READ"
        )
        for each, answer in answers
    }
