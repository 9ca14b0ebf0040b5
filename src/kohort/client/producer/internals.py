"""The internals of `AsyncProducer` and `Producer`: the sender and its shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kohort.client.blocking.facade import AsyncInternals
from kohort.client.blocking.lifecycle import Shutdown
from kohort.client.config.definitions import ProducerConfig
from kohort.client.net.cluster import Cluster
from kohort.client.producer.callback_records import CallbackRecords
from kohort.client.producer.closing import close, close_alone, deadline_of, flush
from kohort.client.producer.sender import Sender
from kohort.errors import LocalProtocolError
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client.producer.transactions.calls import Transactions

log = logging.getLogger("kohort.client")


class ProducerInternals(AsyncInternals):
    """Holds the sender of a producer, which is created on its loop when first needed.

    Args:
        config: Settings.

    Attributes:
        cluster: The brokers.
        made: What sends; None before it is first needed.
        is_closed: Whether it was closed.
    """

    kind = "producer"

    def __init__(self, config: ProducerConfig) -> None:
        super().__init__()
        # Background tasks must not hold references to objects of the application.
        self._config = replace(config, key_serializer=None, value_serializer=None)
        self.cluster = Cluster(self._config)
        self.cluster.allow_auto_topic_creation = config.allow_auto_create_topics
        self.made: Sender | None = None
        self.is_closed = self._is_over = False
        self._callback_records: CallbackRecords | None = None
        self._transactions: Transactions | None = None
        self._ending: asyncio.Future[None] | None = None

    def sender(self, notify: Callable[[Callable[[], object]], object] | None = None) -> Sender:
        """Return the sender; created on first use, on the running loop."""
        if self.is_closed:
            raise LocalProtocolError("the producer is closed")
        self.bind_loop()
        if self.made is None:
            self._begin_to_send(notify or (lambda call: call()))
            assert self.made is not None
        return self.made

    def _begin_to_send(self, notify: Callable[[Callable[[], object]], object]) -> None:
        if self._config.transactional_id is None:
            self.made = Sender(self._config, self.cluster, notify)
            self._callback_records = CallbackRecords(self._config, self.made)
        else:
            from kohort.client.producer.transactions.calls import Transactions
            from kohort.client.producer.transactions.sender import TransactionalSender

            sender = self.made = TransactionalSender(self._config, self.cluster, notify)
            records = self._callback_records = CallbackRecords(self._config, sender)
            self._transactions = Transactions(self._config, self.cluster, sender, records)
        self.made.start()

    def callback_records(self) -> CallbackRecords:
        """Return the queue for records of callbacks; usable while the producer closes."""
        self.made or self.sender()
        assert self._callback_records is not None
        return self._callback_records

    def transactions(self) -> Transactions:
        """Return the object that runs transaction calls, on the running loop.

        Raises:
            LocalProtocolError: The producer is closed, or has no transactional id.
        """
        if self._config.transactional_id is None:
            raise LocalProtocolError(
                "the producer has no transactional.id: give it one to send in transactions"
            )
        self.sender()
        assert self._transactions is not None
        return self._transactions

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open; safe to read from any thread."""
        return self._transactions is not None and self._transactions.is_open

    # ------------------------------------------------------------------------------- close

    async def flush(self, timeout_s: float | None) -> None:
        """See `AsyncProducer.flush`."""
        if self.made is not None:
            self.bind_loop()
            await flush(self.made, self._callback_records, deadline_of(timeout_s), timeout_s)

    async def close(self, timeout_s: float | None) -> None:
        """See `AsyncProducer.close`."""
        left_s, deadline = timeout_s, deadline_of(timeout_s)
        while (ending := self._ending) is not None:  # an earlier close may have been cancelled
            await asyncio.wait([ending], timeout=left_s)
            left_s = deadline.left_s()
            if not ending.done():
                log.warning("the producer is still being closed by another task")
                return
        if self._is_over:
            return
        if self.made is not None:
            self.bind_loop()
        self.is_closed = True
        ending = self._ending = asyncio.get_running_loop().create_future()
        try:
            if self._transactions is not None:
                await self._wind_up(self._transactions, left_s)
                left_s = deadline.left_s()
            await close(self.made, self._callback_records, self.cluster, left_s)
            self._is_over = True
        finally:
            if not self._is_over:  # the records can still be sent: by another close, or at exit
                self.is_closed = False
            self._ending = None
            ending.set_result(None)

    async def _wind_up(self, transactions: Transactions, timeout_s: float | None) -> None:
        """End an open transaction, so that it does not stay open until the broker's timeout."""
        assert self.made is not None
        self.made.refuse()
        default_s = self._config.max_block_ms / 1000
        await transactions.wind_up(deadline_of(default_s if timeout_s is None else timeout_s))

    def end_at_exit(self) -> None:
        """Log what is lost at the end of the process: the loop no longer runs."""
        sender = self.made
        if self.is_owned or self._is_over or sender is None:
            return
        if not (sender.undone() or self.is_in_transaction):
            return
        self.is_closed = self._is_over = True  # told once
        if self.is_in_transaction:
            log.warning(
                "transactional id %s: an AsyncProducer was not closed, and leaves a transaction"
                " open, which the broker aborts after %d ms: await its close()",
                self._config.transactional_id,
                self._config.transaction_timeout_ms,
            )
            return
        log.warning("records of an AsyncProducer that was not closed are lost: await its close()")

    def shutdown(self) -> Shutdown | None:
        """Return what replaces `close` when it is not called: the held records are sent.

        This also applies after a `close` that was cancelled, or will be.
        """
        if self.made is None or self._is_over:
            return None
        timeout_s = self._config.delivery_timeout_ms / 1000
        return partial(
            close_alone,
            self.made,
            self._callback_records,
            self.cluster,
            timeout_s,
            self._transactions,
        )
