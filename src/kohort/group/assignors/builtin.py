"""The built-in assignors, by their names in settings and on the wire."""

from __future__ import annotations

from kohort.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kohort.group.assignors.interface import Assignor
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.roundrobin import RoundRobinAssignor
from kohort.group.assignors.server import ServerAssignor
from kohort.group.assignors.server_range import ServerRangeAssignor
from kohort.group.assignors.sticky import StickyAssignor
from kohort.group.assignors.uniform import UniformAssignor

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
