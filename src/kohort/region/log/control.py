"""The control topic of a region: creates, checks, reads and extends it.

Reading starts at the newest snapshot. All processes of a region fold the same log (decision 0026).
This shell handles Kafka and does not interpret the records.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from kohort.client import AsyncConsumer, AsyncProducer, ConsumerRecord
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.admin.values import NewTopic
from kohort.client.consumer.aio import internals_of
from kohort.errors import MAY_BE_HIDDEN, BrokerUnavailableError, ErrorCode, KafkaError, KohortError
from kohort.region.errors import ControlTopicError, RegionError, RegionRecordError
from kohort.region.log.policies import COMPACTED, LOST, check_topic, watch_policies
from kohort.region.machines.coding import VALUE_BYTES_MAX, decode, encode
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import RegionRecord, Trimmed
from kohort.region.machines.state import Fact, RegionState
from kohort.region.settings import (
    ClientSettings,
    Patience,
    admin_settings,
    consumer_settings,
    producer_settings,
)
from kohort.types import TopicPartition

log = logging.getLogger("kohort.region")

PREFIX = "__kohort-region-"
# Brokers refuse records of a process whose clock is an hour ahead, unless the topic uses
# log-append time.
BROKERS_CLOCK: Mapping[str, str] = {"message.timestamp.type": "LogAppendTime"}
_CONFIGS: Mapping[str, str] = {
    **BROKERS_CLOCK,
    "cleanup.policy": COMPACTED,
    "max.message.bytes": str(VALUE_BYTES_MAX + 1_000_000),
}
_POLL_MS = 1_000
# Interval of checks that the topic is still the one that was opened.
_LOOK_S = 5.0
# Interval of requests while brokers do not know a new topic yet.
_AGAIN_S = 0.1
# A broker that has just started may not know a topic yet. It is gone after this many misses.
_LOOKS_WITHOUT = 2
_GONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)
# How long records in flight may take when the region ends.
_CLOSE_S = 5.0
# All records of an append must fit into one batch.
_BATCH_BYTES = VALUE_BYTES_MAX + 500_000

# How long other processes may take to create the region before an objection to that counts.
_CONFIRMED_S = 2.0

Told: TypeAlias = Callable[[RegionState], None]
Heard: TypeAlias = Callable[[ConsumerRecord], None]
Check: TypeAlias = Callable[[AsyncAdminClient], Awaitable[None]]


def control_topic(region: str) -> str:
    """Return the name of a region's control topic."""
    return PREFIX + region


def state_topic(region: str) -> str:
    """Return the name of the topic that holds a region's states."""
    return f"{PREFIX}{region}-state"


async def close_soon(producer: AsyncProducer) -> None:
    """Close a producer; a failure to send must not hide why the region ends."""
    try:
        await producer.close(_CLOSE_S)
    except KohortError as error:
        log.warning("the last records of an operator were not stored: %s", error)


