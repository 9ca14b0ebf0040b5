"""Assignors: who gets which partition."""

from __future__ import annotations

from kohort.group.assignors.interface import Assignor, ClusterView, RebalanceProtocol
from kohort.group.assignors.ownership import settle_claims, validate_subscription
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.roundrobin import RoundRobinAssignor
from kohort.group.subscription import Subscription

BUILTIN_ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor for assignor in (RangeAssignor(), RoundRobinAssignor())
}

__all__ = [
    "BUILTIN_ASSIGNORS",
    "Assignor",
    "ClusterView",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "Subscription",
    "settle_claims",
    "validate_subscription",
]
