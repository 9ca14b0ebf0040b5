"""Assignors decide which member gets which partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.group.assignors.builtin import BUILTIN_ASSIGNORS, SERVER_ASSIGNORS
    from kohort.group.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kohort.group.assignors.interface import (
        Assignment,
        Assignor,
        ClusterView,
        GroupMetadata,
        RebalanceProtocol,
    )
    from kohort.group.assignors.ownership import (
        settle_claims,
        validate_subscription,
        without_moving,
    )
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
    "Assignment",
    "Assignor",
    "ClusterView",
    "CooperativeStickyAssignor",
    "GroupMetadata",
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
    "without_moving",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "BUILTIN_ASSIGNORS": ".builtin",
            "SERVER_ASSIGNORS": ".builtin",
            "Assignment": ".interface",
            "Assignor": ".interface",
            "ClusterView": ".interface",
            "CooperativeStickyAssignor": ".cooperative_sticky",
            "GroupMetadata": ".interface",
            "MemberSubscription": ".server",
            "RackedClusterView": ".racks",
            "RangeAssignor": ".range",
            "RebalanceProtocol": ".interface",
            "RoundRobinAssignor": ".roundrobin",
            "ServerAssignor": ".server",
            "ServerRangeAssignor": ".server_range",
            "StickyAssignor": ".sticky",
            "Subscription": ".interface",
            "UniformAssignor": ".uniform",
            "settle_claims": ".ownership",
            "validate_subscription": ".ownership",
            "without_moving": ".ownership",
        },
    )
