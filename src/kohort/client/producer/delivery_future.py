"""The future that `Producer.send` returns."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Self

from kohort.client.producer._deliveries import Delivery
from kohort.client.producer.called_future import CalledFuture
from kohort.client.producer.delivery import RecordMetadata, tell
from kohort.errors import KohortError

# Attributes set by `Future.__init__`. They are missing until the first wait or callback.
_STATE = frozenset(vars(Future()))


class DeliveryFuture(Delivery, CalledFuture[RecordMetadata]):
    """The future result of `send`; a full `concurrent.futures.Future`.

    `asyncio.wrap_future`, `concurrent.futures.wait` and `as_completed` accept it. Its lock and
    state are created on the first wait, callback or cancellation. Callbacks run in the client's
    thread and must not block; an exception from one is logged and affects no other record.
    Cancelling a future does not withdraw its record.
    """

    @classmethod
    def detached(cls) -> Self:
        """Make the future of a record that is in no batch yet; the holder must complete it."""
        future = cls()
        CalledFuture.__init__(future)
        future.is_watched = True
        return future

    def __getattr__(self, name: str) -> object:
        """Create the state of the future when it is first needed."""
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

    def is_of_parent(self) -> bool:
        """Return whether the future was created before this process was forked."""
        return Delivery.is_of_parent(self) or ("_forks" in vars(self) and super().is_of_parent())

    def done(self) -> bool:
        """Return whether the record's outcome is known, or the future was cancelled."""
        if self.is_watched:
            return super().done()
        return self.outcome() is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome and return where the record was written.

        Args:
            timeout: Maximum wait in seconds; None for no limit.

        Raises:
            KafkaError: The record was not delivered.
            TimeoutError: The outcome is not known in time.
            concurrent.futures.CancelledError: The future was cancelled.
        """
        outcome = None if self.is_watched else self.outcome()
        if outcome is None:
            return super().result(timeout)
        if isinstance(outcome, KohortError):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the delivery error, None if the record was delivered; `timeout` is in seconds."""
        outcome = None if self.is_watched else self.outcome()
        if outcome is None:
            return super().exception(timeout)
        return outcome if isinstance(outcome, KohortError) else None
