"""The blocking producer: `send` in the application's thread, the network in another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from kohort.client.async_producer import CLOSING_S, AsyncProducer, Headers, new_record, no_room
from kohort.client.backoff import Deadline
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import NewRecord, RecordMetadata
from kohort.client.faces import BlockingFace
from kohort.client.lifecycle import Farewell
from kohort.client.sender import Sender

__all__ = ["Producer", "RecordMetadata"]


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

    def __init__(self, **settings: object) -> None:
        self._config = make(ProducerConfig, settings)
        self._core = AsyncProducer(**settings)
        self._core.is_owned = True
        super().__init__("kohort-producer")
        self._exit_s = self._config.delivery_timeout_ms / 1000 + CLOSING_S
        self._sender: Sender | None = None

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
        delivery: Future[RecordMetadata] = Future()
        partitions = sender.partitions_of(topic)
        if partitions is None or not sender.append(record, partitions, delivery):
            self._send_slowly(sender, record, delivery)
        return delivery

    def _send_slowly(
        self, sender: Sender, record: NewRecord, delivery: Future[RecordMetadata]
    ) -> None:
        """Send a record whose topic is not known, or for which there is no room."""
        if self._thread.is_inside:  # a callback of a delivery
            self._core.late_records().add(record, delivery)
            return
        self._thread.check()
        deadline = Deadline(self._config.max_block_ms)
        partitions = sender.partitions_of(record.topic)
        if partitions is None:
            partitions = self._thread.run(lambda: sender.find_topic(record.topic, deadline))
        while not sender.append(record, partitions, delivery):
            if not sender.wait_for_room(record.size, self._config.max_block_ms / 1000):
                raise no_room(self._config)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        if self._thread.is_used:
            self._thread.run(lambda: self._core.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        self._thread.close(lambda _: self._core.close(timeout), timeout)
        self._sender = None

    def _farewell(self) -> Farewell | None:
        return self._core.farewell()

    def forked(self) -> object:
        """In a forked child: give up what belongs to the parent."""
        parents = super().forked()
        self._sender = None
        return parents

    def _start(self) -> Sender:
        notify = self._thread.call_soon

        async def make_sender() -> Sender:
            return self._core.sender(notify)

        self._sender = self._thread.run(make_sender)
        return self._sender
