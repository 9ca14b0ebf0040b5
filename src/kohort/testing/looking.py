"""Checks of groups and topics that a harness repeats until they succeed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kohort import AdminClient, Consumer, TopicPartition
from kohort.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.client.admin.values import GroupDescription
    from kohort.client.consumer.records import ConsumerRecord

# Timestamps for the start and end of a partition in ListOffsets.
_END, _START = -1, -2


def described_group(admin: AdminClient, group: str) -> GroupDescription | None:
    """Return a group, or None if it does not exist."""
    try:
        described = admin.describe_groups([group])[group]
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return None if described.state == "Dead" else described


def has_its_part(member: Consumer, group: GroupDescription | None) -> bool:
    """Whether a group is stable with a member that has partitions, if there are enough for it."""
    if group is None or group.state != "Stable":
        return False
    if member.member_id not in {each.member_id for each in group.members}:
        return False
    partitions = sum(len(each.assignment) for each in group.members)
    return bool(member.assignment()) or partitions < len(group.members)


def begun(consumer: Consumer, topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """Let a consumer read partitions from their beginning."""
    places = [TopicPartition(topic, each) for each in sorted(numbers)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    return places


def lag_of(admin: AdminClient, group: str, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return a group's lag in topics, or in the partitions that it has committed."""
    committed = admin.list_group_offsets(group)
    described = admin.describe_topics(topics) if topics else {}
    places = [
        TopicPartition(topic, number)
        for topic, partitions in described.items()
        for number in range(len(partitions))
    ] or list(committed)
    ends = admin.list_offsets(dict.fromkeys(places, _END))
    starts = admin.list_offsets(dict.fromkeys([at for at in places if at not in committed], _START))
    reached = {at: stored.offset for at, stored in committed.items()}
    return {at: max(0, (ends[at] or 0) - reached.get(at, starts.get(at) or 0)) for at in places}


def shown(behind: Mapping[TopicPartition, int]) -> str:
    """Return a readable list of the missing records by partition."""
    return ", ".join(f"{lag} in {at.topic}-{at.partition}" for at, lag in sorted(behind.items()))


def polled(member: Consumer) -> bool:
    """Poll a member once; return True."""
    member.poll(20)
    return True


def read(
    consumer: Consumer,
    found: dict[TopicPartition, list[ConsumerRecord]],
    ends: Mapping[TopicPartition, int],
) -> bool:
    """Read more; return whether all records up to the ends are read."""
    for place, records in consumer.poll(50).items():
        found[place] += records
    return all(consumer.position(place) >= end for place, end in ends.items())
