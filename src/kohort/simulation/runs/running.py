"""One run: faults, then calm, then a check that the group has converged; owners of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from kohort.group.assignors import Assignor
from kohort.group.events import Ownership
from kohort.observe.timeline import OwnershipTimeline
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.checkers.liveness import is_converged
from kohort.simulation.faults.kinds import plan_faults, stop_faults
from kohort.simulation.groups.base import BaseClient
from kohort.simulation.groups.facts import Looked, Settled
from kohort.simulation.groups.world import MachineFailedError, ViolationError, World
from kohort.simulation.rules import Checkers
from kohort.simulation.runs.scenario import Scenario, Weather
from kohort.simulation.trace import Trace
from kohort.types import TopicPartition

OK = "ok"
CRASHED = "machine failed"
_STEP_MS = 5_000
# How long nothing may happen after the group has converged (L8).
_QUIET_MS = 60_000


class Outcome(Struct):
    """The result of a run.

    Attributes:
        scenario: The run.
        verdict: "ok", the name of the checker that complained, or that a machine raised.
        complaint: The complaint.
        events: How many events happened.
        simulated_ms: How much time passed in the simulation.
        digest: Hash of the trace; empty when none was made.
        rebalances: How many rebalances the coordinator began.
        repeated: How many records were handed out more than once.
        notes: How often each rare event happened.
        lines: The trace, when it was asked for.
    """

    scenario: Scenario
    verdict: str
    complaint: str
    events: int
    simulated_ms: int
    digest: str
    rebalances: int
    repeated: int
    notes: Counter[str]
    lines: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        return (
            f"<Outcome {self.verdict!r} of {self.scenario!r}: {self.events} events,"
            f" {self.rebalances} rebalances, {self.repeated} records read again>"
        )

    @property
    def is_ok(self) -> bool:
        """Whether no rule was broken."""
        return self.verdict == OK


def run(
    scenario: Scenario,
    *,
    checkers: Checkers = CHECKERS,
    trace: bool = True,
    keep_lines: bool = False,
    assignors: Mapping[str, Assignor] | None = None,
    survives_failures: bool = False,
) -> Outcome:
    """Run a scenario.

    Args:
        scenario: The scenario.
        checkers: The rules to check; none is faster.
        trace: Whether the outcome has a hash of all events.
        keep_lines: Whether the outcome has the trace.
        assignors: The user's assignors, by name.
        survives_failures: Whether an error in a machine ends only its process.
    """
    kept = Trace(keep_lines) if trace or keep_lines else None
    world = World(
        scenario,
        checkers=checkers,
        trace=kept,
        assignors=assignors,
        survives_failures=survives_failures,
    )
    return run_world(world)


def run_world(world: World) -> Outcome:
    """Run a world that has not begun yet."""
    verdict, complaint = OK, ""
    try:
        world.begin()
        plan_faults(world)
        world.engine.run(world.scenario.duration_ms)
        settle(world)
    except ViolationError as error:
        verdict, complaint = error.checker, str(error)
    except MachineFailedError as error:
        verdict, complaint = CRASHED, str(error)
    return Outcome(
        scenario=world.scenario,
        verdict=verdict,
        complaint=complaint,
        events=world.engine.steps,
        simulated_ms=world.engine.now,
        digest=world.trace.digest if world.tracing else "",
        rebalances=world.ledger.rebalances,
        repeated=sum(reading.repeated for reading in world.ledger.readings.values()),
        notes=world.notes,
        lines=world.trace.lines,
    )


def convergence_bound_ms(scenario: Scenario) -> int:
    """Return how long a group may take to converge once faults have stopped.

    A dead member is noticed after a session timeout; a rebalance may wait for the slowest member; a
    JoinGroup whose answer was lost is given up after the rebalance timeout and 5 s, and then a
    second rebalance may be needed to correct the first.
    """
    session = max((m.session_timeout_ms for m in scenario.members), default=0)
    rebalance = max((m.max_poll_interval_ms for m in scenario.members), default=0)
    listener = max((m.listener_ms for m in scenario.members), default=0)
    return 2 * session + 3 * (rebalance + 5_000) + 4 * listener + 120_000


def settle(world: World) -> None:
    """Stop all faults, and wait until the group has converged or should have.

    Raises:
        ViolationError: It did not.
    """
    scenario, engine = world.scenario, world.engine
    world.network.weather = Weather()
    engine.run(stop_faults(world))
    world.ledger.generations_at_calm = world.ledger.generations
    bound = convergence_bound_ms(scenario)
    end = engine.now + bound
    while engine.now < end and not is_converged(world):
        engine.run(engine.now + _STEP_MS)
    world.check(Settled(bound))
    generations = world.ledger.generations
    engine.run(engine.now + _QUIET_MS)
    world.check(Looked())
    if world.ledger.generations != generations:
        world.fail("L8", f"{world.ledger.generations - generations} rebalances in a calm group")


class Owners:
    """Collects changes of ownership as they are reported to applications.

    A partition has an owner from the call that assigns it until the call that revokes it ends, or
    until the process dies. If two members believe that they own it (one may have been suspended),
    the later one counts.

    Args:
        world: The run to observe, before it begins.
    """

    def __init__(self, world: World) -> None:
        self._engine = world.engine
        self._changes: list[tuple[int, TopicPartition, str | None]] = []
        self._owner: dict[TopicPartition, str | None] = {}
        world.listeners.append(self._change)

    def _change(
        self, client: BaseClient, change: Ownership, partitions: frozenset[TopicPartition]
    ) -> None:
        owner = client.name if change is Ownership.ASSIGNED else None
        for partition in sorted(partitions):
            if owner is None and self._owner.get(partition) != client.name:
                continue
            self._owner[partition] = owner
            self._changes.append((self._engine.now, partition, owner))

    def timeline(self) -> OwnershipTimeline:
        """Return the timeline of all partitions that ever had an owner."""
        timeline = OwnershipTimeline(self._owner, 0)
        for now, partition, owner in self._changes:
            timeline.own(partition, owner, now)
        return timeline
