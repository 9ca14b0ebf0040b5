"""The future that `Producer.send` returns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Self

from kohort.client._deliveries import Delivery
from kohort.client.delivery import RecordMetadata, leave_if_forked, tell
from kohort.errors import KohortError, RequestTimedOutError

log = logging.getLogger("kohort.client")

# What `Future.__init__` sets. A future has none of it until somebody waits for it or calls back.
_STATE = frozenset(vars(Future()))


class DeliveryFuture(Delivery, Future[RecordMetadata]):
    """Where a record went, once that is known; a `concurrent.futures.Future` in every respect.

    `asyncio.wrap_future`, `concurrent.futures.wait` and `as_completed` take it. Its lock and its
    state are made when somebody first waits, adds a callback or cancels. Callbacks run in the
    client's thread and must not block; one that raises is logged and hurts no other record.
    Cancelling a future does not take its record back.
    """

    @classmethod
    def detached(cls) -> Self:
        """Make the future of a record that is in no batch yet; whoever has the record tells it."""
        future = cls()
        Future.__init__(future)
        future.is_watched = True
        return future

    def __getattr__(self, name: str) -> object:
        """Make the state of the future when it is first needed."""
        if name not in _STATE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own = vars(self)
        while True:
            fresh: Future[RecordMetadata] = Future()
            outcome = self.outcome()
            if outcome is not None:
                tell(fresh, outcome)
            if self.adopt(own, vars(fresh), outcome is not None, self):
                return own[name]

    def cancel(self) -> bool:
        """Give up waiting for the record's fate, unless it is known; the record is sent anyway."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # or `concurrent.futures.wait` goes on waiting
        return True

    def done(self) -> bool:
        """Return whether the record's fate is known, or the future was cancelled."""
        if self.is_watched:
            return super().done()
        return self.outcome() is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record went; wait until that is known.

        Args:
            timeout: Seconds to wait at most; None to wait for ever.

        Raises:
            KafkaError: The record was not delivered.
            TimeoutError: Its fate is not known in time.
            concurrent.futures.CancelledError: The future was cancelled.
        """
        outcome = None if self.is_watched else self.outcome()
        if outcome is None:
            return super().result(timeout)
        if isinstance(outcome, KohortError):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return why the record was not delivered, None when it was; wait as `result` does."""
        outcome = None if self.is_watched else self.outcome()
        if outcome is None:
            return super().exception(timeout)
        return outcome if isinstance(outcome, KohortError) else None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record went, as kafka-python's future does.

        Args:
            timeout: Seconds to wait at most; None to wait for ever.

        Raises:
            RequestTimedOutError: The record's fate is not known in time.
            KafkaError: The record was not delivered.
        """
        try:
            return self.result(timeout)
        except FutureTimeoutError as error:
            if self.done():
                return self.result(0)
            raise RequestTimedOutError(
                f"the record was not acknowledged in {timeout} s; it may still be"
            ) from error

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Have a function called with this future once the record's fate is known.

        Args:
            fn: Called in the client's thread, or at once when the fate is known already.
        """
        super().add_done_callback(partial(_done, fn))

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Have a function called with where the record went, as kafka-python's future does.

        Args:
            function: Called in the client's thread, or at once when the record's fate is known.
            args: Given before the result.
            kwargs: Given as they are.

        Returns:
            The future itself.
        """

        def call(_: Future[RecordMetadata]) -> None:
            if not self.cancelled() and self.exception() is None:
                _call_back(function, args, kwargs, self.result())

        self.add_done_callback(call)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Have a function called with why the record was not delivered; see `add_callback`."""

        def call(_: Future[RecordMetadata]) -> None:
            error = None if self.cancelled() else self.exception()
            if error is not None:
                _call_back(function, args, kwargs, error)

        self.add_done_callback(call)
        return self


def _done(
    function: Callable[[Future[RecordMetadata]], object], future: Future[RecordMetadata]
) -> None:
    try:
        function(future)
    except BaseException as error:
        leave_if_forked(error)
        raise
    leave_if_forked()


def _call_back(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    outcome: object,
) -> None:
    try:
        function(*args, outcome, **kwargs)
    except Exception as error:
        leave_if_forked(error)
        log.exception("the callback %r of a record raised", function)
