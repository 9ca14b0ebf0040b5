"""Requests and failovers at rare moments, to aim a run at rows of the coordinator that few seeds
take.

A group is between two generations for only some milliseconds, and a stranger at a random time
hardly ever meets it there. Here strangers come when a group has just changed its state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.group.events import GroupStateChanged, ProtocolChanged
from kohort.simulation.engine import Stream
from kohort.simulation.faults.strangers import ASKING, DRAFT_ASKING, send_stranger
from kohort.simulation.groups.ledger import GROUP

if TYPE_CHECKING:
    from kohort.group.events import GroupEvent
    from kohort.simulation.groups.world import World

# How soon after a change of state a stranger comes; a group that waits for a slow job stays longer.
_SOON_MS = (0, 1, 3, 5, 200)
# How long a group is left alone between two failovers.
_BETWEEN_MS = 30_000


def visit(world: World) -> None:
    """Let strangers come when a group has just changed its state, until faults stop."""
    chance = Stream(world.scenario.seed, "moments", "visits")
    kinds = ASKING if world.scenario.protocol != "draft" else (*ASKING, *DRAFT_ASKING * 3)

    def observe(event: GroupEvent) -> None:
        if isinstance(event, GroupStateChanged) and not world.calm and world.members:
            for _ in range(chance.between(0, 2)):
                name, kind = chance.choice(sorted(world.members)), chance.choice(kinds)
                delay = chance.choice(_SOON_MS)
                world.engine.after(delay, None, send_stranger, world, kind, name)

    world.observers.append(observe)


def fail_over(world: World) -> None:
    """Let the other node lead when a group has just changed its state, until faults stop."""
    chance = Stream(world.scenario.seed, "moments", "failovers")
    last_ms = 0

    def observe(event: GroupEvent) -> None:
        nonlocal last_ms
        if not isinstance(event, (GroupStateChanged, ProtocolChanged)) or event.group != GROUP:
            return
        now, is_rare = world.engine.now, isinstance(event, ProtocolChanged)
        is_time = now - last_ms >= _BETWEEN_MS or (is_rare and chance.happens(0.5))
        if is_time and not world.calm and world.coordinator.ready is not None:
            last_ms = now
            world.engine.after(chance.between(0, 2), None, world.coordinator.move, 100, 0)

    world.observers.append(observe)
