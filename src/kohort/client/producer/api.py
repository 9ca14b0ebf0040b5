"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client.blocking import lifecycle
from kohort.client.blocking.facade import BlockingFace
from kohort.client.blocking.lifecycle import Farewell
from kohort.client.config import arguments
from kohort.client.config.definitions import ProducerConfig, from_kafka, make
from kohort.client.measures import Metrics
from kohort.client.net.backoff import Deadline
from kohort.client.producer.aio import (
    AsyncProducer,
    Headers,
    note_not_aborted,
    serialized,
)
from kohort.client.producer.closing import CLOSING_S
from kohort.client.producer.delivery import RecordMetadata
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.client.producer.sender import Sender
from kohort.errors import KohortError, LocalProtocolError
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ProducerSettings
    from kohort.client.producer.arrow.delivery import ArrowDeliveryFuture

__all__ = ["DeliveryFuture", "Producer", "RecordMetadata"]

_Add: TypeAlias = Callable[..., DeliveryFuture | None]


class Producer(BlockingFace):
    """Sends records to Kafka, in batches and in order; any number of threads may use it.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("topic", b"value", key=b"key")
            print(future.result())

    When the process ends, what was sent is delivered within `delivery_timeout_ms`, also without
    `close`; lost records are in the log. `os._exit`, and a signal without a handler such as
    SIGTERM, end a process without that: a handler that raises SystemExit helps.

    Callbacks of deliveries run on the producer's own thread. They may `send`, which does not wait
    there: the record waits elsewhere for metadata and memory, and as much as `buffer_memory` may.

    Make a producer in the process that uses it: one used before a fork is the parent's.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerSettings`.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        self._core = AsyncProducer(**settings)
        self._core.is_owned = True
        super().__init__("kohort-producer")
        self._exit_s = self._config.delivery_timeout_ms / 1000 + CLOSING_S
        self._sender: Sender | None = None
        self._add: _Add = _not_started
        self._serializes = (
            self._config.key_serializer is not None or self._config.value_serializer is not None
        )

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer of Kafka's own keys, as `bootstrap.servers`."""
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
        """Add a record once topic, partition and memory are there."""
        sender = self._sender or self._start()
        given = topic, value, key, headers, partition, timestamp_ms
        if self._thread.is_inside:  # a callback of a delivery
            return self._core.late_records().add(given)
        self._thread.check()
        size = sender.batches.size_of(value, key, headers)
        deadline = Deadline(self._config.max_block_ms)
        while (future := sender.batches.add(DeliveryFuture, *given)) is None:
            if sender.lacks(topic, partition):
                self._find(sender, topic, partition, deadline)
            elif not sender.room.wait(size, deadline):
                raise sender.no_room()
        return future

    def send_arrow(self, topic: str, table: pa.RecordBatch | pa.Table) -> ArrowDeliveryFuture:
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
                elif not sender.room.wait(need, deadline):
                    raise sender.no_room()
        except BaseException as error:  # noqa: BLE001  # `stop` raises it where it has to
            send.stop(error)
        return future

    # ------------------------------------------------------------------------- transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id; see `AsyncProducer.init_transactions`."""
        self._transact(lambda: self._core.init_transactions(timeout))

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Open a transaction; see `AsyncProducer.begin_transaction`."""
        self._transact(lambda: self._core.begin_transaction(timeout))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit positions with it; see `AsyncProducer.send_offsets_to_transaction`."""
        self._transact(
            lambda: self._core.send_offsets_to_transaction(offsets, group_metadata, timeout)
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the open transaction; see `AsyncProducer.commit_transaction`.

        An exception of a signal handler, as KeyboardInterrupt, ends it like a cancellation.
        """
        self._transact(lambda: self._core.commit_transaction(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the open transaction; see `AsyncProducer.abort_transaction`."""
        self._transact(lambda: self._core.abort_transaction(timeout))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Make a block a transaction: commit at its end, abort when an exception leaves it.

        An exception is any, an interrupt from the keyboard too. A transaction that the block has
        ended itself is left alone.

            with producer.transaction():
                producer.send("topic", b"value")

        Raises:
            KohortError: As `begin_transaction` and `commit_transaction`; a transaction that cannot
                be committed is aborted before.
        """
        self.begin_transaction()
        try:
            yield self
            if self._core.is_in_transaction:
                self.commit_transaction()
        except BaseException as error:
            if self._core.is_in_transaction:
                try:
                    self.abort_transaction()
                except KohortError as trouble:
                    note_not_aborted(error, trouble)
            raise

    def _transact(self, make: Callable[[], Coroutine[object, object, None]]) -> None:
        if self._config.transactional_id is not None and self._sender is None:
            self._start()
        self._thread.run(make)

    def _find(self, sender: Sender, topic: str, partition: int | None, deadline: Deadline) -> None:
        self._thread.run(lambda: sender.topics.find(topic, partition, deadline))

    @property
    def client_id(self) -> str:
        """What the client calls itself (`client_id`)."""
        return self._config.client_id

    def metrics(self) -> Metrics:
        """Return what Kafka measures; see `AsyncProducer.metrics`."""

        async def call() -> Metrics:
            return self._core.metrics()

        return self._thread.run(call)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until its fate is known.

        What delivery callbacks send meanwhile is not waited for, as in Java; `close` waits for it.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        if self._thread.is_used:
            self._thread.run(lambda: self._core.flush(wait_s))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; records that are not acknowledged in time fail.

        Args:
            timeout: Seconds to wait at most.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        self._thread.close(lambda _: self._core.close(wait_s), wait_s)
        self._forget()

    def _forget(self) -> None:
        self._sender, self._add = None, _not_started

    def _farewell(self) -> Farewell | None:
        return self._core.farewell()

    def forked(self) -> object:
        """In a forked child: give up what belongs to the parent."""
        parents = super().forked()
        self._forget()
        return parents

    def _start(self) -> Sender:
        notify = self._thread.call_soon

        async def make_sender() -> Sender:
            return self._core.sender(notify)

        sender = self._thread.run(make_sender)
        # This first: after an interrupt in between, the next call gets the same sender.
        self._add = sender.batches.add
        self._sender = sender
        return sender


def _not_started(*_: object) -> None:
    """Stand in for `OpenBatches.add` while there is no loop."""