class ControlLog:
    """Reads and appends to the control topic of a region; on one event loop.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        create: Whether to create the topic if it is missing.
        replication_factor: Replicas of a topic that is created; -1: the broker's default.
        check: Raises a `RegionError` if the region must not be created.
    """

    def __init__(
        self,
        region: str,
        settings: ClientSettings,
        *,
        create: bool = True,
        replication_factor: int = -1,
        check: Check | None = None,
    ) -> None:
        self.region = region
        self.topic = control_topic(region)
        self.topic_id = ""
        self.reader = Reader()
        self._place = TopicPartition(self.topic, 0)
        self._settings = settings
        self._create = create
        self._check = check
        self._replication_factor = replication_factor
        self._consumer: AsyncConsumer | None = None
        self._producer: AsyncProducer | None = None
        self._listeners: list[Told] = []
        self._hearers: list[Heard] = []
        self._advanced = asyncio.Event()
        self._identified = asyncio.Event()
        self._looks_without = 0
        # The error that ended `follow`.
        self._failure: Exception | None = None
        self._patience = Patience()

    # ------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Find or create the topic, and check that it is suitable for a region.

        Raises:
            ControlTopicError: It is missing, has several partitions, or is not compacted.
            RegionError: It is missing, and the region must not be created.
            KafkaError: The brokers cannot be reached, or refuse.
        """
        async with AsyncAdminClient(**admin_settings(self._settings)) as admin:
            await self._find(admin)
            await check_topic(admin, self.topic)
        self._consumer = AsyncConsumer(
            **consumer_settings(
                self._settings,
                auto_offset_reset="none",
                enable_auto_commit=False,
                max_partition_fetch_bytes=VALUE_BYTES_MAX + 1_000_000,
            )
        )
        self._consumer.assign([self._place])
        self._consumer.seek_to_beginning(self._place)
        self._producer = AsyncProducer(
            **producer_settings(
                self._settings,
                acks="all",
                enable_idempotence=True,
                compression_type="zstd",
                batch_size=_BATCH_BYTES,
                max_request_size=_BATCH_BYTES + 100_000,
                linger_ms=0,
            )
        )

    async def _find(self, admin: AsyncAdminClient) -> None:
        topics = await admin.list_topics()
        if self.topic in topics:
            return
        if not self._create:
            raise ControlTopicError(
                f"there is no region {self.region!r}: no topic {self.topic}, {MAY_BE_HIDDEN}"
            )
        await self._check_is_new(admin, topics)
        await self._check_creation(admin)
        topic = NewTopic(self.topic, 1, self._replication_factor, _CONFIGS)
        try:
            await admin.create_topics([topic])
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another operator was faster
                raise

    async def _check_is_new(self, admin: AsyncAdminClient, topics: frozenset[str]) -> None:
        """Refuse to restart a region that has lost only its control topic.

        The state topic is created after it. So either another process has created both meanwhile,
        or the control topic was deleted.
        """
        states, loop = state_topic(self.region), asyncio.get_running_loop()
        end = loop.time() + _LOOK_S
        while states in topics and self.topic not in topics:
            if loop.time() > end:
                raise ControlTopicError(
                    f"{self.topic} is missing, but {states} exists: the control topic was "
                    f"deleted, {LOST}. To use this name again, delete {states} as well; "
                    "it also needs a new output"
                )
            await asyncio.sleep(_AGAIN_S)
            topics = await admin.list_topics()

    async def _check_creation(self, admin: AsyncAdminClient) -> None:
        """Check that the region may be created, unless others have created it meanwhile.

        Those may also have opened its output and joined its group.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + _CONFIRMED_S
        while self._check is not None:
            try:
                await self._check(admin)
            except RegionError:
                if self.topic in await admin.list_topics():
                    return
                if loop.time() > end:
                    raise
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def close(self) -> None:
        """Close the clients; records that cannot be appended soon are dropped."""
        if self._consumer is not None:
            await self._consumer.close()
        if self._producer is not None:
            await close_soon(self._producer)

    # ------------------------------------------------------------------------------------- reading

    def on_state(self, told: Told) -> None:
        """Register a function to call with each trusted state, on the loop."""
        self._listeners.append(told)

    def on_record(self, heard: Heard) -> None:
        """Register a function to call with each record read, trusted or not, on the loop."""
        self._hearers.append(heard)

    async def follow(self) -> None:
        """Read the log until an error stops it; tasks that wait for the log also get the error.

        Raises:
            ControlTopicError: The topic was deleted or recreated, or lost records.
            RegionError: The log cannot be folded.
            KafkaError: It cannot be read, and retrying does not help.
        """
        topics = (self.topic, state_topic(self.region))
        watching = asyncio.create_task(watch_policies(self.region, self._settings, topics))
        try:
            await self._follow()
        except Exception as error:
            self._failure = error
            self._identified.set()
            self._advanced.set()
            raise
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _follow(self) -> None:
        consumer = self._opened()
        looked = asyncio.get_running_loop().time()
        while True:
            records = await self._poll(consumer)
            for record in records:
                self._note(self.reader.take(record.offset, record.key, record.value))
                for heard in self._hearers:
                    heard(record)
            was_trusted = self.reader.state is not None
            if not was_trusted:
                await self._reach(consumer)
            if records or not was_trusted:
                self._tell()
            now = asyncio.get_running_loop().time()
            if now - looked > _LOOK_S or not self.topic_id:
                looked = now
                await self._check_id(consumer)

    async def _poll(self, consumer: AsyncConsumer) -> Sequence[ConsumerRecord]:
        try:
            return (await consumer.poll(_POLL_MS)).get(self._place, [])
        except BrokerUnavailableError:
            if not self._patience.is_left():
                raise
            return []
        except KafkaError as error:
            raise self._named(error) from error

    def _named(self, error: KafkaError) -> KohortError:
        """Return the error to raise if the topic is no longer the one that was opened."""
        if error.code == ErrorCode.INVALID_TIMESTAMP:
            return ControlTopicError(
                f"{self.topic} takes no records of this process, whose clock is too far from the "
                f"brokers' ({error}). Set the clock of this machine, or give the topic "
                "message.timestamp.type=LogAppendTime, which this version sets in new topics"
            )
        if error.code not in _GONE:
            return error
        return ControlTopicError(
            f"{self.topic} or records of it were deleted while the region ran ({error}): {LOST}"
        )

    async def _reach(self, consumer: AsyncConsumer) -> None:
        """Tell the reader the end of the log, once it has read everything before it."""
        end = await self.end()
        if consumer.positions().get(self._place, 0) >= end:
            self._note(self.reader.reach(end))

    def _note(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            level = logging.INFO if fact.is_usual else logging.WARNING
            log.log(
                level if fact.is_refused else logging.DEBUG, "region %s: %s", self.region, fact.text
            )

    def _tell(self) -> None:
        self._advanced.set()
        self._advanced = asyncio.Event()
        state = self.reader.state
        if state is not None:
            for told in self._listeners:
                told(state)

    async def _check_id(self, consumer: AsyncConsumer) -> None:
        found = internals_of(consumer).core.cluster.metadata.topic_id(self.topic)
        if found is None:
            await self._check_is_there()
            return
        self._looks_without = 0
        if self.topic_id and self.topic_id != str(found):
            raise ControlTopicError(
                f"{self.topic} was deleted and recreated: its id was {self.topic_id} and is now "
                f"{found}: {LOST}"
            )
        self.topic_id = str(found)
        self._identified.set()

    async def _check_is_there(self) -> None:
        async with AsyncAdminClient(**admin_settings(self._settings)) as admin:
            try:
                is_there = self.topic in await admin.list_topics()
            except KohortError as error:
                log.warning(
                    "region %s: cannot find out whether %s exists: %s",
                    self.region, self.topic, error,
                )  # fmt: skip
                return
        self._looks_without = 0 if is_there else self._looks_without + 1
        if self._looks_without >= _LOOKS_WITHOUT:
            raise ControlTopicError(f"{self.topic} was deleted: {LOST}")

    async def identified(self) -> str:
        """Wait until the id of the topic is known, and return it; `follow` must be running.

        Raises:
            Exception: The error that ended `follow`.
        """
        await self._identified.wait()
        self._check_followed()
        return self.topic_id

    def _check_followed(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def caught_up(self) -> RegionState:
        """Read to the current end, and return the state there; `follow` must be running.

        Raises:
            KafkaError: The end offset is unknown.
            Exception: The error that ended `follow`.
        """
        self._check_followed()
        end = await self.end()
        state = self.reader.state
        while state is None or self.reader.position < end:
            state = await self.advanced()
        return state

    async def advanced(self) -> RegionState | None:
        """Wait until more of the log is read; return the state, or None if it is not trusted.

        Raises:
            Exception: The error that ended `follow`.
        """
        await self._advanced.wait()
        self._check_followed()
        return self.reader.state

    async def end(self) -> int:
        """Return the offset after the last record."""
        return (await self._opened().end_offsets([self._place]))[self._place]

    async def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last records of partitions of other topics.

        Raises:
            KafkaError: An offset is unknown.
        """
        return dict(await self._opened().end_offsets(places)) if places else {}

    # ----------------------------------------------------------------------------------- appending

    async def append(self, records: Sequence[RegionRecord]) -> int:
        """Append records as one batch, each with a unique key.

        Returns:
            The offset up to which the log must be read to know the result of the append.

        Raises:
            RegionRecordError: No reader could decode a record; nothing is written.
            KafkaError: A record is too large, or writing is not allowed.
        """
        pairs = [encode(record, uuid.uuid4().hex) for record in records]
        self._check_readable(pairs)
        return await self._send(pairs)

    def _check_readable(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Refuse a record that readers would ignore: its writer would send it again forever."""
        for key, value in pairs:
            try:
                decode(key, value)
            except RegionRecordError as error:
                raise RegionRecordError(
                    f"region {self.region}: a record for {self.topic} is not written, because no "
                    f"reader could read it: {error}"
                ) from error

    async def trim(self, before: int, writer: tuple[int, str]) -> int:
        """Append tombstones for records replaced by a snapshot; returns what `append` returns."""
        keys = self.reader.removable(before)
        marker = encode(Trimmed(*writer, len(keys)), uuid.uuid4().hex)
        return await self._send([*((key, None) for key in keys), marker])

    async def _send(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> int:
        producer = self._producer
        assert producer is not None
        try:
            sent = [
                await producer.send(self.topic, value, key, partition=0) for key, value in pairs
            ]
            placed = await asyncio.gather(*sent)
        except KafkaError as error:
            if not error.retriable:
                raise self._named(error) from error
            log.warning("region %s: an append ended with %s; reading the log", self.region, error)
            return await self._end_for_sure()
        return max(each.offset for each in placed) + 1

    async def _end_for_sure(self) -> int:
        while True:
            try:
                return await self.end()
            except KohortError as error:
                log.warning(
                    "region %s: the end of %s is not known: %s", self.region, self.topic, error
                )
                await asyncio.sleep(1.0)

    def _opened(self) -> AsyncConsumer:
        assert self._consumer is not None
        return self._consumer
