"""The future that `Producer.send` returns."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Self

from kohort.client.producer._deliveries import Delivery
from kohort.client.producer.called_future import CalledFuture
from kohort.client.producer.delivery import RecordMetadata, tell
from kohort.errors import KohortError

# What `Future.__init__` sets. A future has none of it until the first wait or callback.
_STATE = frozenset(vars(Future()))


class DeliveryFuture(Delivery, CalledFuture[RecordMetadata]):
    """Where a record went, once that is known; a `concurrent.futures.Future` in every respect.

    `asyncio.wrap_future`, `concurrent.futures.wait` and `as_completed` take it. Its lock and its
    state are made upon the first wait, callback or cancellation. Callbacks run in the
    client's thread and must not block; one that raises is logged and hurts no other record.
    Cancelling a future does not take its record back.
    """

    @classmethod
    def detached(cls) -> Self:
        """Make the future of a record that is in no batch yet; its holder settles it."""
        future = cls()
        CalledFuture.__init__(future)
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

    def is_of_parent(self) -> bool:
        """Return whether it was made before this process was forked."""
        return Delivery.is_of_parent(self) or ("_forks" in vars(self) and super().is_of_parent())

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
        """Return why the record was not delivered, None when it was; `timeout` is in seconds."""
        outcome = None if self.is_watched else self.outcome()
        if outcome is None:
            return super().exception(timeout)
        return outcome if isinstance(outcome, KohortError) else None
