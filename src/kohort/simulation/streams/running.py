"""One run of a simulated stream application: faults, then calm, then a check of T6."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kohort.simulation.checkers.liveness import is_converged
from kohort.simulation.faults.kinds import plan_faults, stop_faults
from kohort.simulation.groups.facts import Looked, Settled
from kohort.simulation.groups.world import MachineFailedError, ViolationError
from kohort.simulation.runs.running import convergence_bound_ms
from kohort.simulation.runs.scenario import Weather
from kohort.simulation.seeded import OK, SeededOutcome
from kohort.simulation.shrinking import minimal
from kohort.simulation.streams.faults import plan_own_faults, stop_own_faults
from kohort.simulation.streams.resting import check_rest, unrest
from kohort.simulation.streams.scenario import StreamsScenario
from kohort.simulation.streams.world import StreamsWorld, logger
from kohort.simulation.trace import Trace
from kohort.values import replace

CRASHED = "machine failed"
_STEP_MS = 2_000
_QUIET_MS = 30_000
_LEARNING_MS = 15_000


def run(
    scenario: StreamsScenario, *, keep_lines: bool = False, trace: bool = False
) -> SeededOutcome[StreamsScenario]:
    """Run a scenario.

    Args:
        scenario: The scenario.
        keep_lines: Whether the outcome has the trace.
        trace: Whether the outcome has a hash of the trace.
    """
    kept = Trace(keep_lines) if trace or keep_lines else None
    with _silence():
        world = StreamsWorld(scenario, trace=kept)
        try:
            verdict, complaint = _run(world)
        finally:
            world.close()
    return SeededOutcome(
        scenario,
        verdict,
        complaint,
        world.engine.steps,
        world.engine.now,
        world.notes,
        digest="" if kept is None else kept.digest,
        lines=[] if kept is None else kept.lines,
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the instances' logs: their warnings are about simulated faults."""
    was = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = was


def _run(world: StreamsWorld) -> tuple[str, str]:
    try:
        world.begin()
        plan_faults(world)
        plan_own_faults(world)
        world.engine.run(world.scenario.duration_ms)
        settle(world)
    except ViolationError as error:
        return error.checker, str(error)
    except MachineFailedError as error:
        return CRASHED, str(error)
    return OK, ""


def settle(world: StreamsWorld) -> None:
    """Stop all faults, and wait until the application is at rest or should be.

    Raises:
        ViolationError: It is not.
    """
    engine = world.engine
    world.network.weather = Weather()
    over = stop_faults(world)
    stop_own_faults(world)
    engine.run(over)
    stop_own_faults(world)
    tasks = sum(world.topics.counts().values())
    bound = convergence_bound_ms(world.scenario) + _LEARNING_MS * tasks
    end = engine.now + bound
    while engine.now < end and not (is_converged(world) and unrest(world) is None):
        engine.run(engine.now + _STEP_MS)
    world.check(Settled(bound))
    check_rest(world)
    generations = world.ledger.generations
    engine.run(engine.now + _QUIET_MS)
    world.check(Looked())
    check_rest(world)
    if world.ledger.generations != generations:
        world.fail("T6", f"{world.ledger.generations - generations} rebalances at rest")


def shrink(scenario: StreamsScenario, fails: Callable[[StreamsScenario], bool]) -> StreamsScenario:
    """Return a smaller scenario that fails in the same way."""
    group = scenario.group

    def fails_with(**changes: object) -> bool:
        return fails(replace(scenario, group=replace(group, **changes)))  # type: ignore[arg-type]  # fields of Scenario

    faults = tuple(minimal(group.faults, lambda kept: fails_with(faults=tuple(kept))))
    group = replace(group, faults=faults)
    scenario = replace(scenario, group=group)
    if group.weather != Weather() and fails_with(weather=Weather()):
        scenario = replace(scenario, group=replace(group, weather=Weather()))
    return scenario
