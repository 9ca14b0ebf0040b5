"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kohort.client.async_producer import AsyncProducer, Headers, new_record, no_room
from kohort.client.backoff import Deadline
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import RecordMetadata
from kohort.client.loop_thread import LoopThread
from kohort.client.sender import Sender
from kohort.errors import KohortError, LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.arrow_delivery import ArrowDelivery

__all__ = ["Producer", "RecordMetadata"]


class Producer:
    """Sends records to Kafka, in batches and in order; any number of threads may use it.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("topic", b"value", key=b"key")
            print(future.result())

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerConfig`.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """

    def __init__(self, **settings: object) -> None:
        self._config = make(ProducerConfig, settings)
        self._core = AsyncProducer(**settings)
        self._thread = LoopThread("kohort-producer")
        self._sender: Sender | None = None
        self._is_closed = False

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer of Kafka's own keys, as `bootstrap.servers`."""
        return cls(**from_kafka(ProducerConfig, settings))

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
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Add a record to its batch; waits only for metadata and for memory.

        Args:
            topic: Where it goes.
            value: Bytes, or what `value_serializer` takes; None deletes the key where the topic
                is compacted.
            key: Bytes, or what `key_serializer` takes.
            headers: Names and values (KIP-82).
            partition: Where it goes; by default chosen by the key, as Java's producer does.
            timestamp_ms: Milliseconds since the epoch; now by default.

        Returns:
            A future of where it went; it fails when the record was not delivered.

        Raises:
            KafkaError: There is no such topic or partition, the record is too large, or no broker
                or no memory was there within `max_block_ms`.
            TypeError: Key or value are not bytes and there is no serializer.
        """
        sender = self._sender or self._start()
        record = new_record(self._config, topic, value, key, headers, partition, timestamp_ms)
        partitions = self._partitions_of(sender, topic)
        delivery: Future[RecordMetadata] = Future()
        while not sender.append(record, partitions, delivery):
            if not sender.wait_for_room(record.size, self._config.max_block_ms / 1000):
                raise no_room(self._config)
        return delivery

    def send_arrow(self, topic: str, table: pa.RecordBatch | pa.Table) -> Future[ArrowDelivery]:
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
        from kohort.client.arrow_sender import ArrowSend

        sender = self._sender or self._start()
        future: Future[ArrowDelivery] = Future()
        send = ArrowSend(
            self._config, sender, topic, table, self._partitions_of(sender, topic), future
        )
        try:
            while (need := send.need()) is not None:
                while not send.add(need):
                    if not sender.wait_for_room(need, self._config.max_block_ms / 1000):
                        raise no_room(self._config)
        except (KohortError, ValueError) as error:
            send.stop(error)
        return future

    def _partitions_of(self, sender: Sender, topic: str) -> int:
        partitions = sender.partitions_of(topic)
        if partitions is None:
            deadline = Deadline(self._config.max_block_ms)
            partitions = self._thread.run(lambda: sender.find_topic(topic, deadline))
        return partitions

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        if self._sender is not None:
            self._thread.run(lambda: self._core.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        if self._is_closed:
            return
        self._is_closed = True
        started, self._sender = self._sender, None
        try:
            if started is not None:
                self._thread.run(lambda: self._core.close(timeout))
        finally:
            self._thread.close()

    def _start(self) -> Sender:
        if self._is_closed:
            raise LocalProtocolError("the producer is closed")

        async def make_sender() -> Sender:
            return self._core.sender(self._thread.call_soon)

        self._sender = self._thread.run(make_sender)
        return self._sender
