"""A producer on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client import arguments
from kohort.client._deliveries import Delivery
from kohort.client.backoff import Deadline
from kohort.client.cluster import Cluster
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import RecordMetadata, tell_all
from kohort.client.sender import Sender
from kohort.errors import LocalProtocolError, RequestTimedOutError
from kohort.wire.schema import Buffer

if TYPE_CHECKING:
    from kohort.client.settings import ProducerSettings

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]


class AsyncProducer:
    """Sends records to Kafka, in batches and in order.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerConfig`.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        self._cluster = Cluster(self._config)
        self._sender: Sender | None = None
        self._is_closed = False

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
            KafkaError: There is no such topic or partition, the record is too large, or no broker
                or no memory was there within `max_block_ms`.
            TypeError: Key or value are not bytes and there is no serializer, or another argument
                has a type that does not fit.
            ValueError: A number is out of its range.
        """
        sender = self.sender()
        value, key = serialized(self._config, value, key)
        given = topic, value, key, headers, partition, timestamp_ms
        deadline = Deadline(self._config.max_block_ms)
        while (delivery := sender.batches.add(Delivery, *given)) is None:
            if sender.lacks(topic, partition):
                await sender.topics.find(arguments.topic(topic), partition, deadline)
            elif not await sender.room(sender.batches.size_of(value, key, headers), deadline):
                raise no_room(self._config)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if not delivery.watch(future):
            tell_all([(delivery, future)])
        return future

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        timeout = arguments.timeout_s_or_none(timeout)
        if self._sender is not None:
            await self._sender.flush(timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        timeout = arguments.timeout_s_or_none(timeout)
        if self._is_closed:
            return
        self._is_closed = True
        if self._sender is not None:
            await self._sender.close(timeout)
        await self._cluster.close()

    def sender(self, notify: Callable[[Callable[[], object]], object] | None = None) -> Sender:
        """Return what sends; made on first use, on the running loop."""
        if self._is_closed:
            raise LocalProtocolError("the producer is closed")
        if self._sender is None:
            self._sender = Sender(self._config, self._cluster, notify or (lambda call: call()))
            self._sender.start()
        return self._sender


def serialized(config: ProducerConfig, value: object, key: object) -> tuple[object, object]:
    """Return value and key as the serializers make them."""
    if key is not None and config.key_serializer is not None:
        key = config.key_serializer(key)
    if value is not None and config.value_serializer is not None:
        value = config.value_serializer(value)
    return value, key


def no_room(config: ProducerConfig) -> RequestTimedOutError:
    """Return the error of a record for which no memory became free."""
    return RequestTimedOutError(
        f"buffer.memory of {config.buffer_memory} bytes was full for {config.max_block_ms} ms:"
        " records are added faster than the brokers take them"
    )
