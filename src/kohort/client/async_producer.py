"""A producer on the caller's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, Unpack, cast

from kohort.client import arguments
from kohort.client.backoff import Deadline
from kohort.client.cluster import Cluster
from kohort.client.config import ProducerConfig, from_kafka, make
from kohort.client.delivery import RecordMetadata, tell_all
from kohort.client.faces import AsyncFace
from kohort.client.late_records import LateRecords
from kohort.client.lifecycle import Farewell
from kohort.client.sender import Sender
from kohort.errors import KohortError, LocalProtocolError, RequestTimedOutError
from kohort.values import replace
from kohort.wire.schema import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.arrow_delivery import ArrowDelivery
    from kohort.client.settings import ProducerSettings

log = logging.getLogger("kohort.client")

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

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._config = make(ProducerConfig, settings)
        # What runs in the background must not refer to what the application has given.
        self._bare = replace(self._config, key_serializer=None, value_serializer=None)
        self._cluster = Cluster(self._bare)
        self._sender: Sender | None = None
        self._late: LateRecords | None = None
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
            KafkaError: There is no such topic or partition, the record is too large, or no broker
                or no memory was there within `max_block_ms`.
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
            KafkaError: There is no such topic or partition, a record is too large, or no broker or
                no memory was there within `max_block_ms`. Nothing was sent.
            TypeError: It is no table, or a column is of a type that it may not have.
            ValueError: A column is unknown, an array is malformed, or a value is out of range.
        """
        from kohort.client.arrow_sender import ArrowSend, check_arguments

        check_arguments(topic, table)
        sender = self.sender()
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
                elif not await sender.room(need, deadline):
                    raise sender.no_room()
        except (KohortError, ValueError) as error:
            send.stop(error)
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
            self._at_home()
            await _flush(self._sender, self._late, _deadline(timeout), timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Send everything, then close; what is not acknowledged in time fails.

        Args:
            timeout: Seconds to wait at most.
        """
        left_s = arguments.timeout_s_or_none(timeout)
        deadline = _deadline(left_s)
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
            await _close(self._sender, self._late, self._cluster, left_s)
            self._is_over = True
        finally:
            if not self._is_over:  # what is there can be sent yet: by another close, or at exit
                self._is_closed = False
            self._ending = None
            ending.set_result(None)

    def end_at_exit(self) -> None:
        """Say what the end of the process takes along: the loop does not run any more."""
        sender = self._sender
        if self.is_owned or self._is_over or sender is None or not sender.undone():
            return
        self._is_closed = self._is_over = True  # told once
        log.warning("records of an AsyncProducer that was not closed are lost: await its close()")

    def farewell(self) -> Farewell | None:
        """Return what is to be done when nobody closes this: what is there is sent.

        So it is after a `close` that was cancelled, or is going to be.
        """
        if self._sender is None or self._is_over:
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
            self._late = LateRecords(self._bare, self._sender)
            self._sender.start()
        return self._sender

    def late_records(self) -> LateRecords:
        """Return what waits for room on the loop; callbacks may use it while this closes."""
        self._sender or self.sender()
        assert self._late is not None
        return self._late


async def _flush(
    sender: Sender, late: LateRecords | None, deadline: Deadline, timeout_s: float | None
) -> None:
    if late is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.left_s()):
                await late.passed_on()
    await sender.flush(deadline, timeout_s)
    if late is not None and late.count and deadline.over:
        raise RequestTimedOutError(
            f"{late.count} records that callbacks of deliveries sent still wait for metadata or"
            f" memory after {timeout_s or 0:g} s"
        )


async def _close(
    sender: Sender | None, late: LateRecords | None, cluster: Cluster, timeout_s: float | None
) -> None:
    if sender is not None and late is not None:
        sender.refuse()
        why = await _finish(sender, late, timeout_s)
        await sender.close(why)
        await late.close()
    await cluster.close()


async def _finish(
    sender: Sender, late: LateRecords, timeout_s: float | None
) -> RequestTimedOutError | None:
    """Send what is there, and what callbacks of deliveries send meanwhile.

    Returns:
        What is left when the time is over; None when nothing is.
    """
    deadline = _deadline(timeout_s)
    try:
        while sender.batches.fatal is None and (late.count or sender.undone()):
            await _flush(sender, late, deadline, timeout_s)
    except RequestTimedOutError as error:
        log.warning("the producer is closed although %s", error.message)
        return error
    return None


def _deadline(timeout_s: float | None) -> Deadline:
    return Deadline(None if timeout_s is None else timeout_s * 1000)


async def _close_alone(
    sender: Sender, late: LateRecords | None, cluster: Cluster, timeout_s: float
) -> None:
    """Send what is there; what cannot be sent is told to the log, for nobody looks at futures."""
    sender.is_alone = True
    await _close(sender, late, cluster, timeout_s)


def serialized(config: ProducerConfig, value: object, key: object) -> tuple[object, object]:
    """Return value and key as the serializers make them."""
    if key is not None and config.key_serializer is not None:
        key = config.key_serializer(key)
    if value is not None and config.value_serializer is not None:
        value = config.value_serializer(value)
    return value, key
