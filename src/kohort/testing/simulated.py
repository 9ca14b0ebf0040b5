"""Runs a user's listener and assignors in simulated groups: virtual time, all faults and rules.

    def test_my_listener() -> None:
        simulate(MyListener)

A run takes a fraction of a second and is deterministic. The test fails, and reports the seed, if a
group breaks a rule or if the listener or the assignor raises any exception, including a failed
assertion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from kohort.errors import ConfigError, KohortError, Portable
from kohort.group.assignors import Assignor, ClusterView
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.subscription import Subscription
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.groups.application import Application
from kohort.simulation.groups.client import Client
from kohort.simulation.groups.world import World
from kohort.simulation.runs.campaign import Choice
from kohort.simulation.runs.running import Outcome, run_world
from kohort.simulation.runs.scenario import Scenario
from kohort.testing.listening import ListeningApplication, MakeListener, RaisedError, blaming
from kohort.testing.positions import CallLog, NotSimulatedError
from kohort.types import TopicPartition
from kohort.values import replace


class SimulationFailedError(Portable, AssertionError):
    """A rule of the group was broken, or the code under test raised an exception.

    Args:
        complaint: A description of the failure.

    Attributes:
        scenario: The failed run; `scenario.seed` is its seed.
        verdict: Name of the rule, or the type of the exception.
    """

    def __init__(self, scenario: Scenario, verdict: str, complaint: str) -> None:
        super().__init__(f"{complaint}\n{_again(scenario)}")
        self.scenario = scenario
        self.verdict = verdict


def simulate(
    listener: MakeListener | None = None,
    *,
    assignors: Iterable[Assignor] = (),
    protocol: str = "classic",
    seeds: Iterable[int] = range(20),
    members: int | None = None,
    minutes: int = 10,
    faults: Iterable[str] | None = None,
) -> list[Outcome]:
    """Run groups in virtual time, each member with your listener, and your assignors.

    Args:
        listener: Creates a listener, for example its class: each member gets a new one each time
            its process starts. If it takes an argument, it receives the member's consumer, which
            has the methods of a real one; see `SimulatedConsumer`. Methods of the listener are
            functions, not coroutines; `time.sleep` in them takes virtual time.
        assignors: Assignors of all members, in order of preference; none: the protocol's own.
        protocol: "classic", "cooperative", "consumer", "client-side" (KIP-848, with assignors that
            run in members), "draft", or "migration" (from classic to consumer and back).
        seeds: The seeds, one run per seed.
        members: Number of members; None: three to six.
        minutes: Duration of the faults, in minutes of virtual time.
        faults: Kinds of faults, as named by `kohort simulate --faults`; None: the seed decides; an
            empty list: none.

    Returns:
        The outcome of each run: numbers of events, rebalances and records read again.

    Raises:
        SimulationFailedError: A rule was broken, or the listener or an assignor raised any
            exception except `KeyboardInterrupt`, which propagates.
        NotSimulatedError: The listener does something that the simulation does not support.
        ConfigError: An argument has an unknown name.
    """
    own = tuple(_Watched(each) for each in assignors)
    if own and protocol in ("consumer", "draft"):
        raise ConfigError("members of this protocol have no assignors: the broker assigns")
    kinds = None if faults is None else frozenset(faults)
    choice = Choice(protocol=protocol, members=members, minutes=minutes, faults=kinds)
    return [_run(_with(choice.scenario(seed), own), listener, own) for seed in seeds]


def _with(scenario: Scenario, own: tuple[_Watched, ...]) -> Scenario:
    """Make all members use the test's assignors."""
    if not own:
        return scenario
    names = tuple(each.name for each in own)
    members = tuple(replace(member, assignors=names) for member in scenario.members)
    # A member that rejoined with other assignors would use the simulation's.
    faults = tuple(fault for fault in scenario.faults if fault.kind != "upgrade")
    return replace(scenario, members=members, faults=faults)


def _run(scenario: Scenario, listener: MakeListener | None, own: tuple[_Watched, ...]) -> Outcome:
    world = World(scenario, checkers=CHECKERS, assignors={each.name: each for each in own})
    errors: list[KohortError] = []
    log = CallLog()
    world.application = _tested(listener, errors, log)
    try:
        outcome = run_world(world)
    except RaisedError as error:
        cause = error.__cause__
        assert cause is not None
        if isinstance(cause, NotSimulatedError):
            cause.add_note(f"{error} this; {_again(scenario)}")
            raise cause from None
        complaint = _with_log(f"{error}: {cause!r}", log.shown(error.member))
        raise SimulationFailedError(scenario, type(cause).__name__, complaint) from cause
    if not outcome.is_ok:
        complaint = outcome.complaint
        if errors:
            complaint += f"\nthe last error that a poll raised: {errors[-1]}"
        shown = log.shown() if listener is not None else ""
        raise SimulationFailedError(scenario, outcome.verdict, _with_log(complaint, shown))
    return outcome


def _again(scenario: Scenario) -> str:
    return f"run it again with seeds=[{scenario.seed}], protocol={scenario.protocol!r}"


def _with_log(complaint: str, shown: str) -> str:
    return f"{complaint}\n{shown}" if shown else complaint


def _tested(
    make: MakeListener | None, errors: list[KohortError], log: CallLog
) -> type[Application]:
    """Return a class of applications with a listener; see `ListeningApplication`."""

    class Tested(ListeningApplication):
        """An application of this run."""

        def __init__(self, client: Client) -> None:
            super().__init__(client, make, errors, log)

    return Tested


# ------------------------------------------------------------------------------------- assignors


class _Watched(Assignor):
    """An assignor of the test, whose exceptions end the run.

    A member survives an assignor that raises: it reports the error, and retries.
    """

    name = ""

    def __init__(self, inner: Assignor) -> None:
        self.inner = inner
        self.name, self.version = inner.name, inner.version  # type: ignore[misc]  # these differ between instances here, as between classes elsewhere
        self.supported_protocols = inner.supported_protocols  # type: ignore[misc]  # as above
        self.protocol_type = inner.protocol_type

    def __copy__(self) -> _Watched:
        """Copy the assignor for each member, because it may keep per-member state."""
        with blaming(f"{self.name} cannot be copied: it raised"):
            return _Watched(copy(self.inner))

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, list[TopicPartition]]:
        """Not called: `assign_with_user_data` is called instead."""
        raise NotImplementedError

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Call the assignor."""
        with blaming(f"{self.name} raised"):
            return self.inner.assign_with_user_data(cluster, subscriptions)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the assignor's user data."""
        with blaming(f"{self.name} raised"):
            return self.inner.subscription_user_data(topics)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Pass the assignment to the assignor."""
        with blaming(f"{self.name} raised"):
            self.inner.on_assignment(assignment, metadata)

    def lent(self) -> frozenset[TopicPartition]:
        """Return the assignor's lent partitions."""
        with blaming(f"{self.name} raised"):
            return self.inner.lent()
