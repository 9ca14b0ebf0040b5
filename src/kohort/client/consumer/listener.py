"""What an application learns about its partitions."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar, Token
from inspect import isawaitable
from typing import Protocol, TypeAlias, cast
from weakref import ref

from kohort.client.blocking.facade import Given
from kohort.client.config.arguments import shown
from kohort.errors import LocalProtocolError
from kohort.group.events import Ownership
from kohort.types import TopicPartition

Told: TypeAlias = Awaitable[object] | Future[object] | None
"""What a listener's method may return: nothing, or something that is done later.

Until it is done the change is not: a partition that is to be revoked stays the member's, and its
heartbeats go on (up to `max.poll.interval.ms`, like any rebalance).
"""


class Listens(Protocol):
    """Any object with these methods; `on_partitions_lost` may be missing, then it is `revoked`."""

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Called before partitions are given up: the last moment to commit."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Called after partitions were added and before their records are handed out."""


class RebalanceListener:
    """A listener that does nothing; override what matters.

    Methods are called inside the application's own `poll`. They may be coroutine functions, which
    then run on the client's loop. They may use the consumer, but not `poll`, `unsubscribe` or
    `close` it, which would wait for the listener itself. Other consumers they may use as they like.
    """

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions are about to be given up; they still belong to this member.

        Args:
            partitions: The revoked partitions.
        """

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions were added; `seek` here to begin somewhere else.

        Args:
            partitions: The added partitions; may be empty.
        """

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions belong to others already: commits for them will be refused (KIP-429).

        Args:
            partitions: The lost partitions.
        """
        return self.on_partitions_revoked(partitions)


def method_for(listener: Listens, change: Ownership) -> Callable[[frozenset[TopicPartition]], Told]:
    """Return the method to call; without one for what is lost, that for what is revoked."""
    revoked = listener.on_partitions_revoked
    if change is Ownership.ASSIGNED:
        return listener.on_partitions_assigned
    if change is Ownership.LOST:
        lost = getattr(listener, "on_partitions_lost", revoked)
        return cast("Callable[[frozenset[TopicPartition]], Told]", lost)
    return revoked


def call_listener(
    listener: Listens, change: Ownership, partitions: frozenset[TopicPartition]
) -> Told:
    """Tell a listener of a change.

    Raises:
        TypeError: It returned something that cannot be awaited.
        Exception: Whatever it raises.
    """
    method = method_for(listener, change)
    told: object = method(partitions)
    if told is not None and not isinstance(told, Future) and not isawaitable(told):
        name = f"{type(listener).__name__}.{getattr(method, '__name__', change.value)}"
        raise TypeError(f"{name} must return None or something to await, not {shown(told)}")
    return cast("Told", told)


class ListenerRelay(RebalanceListener):
    """Passes calls on to a listener as long as the face is there that has it.

    Args:
        given: The listener, as the face has it.
    """

    def __init__(self, given: Given[Listens]) -> None:
        self._given = ref(given)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass it on."""
        return self._pass_on(Ownership.REVOKED, partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass it on."""
        return self._pass_on(Ownership.ASSIGNED, partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass it on."""
        return self._pass_on(Ownership.LOST, partitions)

    def _pass_on(self, change: Ownership, partitions: frozenset[TopicPartition]) -> Told:
        given = self._given()
        if given is None:
            return None
        return call_listener(given.thing, change, partitions)


class Listening:
    """Knows whether a listener of one consumer runs in the present thread or task.

    Another consumer may be made, polled and closed in there, and so may be one of a forked child.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def enter(self) -> Token[frozenset[Listening]]:
        """Note that a listener runs from here on, in the present task."""
        return _inside.set(_inside.get() | {self})

    def call(
        self,
        method: Callable[[frozenset[TopicPartition]], Told],
        partitions: frozenset[TopicPartition],
    ) -> Told:
        """Call a listener's method in the present thread."""
        before = self.enter()
        try:
            return method(partitions)
        finally:
            _inside.reset(before)

    def refuse(self, call: str) -> None:
        """Keep a listener from a call that would wait for that very listener.

        Raises:
            LocalProtocolError: A listener of this consumer makes the call.
        """
        if self in _inside.get() and self._pid == os.getpid():
            raise LocalProtocolError(
                f"{call} was called inside a listener of the same consumer, whose return it waits"
                " for"
            )


_inside: ContextVar[frozenset[Listening]] = ContextVar("kohort_listeners", default=frozenset())
