"""Run a user's listener and assignors in simulated groups: virtual time, every fault, every rule.

    def test_my_listener() -> None:
        simulate(MyListener)

A run takes a fraction of a second and is the same each time. Whatever the listener or the assignor
raises, an assertion among them, and every rule that a group then breaks, fails the test with the
seed at which it happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from functools import partial
from inspect import Parameter, signature
from typing import SupportsIndex, cast

from kohort.client.listener import Listens, RebalanceListener, Told
from kohort.errors import ConfigError, KohortError, Portable
from kohort.group.assignors import Assignor, ClusterView
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.subscription import Subscription
from kohort.simulation.application import Application
from kohort.simulation.campaign import Choice
from kohort.simulation.checkers import CHECKERS
from kohort.simulation.client import Client
from kohort.simulation.running import Outcome, run_world
from kohort.simulation.scenario import Scenario
from kohort.simulation.world import World
from kohort.testing.consumer import CallLog, SimulatedConsumer, call_text
from kohort.types import TopicPartition
from kohort.values import replace

MakeListener = Callable[[], Listens] | Callable[[SimulatedConsumer], Listens]


class SimulationFailedError(Portable, AssertionError):
    """A rule of the group was broken, or the code under test raised.

    Attributes:
        scenario: The run in which it happened; `scenario.seed` is its seed.
        verdict: Name of the rule, or the type of what was raised.
    """

    def __init__(self, scenario: Scenario, verdict: str, complaint: str) -> None:
        again = f"seeds=[{scenario.seed}], protocol={scenario.protocol!r}"
        super().__init__(f"{complaint}\nrun it again with {again}")
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
    """Run groups in virtual time, each member with a listener of yours, and your assignors.

    Args:
        listener: Makes a listener, for example its class: each member gets one of its own for each
            time that its process starts. If it takes an argument, that is the member's consumer,
            which has the methods that a listener may call; see `SimulatedConsumer`. Methods of the
            listener are functions, not coroutines; `time.sleep` in them takes virtual time.
        assignors: Assignors of all members, the best liked first; none: those of the protocol.
        protocol: "classic", "cooperative", "consumer", "client-side" (KIP-848, with assignors that
            run in members), "draft", or "migration" (from classic to consumer and back).
        seeds: One run for each.
        members: How many members; None: from three to six.
        minutes: How long faults happen, in minutes of virtual time.
        faults: Kinds of faults, as `kohort simulate --faults` names them; None: the seed decides;
            an empty list: none.

    Returns:
        What came of each run: how many events, rebalances and records read again there were.

    Raises:
        SimulationFailedError: A rule was broken, or the listener or an assignor raised.
        ConfigError: An argument names what there is not.
    """
    own = tuple(_Watched(each) for each in assignors)
    if own and protocol in ("consumer", "draft"):
        raise ConfigError("members of this protocol have no assignors: the broker assigns")
    kinds = None if faults is None else frozenset(faults)
    choice = Choice(protocol=protocol, members=members, minutes=minutes, faults=kinds)
    return [_run(_with(choice.scenario(seed), own), listener, own) for seed in seeds]


def _with(scenario: Scenario, own: tuple[_Watched, ...]) -> Scenario:
    """Let all members use the assignors of the test."""
    if not own:
        return scenario
    names = tuple(each.name for each in own)
    members = tuple(replace(member, assignors=names) for member in scenario.members)
    # A member that came back with other assignors would bring those of the simulation.
    faults = tuple(fault for fault in scenario.faults if fault.kind != "upgrade")
    return replace(scenario, members=members, faults=faults)


def _run(scenario: Scenario, listener: MakeListener | None, own: tuple[_Watched, ...]) -> Outcome:
    world = World(scenario, checkers=CHECKERS, assignors={each.name: each for each in own})
    errors: list[KohortError] = []
    log = CallLog()
    world.application = _tested(listener, errors, log)
    try:
        outcome = run_world(world)
    except _RaisedError as error:
        cause = error.__cause__
        assert cause is not None
        complaint = _with_log(f"{error}: {cause!r}", log.shown(error.member))
        raise SimulationFailedError(scenario, type(cause).__name__, complaint) from cause
    if not outcome.is_ok:
        complaint = outcome.complaint
        if errors:
            complaint += f"\nthe last error that a poll raised: {errors[-1]}"
        shown = log.shown() if listener is not None else ""
        raise SimulationFailedError(scenario, outcome.verdict, _with_log(complaint, shown))
    return outcome


def _with_log(complaint: str, shown: str) -> str:
    return f"{complaint}\n{shown}" if shown else complaint


class _RaisedError(BaseException):
    """Carries what the code under test raised past everything that would live with it."""

    def __init__(self, where: str, member: str | None = None) -> None:
        super().__init__(where)
        self.member = member


# ------------------------------------------------------------------------------------- listeners


def _tested(
    make: MakeListener | None, errors: list[KohortError], log: CallLog
) -> type[Application]:
    """Return a class of applications that have a listener.

    Args:
        make: Makes the listener of one application.
        errors: Where they write down what their polls raise.
        log: Where they write down what listeners are told, and call.
    """

    class Tested(Application):
        """An application with a listener, which has a consumer to call."""

        def __init__(self, client: Client) -> None:
            super().__init__(client)
            self._consumer = SimulatedConsumer(self, log)
            self._listener = _made(make, self._consumer)
            self._slept_ms = 0

        def news(self, callbacks: tuple[Callback, ...], raised: tuple[KohortError, ...]) -> None:
            """Write down what a poll is going to raise."""
            errors.extend(raised)
            super().news(callbacks, raised)

        def listen(self, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
            """Call the listener as the client does."""
            method, name = _method(self._listener, change), f"on_partitions_{change.name.lower()}"
            now, who = self.client.world.engine.now, self.client.name
            log.note(now, who, call_text(name, partitions))
            try:
                with _virtual_sleep() as slept:
                    _call(method, partitions)
                self._slept_ms = slept()
                _check_time(name, self._slept_ms, self.client.plan.max_poll_interval_ms)
            except Exception as error:
                where = f"at {now} ms the listener of {who} raised"
                raise _RaisedError(where, who) from error

        def takes_ms(self, change: Ownership) -> int:
            """A listener takes as long as it slept, too."""
            slept_ms, self._slept_ms = self._slept_ms, 0
            return super().takes_ms(change) + slept_ms

        def _told(self, change: Ownership) -> None:
            """It has returned once what it committed is answered."""
            if not self._consumer.when_committed(partial(self._told, change)):
                super()._told(change)

    return Tested


def _made(make: MakeListener | None, consumer: SimulatedConsumer) -> Listens:
    """Make a listener; one that takes a consumer is handed it."""
    if make is None:
        return RebalanceListener()
    if _takes_consumer(make):
        return cast("Callable[[SimulatedConsumer], Listens]", make)(consumer)
    return cast("Callable[[], Listens]", make)()


def _takes_consumer(make: MakeListener) -> bool:
    """Whether a function needs an argument, or has one of that name."""
    try:
        parameters = signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    chosen = [each for each in parameters if each.kind in positional]
    return bool(chosen) and (chosen[0].default is Parameter.empty or chosen[0].name == "consumer")


@contextmanager
def _virtual_sleep() -> Iterator[Callable[[], int]]:
    """Let `time.sleep` of this thread take virtual time; what is given says how much, in ms."""
    real, here, slept_s = time.sleep, threading.get_ident(), 0.0

    def sleep(seconds: float | SupportsIndex) -> None:
        nonlocal slept_s
        if threading.get_ident() == here:
            slept_s += float(seconds)
        else:
            real(seconds)

    time.sleep = sleep
    try:
        yield lambda: int(slept_s * 1000)
    finally:
        time.sleep = real


def _check_time(name: str, slept_ms: int, limit_ms: int) -> None:
    if slept_ms >= limit_ms:
        raise TimeoutError(
            f"{name} slept for {slept_ms} ms, which max.poll.interval.ms ({limit_ms}) does not"
            " allow: the group removes its member, and gives its partitions to others"
        )


def _call(
    method: Callable[[frozenset[TopicPartition]], Told], partitions: frozenset[TopicPartition]
) -> None:
    told = method(partitions)
    if isinstance(told, Coroutine):
        told.close()
    if isinstance(told, Awaitable | Future):
        raise TypeError("a listener that is done later cannot be simulated")


def _method(listener: Listens, change: Ownership) -> Callable[[frozenset[TopicPartition]], Told]:
    if change is Ownership.ASSIGNED:
        return listener.on_partitions_assigned
    if change is Ownership.REVOKED:
        return listener.on_partitions_revoked
    lost: Callable[[frozenset[TopicPartition]], Told] = getattr(
        listener, "on_partitions_lost", listener.on_partitions_revoked
    )
    return lost


# ------------------------------------------------------------------------------------- assignors


class _Watched(Assignor):
    """An assignor of the test, whose exceptions end the run.

    A member lives with an assignor that raises: it tells the application, and tries again.
    """

    name = ""

    def __init__(self, inner: Assignor) -> None:
        self.inner = inner
        self.name, self.version = inner.name, inner.version  # type: ignore[misc]  # these differ between instances here, as between classes elsewhere
        self.supported_protocols = inner.supported_protocols  # type: ignore[misc]  # as above

    def __copy__(self) -> _Watched:
        """Each member has one of its own: it may remember what its member has."""
        return _Watched(copy(self.inner))

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, list[TopicPartition]]:
        """Not called: `assign_with_user_data` is."""
        raise NotImplementedError

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Assign, as the assignor does."""
        try:
            return self.inner.assign_with_user_data(cluster, subscriptions)
        except Exception as error:
            raise _RaisedError(f"{self.name} raised") from error

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Say what the assignor says."""
        try:
            return self.inner.subscription_user_data(topics)
        except Exception as error:
            raise _RaisedError(f"{self.name} raised") from error

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Tell the assignor."""
        try:
            self.inner.on_assignment(assignment, metadata)
        except Exception as error:
            raise _RaisedError(f"{self.name} raised") from error
