"""Simulated applications with the test's listener, and the errors it causes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import Parameter, signature
from typing import SupportsIndex, cast

from kohort.client.config import arguments
from kohort.client.consumer.listener import Listens, RebalanceListener, call_listener
from kohort.errors import KohortError
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.simulation.groups.client import Client
from kohort.simulation.groups.world import MachineFailedError, ViolationError
from kohort.testing.consumer import SimulatedConsumer
from kohort.testing.positions import CallLog, CommittingApplication, NotSimulatedError, call_text
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message

MakeListener = Callable[[], Listens] | Callable[[SimulatedConsumer], Listens]


class RaisedError(BaseException):
    """Carries an exception of the code under test past all handlers of the simulation.

    Attributes:
        member: The member whose code raised, None for code of all members.
    """

    def __init__(self, where: str, member: str | None = None) -> None:
        super().__init__(where)
        self.member = member


@contextmanager
def blaming(where: str, member: str | None = None) -> Iterator[None]:
    """End the run with any exception of the code under test, like Ctrl-C and broken rules.

    Args:
        where: The code that raises, and when.
        member: The member whose code it is, None for code of all members.
    """
    try:
        yield
    except (KeyboardInterrupt, ViolationError, MachineFailedError):
        raise
    except BaseException as error:
        raise RaisedError(where, member) from error


class ListeningApplication(CommittingApplication):
    """An application with a listener that can call a consumer.

    Args:
        client: The client of the application.
        make: Creates its listener.
        errors: Collects the errors of its polls.
        log: Records calls of the listener and by the listener.
    """

    def __init__(
        self, client: Client, make: MakeListener | None, errors: list[KohortError], log: CallLog
    ) -> None:
        super().__init__(client)
        self._errors_told, self._log = errors, log
        self._consumer = SimulatedConsumer(self, log)
        self._slept_ms = 0
        with self._blamed("the listener of {} could not be made, it raised"):
            self._listener = _made(make, self._consumer)

    def news(self, callbacks: tuple[Callback, ...], raised: tuple[KohortError, ...]) -> None:
        """Record the error that a poll is going to raise."""
        self._errors_told.extend(raised)
        super().news(callbacks, raised)

    def listen(self, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener as the client does."""
        name, consumer = f"on_partitions_{change.name.lower()}", self._consumer
        now = self.client.world.engine.now
        self._log.note(now, self.client.name, call_text(name, partitions))
        consumer.held = partitions if change is Ownership.ASSIGNED else frozenset()
        method = partial(_call, self._listener, change, partitions)
        self._slept_ms = self._run(name, "the listener of {} raised", method)
        consumer.held = frozenset()
        consumer.calls.called(change, self._slept_ms, now)

    def takes_ms(self, change: Ownership) -> int:
        """Add the listener's sleep to its time."""
        slept_ms, self._slept_ms = self._slept_ms, 0
        return super().takes_ms(change) + slept_ms

    def let_go(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget offsets stored for partitions of other members."""
        super().let_go(partitions)
        self._consumer.forget(partitions)

    def _found(self, lives: dict[TopicPartition, int], response: Message | None) -> None:
        """Skip partitions with an unanswered commit, whose effect is unknown."""
        committing = self._consumer.committing
        self.look_up_again([each for each in lives if committing[each]])
        super()._found(lives, response)

    def _told(self, change: Ownership) -> None:
        """Treat the listener as returned once its commits are answered."""
        if not self._consumer.when_committed(partial(self._told, change)):
            super()._told(change)

    def _work(self) -> None:
        """Report the results of commits first in a poll."""
        answered, now = self._consumer.answered, self.client.world.engine.now
        while answered and self._polls and self.calling is None and self.client.alive:
            self._log.note(now, self.client.name, "on_commit")
            slept_ms = self._run("on_commit", "on_commit of {} raised", answered.popleft())
            if slept_ms:
                self.stall(now + slept_ms)
        super()._work()

    def _run(self, name: str, what: str, function: Callable[[], object]) -> int:
        """Call code of the listener; return how long it slept, in milliseconds."""
        with self._blamed(what), _virtual_sleep() as slept:
            function()
            _check_time(name, slept(), self.client.plan.max_poll_interval_ms)
        return slept()

    @contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        """Blame the listener, except for unsupported calls, even if it caught their error."""
        who, consumer = self.client.name, self._consumer
        where = f"at {self.client.world.engine.now} ms {what.format(who)}"
        with blaming(where, who):
            try:
                yield
            except BaseException as error:
                if consumer.unsimulated is None or isinstance(error, KeyboardInterrupt):
                    raise
            if consumer.unsimulated is not None:
                raise consumer.unsimulated


def _made(make: MakeListener | None, consumer: SimulatedConsumer) -> Listens:
    """Create a listener; pass the consumer if it takes one."""
    if make is None:
        return RebalanceListener()
    if not callable(make):
        raise TypeError(f"{arguments.shown(make)} is not a class or function that makes a listener")
    if _takes_consumer(make):
        made = cast("Callable[[SimulatedConsumer], Listens]", make)(consumer)
    else:
        made = cast("Callable[[], Listens]", make)()
    listener = arguments.listener_or_none(made, "listener")  # like the client's `subscribe`
    if listener is None:
        raise TypeError("the function that makes a listener returned None")
    return listener


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
    """Let `time.sleep` of this thread take virtual time; the context value returns it in ms."""
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


def _call(listener: Listens, change: Ownership, partitions: frozenset[TopicPartition]) -> None:
    """Call a listener, and check its result as the client does, which would await it."""
    told = call_listener(listener, change, partitions)
    if told is None:
        return
    if isinstance(told, Coroutine):
        told.close()
    raise NotSimulatedError(
        "an asynchronous listener cannot be simulated: its methods have to be functions"
        " that return None. Test it with a Consumer and an EmbeddedBroker"
    )
