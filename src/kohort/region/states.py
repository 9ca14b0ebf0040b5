"""State that moves with its partition: bytes in a compacted topic, a reference in the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.admin.values import NewTopic
from kohort.client.consumer.aio import internals_of
from kohort.errors import BrokerUnavailableError, ErrorCode, KafkaError, KohortError
from kohort.region.errors import RegionStateError, StateLimitError
from kohort.region.log.control import BROKERS_CLOCK, close_soon, state_topic
from kohort.region.log.policies import check_topic
from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.settings import (
    ClientSettings,
    Patience,
    admin_settings,
    consumer_settings,
    producer_settings,
)
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord, RecordMetadata
    from kohort.region.machines.state import RegionState

_SCALARS = (str, int, float)
PARTITION_BYTES_MAX = 512 * 1024
ALL_BYTES_MAX = 64 * 1024 * 1024
_POLL_MS = 500
# How long a topic may be unknown to the brokers before it counts as deleted.
_MISSING_S = 15.0
_GONE = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class KeyedState(dict[str, Any]):
    """State of one partition: a dict from text to JSON values.

    The function changes it in place. Its content after the last record of a cut is stored with the
    checkpoint, and loaded again wherever the partition is read next.
    """

    def to_bytes(self) -> bytes:
        """Return the state as bytes for storage; empty if there is none.

        Raises:
            TypeError: It has a key that is not a text or a value that JSON does not have: they
                would be different when the state is loaded.
            ValueError: It has a number that JSON does not have.
        """
        if not self:
            return b""
        _check(dict(self), "")
        return json.dumps(self, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> KeyedState:
        """Load a stored state.

        Args:
            stored: The bytes returned by `to_bytes`.
        """
        return cls(json.loads(stored)) if stored else cls()


def _check(value: object, at: str) -> None:
    """Refuse values that JSON would change; `at` is their location, for error messages."""
    if type(value) is dict:
        _check_keys(value)
        for key, each in value.items():
            _check(each, f"{at}[{key!r}]")
    elif type(value) is list:
        for number, each in enumerate(value):
            _check(each, f"{at}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"state{at} is {value!r}, which JSON does not have")
    elif value is not None and not isinstance(value, _SCALARS):
        raise TypeError(
            f"state{at} is a {type(value).__name__}, which would be loaded as another type. State "
            "is made of dict, list, str, int, float, bool and None"
        )


def _check_keys(values: dict[Any, object]) -> None:
    odd = [each for each in values if not isinstance(each, str)]
    if odd:
        raise TypeError(
            f"the state has the key {odd[0]!r} of type {type(odd[0]).__name__}. Keys must be "
            "texts: it would be loaded as a text, which is another key"
        )


def check_size(partition: RegionPartition | str, state: bytes) -> None:
    """Refuse state that is too large for a region.

    Raises:
        StateLimitError: It is larger than 512 KiB.
    """
    if len(state) > PARTITION_BYTES_MAX:
        raise StateLimitError(
            f"the state of {partition} has {len(state)} bytes, and a region allows "
            f"{PARTITION_BYTES_MAX} per partition. Keep less in it, or spread the topic over more "
            "partitions"
        )


class StateTopic:
    """Stores and loads the state of partitions; on one event loop.

    A reference consists of the offset, the size and a digest of the bytes. A record's key names
    partition, checkpoint, attempt and writer, so compaction keeps each record until the controller
    removes it.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        replication_factor: Replicas of a topic that is created; -1: the broker's default.
    """

    def __init__(self, region: str, settings: ClientSettings, replication_factor: int = -1) -> None:
        self.topic = state_topic(region)
        self._place = TopicPartition(self.topic, 0)
        self._settings = settings
        self._replication_factor = replication_factor
        self._producer: AsyncProducer | None = None
        self._consumer: AsyncConsumer | None = None
        self._reading = asyncio.Lock()
        self._patience = Patience()
        # The records known to hold a state: by partition and offset, checkpoint and key.
        self._stored: dict[RegionPartition, dict[int, tuple[int, bytes]]] = {}

    async def open(self) -> None:
        """Create the topic unless it exists, and check that it retains its records.

        Raises:
            ControlTopicError: It has several partitions, or is not compacted.
            KafkaError: The brokers refuse a request.
        """
        configs = {**BROKERS_CLOCK, "cleanup.policy": "compact"}
        topic = NewTopic(self.topic, 1, self._replication_factor, configs)
        async with AsyncAdminClient(**admin_settings(self._settings)) as admin:
            if self.topic not in await admin.list_topics():
                try:
                    await admin.create_topics([topic])
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
            await check_topic(admin, self.topic)
        self._producer = AsyncProducer(
            **producer_settings(self._settings, acks="all", enable_idempotence=True, linger_ms=0)
        )
        self._consumer = AsyncConsumer(
            **consumer_settings(self._settings, auto_offset_reset="none", enable_auto_commit=False)
        )
        self._consumer.assign([self._place])
        self._consumer.pause(self._place)

    async def close(self) -> None:
        """Close the clients; states that cannot be stored soon are dropped."""
        if self._consumer is not None:
            await self._consumer.close()
        if self._producer is not None:
            await close_soon(self._producer)

    async def store(
        self,
        states: Mapping[RegionPartition, bytes],
        checkpoint: int,
        attempt: int,
        writer: OperatorId,
    ) -> dict[RegionPartition, str]:
        """Write states, and return a reference to each; an empty state has an empty reference.

        Raises:
            RegionStateError: The topic was deleted.
            KafkaError: They could not be written.
        """
        try:
            return await self._write(states, checkpoint, attempt, writer)
        except KafkaError as error:
            raise self._named(error) from error

    def _named(self, error: KafkaError) -> KohortError:
        """Return the error to raise if the topic is not the one of the checkpoints."""
        return self._lost(str(error)) if error.code in _GONE else error

    def _lost(self, why: str) -> RegionStateError:
        return RegionStateError(
            f"{self.topic} or records of it were deleted ({why}): states that the last checkpoint "
            "refers to are gone, and without them the results would be wrong. Start a "
            "region of another name, with an output of its own; this one's published output stays"
        )

    async def _write(
        self,
        states: Mapping[RegionPartition, bytes],
        checkpoint: int,
        attempt: int,
        writer: OperatorId,
    ) -> dict[RegionPartition, str]:
        producer = self._producer
        assert producer is not None
        references = {place: "" for place, state in states.items() if not state}
        sent = []
        for place, state in states.items():
            if state:
                check_size(place, state)
                key = _key(place, checkpoint, attempt, writer)
                future = await producer.send(self.topic, state, key, partition=0)
                future.add_done_callback(_seen)
                sent.append((place, state, key, future))
        for place, state, key, future in sent:
            while not (await asyncio.wait([future], timeout=_MISSING_S))[0]:
                await self._check_is_there()
            placed = future.result()
            self._stored.setdefault(place, {})[placed.offset] = (checkpoint, key)
            references[place] = f"{placed.offset}:{len(state)}:{_digest(state)}"
        return references

    async def _check_is_there(self) -> None:
        async with AsyncAdminClient(**admin_settings(self._settings)) as admin:
            if self.topic not in await admin.list_topics():
                raise self._lost("the brokers no longer know it")

    async def load(self, partition: RegionPartition, reference: str) -> bytes:
        """Return the bytes of a reference.

        Raises:
            RegionStateError: They were deleted or changed.
        """
        if not reference:
            return b""
        offset, size, digest = reference.split(":")
        async with self._reading:
            try:
                state = await self._read(partition, int(offset))
            except KafkaError as error:
                raise self._named(error) from error
        if len(state) != int(size) or _digest(state) != digest:
            raise RegionStateError(
                f"the state of {partition} at offset {offset} of {self.topic} is not the one that "
                "the checkpoint refers to: something else changed the topic"
            )
        return state

    async def _read(self, partition: RegionPartition, offset: int) -> bytes:
        consumer = self._consumer
        assert consumer is not None
        consumer.seek(self._place, offset)
        consumer.resume(self._place)
        loop = asyncio.get_running_loop()
        end = loop.time() + _MISSING_S
        try:
            while True:
                if (
                    loop.time() > end
                    and internals_of(consumer).core.cluster.metadata.topic_id(self.topic) is None
                ):
                    raise self._lost("the brokers no longer know it")
                for record in await self._polled(consumer):
                    if record.offset == offset and record.value is not None:
                        stored = self._stored.setdefault(partition, {})
                        stored.setdefault(offset, (0, bytes(record.key)))
                        return bytes(record.value)
                    raise self._lost(f"the state of {partition} was at offset {offset}")
                await self._check_reaches(partition, offset)
        finally:
            consumer.pause(self._place)

    async def _polled(self, consumer: AsyncConsumer) -> Sequence[ConsumerRecord]:
        try:
            return (await consumer.poll(_POLL_MS, 1)).get(self._place, [])
        except BrokerUnavailableError:
            if not self._patience.is_left():
                raise
            return []

    async def _check_reaches(self, partition: RegionPartition, offset: int) -> None:
        """Refuse to wait for an offset that a recreated topic does not have yet."""
        consumer = self._consumer
        assert consumer is not None
        end = (await consumer.end_offsets([self._place]))[self._place]
        if offset >= end:
            raise self._lost(f"the state of {partition} was at offset {offset}, it ends at {end}")

    async def forget(self, state: RegionState) -> None:
        """Remove the states that the last complete checkpoint has replaced.

        Each operator removes the states that it wrote or read itself; `sweep` finds the others.

        Args:
            state: The newest state of the region: given an older one, this would remove a state
                that was loaded since.
        """
        producer = self._producer
        assert producer is not None
        # Chosen before the first await, because another call may run meanwhile.
        for key in self._pop_replaced(state):
            await (await producer.send(self.topic, None, key, partition=0))

    def _pop_replaced(self, state: RegionState) -> list[bytes]:
        keys = []
        for partition, stored in self._stored.items():
            reference = state.partition(partition).state
            kept = int(reference.split(":")[0]) if reference else -1
            old = [at for at, (n, _) in stored.items() if n <= state.completed and at != kept]
            keys += [stored.pop(at)[1] for at in old]
        return keys

    async def sweep(self, state: RegionState) -> int:
        """Remove states of any writer that no checkpoint refers to; return their number.

        A process that is killed after writing a state and before the checkpoint that refers to it
        leaves one behind.

        Args:
            state: A state of the region; an older one removes less.
        """
        producer = self._producer
        assert producer is not None
        referred = {
            int(each.state.split(":")[0]) for each in state.partitions.values() if each.state
        }
        left = [
            key
            for key, (offset, checkpoint) in (await self._written()).items()
            if checkpoint <= state.completed and offset not in referred
        ]
        for key in left:
            await (await producer.send(self.topic, None, key, partition=0))
        return len(left)

    async def _written(self) -> dict[bytes, tuple[int, int]]:
        """Return offset and checkpoint of all states in the topic, by key."""
        written: dict[bytes, tuple[int, int]] = {}
        async with AsyncConsumer(
            **consumer_settings(self._settings, auto_offset_reset="none", enable_auto_commit=False)
        ) as consumer:
            consumer.assign([self._place])
            consumer.seek_to_beginning(self._place)
            end = (await consumer.end_offsets([self._place]))[self._place]
            while await consumer.position(self._place) < end:
                for record in (await consumer.poll(_POLL_MS)).get(self._place, []):
                    checkpoint = _checkpoint_of(record.key or b"")
                    if record.value is None or checkpoint is None:
                        written.pop(record.key or b"", None)
                    else:
                        written[record.key or b""] = record.offset, checkpoint
        return written


def _seen(future: asyncio.Future[RecordMetadata]) -> None:
    """Retrieve a result, or asyncio would warn: after one failure, others are not awaited."""
    if not future.cancelled():
        future.exception()


def _key(partition: RegionPartition, checkpoint: int, attempt: int, writer: OperatorId) -> bytes:
    place = f"{partition.topic}/{partition.topic_id}/{partition.partition}"
    return f"{place}/{checkpoint}/{attempt}/{writer.name}.{writer.incarnation}".encode()


def _checkpoint_of(key: bytes) -> int | None:
    """Return the checkpoint named by a key; None if it is not the key of a state."""
    parts = key.split(b"/", 5)
    return int(parts[3]) if len(parts) == 6 and parts[3].isdigit() else None  # see `_key`


def _digest(state: bytes) -> str:
    return hashlib.blake2b(state, digest_size=12).hexdigest()
