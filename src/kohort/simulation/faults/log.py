"""Faults of the group log: compaction at bad moments, and a damaged or lost end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.simulation.runs.scenario import Fault

if TYPE_CHECKING:
    from kohort.simulation.groups.world import World

# How many batches at the end of the log may be damaged.
_DAMAGED_MAX = 4


def compact(world: World, _each: Fault) -> None:
    """The log is compacted up to its last batch."""
    world.note("compaction")
    world.log.compact()


def compact_while_loading(world: World, each: Fault) -> None:
    """Another node becomes leader, and the log is compacted while it loads (KAFKA-19862)."""
    failovers = world.coordinator.failovers
    world.coordinator.move(each.lasts_ms, 0)
    if world.coordinator.failovers > failovers:
        world.note("compaction while loading")
        world.engine.after(each.lasts_ms // 2, None, compact, world, each)


def log_damage(world: World, each: Fault) -> None:
    """A bit of the log's last batches flips, or they never got to the disk: "bit flip", "lost end".

    The coordinator dies, and its successor finds less than was confirmed. `lasts_ms` encodes the
    bit and the number of batches.
    """
    leader, log = world.coordinator.ready, world.log
    if leader is None:
        return
    count = 1 + each.lasts_ms % _DAMAGED_MAX
    flips = each.detail == "bit flip"
    lost_from = log.flip_bit(count, each.lasts_ms) if flips else log.lose_end(count)
    world.note(f"log damage: {each.detail}")
    if world.checking:
        world.ledger.cut(log.read(end=lost_from), world.image.names)
    leader.crash(world.CRASH_RESTART_MS)
