"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, Unpack, cast

from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig, OnCommit, from_kafka, make
from kohort.client.consumer.callbacks import DIRECT
from kohort.client.consumer.commits.offsets import fetch_committed
from kohort.client.consumer.commits.pending_seeks import commit_positions
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.group_calls import AsyncGroupCalls
from kohort.client.consumer.internals import ConsumerInternals
from kohort.client.consumer.last_poll import LastTask
from kohort.client.consumer.listener import Listens
from kohort.client.consumer.reading import Records
from kohort.client.consumer.records import ConsumerRecord
from kohort.client.net.backoff import Deadline
from kohort.errors import BrokerUnavailableError, ConfigError, LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ConsumerSettings

T = TypeVar("T")

CommitOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | int]
"""The next offset to read in each partition, with or without metadata."""

# Iteration checks membership, positions and errors at least this often, even with buffered records,
# and raises errors at least this often while it waits.
POLL_EVERY_S = 0.1
# With records always ready, iteration lets other tasks of the event loop run this often.
GIVE_WAY_EVERY_S = 0.01
LONGEST_WAIT_MS = 1_000


class AsyncConsumer(AsyncGroupCalls):
    """Reads topics, alone or as a member of a consumer group.

        async with AsyncConsumer("flights", bootstrap_servers="...", group_id="delays") as consumer:
            async for record in consumer:
                print(record.value)

    All methods must be called on the loop on which the consumer was first used. Only one poll may
    run at a time.

    Methods take a `partition`, or several `partitions`, as `TopicPartition`. `timeout_ms` is the
    maximum wait for the brokers in milliseconds, by default `default_api_timeout_ms`.

    Args:
        *topics: Topics to subscribe to immediately.
        **settings: Kafka's settings in snake_case; see `ConsumerSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._config = make(ConsumerConfig, settings)
        first_topics = arguments.topics(topics)
        if topics and self._config.group_id is None:
            raise ConfigError("subscribing to topics needs a group_id; assign does not")
        self._internals = ConsumerInternals(self._config, first_topics)
        self._is_polling = False
        self._poll_due = 0.0
        self._last = LastTask()

    @classmethod
    def from_config(cls, settings: Mapping[str, object], *topics: str) -> Self:
        """Make a consumer from Kafka's setting names (`bootstrap.servers`); values may be strings.

        Raises:
            ConfigError: A setting is unknown, malformed or not supported.
        """
        known = cast("ConsumerSettings", from_kafka(ConsumerConfig, settings))
        return cls(*topics, **known)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._internals.close(DIRECT, self._last.undone(kind, in_with=True))

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Listens | None = None,
    ) -> None:
        """Join the group for these topics; `poll` calls the listeners and returns the records.

        The member starts joining in the background at once, without a call of `poll`.

        Args:
            topics: Topics; they replace an earlier subscription.
            pattern: Or a regular expression: all topics whose names match from the start. With
                `group_protocol="consumer"` the broker resolves a string (in RE2 syntax); a compiled
                pattern is resolved by the client.
            listener: Called when partitions change; see `RebalanceListener`.

        Raises:
            ConfigError: There is no group id.
            LocalProtocolError: Partitions were assigned manually.
            ValueError: Both or neither of topics and pattern are given, or one is malformed.
        """
        names = arguments.topics(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("give either topics or a pattern")
        is_ours = self._config.group_protocol != "consumer"
        found = arguments.pattern_or_none(pattern, "pattern", is_ours=is_ours)
        told = arguments.listener_or_none(listener, "listener")
        self._internals.subscribe(names, found, told)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop a manual assignment.

        With auto-commit, records of the last `poll` or iteration are committed first, by the same
        rule as in `close`.
        """
        self._internals.refuse_in_listener("unsubscribe")
        await self._core.unsubscribe(DIRECT, self._last.undone())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group assigning them."""
        self._core.assign(arguments.partitions(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._core.partitions.assigned

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._core.topics

    # ------------------------------------------------------------------------------- read

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Return the next records, by partition; empty if none arrived in time.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Maximum number of records; `max_poll_records` by default.

        Raises:
            KafkaError: The group or a partition cannot be read; see `retriable` and `fatal`.
            RemoteProtocolError: Records are corrupt; the error names partition and offset.
            RecordDeserializationError: A deserializer raised; `seek` past the record to continue.
        """
        count = arguments.records_or_none(max_records) or self._config.max_poll_records
        core = await self._ready(timeout_ms)
        return {} if core.was_woken else self._delivered(self._internals.reader.poll(count))

    async def poll_arrow(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> pa.RecordBatch:
        """Return the next records as columns, with the schema of Spark's Kafka source.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Maximum number of rows; all that was fetched by default.

        Raises:
            KafkaError: See `poll`.
            RemoteProtocolError: See `poll`.
        """
        count = arguments.records_or_none(max_records)
        core = await self._ready(timeout_ms)
        return self._delivered(self._internals.reader.columns(0 if core.was_woken else count))

    async def poll_membership(self, timeout_ms: int = 0) -> None:
        """Stay in the group without reading: callbacks run, and the member counts as alive.

        Returns after a callback, a `wakeup`, or the timeout.
        """
        self._internals.refuse_in_listener("poll_membership")
        await self._core.ready(Deadline(arguments.timeout_ms(timeout_ms)), DIRECT, reads=False)

    async def _ready(self, timeout_ms: float) -> ConsumerCore:
        self._internals.refuse_in_listener("poll")
        deadline = Deadline(arguments.timeout_ms(timeout_ms))
        if self._is_polling:
            raise LocalProtocolError("another poll of this consumer is running")
        core = self._core
        self._is_polling = True
        self._last.begin()
        try:
            await asyncio.sleep(0)  # let other tasks run, such as heartbeats
            await core.ready(deadline, DIRECT)
        finally:
            self._is_polling = False
        self._last.handed_out()  # the next step returns it; nothing happens in between
        return core

    def __aiter__(self) -> Self:
        """Return the consumer, which iterates over its records."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; wait up to `consumer_timeout_ms`, without limit by default.

        Iteration and `poll` share one buffer: records that a loop did not reach are returned by the
        next `poll`. Asking for a record marks the earlier ones as processed, so auto-commit may
        commit them.

        Raises:
            StopAsyncIteration: No record arrived in time, or `wakeup` was called.
            KafkaError: See `poll`.
            RemoteProtocolError: See `poll`.
            RecordDeserializationError: See `poll`.
        """
        record = None if self._is_polling else self._buffered()
        deadline = Deadline(self._config.consumer_timeout_ms)
        while record is None:
            try:
                core = await self._ready(deadline.left_ms(LONGEST_WAIT_MS))
            except BrokerUnavailableError as error:
                if deadline.over or error is not self._core.cluster.unreachable:
                    raise
                continue  # iteration keeps waiting; the log says for what
            self._poll_due = time.monotonic() + GIVE_WAY_EVERY_S
            record = None if core.was_woken else self._internals.reader.next()
            if record is None and (core.was_woken or deadline.over):
                raise StopAsyncIteration
        return self._delivered(record)

    def _delivered(self, taken: T) -> T:
        """Note that the application gets the records; no signal handler can run in between."""
        self._internals.reader.is_undelivered = False
        return taken

    def _buffered(self) -> ConsumerRecord | None:
        """Return a buffered record, unless other work is due."""
        self._internals.refuse_in_listener("iteration")
        core = self._internals.made
        if core is None or core.has_news or time.monotonic() >= self._poll_due:
            return None
        return self._internals.reader.next()

    def wakeup(self) -> None:
        """End the waiting poll, or the next one.

        Never raises and takes no lock: any thread or signal handler may call it.
        """
        self._internals.wakeup()

    # ----------------------------------------------------------------------------- commits

    async def commit(
        self,
        offsets: CommitOffsets | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit positions to the group.

        Args:
            offsets: The next offset to read in each partition; by default the positions of all
                partitions, just past the last returned records. After a seek to the beginning or
                end, the commit waits for that position.
            timeout_ms: Maximum time for the commit; `default_api_timeout_ms` by default.

        Raises:
            CommitFailedError: The partitions may belong to another member now.
            RebalanceInProgressError: Poll, then commit again.
            PartialFailureError: Some partitions do not exist, or the position of a seek to the
                beginning or end was not found in time; the others are stored.
            KafkaError: The broker refuses or does not answer in time.
        """
        self._core.committing()
        deadline = self._deadline(timeout_ms)
        if offsets is None:
            await commit_positions(self._core, self._position, deadline)
        else:
            await self._core.commit(arguments.offsets(offsets), deadline)

    def commit_async(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> asyncio.Task[None]:
        """Commit like `commit`, without waiting for the answer.

        Args:
            offsets: See `commit`. Partitions with an unfinished seek to the beginning or end are
                left out, and named in a WARNING.
            on_commit: Called with the offsets, and None or the error, during a later poll or
                `close`; the setting `on_commit` by default.

        Returns:
            A task that ends when the answer arrives.
        """
        core = self._core
        core.committing()
        if offsets is None:
            core.partitions.tell_sought(self._config.group_id, "commit_async")
        wanted = core.commit_positions() if offsets is None else arguments.offsets(offsets)
        given = arguments.function_or_none(on_commit, "on_commit") or self._config.on_commit
        told = self._internals.weak_callback(given, is_once=True)
        return core.start(core.commit(wanted, self._deadline(None), told))

    def store_offsets(self, offsets: CommitOffsets | ConsumerRecord) -> None:
        """Set the offsets up to which records are processed; auto-commit and `commit` use them.

        Args:
            offsets: The next offset to read in each partition, or the last processed record.

        Raises:
            LocalProtocolError: A partition is not assigned, or `enable_auto_offset_store` is true,
                so that the next poll would overwrite it.
        """
        if self._config.enable_auto_offset_store:
            raise LocalProtocolError(
                "store_offsets needs enable_auto_offset_store=False: otherwise asking for more"
                " records stores the positions"
            )
        if isinstance(offsets, ConsumerRecord):
            where = TopicPartition(offsets.topic, offsets.partition)
            done = OffsetAndMetadata(offsets.offset + 1, leader_epoch=offsets.leader_epoch)
            offsets = {where: done}
        self._core.partitions.store(arguments.offsets(offsets))

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out.

        Raises:
            ConfigError: There is no group id.
            KafkaError: The broker refuses or does not answer in time.
        """
        wanted = arguments.partitions(partitions)
        self._core.committing()
        assert self._core.coordinator is not None
        return await fetch_committed(self._core.coordinator, wanted, self._deadline(timeout_ms))

    async def close(
        self,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if auto-commit is on, leave the group and close the connections.

        Records of the last `poll` or iteration are committed if this task got them, or one that has
        finished without an error, and no exception is being handled: otherwise it is unknown how
        far the application got. Exceptions that were caught earlier are not visible here. If the
        call is cancelled, closing continues in the background, and the next call resumes it.

        Args:
            timeout_s: Maximum time for leaving, in seconds; then the connections are closed anyway.
            operation: Whether the member tells the group that it leaves (KIP-1092).
        """
        await self._internals.close(DIRECT, self._last.undone(), timeout_s, operation)


def internals_of(consumer: AsyncConsumer) -> ConsumerInternals:
    """Return the internals of a consumer, for other packages of kohort."""
    return consumer._internals  # noqa: SLF001  # of this module
