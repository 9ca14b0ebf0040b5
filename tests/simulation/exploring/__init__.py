"""Every order of events of a small group, breadth first, on the same machines.

`search` visits the states of any model and does not know groups; `form` decides which states are
the same; `group` is the model; `classic`, `consumer`, `migration` and `draft` are the parts for
each protocol.
"""

from __future__ import annotations

from kohort.group.assignors import BUILTIN_ASSIGNORS
from tests.simulation.exploring.classic import classic
from tests.simulation.exploring.consumer import consumer
from tests.simulation.exploring.draft import draft
from tests.simulation.exploring.group import SmallGroup
from tests.simulation.exploring.migration import migration
from tests.simulation.exploring.search import Explored, explore

PROTOCOLS = {
    "classic": classic("range"),
    "cooperative": classic("cooperative-sticky"),
    "consumer": consumer(),
    "client-side": consumer(BUILTIN_ASSIGNORS["range"]),
    "migration": migration(classic("cooperative-sticky"), consumer()),
    "draft": draft(),
}

__all__ = ["PROTOCOLS", "Explored", "SmallGroup", "explore"]
