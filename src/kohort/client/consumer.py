"""The blocking consumer: the asyncio one in a thread of its own.

The application's thread decodes and runs listeners; the client's thread owns sockets, heartbeats
and the member machine, so a slow application is still a live member of its group.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from kohort.client.async_consumer import AsyncConsumer
from kohort.client.backoff import Deadline
from kohort.client.config import ConsumerConfig, from_kafka
from kohort.client.core import ConsumerCore
from kohort.client.listener import Listens, refuse_in_listener
from kohort.client.loop_thread import LoopThread, Serve
from kohort.client.offsets import OffsetAndTimestamp
from kohort.client.reading import Records, read_columns, read_records
from kohort.client.records import ConsumerRecord
from kohort.errors import LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Consumer:
    """Reads topics, alone or as a member of a consumer group.

        with Consumer("flights", bootstrap_servers="localhost:9092", group_id="delays") as consumer:
            for record in consumer:
                print(record.value)

    One thread polls; listeners are called inside its `poll`. Other threads may ask and commit
    meanwhile, and end a waiting poll with `wakeup`; what changes positions (`seek`, `assign`,
    `pause`) belongs to the thread that polls.

    Args:
        *topics: Topics to subscribe to at once.
        **settings: Kafka's settings in snake_case; see `ConsumerConfig`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    def __init__(self, *topics: str, **settings: object) -> None:
        self._async = AsyncConsumer(*topics, **settings)
        self._config = self._async.config
        self._thread = LoopThread("kohort-consumer")
        self._polling = threading.Lock()
        self._core: ConsumerCore | None = None

    @classmethod
    def from_config(cls, settings: Mapping[str, object], *topics: str) -> Self:
        """Make a consumer of Kafka's own keys (`bootstrap.servers`); values may be strings.

        Raises:
            ConfigError: A setting is unknown, malformed or not supported.
        """
        return cls(*topics, **from_kafka(ConsumerConfig, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Listens | None = None,
    ) -> None:
        """Join the group for these topics, at the next poll; see `AsyncConsumer.subscribe`."""
        self._on_loop(lambda: self._async.subscribe(topics, pattern=pattern, listener=listener))

    def unsubscribe(self) -> None:
        """Leave the group, or forget what was assigned by hand."""
        refuse_in_listener("unsubscribe")
        self._thread.run_serving(self._unsubscribe)

    async def _unsubscribe(self, serve: Serve) -> None:
        await self._async.core.unsubscribe(serve)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out."""
        self._on_loop(lambda: self._async.assign(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions this consumer reads."""
        return self._on_loop(self._async.assignment)

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._on_loop(self._async.subscription)

    # ------------------------------------------------------------------------------- read

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Return the next records, by partition; empty when none came in time.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Most records to return; `max_poll_records` by default.

        Raises:
            KafkaError: The group or a partition cannot be read; see `retriable` and `fatal`.
            RemoteProtocolError: Records are corrupt; names partition and offset.
        """
        count = self._config.max_poll_records if max_records is None else max_records
        return read_records(self._ready(timeout_ms).partitions, self._config, count)

    def poll_arrow(self, timeout_ms: int = 0, max_records: int | None = None) -> pa.RecordBatch:
        """Return the next records as columns, those of Spark's own Kafka source.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Most rows; whatever was fetched by default.

        Raises:
            KafkaError: As `poll`.
            RemoteProtocolError: As `poll`.
        """
        return read_columns(self._ready(timeout_ms).partitions, self._config, max_records)

    def poll_membership(self, timeout_ms: int = 0) -> None:
        """Be a member of the group without reading: callbacks run, the group sees a live member.

        Returns after a callback, a `wakeup`, or the time-out.
        """
        self._ready(timeout_ms, reads=False)

    def _ready(self, timeout_ms: int, *, reads: bool = True) -> ConsumerCore:
        refuse_in_listener("poll")
        if not self._polling.acquire(blocking=False):
            raise LocalProtocolError("another poll of this consumer is running")
        try:
            deadline = Deadline(timeout_ms)
            if reads and self._core is not None and self._core.handover.wait(deadline):
                return self._core
            self._core = self._thread.run_serving(
                lambda serve: self._make_ready(deadline, serve, reads)
            )
            return self._core
        finally:
            self._polling.release()

    async def _make_ready(self, deadline: Deadline, serve: Serve, reads: bool) -> ConsumerCore:
        core = self._async.core
        await core.ready(deadline, serve, reads=reads)
        return core

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records for ever."""
        while True:
            for records in self.poll(1_000).values():
                yield from records

    def wakeup(self) -> None:
        """End the poll that waits, or the next one; any thread may call it."""
        self._thread.call_soon(self._wakeup)

    def _wakeup(self) -> None:
        if not self._async.is_closed:
            self._async.wakeup()

    # --------------------------------------------------------------------------- positions

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record, looking it up if need be.

        Raises:
            LocalProtocolError: The partition is not assigned.
            KafkaError: It cannot be found out in time.
        """
        return self._thread.run(lambda: self._async.position(partition, timeout_ms))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in a partition."""
        self._on_loop(lambda: self._async.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of these partitions, of all by default."""
        self._on_loop(lambda: self._async.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go behind the last record of these partitions, of all by default."""
        self._on_loop(lambda: self._async.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Do not hand out records of these partitions; what was fetched is kept."""
        self._on_loop(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        self._on_loop(lambda: self._async.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        return self._on_loop(self._async.paused)

    # ----------------------------------------------------------------------------- commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store positions with the group; see `AsyncConsumer.commit`."""
        self._thread.run(lambda: self._async.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """As `commit`, without waiting for the answer."""
        if offsets is None:
            offsets = self._on_loop(self._commit_positions)
        return self._thread.submit(lambda: self._async.commit(offsets))

    def _commit_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._async.core.commit_positions()

    def committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        return self._thread.run(lambda: self._async.committed(*partitions, timeout_ms=timeout_ms))

    # ----------------------------------------------------------------- what the brokers know

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._thread.run(lambda: self._async.beginning_offsets(partitions, timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return self._thread.run(lambda: self._async.end_offsets(partitions, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a timestamp (milliseconds); None: there is none."""
        return self._thread.run(lambda: self._async.offsets_for_times(timestamps, timeout_ms))

    def partitions_for_topic(
        self, topic: str, timeout_ms: int | None = None
    ) -> frozenset[int] | None:
        """Return the numbers of a topic's partitions; None when there is no such topic."""
        return self._thread.run(lambda: self._async.partitions_for_topic(topic, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> frozenset[str]:
        """Return the names of all topics that the client may see."""
        return self._thread.run(lambda: self._async.topics(timeout_ms))

    # ------------------------------------------------------------------------------- group

    @property
    def member_id(self) -> str:
        """Id that the group's coordinator gave to this member; empty when there is none."""
        return self._async.member_id

    @property
    def generation_id(self) -> int:
        """Generation of the group that this member is in; -1 when in none."""
        return self._async.generation_id

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group rebalance (KIP-568); see `AsyncConsumer.enforce_rebalance`."""
        self._on_loop(lambda: self._async.enforce_rebalance(reason))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return what Kafka measures; see `AsyncConsumer.metrics`."""
        return self._on_loop(self._async.metrics)

    def close(
        self,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if that is automatic, leave the group and close the connections.

        Args:
            timeout_s: How long leaving may take; after that the connections are closed anyway.
            operation: Whether the group is told that the member leaves (KIP-1092).
        """
        refuse_in_listener("close")
        if self._async.is_closed:
            return
        try:
            self._thread.run_serving(lambda serve: self._async.close(timeout_s, serve, operation))
        finally:
            self._thread.close()

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._thread.run(call)
