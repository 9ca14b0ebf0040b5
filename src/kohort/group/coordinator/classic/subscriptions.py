"""Which topics the members of a classic group read, as far as can be told (C56, C61)."""

from __future__ import annotations

from kohort.group.coordinator.classic.group import ClassicGroup
from kohort.group.subscription import PROTOCOL_TYPE
from kohort.wire.consumer_protocol import subscribed_topics


def is_subscribed(group: ClassicGroup, topic: str) -> bool:
    """Whether a member reads the topic, or may: metadata that cannot be read keeps every topic.

    A group that is not of consumers subscribes to nothing that the coordinator knows of. A member
    whose first join is parked counts only from the next generation on, unless there is no other.
    """
    if group.protocol_type != PROTOCOL_TYPE or not group.members:
        return False
    members = [member for member in group.members.values() if not member.is_new]
    if not members:
        return True
    metadata = (member.metadata(group.protocol) for member in members)
    return any(topics is None or topic in topics for topics in map(subscribed_topics, metadata))
