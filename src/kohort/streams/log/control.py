"""The control topic of a stream application: reading it to its end, and appending to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Self

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.errors import KohortError
from kohort.region.settings import ClientSettings, consumer_settings, producer_settings
from kohort.streams.errors import ControlRecordError
from kohort.streams.log.records import (
    RECORD_BYTES_MAX,
    ControlRecord,
    ControlState,
    encode_record,
    fold,
    key_of,
    leave_key,
)
from kohort.streams.runtime.failures import answered
from kohort.streams.topics import control_topic
from kohort.types import TopicPartition

log = logging.getLogger("kohort.streams")

_POLL_MS = 1_000

Heard = Callable[[ControlState], None]


class ControlLog:
    """Reads and appends to the control topic of one application, on one event loop.

    The topic must exist; `kohort.streams.topics` creates it.

    Args:
        application: Name of the application.
        settings: How to reach the brokers.
        consumer: Reads the topic, without a group; None: create a consumer.
        producer: Appends to it; None: create a producer.

    Attributes:
        state: The state read so far.
        heard: Called with the state after each read.
        origin: Id of the topic, which a reset changes. Empty: not requested yet, or the brokers
            have no topic ids.
    """

    def __init__(
        self,
        application: str,
        settings: ClientSettings,
        consumer: AsyncConsumer | None = None,
        producer: AsyncProducer | None = None,
    ) -> None:
        self.state = ControlState()
        self.heard: Heard = lambda _state: None
        self.origin = ""
        self._application = application
        self._place = TopicPartition(control_topic(application), 0)
        self._consumer = consumer or AsyncConsumer(
            **consumer_settings(
                settings,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                max_partition_fetch_bytes=4 * RECORD_BYTES_MAX,
            )
        )
        self._producer = producer or AsyncProducer(
            **producer_settings(settings, acks="all", linger_ms=0)
        )
        self._read = 0
        self._advanced = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._consumer.assign([self._place])
        self._consumer.seek_to_beginning(self._place)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.close(5.0)
        await self._consumer.close(5.0)

    async def follow(self) -> None:
        """Read until cancelled.

        Raises:
            KafkaError: The topic cannot be read, and retrying does not help.
        """
        while True:
            await answered(f"{self._application}: its control topic", partial(self._step, _POLL_MS))

    async def read_to_end(self) -> ControlState:
        """Read to the current end and return the state there; `follow` must not be running."""
        end = await self.end()
        while self._read < end:
            await self._step(_POLL_MS)
        return self.state

    async def identify(self) -> None:
        """Request the id of the topic.

        Raises:
            KafkaError: The brokers cannot be reached.
        """
        found = (await self._consumer.topic_metadata([self._place.topic])).get(self._place.topic)
        if found is not None and found.topic_id.int:
            self.origin = str(found.topic_id)

    async def caught_up(self) -> ControlState:
        """Return the state at the current end; `follow` must be running."""
        end = await self.end()
        while self._read < end:
            advanced = self._advanced
            await advanced.wait()
        return self.state

    async def end(self) -> int:
        """Return the offset after the last record."""
        return (await self._consumer.end_offsets([self._place]))[self._place]

    async def _step(self, timeout_ms: int) -> None:
        records = (await self._consumer.poll(timeout_ms)).get(self._place, [])
        for record in records:
            try:
                self.state = fold(self.state, record.key, record.value)
            except ControlRecordError as error:
                log.warning(
                    "%s: the record at offset %d of %s is ignored, and its content is not"
                    " known: %s",
                    self._application,
                    record.offset,
                    self._place.topic,
                    error,
                )
        position = self._consumer.positions().get(self._place, 0)
        if position > self._read:
            self._read = position
            self._advanced.set()
            self._advanced = asyncio.Event()
        if records:
            self.heard(self.state)

    async def append(self, *records: ControlRecord) -> None:
        """Append records, and wait until they are stored.

        Raises:
            KafkaError: A record could not be stored in time, or is not allowed.
        """
        await self._send([(key_of(each), encode_record(each)) for each in records])

    async def forget_leave(self, member: str) -> None:
        """Remove the record of a leaving member that has left; raises the errors of `append`."""
        await self._send([(leave_key(member), None)])

    async def _send(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        topic = self._place.topic
        sent = [await self._producer.send(topic, value, key, partition=0) for key, value in pairs]
        found = await asyncio.gather(*sent, return_exceptions=True)
        for each in found:
            if isinstance(each, KohortError):
                raise each
            if isinstance(each, BaseException):
                raise each
