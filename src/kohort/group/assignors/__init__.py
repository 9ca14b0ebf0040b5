"""Assignors: who gets which partition."""

from __future__ import annotations

from kohort.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kohort.group.assignors.interface import Assignor, ClusterView, RebalanceProtocol
from kohort.group.assignors.ownership import settle_claims, validate_subscription
from kohort.group.assignors.racks import RackedClusterView
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.roundrobin import RoundRobinAssignor
from kohort.group.assignors.server import MemberSubscription, ServerAssignor
from kohort.group.assignors.server_range import ServerRangeAssignor
from kohort.group.assignors.sticky import StickyAssignor
from kohort.group.assignors.uniform import UniformAssignor
from kohort.group.subscription import Subscription

BUILTIN_ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}

SERVER_ASSIGNORS: dict[str, ServerAssignor] = {
    assignor.name: assignor for assignor in (UniformAssignor(), ServerRangeAssignor())
}

__all__ = [
    "BUILTIN_ASSIGNORS",
    "SERVER_ASSIGNORS",
    "Assignor",
    "ClusterView",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RackedClusterView",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "ServerAssignor",
    "ServerRangeAssignor",
    "StickyAssignor",
    "Subscription",
    "UniformAssignor",
    "settle_claims",
    "validate_subscription",
]
