"""One run of a simulated region: faults, then calm, then a check that everything is visible."""

from __future__ import annotations

from collections.abc import Callable

from kohort.simulation.regions.scenario import RegionScenario
from kohort.simulation.regions.world import RegionWorld
from kohort.simulation.seeded import OK, RuleBrokenError, SeededOutcome
from kohort.simulation.shrinking import minimal
from kohort.simulation.trace import Trace
from kohort.values import replace

CRASHED = "R8"
SETTLE_MS = 120_000
_STEP_MS = 2_000
_QUIET_MS = 8_000


def run(
    scenario: RegionScenario, *, keep_lines: bool = False, trace: bool = False
) -> SeededOutcome[RegionScenario]:
    """Run a scenario.

    Args:
        scenario: The scenario.
        keep_lines: Whether the outcome has the trace.
        trace: Whether the outcome has a hash of the trace.
    """
    kept = Trace(keep_lines) if trace or keep_lines else None
    return run_world(RegionWorld(scenario, trace=kept), kept)


def run_world(world: RegionWorld, kept: Trace | None = None) -> SeededOutcome[RegionScenario]:
    """Run a world that has not begun yet."""
    scenario = world.scenario
    verdict, complaint, settled = OK, "", -1
    try:
        world.begin()
        world.engine.run(scenario.duration_ms)
        settled = settle(world)
    except RuleBrokenError as error:
        verdict, complaint = error.checker, str(error)
    except Exception as error:  # noqa: BLE001  # a machine that raises is a finding
        verdict, complaint = CRASHED, f"{type(error).__name__}: {error}"
    return SeededOutcome(
        scenario,
        verdict,
        complaint,
        world.engine.steps,
        settled,
        world.notes,
        digest="" if kept is None else kept.digest,
        lines=[] if kept is None else kept.lines,
    )


def settle(world: RegionWorld) -> int:
    """Stop all faults, and return how long it takes until everything is visible.

    Raises:
        RuleBrokenError: It takes too long, or the region does not stay calm then.
    """
    if world.scenario.is_orderly and world.notes["reset"]:
        world.fail("R11", f"{world.notes['reset']} resets without any fault")
    world.calm_down()
    began = world.engine.now
    while not world.is_settled():
        if world.engine.now - began > SETTLE_MS:
            world.fail("R5", f"not everything is visible after {SETTLE_MS} ms of calm")
        world.force()
        world.engine.run(world.engine.now + _STEP_MS)
    took = world.engine.now - began
    # Nodes that were dead come back within ten seconds, which moves partitions.
    world.engine.run(max(world.engine.now, began + 12_000) + _QUIET_MS)
    resets = world.notes["reset"]
    completed = len(world.sink.visible)
    world.engine.run(world.engine.now + 2 * _QUIET_MS)
    if world.notes["reset"] != resets:
        world.fail("R9", f"{world.notes['reset'] - resets} resets of a calm region")
    if len(world.sink.visible) <= completed:
        world.fail("R4", f"no checkpoint became visible in {2 * _QUIET_MS} ms of calm")
    world.checkers.check_log(world.log)
    return took


def shrink(scenario: RegionScenario, fails: Callable[[RegionScenario], bool]) -> RegionScenario:
    """Return a smaller scenario that fails in the same way."""
    faults = minimal(scenario.faults, lambda kept: fails(replace(scenario, faults=tuple(kept))))
    scenario = replace(scenario, faults=tuple(faults))
    for name in ("lost_requests", "lost_answers", "late_requests", "repeated", "joiners"):
        plain = replace(scenario, **{name: () if name == "joiners" else 0.0})  # type: ignore[arg-type]  # each of its type
        if plain != scenario and fails(plain):
            scenario = plain
    return scenario
