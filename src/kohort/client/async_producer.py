"""A producer on the caller's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

from kohort.client.accumulator import record_size
from kohort.client.backoff import Deadline
from kohort.client.cluster import Cluster
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import NewRecord, RecordMetadata
from kohort.client.faces import AsyncFace
from kohort.client.late_records import LateRecords
from kohort.client.lifecycle import Farewell
from kohort.client.sender import Sender
from kohort.errors import (
    ErrorCode,
    KafkaError,
    LocalProtocolError,
    RequestTimedOutError,
)
from kohort.values import replace
from kohort.wire.schema import Buffer

# How long connections may take to close.
CLOSING_S = 2.0

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]


class AsyncProducer(AsyncFace):
    """Sends records to Kafka, in batches and in order.

    The defaults are those of Java's producer: idempotent (KIP-98), acknowledged by all in-sync
    replicas, partitioned by the key.

    Args:
        settings: Kafka's producer settings as keyword arguments, see `ProducerConfig`.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """

    _kind = "producer"

    def __init__(self, **settings: object) -> None:
        self._config = make(ProducerConfig, settings)
        # What runs in the background must not refer to what the application has given.
        self._bare = replace(self._config, key_serializer=None, value_serializer=None)
        self._cluster = Cluster(self._bare)
        self._sender: Sender | None = None
        self._late: LateRecords | None = None
        self._is_closed = False

    @classmethod
    def from_config(cls, settings: Mapping[str, object]) -> Self:
        """Make a producer of Kafka's own keys, as `bootstrap.servers`."""
        return cls(**from_kafka(ProducerConfig, settings))

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
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
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
        sender = self.sender()
        record = new_record(self._config, topic, value, key, headers, partition, timestamp_ms)
        deadline = Deadline(self._config.max_block_ms)
        partitions = sender.partitions_of(topic)
        if partitions is None:
            partitions = await sender.find_topic(topic, deadline)
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        while not sender.append(record, partitions, delivery):
            if not await sender.room(record.size, deadline):
                raise no_room(self._config)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything now and wait until its fate is known.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RequestTimedOutError: It took longer.
        """
        if self._sender is not None:
            self._at_home()
            await _flush(self._sender, self._late, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        if self._is_closed:
            return
        if self._sender is not None:
            self._at_home()
        self._is_closed = True
        await _close(self._sender, self._late, self._cluster, timeout)

    def farewell(self) -> Farewell | None:
        """Return what is to be done when nobody closes this: what is there is sent."""
        if self._sender is None or self._is_closed:
            return None
        timeout_s = self._config.delivery_timeout_ms / 1000
        return partial(_close_alone, self._sender, self._late, self._cluster, timeout_s)

    def sender(self, notify: Callable[[Callable[[], object]], object] | None = None) -> Sender:
        """Return what sends; made on first use, on the running loop."""
        if self._is_closed:
            raise LocalProtocolError("the producer is closed")
        self._at_home()
        if self._sender is None:
            self._sender = Sender(self._bare, self._cluster, notify or (lambda call: call()))
            self._sender.start()
        return self._sender

    def late_records(self) -> LateRecords:
        """Return what waits for room on the loop."""
        if self._late is None:
            self._late = LateRecords(self._bare, self.sender())
        return self._late


async def _flush(sender: Sender, late: LateRecords | None, timeout_s: float | None) -> None:
    deadline = Deadline(None if timeout_s is None else timeout_s * 1000)
    if late is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await late.passed_on()
    await sender.flush(deadline.left_s())


async def _close(
    sender: Sender | None, late: LateRecords | None, cluster: Cluster, timeout_s: float | None
) -> None:
    deadline = Deadline(None if timeout_s is None else timeout_s * 1000)
    if late is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await late.passed_on()
        await late.close()
    if sender is not None:
        await sender.close(deadline.left_s())
    await cluster.close()


async def _close_alone(
    sender: Sender, late: LateRecords | None, cluster: Cluster, timeout_s: float
) -> None:
    """Send what is there; what cannot be sent is told to the log, for nobody looks at futures."""
    sender.is_alone = True
    await _close(sender, late, cluster, timeout_s)


def new_record(
    config: ProducerConfig,
    topic: str,
    value: object,
    key: object,
    headers: Headers,
    partition: int | None,
    timestamp_ms: int | None,
) -> NewRecord:
    """Make bytes of a record; arguments and errors as `AsyncProducer.send`."""
    if key is not None and config.key_serializer is not None:
        key = config.key_serializer(key)
    if value is not None and config.value_serializer is not None:
        value = config.value_serializer(value)
    key_bytes = _bytes("key", key)
    value_bytes = _bytes("value", value)
    size = record_size(key_bytes, value_bytes, headers)
    if size > config.max_request_size or size > config.buffer_memory:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes; max.request.size is {config.max_request_size} and"
            f" buffer.memory {config.buffer_memory}",
        )
    when = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return NewRecord(topic, partition, when, key_bytes, value_bytes, headers, size)


def no_room(config: ProducerConfig) -> RequestTimedOutError:
    """Return the error of a record for which no memory became free."""
    return RequestTimedOutError(
        f"buffer.memory of {config.buffer_memory} bytes was full for {config.max_block_ms} ms:"
        " records are added faster than the brokers take them"
    )


def _bytes(what: str, given: object) -> Buffer | None:
    if given is None or isinstance(given, (bytes, bytearray, memoryview)):
        return given
    raise TypeError(
        f"the {what} is a {type(given).__name__}, not bytes; set {what}_serializer to make bytes"
    )
