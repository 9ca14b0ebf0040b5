"""The asyncio producer, on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client.blocking.facade import AsyncFacade
from kohort.client.config import arguments
from kohort.client.config.definitions import ProducerConfig, from_kafka, make
from kohort.client.measures import PRODUCER, Metrics, precise_ms
from kohort.client.net.backoff import Deadline
from kohort.client.producer.delivery import RecordMetadata, tell_all
from kohort.client.producer.internals import ProducerInternals
from kohort.errors import KohortError
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ProducerSettings
    from kohort.client.producer.arrow.delivery import ArrowDelivery

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]


class AsyncProducer(AsyncFacade):
    """Send records to Kafka, in batches and in order.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerSettings`.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """

    _internals: ProducerInternals

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        self._internals = ProducerInternals(self._config)

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer from settings with Kafka's names, such as `bootstrap.servers`."""
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
        """Add a record to a batch; wait only for metadata and memory.

        Args:
            topic: The topic to write to.
            value: Bytes, or an object for `value_serializer`; None deletes the key in a compacted
                topic.
            key: Bytes, or an object for `key_serializer`.
            headers: Names and values (KIP-82); None for no headers.
            partition: The partition to write to; by default the setting `partitioner` chooses it by
                the key, as Java's producer does.
            timestamp_ms: Milliseconds since the epoch; the current time by default.

        Returns:
            A future with the record's partition and offset; it fails if the record is not
            delivered.

        Raises:
            KafkaError: The topic or partition does not exist, the record is too large, or no broker
                or memory was available within `max_block_ms`.
            TypeError: The key or value is not bytes and there is no serializer, or another argument
                has the wrong type.
            ValueError: A number is out of range.
        """
        sender = self._internals.sender()
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
        """Add the rows of a table, in large batches; wait only for metadata and memory.

        The whole table is checked before any row is sent. Rows with a key go to the partition that
        `send` would choose; rows without a key fill one partition's batch after another. Rows do
        not wait for `linger_ms`. Serializers are not called: columns hold bytes.

        Args:
            topic: The topic to write to.
            table: A column `value`, and optionally `key`, `headers`, `partition` (int32; null to
                choose one) and `timestamp` (null for the current time), with the types that
                `poll_arrow` returns, or other types of bytes, strings and time units. The other
                columns of `poll_arrow` (`topic`, `offset`, `timestampType`) are ignored.

        Returns:
            A future with the partitions and offsets of the rows. It fails with
            `ArrowDeliveryError`, which names the rows, if some were not delivered, or could not be
            added because no memory became free within `max_block_ms`.

        Raises:
            KafkaError: The topic or partition does not exist, a record is too large, or no broker
                or memory was available within `max_block_ms`. Nothing was sent.
            TypeError: The argument is not a table, or a column has an unsupported type.
            ValueError: A column is unknown, an array is malformed, or a value is out of range.
        """
        from kohort.client.producer.arrow.sender import ArrowSend, check_arguments

        check_arguments(topic, table)
        sender = self._internals.sender()
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
                    await asyncio.sleep(0)  # send ready batches while more rows are encoded
                elif sender.lacks(topic, send.partition):
                    await sender.topics.find(topic, send.partition, deadline)
                elif not await sender.buffer_pool.wait_on_loop(need, deadline):
                    raise sender.no_room()
        except BaseException as error:  # noqa: BLE001  # `stop` raises it again if necessary
            send.stop(error)
        return future

    # ------------------------------------------------------------------------- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Get a producer id; this aborts what an earlier producer with this id left open.

        The first `begin_transaction` does this, too; calling it separately reports errors earlier.

        Args:
            timeout: Maximum wait in seconds; `max_block_ms` by default.

        Raises:
            LocalProtocolError: The producer already has a producer id, or has no
                `transactional_id`.
            ProducerFencedError: Another producer with this id has taken over.
            KafkaError: The user may not use the id, or there was no answer in time: call it again.
        """
        await self._internals.transactions().initialize(self._call_deadline(timeout))

    async def begin_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Begin a transaction: its records are visible to readers once it commits (KIP-98).

        Args:
            timeout: Maximum wait in seconds for a producer id, if there is none yet; `max_block_ms`
                by default.

        Raises:
            LocalProtocolError: A transaction is open already, or there is no `transactional_id`.
            ProducerFencedError: Another producer with this id has taken over.
            KafkaError: See `init_transactions`.
        """
        await self._internals.transactions().begin(self._call_deadline(timeout))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,  # noqa: ASYNC109  # as `flush`
    ) -> None:
        """Commit the positions of a consumer as part of the transaction, together with its records.

        Args:
            offsets: The next offset to read in each partition, as for `Consumer.commit`.
            group_metadata: The result of the consumer's `group_metadata()`; with it the broker
                rejects a member that is no longer in its group (KIP-447).
            timeout: Maximum wait in seconds; `max_block_ms` by default.

        Raises:
            AbortableTransactionError: The offsets were not stored: abort. The `__cause__` is
                `CommitFailedError` if the partitions may belong to another member.
            LocalProtocolError: No transaction is open.
            ProducerFencedError: Another producer with this id has taken over.
        """
        given = arguments.offsets(offsets)
        group = arguments.instance(group_metadata, "group_metadata", ConsumerGroupMetadata)
        await self._internals.transactions().add_offsets(given, group, self._call_deadline(timeout))

    async def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Wait for the records of the transaction, then commit it.

        If the call times out or is cancelled, call it again. If it was still waiting for records,
        the transaction stays open. If not, the broker may have committed it: then only
        `commit_transaction` and `close` are allowed until the outcome is known.

        Args:
            timeout: Maximum wait in seconds; `max_block_ms` by default.

        Raises:
            AbortableTransactionError: A record was not delivered, or the broker has aborted the
                transaction: call `abort_transaction`. The `__cause__` is the first error.
            LocalProtocolError: No transaction is open.
            ProducerFencedError: Another producer with this id has taken over.
            RequestTimedOutError: It timed out: call it again.
        """
        await self._internals.transactions().commit(self._call_deadline(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as `flush`
        """Abort the transaction: readers of committed records see none of its records.

        Futures of unsent records fail. If the call times out or is cancelled, call it again.

        Args:
            timeout: Maximum wait in seconds; `max_block_ms` by default.

        Raises:
            LocalProtocolError: No transaction is open, or it may already be committed.
            ProducerFencedError: Another producer with this id has taken over.
            RequestTimedOutError: It timed out: call it again.
        """
        await self._internals.transactions().abort(self._call_deadline(timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Run a block as a transaction: commit at its end, abort if an exception leaves it.

        Any exception aborts it, including a cancellation and KeyboardInterrupt. A transaction that
        the block itself has ended is left alone.

            async with producer.transaction():
                delivery = await producer.send("topic", b"value")

        Raises:
            KohortError: See `begin_transaction` and `commit_transaction`; a transaction that cannot
                be committed is aborted first.
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
        """Whether a transaction is open; safe to read from any thread."""
        return self._internals.is_in_transaction

    def _call_deadline(self, timeout_s: float | None) -> Deadline:
        given = arguments.timeout_s_or_none(timeout_s)
        return Deadline(self._config.max_block_ms if given is None else given * 1000)

    # ---------------------------------------------------------------------------- the end

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._config.client_id

    def metrics(self) -> Metrics:
        """Return the metrics of Kafka's Java producer, by the names of groups and metrics.

        Latencies are in milliseconds. Averages, maxima and rates cover at most the last minute, and
        are NaN or 0 without data; totals cover the lifetime of the producer.

        Returns:
            The group "producer-metrics"; empty before the first record.
        """
        sender, now = self._internals.made, precise_ms()
        if sender is None:
            return {}
        found = self._internals.cluster.traffic.values(now) | sender.measures.values(now)
        memory = float(self._config.buffer_memory)
        used = sender.batches.added_bytes - sender.batches.released_bytes
        found |= {"buffer-total-bytes": memory, "buffer-available-bytes": memory - used}
        return {PRODUCER: found}

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything now and wait until the outcome of every record is known.

        Does not wait for records that delivery callbacks send meanwhile, as in Java; `close` does.

        Args:
            timeout: Maximum wait in seconds.

        Raises:
            RequestTimedOutError: It timed out.
        """
        await self._internals.flush(arguments.timeout_s_or_none(timeout))

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything, then close; records not acknowledged in time fail.

        Args:
            timeout: Maximum wait in seconds.
        """
        await self._internals.close(arguments.timeout_s_or_none(timeout))


def internals_of(producer: AsyncProducer) -> ProducerInternals:
    """Return the internals of a producer, for the blocking producer."""
    return producer._internals  # noqa: SLF001  # of this module


def note_not_aborted(error: BaseException, trouble: KohortError) -> None:
    """Add a note to an error that its transaction could not be aborted."""
    error.add_note(f"the transaction could not be aborted: {trouble}")


def serialized(config: ProducerConfig, value: object, key: object) -> tuple[object, object]:
    """Return the serialized value and key."""
    if key is not None and config.key_serializer is not None:
        key = config.key_serializer(key)
    if value is not None and config.value_serializer is not None:
        value = config.value_serializer(value)
    return value, key
