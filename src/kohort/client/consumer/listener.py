"""Listeners for changes of an application's partitions."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar, Token
from inspect import isawaitable
from typing import Protocol, TypeAlias, cast
from weakref import ref

from kohort.client.blocking.facade import StrongRef
from kohort.client.config.arguments import shown
from kohort.errors import LocalProtocolError
from kohort.group.events import Ownership
from kohort.types import TopicPartition

Told: TypeAlias = Awaitable[object] | Future[object] | None
"""The result of a listener's method: nothing, or an awaitable.

The change waits until the awaitable is done: a partition to be revoked stays with the member, and
heartbeats continue (up to `max.poll.interval.ms`, as in any rebalance).
"""


class Listens(Protocol):
    """Any object with these methods; without `on_partitions_lost`, `revoked` is called instead."""

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Called before partitions are given up: the last moment to commit."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Called after partitions were added and before their records are returned."""


class RebalanceListener:
    """A listener that does nothing; override what matters.

    Methods are called during the application's `poll`. They may be coroutine functions, which run
    on the client's loop. They may use the consumer, but not call its `poll`, `unsubscribe` or
    `close`, which would wait for the listener itself. They may use other consumers freely.
    """

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions are about to be given up; they still belong to this member.

        Args:
            partitions: The revoked partitions.
        """

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions were added; `seek` here to start somewhere else.

        Args:
            partitions: The added partitions; may be empty.
        """

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Partitions already belong to other members: commits for them will be refused (KIP-429).

        Args:
            partitions: The lost partitions.
        """
        return self.on_partitions_revoked(partitions)


def method_for(listener: Listens, change: Ownership) -> Callable[[frozenset[TopicPartition]], Told]:
    """Return the method to call; `on_partitions_revoked` if there is none for lost partitions."""
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
    """Call a listener for a change.

    Raises:
        TypeError: It returned an object that cannot be awaited.
        Exception: Any exception of the listener.
    """
    method = method_for(listener, change)
    told: object = method(partitions)
    if told is not None and not isinstance(told, Future) and not isawaitable(told):
        name = f"{type(listener).__name__}.{getattr(method, '__name__', change.value)}"
        raise TypeError(f"{name} must return None or an awaitable, not {shown(told)}")
    return cast("Told", told)


class WeakListener(RebalanceListener):
    """Passes calls on to a listener while the consumer object that holds it exists.

    Args:
        strong: The listener, as held by the consumer object.
    """

    def __init__(self, strong: StrongRef[Listens]) -> None:
        self._strong = ref(strong)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass the call on."""
        return self._pass_on(Ownership.REVOKED, partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass the call on."""
        return self._pass_on(Ownership.ASSIGNED, partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> Told:
        """Pass the call on."""
        return self._pass_on(Ownership.LOST, partitions)

    def _pass_on(self, change: Ownership, partitions: frozenset[TopicPartition]) -> Told:
        strong = self._strong()
        if strong is None:
            return None
        return call_listener(strong.thing, change, partitions)


class ReentrancyGuard:
    """Tracks whether a listener of one consumer is running in the current thread or task.

    A listener may create, poll and close other consumers, also in a forked child.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def enter(self) -> Token[frozenset[ReentrancyGuard]]:
        """Note that a listener starts running in the current task."""
        return _inside.set(_inside.get() | {self})

    def call(
        self,
        method: Callable[[frozenset[TopicPartition]], Told],
        partitions: frozenset[TopicPartition],
    ) -> Told:
        """Call a listener's method in the current thread."""
        before = self.enter()
        try:
            return method(partitions)
        finally:
            _inside.reset(before)

    def refuse(self, call: str) -> None:
        """Refuse a call from a listener that would wait for the same listener.

        Raises:
            LocalProtocolError: A listener of this consumer makes the call.
        """
        if self in _inside.get() and self._pid == os.getpid():
            raise LocalProtocolError(
                f"{call} was called inside a listener of the same consumer, and would wait for it"
                " to return"
            )


_inside: ContextVar[frozenset[ReentrancyGuard]] = ContextVar(
    "kohort_listeners", default=frozenset()
)
