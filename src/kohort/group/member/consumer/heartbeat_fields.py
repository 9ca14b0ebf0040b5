"""The fields of a heartbeat: all in the first and after an error, otherwise changes (L31)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.session import (
    ConsumerMemberSession,
    HeartbeatFields,
    TopicIdPartition,
)
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

NO_PATTERN = ""


def present_fields(config: MemberConfig, session: ConsumerMemberSession) -> HeartbeatFields:
    """Return the current values of all fields."""
    pattern = session.pattern
    if pattern is None and session.pattern_sent:
        pattern = NO_PATTERN
    return HeartbeatFields(
        rebalance_timeout_ms=config.max_poll_interval_ms,
        rack_id=config.rack_id,
        topics=tuple(sorted(session.topics)),
        pattern=pattern,
        server_assignor=config.server_assignor,
        partitions=session.claimed,
        client_assignors=(session.announced or None) if session.asks_members else None,
    )


def heartbeat_request(
    config: MemberConfig, session: ConsumerMemberSession, fields: HeartbeatFields
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat with the fields that the coordinator does not know yet.

    A member without a subscription is about to leave, so it sends no empty subscription: that would
    bump the group epoch just before it leaves.

    Args:
        config: Settings.
        session: The member; `sent` has the fields that the coordinator knows.
        fields: The current values.
    """
    sent = session.sent
    same_topics = not session.wants or (sent is not None and sent.topics == fields.topics)
    same_pattern = not session.wants or (sent is not None and sent.pattern == fields.pattern)
    return ConsumerGroupHeartbeatRequest(
        group_id=config.group_id,
        member_id=session.member_id,
        member_epoch=session.epoch,
        instance_id=config.group_instance_id,
        rack_id=None if sent and sent.rack_id == fields.rack_id else fields.rack_id,
        rebalance_timeout_ms=(
            -1
            if sent and sent.rebalance_timeout_ms == fields.rebalance_timeout_ms
            else fields.rebalance_timeout_ms
        ),
        subscribed_topic_names=None if same_topics else fields.topics,
        subscribed_topic_regex=None if same_pattern else fields.pattern,
        server_assignor=(
            None if sent and sent.server_assignor == fields.server_assignor
            else fields.server_assignor
        ),
        topic_partitions=(
            None if sent and sent.partitions == fields.partitions else _by_topic(fields.partitions)
        ),
        client_assignors=(
            None if sent and sent.client_assignors == fields.client_assignors
            else fields.client_assignors
        ),
    )  # fmt: skip


def leave_request(
    config: MemberConfig, session: ConsumerMemberSession, epoch: int
) -> ConsumerGroupHeartbeatRequest:
    """Return a leave request: epoch -1, or -2 for a static member that comes back (L35)."""
    return ConsumerGroupHeartbeatRequest(
        group_id=config.group_id,
        member_id=session.member_id,
        member_epoch=epoch,
        instance_id=config.group_instance_id,
    )


def _by_topic(partitions: Iterable[TopicIdPartition] | None) -> tuple[TopicPartitions, ...]:
    topics: dict[str, list[TopicIdPartition]] = {}
    for partition in sorted(partitions or ()):
        topics.setdefault(partition.topic_id.hex, []).append(partition)
    return tuple(
        TopicPartitions(
            topic_id=entries[0].topic_id, partitions=tuple(entry.partition for entry in entries)
        )
        for entries in topics.values()
    )
