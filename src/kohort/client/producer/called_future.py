"""A `concurrent.futures` future that also has kafka-python's methods."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import ClassVar, NoReturn, Self, TypeVar

from kohort.client.blocking.lifecycle import forked
from kohort.client.producer._deliveries import forks
from kohort.client.producer.delivery import is_telling, leave_if_forked
from kohort.errors import RequestTimedOutError

log = logging.getLogger("kohort.client")

T = TypeVar("T")


class CalledFuture(Future[T]):
    """A future for the outcome of a delivery.

    Callbacks run in the client's thread and must not block; an exception from one is logged by
    `kohort.client` and has no other effect. Cancelling a future does not withdraw sent records.
    """

    _what: ClassVar[str] = "the record"

    def __init__(self) -> None:
        super().__init__()
        self._forks = forks()

    def is_of_parent(self) -> bool:
        """Return whether the future was created before this process was forked."""
        return self._forks != forks()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it.

        Args:
            timeout: Maximum wait in seconds; None for no limit.

        Raises:
            KafkaError: Some records were not delivered.
            TimeoutError: The outcome is not known in time.
            LocalProtocolError: The outcome was not known when this process was forked; only the
                sending process will learn it.
            concurrent.futures.CancelledError: The future was cancelled.
        """
        self._refuse_in_child()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the delivery error, None if everything was delivered; `timeout` is in seconds."""
        self._refuse_in_child()
        return super().exception(timeout)

    def _refuse_in_child(self) -> None:
        # Without the future's lock, which a thread of the parent may have held at the fork.
        if self.is_of_parent() and self._state in {"PENDING", "RUNNING"}:
            raise forked(f"the producer of {self._what}")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and copying: the copy would never complete.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: its outcome arrives in the"
            " process that sends. Hand over its result instead"
        )

    def cancel(self) -> bool:
        """Stop waiting for the outcome, unless it is known; the records are sent anyway."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # otherwise `concurrent.futures.wait` keeps waiting
        return True

    def get(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, like kafka-python's future.

        Args:
            timeout: Maximum wait in seconds; None for no limit.

        Raises:
            RequestTimedOutError: The outcome is not known in time.
            KohortError: Some records were not delivered.
        """
        try:
            return self.result(timeout)
        except FutureTimeoutError as error:
            if self.done():
                return self.result(0)
            raise RequestTimedOutError(
                f"{self._what} was not acknowledged in {timeout} s; it may still be"
            ) from error

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call a function with this future once it is done.

        Args:
            fn: Called in the client's thread, or at once when the future is done already.
        """
        self._call_when_done(fn, fn)

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Call a function with the result, like kafka-python's future.

        Args:
            function: Called in the client's thread, or at once when the result is known.
            args: Passed before the result.
            kwargs: Passed unchanged.

        Returns:
            The future itself.
        """

        def call(_: Future[T]) -> None:
            if not self.cancelled() and self.exception() is None:
                function(*args, self.result(), **kwargs)

        self._call_when_done(function, call)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Call a function with the delivery error; see `add_callback`."""

        def call(_: Future[T]) -> None:
            error = None if self.cancelled() else self.exception()
            if error is not None:
                function(*args, error, **kwargs)

        self._call_when_done(function, call)
        return self

    def _call_when_done(self, given: object, call: Callable[[Future[T]], object]) -> None:
        self._refuse_in_child()
        super().add_done_callback(partial(_done, given, self._what, call))


def _done(given: object, what: str, call: Callable[[Future[T]], object], future: Future[T]) -> None:
    try:
        call(future)
    except BaseException as error:
        leave_if_forked(error)
        if not isinstance(error, Exception) and not is_telling():
            raise  # called at once, in a thread of the application
        # SystemExit would otherwise end the thread that all records need.
        log.exception("the callback %r of %s raised", given, what)
    leave_if_forked()
