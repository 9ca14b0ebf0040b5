"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client.blocking import lifecycle
from kohort.client.blocking.facade import BlockingFacade
from kohort.client.config import arguments
from kohort.client.config.definitions import ProducerConfig, from_kafka, make
from kohort.client.measures import Metrics
from kohort.client.net.backoff import Deadline
from kohort.client.producer.aio import (
    AsyncProducer,
    Headers,
    internals_of,
    note_not_aborted,
    serialized,
)
from kohort.client.producer.closing import CLOSING_S
from kohort.client.producer.delivery import RecordMetadata
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.client.producer.internals import ProducerInternals
from kohort.client.producer.sender import Sender
from kohort.errors import KohortError, LocalProtocolError
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ProducerSettings
    from kohort.client.producer.arrow.delivery import ArrowDeliveryFuture

__all__ = ["DeliveryFuture", "Producer", "RecordMetadata"]

_Add: TypeAlias = Callable[..., DeliveryFuture | None]


class Producer(BlockingFacade):
    """Send records to Kafka, in batches and in order; any number of threads may use it.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("topic", b"value", key=b"key")
            print(future.result())

    When the process ends, sent records are delivered within `delivery_timeout_ms`, even without
    `close`; lost records are logged. `os._exit`, or a signal without a handler such as SIGTERM,
    skips this: install a handler that raises SystemExit.

    Delivery callbacks run on the producer's own thread. They may call `send`, which does not block
    there: the record is queued until metadata and memory are available, in a queue of up to
    `buffer_memory` bytes.

    Create a producer in the process that uses it: after a fork, it belongs to the parent.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerSettings`.

    Raises:
        ConfigError: A setting is unknown or invalid.
    """

    _internals: ProducerInternals

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        self._async = AsyncProducer(**settings)
        super().__init__("kohort-producer", internals_of(self._async))
        self._exit_s = self._config.delivery_timeout_ms / 1000 + CLOSING_S
        self._sender: Sender | None = None
        self._add: _Add = _not_started
        self._serializes = (
            self._config.key_serializer is not None or self._config.value_serializer is not None
        )

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer from settings with Kafka's names, such as `bootstrap.servers`."""
        known = cast("ProducerSettings", from_kafka(ProducerConfig, settings))
        return cls(**known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Headers | None = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture:
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
        if self._serializes:
            value, key = serialized(self._config, value, key)
        try:
            future = self._add(DeliveryFuture, topic, value, key, headers, partition, timestamp_ms)
            if future is None:
                return self._wait_and_add(topic, value, key, headers, partition, timestamp_ms)
        except LocalProtocolError:
            lifecycle.end_daemon()
            raise
        return future

    def _wait_and_add(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> DeliveryFuture:
        """Add a record once its topic, partition and memory are available."""
        sender = self._sender or self._start()
        given = topic, value, key, headers, partition, timestamp_ms
        if self._thread.is_inside:  # a callback of a delivery
            return self._internals.callback_records().add(given)
        self._thread.check()
        size = sender.batches.size_of(value, key, headers)
        deadline = Deadline(self._config.max_block_ms)
        while (future := sender.batches.add(DeliveryFuture, *given)) is None:
            if sender.lacks(topic, partition):
                self._find(sender, topic, partition, deadline)
            elif not sender.buffer_pool.wait(size, deadline):
                raise sender.no_room()
        return future

    def send_arrow(self, topic: str, table: pa.RecordBatch | pa.Table) -> ArrowDeliveryFuture:
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
        from kohort.client.producer.arrow.delivery import ArrowDeliveryFuture
        from kohort.client.producer.arrow.sender import ArrowSend, check_arguments

        check_arguments(topic, table)
        self._thread.check()
        sender = self._sender or self._start()
        sender.batches.check()
        deadline = Deadline(self._config.max_block_ms)
        if sender.lacks(topic, None):
            self._find(sender, topic, None, deadline)
        future = ArrowDeliveryFuture()
        send = ArrowSend(self._config, sender, topic, table, future)
        try:
            while (need := send.need()) is not None:
                if send.add(need):
                    deadline = Deadline(self._config.max_block_ms)
                elif sender.lacks(topic, send.partition):
                    self._find(sender, topic, send.partition, deadline)
                elif not sender.buffer_pool.wait(need, deadline):
                    raise sender.no_room()
        except BaseException as error:  # noqa: BLE001  # `stop` raises it again if necessary
            send.stop(error)
        return future

    # ------------------------------------------------------------------------- transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id; see `AsyncProducer.init_transactions`."""
        self._transact(lambda: self._async.init_transactions(timeout))

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction; see `AsyncProducer.begin_transaction`."""
        self._transact(lambda: self._async.begin_transaction(timeout))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit positions in the transaction; see `AsyncProducer.send_offsets_to_transaction`."""
        self._transact(
            lambda: self._async.send_offsets_to_transaction(offsets, group_metadata, timeout)
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the open transaction; see `AsyncProducer.commit_transaction`.

        An exception from a signal handler, such as KeyboardInterrupt, acts like a cancellation.
        """
        self._transact(lambda: self._async.commit_transaction(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the open transaction; see `AsyncProducer.abort_transaction`."""
        self._transact(lambda: self._async.abort_transaction(timeout))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Run a block as a transaction: commit at its end, abort if an exception leaves it.

        Any exception aborts it, including KeyboardInterrupt. A transaction that the block itself
        has ended is left alone.

            with producer.transaction():
                producer.send("topic", b"value")

        Raises:
            KohortError: See `begin_transaction` and `commit_transaction`; a transaction that cannot
                be committed is aborted first.
        """
        self.begin_transaction()
        try:
            yield self
            if self._async.is_in_transaction:
                self.commit_transaction()
        except BaseException as error:
            if self._async.is_in_transaction:
                try:
                    self.abort_transaction()
                except KohortError as trouble:
                    note_not_aborted(error, trouble)
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._async.is_in_transaction

    def _transact(self, make: Callable[[], Coroutine[object, object, None]]) -> None:
        if self._config.transactional_id is not None and self._sender is None:
            self._start()
        self._thread.run(make)

    def _find(self, sender: Sender, topic: str, partition: int | None, deadline: Deadline) -> None:
        self._thread.run(lambda: sender.topics.find(topic, partition, deadline))

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._config.client_id

    def metrics(self) -> Metrics:
        """Return the producer's metrics; see `AsyncProducer.metrics`."""

        async def call() -> Metrics:
            return self._async.metrics()

        return self._thread.run(call)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until the outcome of every record is known.

        Does not wait for records that delivery callbacks send meanwhile, as in Java; `close` does.

        Args:
            timeout: Maximum wait in seconds.

        Raises:
            RequestTimedOutError: It timed out.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        if self._thread.is_used:
            self._thread.run(lambda: self._async.flush(wait_s))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; records not acknowledged in time fail.

        Args:
            timeout: Maximum wait in seconds.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        self._thread.close(lambda _: self._async.close(wait_s), wait_s)
        self._forget()

    def _forget(self) -> None:
        self._sender, self._add = None, _not_started

    def _forked(self) -> object:
        """In a forked child: drop what belongs to the parent."""
        parents = super()._forked()
        self._forget()
        return parents

    def _start(self) -> Sender:
        notify = self._thread.call_soon

        async def make_sender() -> Sender:
            return self._internals.sender(notify)

        sender = self._thread.run(make_sender)
        # Set this first: if an interrupt follows, the next call gets the same sender.
        self._add = sender.batches.add
        self._sender = sender
        return sender


def _not_started(*_: object) -> None:
    """Stand in for `OpenBatches.add` while there is no loop."""
