"""Consumer groups in the log (K55): their records, and the fold of the records.

A record replaces only the state of its key. A tombstone for an unknown key is legal:
the log may have been compacted (B2).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import cast

from immutables import Map

from kohort.group.coordinator.consumer.state.group import (
    ConsumerGroup,
    Member,
    MemberState,
    Owned,
    ResolvedRegex,
    Target,
)
from kohort.group.coordinator.records import GroupsPart, L
from kohort.values import replace
from kohort.wire.messages.consumer_group import AssignmentMetadata
from kohort.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupValue,
    OwnedTopicPartitions,
    TargetTopicPartitions,
)
from kohort.wire.messages.group_records import GroupRecord

GROUPS: GroupsPart[ConsumerGroup] = GroupsPart("consumer")


def read(log: L, record: GroupRecord) -> L:
    """Apply a record to the log state."""
    key = cast("ConsumerGroupKey", record.key)
    before = GROUPS.of(log).get(key.group_id)
    after = apply(before, key, cast("ConsumerGroupValue | None", record.value))
    return log if after is before else GROUPS.with_entry(log, key.group_id, after)


def apply(
    group: ConsumerGroup | None, key: ConsumerGroupKey, value: ConsumerGroupValue | None
) -> ConsumerGroup | None:
    """Return the group after one more record, None if nothing of it remains."""
    if group is None:
        if value is None:
            return None
        group = ConsumerGroup(group_id=key.group_id)
    changed = _FOLDS[type(key)](group, key, value)
    return changed if changed.is_in_log else None


def _metadata(
    group: ConsumerGroup, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> ConsumerGroup:
    if value is None:
        return replace(group, stored_epoch=None, metadata_hash=0)
    return replace(group, stored_epoch=value.epoch, metadata_hash=value.metadata_hash)


def _partition_metadata(
    group: ConsumerGroup,
    _key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
) -> ConsumerGroup:
    return replace(group, has_partition_metadata=value is not None)


def _member_metadata(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> ConsumerGroup:
    if value is None:
        return group.without_member(key.member_id)
    member = group.members.get(key.member_id) or Member(member_id=key.member_id)
    return group.with_member(
        replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(set(value.subscribed_topic_names))),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            client_assignors=value.client_assignors,
            classic=value.classic_member_metadata,
        )
    )


def _target_metadata(
    group: ConsumerGroup,
    _key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> ConsumerGroup:
    if value is None:
        return replace(group, stored_assignment_epoch=None, assignment_timestamp=0)
    return replace(
        group,
        stored_assignment_epoch=value.assignment_epoch,
        assignment_timestamp=value.assignment_timestamp,
    )


def _target_member(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> ConsumerGroup:
    if value is not None:
        group = _with_word(group, key.member_id, value.assignment_metadata)
        target = group.target.set(key.member_id, value.topic_partitions)
        return replace(group, target=target)
    group = _with_word(group, key.member_id, None)
    if key.member_id not in group.target:
        return group
    return replace(group, target=group.target.delete(key.member_id))


def _with_word(
    group: ConsumerGroup, member_id: str, word: AssignmentMetadata | None
) -> ConsumerGroup:
    if word is not None:
        return replace(group, words=group.words.set(member_id, word))
    if member_id not in group.words:
        return group
    return replace(group, words=group.words.delete(member_id))


def _current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> ConsumerGroup:
    member = group.members.get(key.member_id)
    if value is None:
        if member is None:
            return group
        nothing = Member(member_id=key.member_id)
        known = replace(
            member,
            epoch=nothing.epoch,
            previous_epoch=nothing.previous_epoch,
            state=nothing.state,
            assigned=nothing.assigned,
            revoking=nothing.revoking,
        )
        return group.with_member(known)
    member = member or Member(member_id=key.member_id)
    return group.with_member(
        replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_member_state(value.state),
            assigned=_read_owned(value.assigned_partitions, value.member_epoch),
            revoking=_read_owned(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _member_state(number: int) -> MemberState:
    known = MemberState.__members__.values()
    return MemberState(number) if number in known else MemberState.UNKNOWN


def _read_owned(entries: Iterable[OwnedTopicPartitions], member_epoch: int) -> Owned:
    """Read partitions; without an epoch, as before Kafka 4.3, they get the member's."""
    owned: dict[object, Map[int, int]] = {}
    for entry in entries:
        epochs = entry.assignment_epochs
        if epochs is None or len(epochs) != len(entry.partitions):
            epochs = (max(member_epoch, 0),) * len(entry.partitions)
        owned[entry.topic_id] = Map(zip(entry.partitions, epochs, strict=True))
    return cast("Owned", Map(owned))


def _regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> ConsumerGroup:
    if value is not None:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        return replace(group, regexes=group.regexes.set(key.regular_expression, resolved))
    if key.regular_expression not in group.regexes:
        return group
    return replace(group, regexes=group.regexes.delete(key.regular_expression))


_Fold = Callable[[ConsumerGroup, ConsumerGroupKey, "ConsumerGroupValue | None"], ConsumerGroup]
_FOLDS: dict[type[ConsumerGroupKey], _Fold] = {
    ConsumerGroupMetadataKey: cast("_Fold", _metadata),
    ConsumerGroupPartitionMetadataKey: cast("_Fold", _partition_metadata),
    ConsumerGroupMemberMetadataKey: cast("_Fold", _member_metadata),
    ConsumerGroupTargetAssignmentMetadataKey: cast("_Fold", _target_metadata),
    ConsumerGroupTargetAssignmentMemberKey: cast("_Fold", _target_member),
    ConsumerGroupCurrentMemberAssignmentKey: cast("_Fold", _current),
    ConsumerGroupRegularExpressionKey: cast("_Fold", _regex),
}

KEYS: tuple[type[ConsumerGroupKey], ...] = tuple(_FOLDS)
"""The key classes of all records of a group."""


# -------------------------------------------------------------------------------------- the records


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
    """Return the record of the target assignment's epoch."""
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
    """Return the records that delete a member, in the only order that Kafka can read (K31)."""
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
    """Return topic ids in a fixed order, because the order of a map varies between processes."""
    return sorted(topics)
