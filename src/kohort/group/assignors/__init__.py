"""Assignors: who gets which partition."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.group.assignors.builtin import BUILTIN_ASSIGNORS, SERVER_ASSIGNORS
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

# A member of the consumer protocol needs none of them: what is not used is not imported.
_HOMES = {
    "BUILTIN_ASSIGNORS": "builtin",
    "SERVER_ASSIGNORS": "builtin",
    "Assignor": "interface",
    "ClusterView": "interface",
    "CooperativeStickyAssignor": "cooperative_sticky",
    "MemberSubscription": "server",
    "RackedClusterView": "racks",
    "RangeAssignor": "range",
    "RebalanceProtocol": "interface",
    "RoundRobinAssignor": "roundrobin",
    "ServerAssignor": "server",
    "ServerRangeAssignor": "server_range",
    "StickyAssignor": "sticky",
    "Subscription": "interface",
    "UniformAssignor": "uniform",
    "settle_claims": "ownership",
    "validate_subscription": "ownership",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
