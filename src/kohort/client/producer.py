"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client import arguments
from kohort.client.async_producer import CLOSING_S, AsyncProducer, Headers, serialized
from kohort.client.backoff import Deadline
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import RecordMetadata
from kohort.client.delivery_future import DeliveryFuture
from kohort.client.faces import BlockingFace
from kohort.client.lifecycle import Farewell
from kohort.client.sender import Sender
from kohort.errors import KohortError

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.arrow_delivery import ArrowDeliveryFuture
    from kohort.client.settings import ProducerSettings

__all__ = ["DeliveryFuture", "Producer", "RecordMetadata"]

_Add: TypeAlias = Callable[..., DeliveryFuture | None]


class Producer(BlockingFace):
    """Sends records to Kafka, in batches and in order; any number of threads may use it.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("topic", b"value", key=b"key")
            print(future.result())

    When the process ends, what was sent is delivered within `delivery_timeout_ms` even if nobody
    calls `close`; what is not is in the log. `os._exit`, and a signal without a handler as SIGTERM
    is by default, end a process without that: a handler that raises SystemExit helps.

    Callbacks of deliveries run on the producer's own thread. They may `send`, which does not wait
    there: the record waits elsewhere for metadata and memory, and as much as `buffer_memory` may.

    Make a producer in the process that uses it: one used before a fork is the parent's.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerConfig`.

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
            KafkaError: There is no such topic or partition, the record is too large, or no broker
                or no memory was there within `max_block_ms`.
            TypeError: Key or value are not bytes and there is no serializer, or another argument
                has a type that does not fit.
            ValueError: A number is out of its range.
        """
        if self._serializes:
            value, key = serialized(self._config, value, key)
        future = self._add(DeliveryFuture, topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            return self._wait_and_add(topic, value, key, headers, partition, timestamp_ms)
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
            elif not sender.wait_for_room(size, deadline):
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
            KafkaError: There is no such topic or partition, a record is too large, or no broker or
                no memory was there within `max_block_ms`. Nothing was sent.
            TypeError: It is no table, or a column is of a type that it may not have.
            ValueError: A column is unknown, an array is malformed, or a value is out of range.
        """
        from kohort.client.arrow_delivery import ArrowDeliveryFuture
        from kohort.client.arrow_sender import ArrowSend, check_arguments

        check_arguments(topic, table)
        self._thread.check()
        sender = self._sender or self._start()
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
                elif not sender.wait_for_room(need, deadline):
                    raise sender.no_room()
        except (KohortError, ValueError) as error:
            send.stop(error)
        return future

    def _find(self, sender: Sender, topic: str, partition: int | None, deadline: Deadline) -> None:
        self._thread.run(lambda: sender.topics.find(topic, partition, deadline))

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        if self._thread.is_used:
            self._thread.run(lambda: self._core.flush(wait_s))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; what is not acknowledged in time fails.

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
        # This first: who is interrupted in between asks for the sender again, and gets the same.
        self._add = sender.batches.add
        self._sender = sender
        return sender


def _not_started(*_: object) -> None:
    """Stand in for `OpenBatches.add` while there is no loop."""
