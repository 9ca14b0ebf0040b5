"""The group protocol as pure state machines: coordinator, member, assignors.

Nothing below this package reads a clock, opens a socket, starts a thread or draws a random number.
Time, ids and jitter are arguments, so the same code runs over TCP, in Spark and in a simulator.
`examples/group_in_memory.py` drives a coordinator and two members without a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.group.coordinator.config import CoordinatorConfig
    from kohort.group.coordinator.shard import Shard
    from kohort.group.effects import (
        AssignmentJob,
        Callback,
        Effects,
        MemberJob,
        Reply,
        Send,
        SubscriptionJob,
    )
    from kohort.group.events import (
        Assigned,
        Cause,
        GenerationStarted,
        GroupDeleted,
        GroupEvent,
        GroupStateChanged,
        MemberFailed,
        MemberJoined,
        MemberLeft,
        MemberReconciled,
        MemberStateChanged,
        OffsetsCommitted,
        Ownership,
        OwnershipChanged,
        RebalanceStarted,
    )
    from kohort.group.member.classic.machine import ClassicMember
    from kohort.group.member.config import MemberConfig
    from kohort.group.member.consumer.machine import ConsumerMember
    from kohort.group.subscription import Subscription

__all__ = [
    "Assigned",
    "AssignmentJob",
    "Callback",
    "Cause",
    "ClassicMember",
    "ConsumerMember",
    "CoordinatorConfig",
    "Effects",
    "GenerationStarted",
    "GroupDeleted",
    "GroupEvent",
    "GroupStateChanged",
    "MemberConfig",
    "MemberFailed",
    "MemberJob",
    "MemberJoined",
    "MemberLeft",
    "MemberReconciled",
    "MemberStateChanged",
    "OffsetsCommitted",
    "Ownership",
    "OwnershipChanged",
    "RebalanceStarted",
    "Reply",
    "Send",
    "Shard",
    "Subscription",
    "SubscriptionJob",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "Assigned": ".events",
            "AssignmentJob": ".effects",
            "Callback": ".effects",
            "Cause": ".events",
            "ClassicMember": ".member.classic.machine",
            "ConsumerMember": ".member.consumer.machine",
            "CoordinatorConfig": ".coordinator.config",
            "Effects": ".effects",
            "GenerationStarted": ".events",
            "GroupDeleted": ".events",
            "GroupEvent": ".events",
            "GroupStateChanged": ".events",
            "MemberConfig": ".member.config",
            "MemberFailed": ".events",
            "MemberJob": ".effects",
            "MemberJoined": ".events",
            "MemberLeft": ".events",
            "MemberReconciled": ".events",
            "MemberStateChanged": ".events",
            "OffsetsCommitted": ".events",
            "Ownership": ".events",
            "OwnershipChanged": ".events",
            "RebalanceStarted": ".events",
            "Reply": ".effects",
            "Send": ".effects",
            "Shard": ".coordinator.shard",
            "Subscription": ".subscription",
            "SubscriptionJob": ".effects",
        },
    )
