"""The internals of `AsyncConsumer` and `Consumer`: the core, and objects of the application."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TypeVar, cast

from kohort.client.blocking.facade import AsyncInternals, StrongRef, WeakCallback
from kohort.client.blocking.lifecycle import Shutdown
from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.callbacks import Caller
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.last_poll import Undone
from kohort.client.consumer.listener import Listens, WeakListener
from kohort.client.consumer.membership import unclosed
from kohort.client.consumer.reading import Reader
from kohort.client.net.backoff import Deadline
from kohort.errors import LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation
from kohort.values import replace

T = TypeVar("T")


class ConsumerInternals(AsyncInternals):
    """Holds the core of a consumer, which is created on its loop when first needed.

    Args:
        config: Settings.
        topics: Topics to subscribe to at once.

    Attributes:
        config: The settings.
        made: The core; None before it is first needed.
        is_closed: Whether it was closed.
    """

    kind = "consumer"

    def __init__(self, config: ConsumerConfig, topics: Collection[str]) -> None:
        super().__init__()
        self.config = config
        self.made: ConsumerCore | None = None
        self.is_closed = False
        self._first_topics = topics
        self._reader: Reader | None = None
        self._listener: StrongRef[Listens] | None = None
        self._callbacks: set[StrongRef[object]] = set()
        self._is_woken = False

    @property
    def core(self) -> ConsumerCore:
        """The core that does the work; created when first needed, on the running loop."""
        if self.is_closed:
            raise LocalProtocolError("the consumer is closed")
        self.bind_loop()
        if self.made is None:
            self.made = ConsumerCore(self._config_of_core())
            self._reader = Reader(self.made.partitions, self.config)
            if self._first_topics:
                self.made.subscribe(self._first_topics, None, None)
            self.made.is_woken = self._is_woken
        return self.made

    @property
    def reader(self) -> Reader:
        """The reader that returns records; created with `core`."""
        assert self._reader is not None
        return self._reader

    def restore_undelivered(self) -> None:
        """Make the next call return records that an interrupted call took but did not return."""
        if self._reader is not None:
            self._reader.restore_undelivered()

    def refuse_in_listener(self, call: str) -> None:
        """Refuse a call inside a listener of this consumer: it would wait for the listener."""
        if self.made is not None:
            self.made.reentrancy.refuse(call)

    def _config_of_core(self) -> ConsumerConfig:
        """Return the settings without objects of the application, which may refer to this."""
        config = self.config
        return replace(
            config,
            key_deserializer=None,
            value_deserializer=None,
            on_commit=self.weak_callback(config.on_commit),
            event_listener=self.weak_callback(config.event_listener),
        )

    def weak_callback(self, function: T, *, is_once: bool = False) -> T:
        """Return a function that background tasks may keep; it calls the application's function.

        Args:
            function: The application's function; None stays None.
            is_once: Whether it is called only once.
        """
        if function is None:
            return function
        return cast("T", WeakCallback(StrongRef(function, self._callbacks), is_once=is_once))

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listener: Listens | None,
    ) -> None:
        """Subscribe like `AsyncConsumer.subscribe`, with checked arguments."""
        strong = None if listener is None else StrongRef(listener)
        self.core.subscribe(topics, pattern, None if strong is None else WeakListener(strong))
        self._listener = strong or self._listener

    def wakeup(self) -> None:
        """See `AsyncConsumer.wakeup`."""
        self._is_woken = True
        core = self.made
        if core is not None and self.bound_loop is not None and not self.is_closed:
            core.is_woken = True
            self.bound_loop.call_soon(core.notify)

    # ------------------------------------------------------------------------------- close

    async def close(
        self,
        caller: Caller,
        undone: Undone,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Close the consumer; see `AsyncConsumer.close`.

        Args:
            caller: Calls the listeners.
            undone: Returns why the application may not have processed the records of the last poll.
            timeout_s: See `AsyncConsumer.close`.
            operation: See `AsyncConsumer.close`.
        """
        self.refuse_in_listener("close")
        deadline = Deadline(arguments.timeout_s(timeout_s, "timeout_s") * 1000)
        arguments.instance(operation, "operation", GroupMembershipOperation)
        if self.is_closed:
            return
        core = self.made
        try:
            if core is not None:
                self.bind_loop()
                await core.close(deadline, caller, operation, undone)
        finally:
            self.is_closed = core is None or core.close_task.is_over  # otherwise it was cancelled

    def shutdown(self) -> Shutdown | None:
        """Return what replaces `close` when it is not called: the member leaves its group.

        Records of the last poll are not committed, and no listener is called.
        """
        return unclosed.shutdown(self.made)

    def end_at_exit(self) -> None:
        """Leave the group on another loop: the process is exiting, and this loop no longer runs."""
        if not (self.is_owned or self.is_closed):
            self.is_closed = unclosed.leave_group(self.made, self.bound_loop)

    def end_without_loop(self) -> None:
        """Leave the group in a thread: the loop is closed, and a finalizer must not block."""
        if not self.is_closed:
            self.is_closed = unclosed.leave_group(self.made, self.bound_loop, in_thread=True)
