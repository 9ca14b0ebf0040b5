"""A future of `concurrent.futures` that has kafka-python's calls, too."""

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
    """Where something went, once that is known.

    Callbacks run in the client's thread and must not block; one that raises is logged by
    `kohort.client` and hurts nothing else. Cancelling a future does not take back what was sent.
    """

    _what: ClassVar[str] = "the record"

    def __init__(self) -> None:
        super().__init__()
        self._forks = forks()

    def is_of_parent(self) -> bool:
        """Return whether it was made before this process was forked."""
        return self._forks != forks()

    def result(self, timeout: float | None = None) -> T:
        """Return the result; wait until it is known.

        Args:
            timeout: Seconds to wait at most; None to wait for ever.

        Raises:
            KafkaError: Not all was delivered.
            TimeoutError: Its fate is not known in time.
            LocalProtocolError: It was not known when this process was forked from the one that
                sends, which alone will hear of it.
            concurrent.futures.CancelledError: The future was cancelled.
        """
        self._refuse_in_child()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return why not all was delivered, None when it was; `timeout` is in seconds."""
        self._refuse_in_child()
        return super().exception(timeout)

    def _refuse_in_child(self) -> None:
        # Without the future's lock, which a thread of the parent may have had at the fork.
        if self.is_of_parent() and self._state in {"PENDING", "RUNNING"}:
            raise forked(f"the producer of {self._what}")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled and copied: the copy would never complete.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: its outcome arrives in the"
            " process that sends. Hand over its result instead"
        )

    def cancel(self) -> bool:
        """Give up waiting for what becomes of it, unless that is known; it is sent anyway."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # or `concurrent.futures.wait` goes on waiting
        return True

    def get(self, timeout: float | None = None) -> T:
        """Return the result, as kafka-python's future does.

        Args:
            timeout: Seconds to wait at most; None to wait for ever.

        Raises:
            RequestTimedOutError: Its fate is not known in time.
            KohortError: Not all was delivered.
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
        """Have a function called with this future once it is done.

        Args:
            fn: Called in the client's thread, or at once when the future is done already.
        """
        self._call_when_done(fn, fn)

    def add_callback(
        self, function: Callable[..., object], *args: object, **kwargs: object
    ) -> Self:
        """Have a function called with the result, as kafka-python's future does.

        Args:
            function: Called in the client's thread, or at once when the result is known.
            args: Given before the result.
            kwargs: Given as they are.

        Returns:
            The future itself.
        """

        def call(_: Future[T]) -> None:
            if not self.cancelled() and self.exception() is None:
                function(*args, self.result(), **kwargs)

        self._call_when_done(function, call)
        return self

    def add_errback(self, function: Callable[..., object], *args: object, **kwargs: object) -> Self:
        """Have a function called with why it was not delivered; see `add_callback`."""

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
            raise  # it was called at once, in a thread of the application's
        # An exit would otherwise end the thread that all records need.
        log.exception("the callback %r of %s raised", given, what)
    leave_if_forked()
