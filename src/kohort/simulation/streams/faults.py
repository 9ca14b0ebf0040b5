"""The faults that only stream applications have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from kohort.simulation.faults.members import client_of
from kohort.simulation.runs.scenario import Fault

if TYPE_CHECKING:
    from kohort.simulation.streams.process import StreamsProcess
    from kohort.simulation.streams.world import StreamsWorld

_LOOK_MS = 500


def plan_own_faults(world: StreamsWorld) -> None:
    """Schedule every fault of the scenario that is not one of groups."""
    for each in world.scenario.faults:
        if each.kind in OWN_FAULTS:
            world.engine.at(each.at_ms, None, _happen, world, each)


def _happen(world: StreamsWorld, each: Fault) -> None:
    if world.calm:
        return
    world.note(f"fault {each.kind}")
    world.disturbed(each.lasts_ms)
    if world.tracing:
        text = f"{each.target} {each.detail} {each.lasts_ms or ''}".strip()
        world.trace.line(world.engine.now, "fault", each.kind, text)
    OWN_FAULTS[each.kind](world, each)


def stop_own_faults(world: StreamsWorld) -> None:
    """End all of these faults."""
    now = world.engine.now
    world.brokers.down_until = min(world.brokers.down_until, now)
    for log in world.brokers.logs.values():
        log.shown_until = min(log.shown_until, now)
    for process in world.processes():
        process.dies_at = ""
        process.slow_until = min(process.slow_until, now)


def _process(world: StreamsWorld, each: Fault) -> StreamsProcess | None:
    return cast("StreamsProcess | None", client_of(world, each))


def die_at_step(world: StreamsWorld, each: Fault) -> None:
    """A process dies when it next reaches a step (`detail`)."""
    process = _process(world, each)
    if process is not None:
        process.dies_at = each.detail


def leave_soon(world: StreamsWorld, each: Fault) -> None:
    """An instance is asked to leave; a new one starts a while after it ended, or never (0)."""
    process = _process(world, each)
    if process is None or process.leaves_since is not None or process.application.closing:
        return
    instance = process.streams.instance
    if instance is not None:
        process.leaves_since = world.engine.now
        process.streams.loop.call_soon(instance.leave_soon)
        if each.lasts_ms:
            _start_again(world, process, each.lasts_ms)


def _start_again(world: StreamsWorld, process: StreamsProcess, after_ms: int) -> None:
    if process.alive:
        world.engine.after(_LOOK_MS, None, partial(_start_again, world, process, after_ms))
    else:
        world.engine.after(after_ms, None, world.restart, process.name)


def slow(world: StreamsWorld, each: Fault) -> None:
    """An instance replays `detail` records per second for a while."""
    process = _process(world, each)
    if process is not None:
        process.slow_until = world.engine.now + each.lasts_ms
        process.replays_per_s = int(each.detail or 0)


def stuck(world: StreamsWorld, each: Fault) -> None:
    """An instance replays nothing for a while."""
    slow(world, each)


def new_leaders(world: StreamsWorld, each: Fault) -> None:
    """Other brokers lead the logs; at first they do not know of the last `detail` records."""
    world.brokers.change_leaders(each.lasts_ms, int(each.detail or 0))


OWN_FAULTS: dict[str, Callable[[StreamsWorld, Fault], None]] = {
    each.__name__: each for each in (die_at_step, leave_soon, slow, stuck, new_leaders)
}
