"""Calls into the application: its listener, its assignors, and commit callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar, cast

from kohort.client.config.definitions import OnCommit
from kohort.client.consumer.commits.auto_commit import AutoCommit
from kohort.client.consumer.commits.committer import Committer, Offsets
from kohort.client.consumer.listener import (
    Listens,
    RebalanceListener,
    ReentrancyGuard,
    Told,
    method_for,
)
from kohort.client.consumer.membership.shell import Membership
from kohort.client.consumer.partitions import Partitions
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.transport import now_ms
from kohort.errors import KohortError
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.member.events import CallbackDone

log = logging.getLogger("kohort.client")

T = TypeVar("T")


class Caller(Protocol):
    """Runs calls in the polling thread."""

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` and return its result."""


class _Direct:
    """Calls listeners on the loop: there is no other thread."""

    async def call(self, function: Callable[[], T]) -> T:
        return function()


class _Silent:
    """Calls no listener: the application has dropped the consumer."""

    async def call(self, function: Callable[[], T]) -> T:  # noqa: ARG002  # signature of `Caller`
        return cast("T", None)


DIRECT = _Direct()
SILENT = _Silent()


class Callbacks:
    """Runs the application's callbacks for a group member, during its polls.

    Args:
        partitions: The consumer's partitions.
        coordinator: The group's coordinator; holds the metrics of calls.
        committer: Forgets commits of partitions that were given up.
        auto_commit: Commits before partitions are given up.
        reentrancy: Tracks running listener calls.
        on_done: Called after each change of partitions.

    Attributes:
        membership: The membership that makes these calls; None before the first subscription.
        listener: The application's listener.
        error: The first exception of a rebalance's calls; the poll raises it.
    """

    def __init__(
        self,
        partitions: Partitions,
        coordinator: Coordinator,
        committer: Committer,
        auto_commit: AutoCommit,
        reentrancy: ReentrancyGuard,
        on_done: Callable[[], None],
    ) -> None:
        self.membership: Membership | None = None
        self.listener: Listens = RebalanceListener()
        self.error: Exception | None = None
        self._partitions = partitions
        self._coordinator = coordinator
        self._committer = committer
        self._auto_commit = auto_commit
        self._reentrancy = reentrancy
        self._on_done = on_done
        self._deferred: set[asyncio.Task[None]] = set()
        self._answered: deque[Callable[[], object]] = deque()
        self._begun: dict[int, tuple[Ownership, int]] = {}

    @property
    def are_due(self) -> bool:
        """Whether a poll has calls to make, or an exception to raise."""
        has_calls = self.membership is not None and bool(self.membership.callbacks)
        return has_calls or bool(self._answered) or self.error is not None

    def answered(self, on_commit: OnCommit, offsets: Offsets, error: KohortError | None) -> None:
        """Report the outcome of a commit in the next poll."""
        self._answered.append(partial(on_commit, offsets, error))

    async def stop(self) -> None:
        """Stop waiting for listeners."""
        tasks = list(self._deferred)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, caller: Caller, *, is_leaving: bool = False) -> bool:
        """Run the calls that are due; return whether there were any.

        Args:
            caller: Runs the calls.
            is_leaving: Whether the consumer leaves, and waits for its last commits.
        """
        served = bool(self._answered)
        while self._answered:
            await caller.call(self._answered.popleft())
        while self.membership is not None and self.membership.callbacks:
            callback = self.membership.callbacks[0]
            if self._is_due(callback):
                self.membership.callbacks.popleft()
                await self._make(callback, caller, is_leaving)
                served = True
            elif is_leaving:
                await self._auto_commit.end_before(callback)
            else:
                break
        return served

    def _is_due(self, callback: Callback) -> bool:
        """Whether a call may run now. From here on, its partitions are not read."""
        if callback.change is Ownership.ASSIGNED:
            self._partitions.add(callback.partitions, held=True)
            return True
        self._partitions.hold(callback.partitions, True)
        if self._is_member:  # also while leaving in a rebalance: the broker decides
            return self._auto_commit.is_done_before(callback)
        self._auto_commit.abandon()
        return True

    async def _make(self, callback: Callback, caller: Caller, is_leaving: bool) -> None:
        change = self._change(callback)
        method = method_for(self.listener, change)
        self._begun[callback.token] = change, now_ms()
        if type(self.listener) is RebalanceListener and not callback.assignor:
            self._done(callback, None)  # without a listener there is nothing to wait for
            return
        told: Told = None
        error: Exception | None = None
        try:
            if change is Ownership.ASSIGNED:
                await self._tell_assignor(callback, caller)
            told = await caller.call(lambda: self._reentrancy.call(method, callback.partitions))
        except Exception as raised:  # noqa: BLE001  # the poll raises it once the member knows
            error = raised
        except BaseException:  # an interrupted listener has been called
            self._done(callback, None)
            raise
        if told is None and not self._stored_meanwhile(callback):
            self._done(callback, error)
            return
        task = asyncio.ensure_future(self._later(callback, told, error, is_leaving))
        self._deferred.add(task)
        task.add_done_callback(self._deferred.discard)

    def _stored_meanwhile(self, callback: Callback) -> Offsets:
        if callback.change is not Ownership.REVOKED or not self._is_member:
            return {}
        return self._auto_commit.stored_meanwhile(callback)

    async def _tell_assignor(self, callback: Callback, caller: Caller) -> None:
        """Call its assignor where the listener is called: it may block or call the consumer."""
        assert self.membership is not None
        tell = self.membership.member.tell_assignor
        try:
            if callback.assignor:
                told = partial(self._reentrancy.call, lambda _: tell(callback), frozenset())
                await caller.call(told)
        except Exception as error:  # noqa: BLE001  # the poll raises it, and nothing else changes
            self._note_call_error(error)

    def _note_call_error(self, error: Exception) -> None:
        """L6: the first error of a rebalance is raised; the later calls are made anyway."""
        if self.error is None:
            self.error = error
        else:
            log.error("another call of the same rebalance failed, too", exc_info=error)

    def _change(self, callback: Callback) -> Ownership:
        """Return the current change: LOST if the member dropped out while the call waited."""
        if callback.change is Ownership.REVOKED and not self._is_member:
            return Ownership.LOST
        return callback.change

    @property
    def _is_member(self) -> bool:
        assert self.membership is not None
        is_member: bool = self.membership.member.session.is_member
        return is_member

    async def _later(
        self, callback: Callback, told: Told, error: Exception | None, is_leaving: bool
    ) -> None:
        """Wait for the listener to finish, and commit offsets stored meanwhile."""
        self._reentrancy.enter()
        try:
            if told is not None:
                await (asyncio.wrap_future(told) if isinstance(told, Future) else told)
        except Exception as raised:  # noqa: BLE001  # the next poll raises it
            error = raised
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling():  # the consumer stops
                raise
            error = KohortError("what the listener waited for was cancelled")
        if stored := self._stored_meanwhile(callback):
            await self._auto_commit.commit_meanwhile(stored, is_leaving=is_leaving)
        self._done(callback, error)

    def _done(self, callback: Callback, error: Exception | None) -> None:
        if callback.change is Ownership.ASSIGNED:
            self._partitions.hold(callback.partitions, False)
        else:
            self._partitions.remove(callback.partitions)
            self._committer.forget(callback.partitions)
        if error is not None:
            self._note_call_error(error)
        assert self.membership is not None
        change, begun = self._begun.pop(callback.token)
        self._coordinator.metrics.called(change, now_ms() - begun, now_ms())
        self.membership.run(CallbackDone(callback.token, str(error) if error else None))
        self._on_done()
