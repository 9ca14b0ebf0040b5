"""The records that hold a consumer group (K55); the inverse of `fold`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from kohort.group.coordinator.consumer.state.group import Member, Owned, Target
from kohort.wire.messages.consumer_group import AssignmentMetadata
from kohort.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedTopicPartitions,
    TargetTopicPartitions,
)
from kohort.wire.messages.group_records import GroupRecord


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Return the record of a group's epoch."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return GroupRecord(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_record(group_id: str, member: Member) -> GroupRecord:
    """Return the record of a member's subscription."""
    return GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.topics,
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            client_assignors=member.client_assignors,
            classic_member_metadata=member.classic,
        ),
    )


def current_record(group_id: str, member: Member) -> GroupRecord:
    """Return the record of a member's assignment."""
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=_owned(member.assigned),
            partitions_pending_revocation=_owned(member.revoking),
        ),
    )


def target_record(
    group_id: str, member_id: str, target: Target, word: AssignmentMetadata | None = None
) -> GroupRecord:
    """Return the record of a member's target, and of the metadata for its assignor."""
    return GroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(target[topic_id])))
                for topic_id in _in_order(target)
            ),
            assignment_metadata=word,
        ),
    )


def assignment_epoch_record(group_id: str, epoch: int, wall_ms: int) -> GroupRecord:
    """Return the record that says which epoch the target assignment is for."""
    return GroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=wall_ms
        ),
    )


def regex_record(
    group_id: str, regex: str, topics: Iterable[str], version: int, wall_ms: int
) -> GroupRecord:
    """Return the record of the topics of a regular expression."""
    return GroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(topics)), version=version, timestamp=wall_ms
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    """Return the records that delete a member; Kafka can read them in this order only (K31)."""
    return (
        GroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        GroupRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def _owned(owned: Owned) -> tuple[OwnedTopicPartitions, ...]:
    entries = []
    for topic_id in _in_order(owned):
        partitions = tuple(sorted(owned[topic_id]))
        epochs = tuple(owned[topic_id][partition] for partition in partitions)
        entries.append(
            OwnedTopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs)
        )
    return tuple(entries)


def _in_order(topics: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    """Return topic ids in a fixed order: the order of a map differs from process to process."""
    return sorted(topics)
