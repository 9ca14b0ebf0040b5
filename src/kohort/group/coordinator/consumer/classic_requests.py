"""The classic group APIs that are not for members alone, asked of a consumer group.

What classic members ask of it is in `migration.classic_members`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.leave import identities, leave_response
from kohort.group.coordinator.consumer import log_records, offsets
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.group import Member
from kohort.group.coordinator.consumer.leave import remove
from kohort.group.coordinator.events import RequestArrived, RetentionCheckDue
from kohort.group.coordinator.offsets import commit
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.coordinator.records import LogState
from kohort.group.coordinator.refusals import commit_refused
from kohort.group.events import Cause, GroupDeleted
from kohort.types import TopicPartition
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kohort.wire.messages.membership import (
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def answer(
    decision: ConsumerDecision, log: LogState, trigger: type[object], event: object
) -> ConsumerDecision:
    """Answer a request, or do what a deadline asks; deadlines of the other protocol mean nothing.

    Args:
        decision: The group, and what is to be done about it.
        log: Log state, for the group's positions.
        trigger: Class of the request or deadline.
        event: The request with where it came from, or the deadline.
    """
    handler = _HANDLERS.get(trigger)
    if handler is not None:
        handler(decision, log, event)
    return decision


def _leave(
    decision: ConsumerDecision, _log: LogState, arrived: RequestArrived[LeaveGroupRequest]
) -> None:
    """Remove members, as an administrator may of either protocol."""
    gone: dict[str, Member] = {}
    answers: list[MemberResponse] = []
    for identity in identities(arrived):
        found = _found(decision, identity)
        code = ErrorCode.NONE
        if isinstance(found, Member):
            gone[found.member_id] = found
        else:
            code = found
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
        )
    if gone:
        remove(decision, list(gone.values()), Cause.MEMBER_LEFT)
    decision.reply(arrived.token, leave_response(arrived, answers), arrived.version)


def _found(decision: ConsumerDecision, identity: MemberIdentity) -> Member | ErrorCode:
    group = decision.existing
    if identity.group_instance_id is None:
        return group.members.get(identity.member_id) or ErrorCode.UNKNOWN_MEMBER_ID
    member = group.static_member(identity.group_instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if identity.member_id not in ("", member.member_id):
        return ErrorCode.FENCED_INSTANCE_ID
    return member


def _commit(
    decision: ConsumerDecision, _log: LogState, arrived: RequestArrived[OffsetCommitRequest]
) -> None:
    """K35, K36: write the positions of a member, or of anybody while there is none."""
    request = arrived.request
    error = offsets.commit_error(decision.existing, request, arrived.version, decision.topics)
    if error is not None:
        decision.reply(arrived.token, commit_refused(request, error), arrived.version)
        return
    most = decision.config.offset_metadata_max_bytes
    result = commit.store(request, most, decision.now, decision.wall_ms)
    decision.records.extend(result.records)
    decision.reply(arrived.token, result.response, arrived.version)
    decision.observed.extend(result.observed)


def _delete(
    decision: ConsumerDecision, log: LogState, arrived: RequestArrived[DeleteGroupsRequest]
) -> None:
    """K37: forget a group and its positions, if it has no members."""
    group_id = decision.group_id
    code = ErrorCode.NON_EMPTY_GROUP if decision.existing.members else ErrorCode.NONE
    if code is ErrorCode.NONE:
        for partition in sorted(log.offsets_of(group_id)):
            decision.records.append(offset_tombstone(group_id, partition))
        decision.write(log_records.group_tombstones(decision.existing))
        decision.observed.append(GroupDeleted(group=group_id, now=decision.now))
    result = DeletableGroupResult(group_id=group_id, error_code=code)
    decision.reply(arrived.token, DeleteGroupsResponse(results=(result,)), arrived.version)


def _delete_offsets(
    decision: ConsumerDecision, log: LogState, arrived: RequestArrived[OffsetDeleteRequest]
) -> None:
    """K37: forget positions, but not those in topics that a member subscribes to (KIP-496)."""
    group, stored = decision.existing, log.offsets_of(decision.group_id)
    topics = []
    for topic in arrived.request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        numbers = [entry.partition_index for entry in topic.partitions]
        for number in numbers:
            partition = TopicPartition(topic.name, number)
            if not subscribed and partition in stored:
                decision.records.append(offset_tombstone(decision.group_id, partition))
        answers = (
            OffsetDeleteResponsePartition(partition_index=number, error_code=code)
            for number in numbers
        )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(answers)))
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(topics))
    decision.reply(arrived.token, response, arrived.version)


def _expire_offsets(decision: ConsumerDecision, log: LogState, _due: RetentionCheckDue) -> None:
    """K37: drop what was stored too long ago, of topics that nobody subscribes to."""
    group, group_id = decision.existing, decision.group_id
    oldest = decision.wall_ms - decision.config.offsets_retention_ms
    kept = False
    for partition, stored in sorted(log.offsets_of(group_id).items()):
        if not group.is_subscribed_to(partition.topic) and stored.commit_timestamp <= oldest:
            decision.records.append(offset_tombstone(group_id, partition))
        else:
            kept = True
    if not kept and not group.members:
        decision.write(log_records.group_tombstones(group))
        decision.observed.append(GroupDeleted(group=group_id, now=decision.now))


_Handler = Callable[[ConsumerDecision, LogState, object], None]
_HANDLERS: dict[type[object], _Handler] = {
    LeaveGroupRequest: cast("_Handler", _leave),
    OffsetCommitRequest: cast("_Handler", _commit),
    DeleteGroupsRequest: cast("_Handler", _delete),
    OffsetDeleteRequest: cast("_Handler", _delete_offsets),
    RetentionCheckDue: cast("_Handler", _expire_offsets),
}
