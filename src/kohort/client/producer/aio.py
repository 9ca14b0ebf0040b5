"""A producer on the caller's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client.blocking.facade import AsyncFace
from kohort.client.blocking.lifecycle import Farewell
from kohort.client.config import arguments
from kohort.client.config.definitions import ProducerConfig, from_kafka, make
from kohort.client.measures import PRODUCER, Metrics, precise_ms
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer.closing import close, close_alone, deadline_of, flush
from kohort.client.producer.delivery import RecordMetadata, tell_all
from kohort.client.producer.late_records import LateRecords
from kohort.client.producer.sender import Sender
from kohort.errors import KohortError, LocalProtocolError
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ProducerSettings
    from kohort.client.producer.arrow.delivery import ArrowDelivery
    from kohort.client.producer.transactions.calls import Transactions

log = logging.getLogger("kohort.client")

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]


class AsyncProducer(AsyncFace):
    """Sends records to Kafka, in batches and in order.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerSettings`.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """

    _kind = "producer"

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        # What runs in the background must not refer to what the application has given.
        self._bare = replace(self._config, key_serializer=None, value_serializer=None)
        self._cluster = Cluster(self._bare)
        self._cluster.allow_auto_topic_creation = self._config.allow_auto_create_topics
        self._sender: Sender | None = None
        self._late: LateRecords | None = None
        self._transactions: Transactions | None = None
        self._ending: asyncio.Future[None] | None = None
        self._is_closed = self._is_over = False

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer of Kafka's own keys, as `bootstrap.servers`."""
        known = cast("ProducerSettings", from_kafka(ProducerConfig, settings))
        return cls(**known)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Headers | None = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Add a record to its batch; waits only for metadata and for memory.

        Args:
            topic: Where it goes.
            value: Bytes, or what `value_serializer` takes; None deletes the key where the topic
                is compacted.
            key: Bytes, or what `key_serializer` takes.
            headers: Names and values (KIP-82); None is the same as none.
            partition: Where it goes; by default chosen by the key as the setting `partitioner`
                says, which is as Java's producer does it.
            timestamp_ms: Milliseconds since the epoch; now by default.

        Returns:
            A future of where it went; it fails when the record was not delivered.

        Raises:
            KafkaError: The topic or partition does not exist, the record is too large, or no
                broker or no memory was there within `max_block_ms`.
            TypeError: Key or value are not bytes and there is no serializer, or another argument
                has a type that does not fit.
            ValueError: A number is out of its range.
        """
        sender = self.sender()
        value, key = serialized(self._config, value, key)
        given = topic, value, key, headers, partition, timestamp_ms
        delivery = await sender.add(given, Deadline(self._config.max_block_ms))
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if not delivery.watch(future):
            tell_all([(delivery, future)])
        return future

    async def send_arrow(
        self, topic: str, table: pa.RecordBatch | pa.Table
    ) -> asyncio.Future[ArrowDelivery]:
        """Add the rows of a table, in large batches; waits only for metadata and for memory.

        The table is checked before anything of it is sent. Rows with a key go where `send` would
        put them; rows without fill one partition's batch after the other. What is sent does not
        wait for `linger_ms`. Serializers are not called: columns hold bytes.

        Args:
            topic: Where the rows go.
            table: Columns `value`, and if wanted `key`, `headers`, `partition` (int32; null to have
                it chosen) and `timestamp` (null for now), of the types that `poll_arrow` gives, or
                other types of byte strings, texts and units of time. What else `poll_arrow` gives
                (`topic`, `offset`, `timestampType`) is ignored.

        Returns:
            A future of where the rows went. It fails with `ArrowDeliveryError`, which names the
            rows, when some were not delivered, or not even added because there was no memory
            for `max_block_ms`.

        Raises:
            KafkaError: The topic or partition does not exist, a record is too large, or no broker
                or no memory was there within `max_block_ms`. Nothing was sent.
            TypeError: It is no table, or a column is of a type that it may not have.
            ValueError: A column is unknown, an array is malformed, or a value is out of range.
        """
        from kohort.client.producer.arrow.sender import ArrowSend, check_arguments

        check_arguments(topic, table)
        sender = self.sender()
        sender.batches.check()
        deadline = Deadline(self._config.max_block_ms)
        if sender.lacks(topic, None):
            await sender.topics.find(topic, None, deadline)
        future: asyncio.Future[ArrowDelivery] = asyncio.get_running_loop().create_future()
        send = ArrowSend(self._config, sender, topic, table, future)
        try:
            while (need := send.need()) is not None:
                if send.add(need):
                    deadline = Deadline(self._config.max_block_ms)
                    await asyncio.sleep(0)  # what is ready shall be sent while more is encoded
                elif sender.lacks(topic, send.partition):
                    await sender.topics.find(topic, send.partition, deadline)
                elif not await sender.room.wait_on_loop(need, deadline):
                    raise sender.no_room()
        except BaseException as error:  # noqa: BLE001  # `stop` raises it where it has to
            send.stop(error)
        return future

    # ------------------------------------------------------------------------- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Get a producer id, which aborts what an earlier producer of this id has left open.

        The first `begin_transaction` does it, too; by itself it says sooner what is wrong.

        Args:
            timeout: Seconds to wait at most; `max_block_ms` by default.

        Raises:
            LocalProtocolError: There is a producer id already, or no `transactional_id`.
            ProducerFencedError: Another producer with this id has taken over meanwhile.
            KafkaError: The id may not be used, or there is no answer in time: call it again.
        """
        await self.transactions().initialize(self._call_deadline(timeout))

    async def begin_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Open a transaction: what is sent from now on is read once it is committed (KIP-98).

        Args:
            timeout: Seconds to wait at most for a producer id, if there is none yet;
                `max_block_ms` by default.

        Raises:
            LocalProtocolError: One is open already, or there is no `transactional_id`.
            ProducerFencedError: Another producer with this id has taken over.
            KafkaError: As `init_transactions`.
        """
        await self.transactions().begin(self._call_deadline(timeout))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,  # noqa: ASYNC109  # as `flush`
    ) -> None:
        """Have the transaction commit positions of a consumer, together with the records.

        Args:
            offsets: The next offset to read in each partition, as for `Consumer.commit`.
            group_metadata: What the consumer's `group_metadata()` returns; by it the broker
                refuses a member that is not in its group any more (KIP-447).
            timeout: Seconds to wait at most; `max_block_ms` by default.

        Raises:
            AbortableTransactionError: They are not stored: abort. The `__cause__` is
                `CommitFailedError` where the partitions may belong to another member.
            LocalProtocolError: No transaction is open.
            ProducerFencedError: Another producer with this id has taken over.
        """
        given = arguments.offsets(offsets)
        group = arguments.instance(group_metadata, "group_metadata", ConsumerGroupMetadata)
        await self.transactions().add_offsets(given, group, self._call_deadline(timeout))

    async def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Wait for the records of the transaction, then commit it.

        When time is up, or the call is cancelled, it may be called again. As long as records were
        waited for, the transaction is open as before. Later the broker may have committed: then
        only `commit_transaction` and `close` are allowed, until it is known.

        Args:
            timeout: Seconds to wait at most; `max_block_ms` by default.

        Raises:
            AbortableTransactionError: A record was not delivered, or the broker has aborted the
                transaction: call `abort_transaction`. The `__cause__` is what went wrong first.
            LocalProtocolError: No transaction is open.
            ProducerFencedError: Another producer with this id has taken over.
            RequestTimedOutError: It took longer: call it again.
        """
        await self.transactions().commit(self._call_deadline(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Abort the transaction: readers of committed records see nothing of it.

        Futures of records that were not sent fail. When time is up, or the call is cancelled, it
        may be called again.

        Args:
            timeout: Seconds to wait at most; `max_block_ms` by default.

        Raises:
            LocalProtocolError: No transaction is open, or it may be committed already.
            ProducerFencedError: Another producer with this id has taken over.
            RequestTimedOutError: It took longer: call it again.
        """
        await self.transactions().abort(self._call_deadline(timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Make a block a transaction: commit at its end, abort when an exception leaves it.

        An exception is any, a cancellation and an interrupt from the keyboard too. A transaction
        that the block has ended itself is left alone.

            async with producer.transaction():
                delivery = await producer.send("topic", b"value")

        Raises:
            KohortError: As `begin_transaction` and `commit_transaction`; a transaction that cannot
                be committed is aborted before.
        """
        await self.begin_transaction()
        try:
            yield self
            if self.is_in_transaction:
                await self.commit_transaction()
        except BaseException as error:
            if self.is_in_transaction:
                try:
                    await self.abort_transaction()
                except KohortError as trouble:
                    note_not_aborted(error, trouble)
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open; any thread may ask."""
        return self._transactions is not None and self._transactions.is_open

    def transactions(self) -> Transactions:
        """Return what makes the calls of transactions, on the running loop.

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

    def _call_deadline(self, timeout_s: float | None) -> Deadline:
        given = arguments.timeout_s_or_none(timeout_s)
        return Deadline(self._config.max_block_ms if given is None else given * 1000)

    # ---------------------------------------------------------------------------- the end

    @property
    def client_id(self) -> str:
        """What the client calls itself (`client_id`)."""
        return self._config.client_id

    def metrics(self) -> Metrics:
        """Return what Kafka's Java producer measures, by the names of its groups and metrics.

        Latencies are milliseconds; averages, maxima and rates are of the last minute at most, NaN
        or 0 when there was nothing; totals are of all time.

        Returns:
            "producer-metrics"; nothing before the first record.
        """
        sender, now = self._sender, precise_ms()
        if sender is None:
            return {}
        found = self._cluster.traffic.values(now) | sender.measures.values(now)
        memory = float(self._config.buffer_memory)
        used = sender.batches.added_bytes - sender.batches.released_bytes
        found |= {"buffer-total-bytes": memory, "buffer-available-bytes": memory - used}
        return {PRODUCER: found}

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything now and wait until its fate is known.

        What delivery callbacks send meanwhile is not waited for, as in Java; `close` waits for it.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        timeout = arguments.timeout_s_or_none(timeout)
        if self._sender is not None:
            self._at_home()
            await flush(self._sender, self._late, deadline_of(timeout), timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything, then close; records that are not acknowledged in time fail.

        Args:
            timeout: Seconds to wait at most.
        """
        left_s = arguments.timeout_s_or_none(timeout)
        deadline = deadline_of(left_s)
        while (ending := self._ending) is not None:  # else it may have been cut off
            await asyncio.wait([ending], timeout=left_s)
            left_s = deadline.left_s()
            if not ending.done():
                log.warning("the producer is still being closed by another task")
                return
        if self._is_over:
            return
        if self._sender is not None:
            self._at_home()
        self._is_closed = True
        ending = self._ending = asyncio.get_running_loop().create_future()
        try:
            if self._transactions is not None:
                await self._wind_up(self._transactions, left_s)
                left_s = deadline.left_s()
            await close(self._sender, self._late, self._cluster, left_s)
            self._is_over = True
        finally:
            if not self._is_over:  # what is there can be sent yet: by another close, or at exit
                self._is_closed = False
            self._ending = None
            ending.set_result(None)

    async def _wind_up(self, transactions: Transactions, timeout_s: float | None) -> None:
        """End an open transaction: it must not last until the broker finds it too old."""
        assert self._sender is not None
        self._sender.refuse()
        await transactions.wind_up(self._call_deadline(timeout_s))

    def end_at_exit(self) -> None:
        """Say what the end of the process takes along: the loop does not run any more."""
        sender = self._sender
        if self.is_owned or self._is_over or sender is None:
            return
        if not (sender.undone() or self.is_in_transaction):
            return
        self._is_closed = self._is_over = True  # told once
        if self.is_in_transaction:
            log.warning(
                "transactional id %s: an AsyncProducer was not closed, and leaves a transaction"
                " open, which the broker aborts after %d ms: await its close()",
                self._config.transactional_id,
                self._config.transaction_timeout_ms,
            )
            return
        log.warning("records of an AsyncProducer that was not closed are lost: await its close()")

    def farewell(self) -> Farewell | None:
        """Return what is done without `close`: the records it holds are sent.

        So it is after a `close` that was cancelled, or is going to be.
        """
        if self._sender is None or self._is_over:
            return None
        timeout_s = self._config.delivery_timeout_ms / 1000
        return partial(
            close_alone, self._sender, self._late, self._cluster, timeout_s, self._transactions
        )

    def sender(self, notify: Callable[[Callable[[], object]], object] | None = None) -> Sender:
        """Return what sends; made on first use, on the running loop."""
        if self._is_closed:
            raise LocalProtocolError("the producer is closed")
        self._at_home()
        if self._sender is None:
            self._begin_to_send(notify or (lambda call: call()))
            assert self._sender is not None
        return self._sender

    def _begin_to_send(self, notify: Callable[[Callable[[], object]], object]) -> None:
        if self._config.transactional_id is None:
            self._sender = Sender(self._bare, self._cluster, notify)
            self._late = LateRecords(self._bare, self._sender)
        else:
            from kohort.client.producer.transactions.calls import Transactions
            from kohort.client.producer.transactions.sender import TransactionalSender

            sender = self._sender = TransactionalSender(self._bare, self._cluster, notify)
            late = self._late = LateRecords(self._bare, sender)
            self._transactions = Transactions(self._bare, self._cluster, sender, late)
        self._sender.start()

    def late_records(self) -> LateRecords:
        """Return what waits for room on the loop; callbacks may use it while this closes."""
        self._sender or self.sender()
        assert self._late is not None
        return self._late


def note_not_aborted(error: BaseException, trouble: KohortError) -> None:
    """Say beside an error that its transaction could not be aborted."""
    error.add_note(f"the transaction could not be aborted: {trouble}")


def serialized(config: ProducerConfig, value: object, key: object) -> tuple[object, object]:
    """Return value and key as the serializers make them."""
    if key is not None and config.key_serializer is not None:
        key = config.key_serializer(key)
    if value is not None and config.value_serializer is not None:
        value = config.value_serializer(value)
    return value, key
