"""Who may store and read positions of a consumer group (K35 to K37)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.group import ConsumerGroup, Member
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup

# K35: before this version a client could not know what the answers mean.
_COMMIT_SINCE = 9


def commit_error(
    group: ConsumerGroup, request: OffsetCommitRequest, version: int, topics: TopicsImage
) -> ErrorCode | None:
    """Return why a commit is refused, None when it is not."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return None
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and version < _COMMIT_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return None
    stale = _stale(member)
    if epoch > member.epoch:
        return stale
    return None if _holds_all(member, request, epoch, topics) else stale


def _stale(member: Member) -> ErrorCode:
    classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH


def _holds_all(
    member: Member, request: OffsetCommitRequest, epoch: int, topics: TopicsImage
) -> bool:
    """K36: whether it had each of these partitions in that epoch already, and has it still.

    So a commit that crosses with the beginning of a new epoch is not lost (KIP-1251).
    """
    for topic in request.topics:
        view = topics.by_name.get(topic.name)
        topic_id = view.topic_id if view else topic.topic_id
        assigned, revoking = member.assigned.get(topic_id), member.revoking.get(topic_id)
        for entry in topic.partitions:
            since = assigned.get(entry.partition_index) if assigned else None
            if since is None and revoking:
                since = revoking.get(entry.partition_index)
            if since is None or epoch < since:
                return False
    return True


def fetch_error(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> ErrorCode | None:
    """K37: return why positions are not told, None when they are."""
    if request.member_id is None and request.member_epoch < 0:
        return None
    member = group.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None if request.member_epoch == member.epoch else _stale(member)
