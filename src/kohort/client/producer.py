"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast

from kohort.client import arguments
from kohort.client.async_producer import AsyncProducer, Headers, new_record, no_room
from kohort.client.backoff import Deadline
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import RecordMetadata
from kohort.client.loop_thread import LoopThread
from kohort.client.sender import Sender
from kohort.errors import LocalProtocolError

if TYPE_CHECKING:
    from kohort.client.settings import ProducerSettings

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

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        self._core = AsyncProducer(**settings)
        self._thread = LoopThread("kohort-producer")
        self._sender: Sender | None = None
        self._is_closed = False

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
    ) -> Future[RecordMetadata]:
        """Add a record to its batch; waits only for metadata and for memory.

        Args:
            topic: Where it goes.
            value: Bytes, or what `value_serializer` takes; None deletes the key where the topic
                is compacted.
            key: Bytes, or what `key_serializer` takes.
            headers: Names and values (KIP-82); None is the same as none.
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
        partitions = sender.partitions_of(topic)
        if partitions is None:
            deadline = Deadline(self._config.max_block_ms)
            partitions = self._thread.run(lambda: sender.find_topic(topic, deadline))
        delivery: Future[RecordMetadata] = Future()
        while not sender.append(record, partitions, delivery):
            if not sender.wait_for_room(record.size, self._config.max_block_ms / 1000):
                raise no_room(self._config)
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        if self._sender is not None:
            self._thread.run(lambda: self._core.flush(wait_s))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        wait_s = arguments.timeout_s_or_none(timeout)
        if self._is_closed:
            return
        self._is_closed = True
        started, self._sender = self._sender, None
        try:
            if started is not None:
                self._thread.run(lambda: self._core.close(wait_s))
        finally:
            self._thread.close()

    def _start(self) -> Sender:
        if self._is_closed:
            raise LocalProtocolError("the producer is closed")

        async def make_sender() -> Sender:
            return self._core.sender(self._thread.call_soon)

        self._sender = self._thread.run(make_sender)
        return self._sender
