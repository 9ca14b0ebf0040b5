"""Faults of the coordinator, and of the log it writes: compaction at bad moments, a lost end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
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
    """A bit of the last batches flips, or they never reached the disk: "bit flip", "lost end".

    The coordinator dies, and its successor finds fewer records than were confirmed. `lasts_ms`
    encodes the bit and the number of batches.
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


def wall_step(world: World, each: Fault) -> None:
    """The coordinators' time of day is set back or forward."""
    for node in world.coordinator.nodes:
        node.wall_skew_ms = each.lasts_ms if each.detail != "back" else -each.lasts_ms


def failover(world: World, each: Fault) -> None:
    """Another node leads; `detail` is how long the old one continues to answer."""
    world.coordinator.move(each.lasts_ms, int(each.detail or 0))


def coordinator_crash(world: World, each: Fault) -> None:
    """The coordinator's process dies."""
    leader = world.coordinator.ready
    if leader is not None:
        leader.crash(max(each.lasts_ms, 1_000))


def coordinator_dies_writing(world: World, each: Fault) -> None:
    """The coordinator dies before, in or after its next append, or after the first reply."""
    leader = world.coordinator.ready
    if leader is not None:
        leader.crash_at = each.detail


def coordinator_pause(world: World, each: Fault) -> None:
    """The coordinator is suspended while another one leads, and wakes as a zombie."""
    leader = world.coordinator.leader
    if leader is not None:
        leader.paused_until = max(leader.paused_until, world.engine.now + each.lasts_ms)
        if each.detail == "replaced":
            world.coordinator.move(100, each.lasts_ms + 2_000)


def append_fails(world: World, each: Fault) -> None:
    """The log refuses the next append."""
    leader = world.coordinator.ready
    if leader is not None:
        leader.refuse_appends = ErrorCode[each.detail]


def inject(world: World, each: Fault) -> None:
    """The coordinator answers the next request of a kind with an error: "Kind=CODE"."""
    kind, _, code = each.detail.partition("=")
    for node in world.coordinator.nodes:
        node.answers[f"{kind}Request"] = ErrorCode[code]


def inject_draft(world: World, each: Fault) -> None:
    """As `inject`, for requests of the draft protocol."""
    inject(world, each)


def inject_assignment(world: World, each: Fault) -> None:
    """As `inject`, for the requests by which members compute assignments."""
    inject(world, each)


def job_fails(world: World, _each: Fault) -> None:
    """The coordinator's next job fails, as when its assignor raises."""
    world.failing_jobs += 1
