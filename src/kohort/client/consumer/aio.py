"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, Unpack, cast

from kohort.client.blocking.facade import Given, Relay
from kohort.client.blocking.lifecycle import Farewell
from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig, OnCommit, from_kafka, make
from kohort.client.consumer.callbacks import DIRECT, Caller
from kohort.client.consumer.commits.offsets import fetch_committed
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.group_calls import AsyncGroupCalls
from kohort.client.consumer.last_poll import LastTask, Undone
from kohort.client.consumer.listener import ListenerRelay, Listens
from kohort.client.consumer.membership import left_open
from kohort.client.consumer.reading import Reader, Records
from kohort.client.consumer.records import ConsumerRecord
from kohort.client.consumer.sought import commit_positions
from kohort.client.net.backoff import Deadline
from kohort.errors import BrokerUnavailableError, ConfigError, LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ConsumerSettings

T = TypeVar("T")

CommitOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | int]
"""The next offset to read in each partition, with or without metadata."""

# Iteration looks after membership, positions and errors at least so often, whatever is buffered,
# and raises what is wrong at least so often while it waits.
POLL_EVERY_S = 0.1
# A loop that finds its records ready lets other tasks of the event loop run so often.
GIVE_WAY_EVERY_S = 0.01
LONGEST_WAIT_MS = 1_000


class AsyncConsumer(AsyncGroupCalls):
    """Reads topics, alone or as a member of a consumer group.

        async with AsyncConsumer("flights", bootstrap_servers="...", group_id="delays") as consumer:
            async for record in consumer:
                print(record.value)

    Every method belongs to the loop the consumer was first used on. One poll at a time.

    Methods take a `partition`, or several `partitions`, as `TopicPartition`. `timeout_ms` is the
    most milliseconds to wait for the brokers, by default `default_api_timeout_ms`.

    Args:
        *topics: Topics to subscribe to at once.
        **settings: Kafka's settings in snake_case; see `ConsumerSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    _kind = "consumer"

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._config = make(ConsumerConfig, settings)
        self._first_topics = arguments.topics(topics)
        if topics and self._config.group_id is None:
            raise ConfigError("topics need a group_id to be subscribed to; assign does not")
        self._core: ConsumerCore | None = None
        self._is_closed = False
        self._is_polling = False
        self._poll_due = 0.0
        self._reader: Reader | None = None
        self._listener: Given[Listens] | None = None
        self._given: set[Given[object]] = set()
        self._is_woken = False
        self._last = LastTask()

    @classmethod
    def from_config(cls, settings: Mapping[str, object], *topics: str) -> Self:
        """Make a consumer of Kafka's own keys (`bootstrap.servers`); values may be strings.

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
        await self.end(DIRECT, self._last.undone(kind, in_with=True))

    @property
    def config(self) -> ConsumerConfig:
        """The settings."""
        return self._config

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def core(self) -> ConsumerCore:
        """What does the work; made when it is first needed, on the running loop."""
        if self._is_closed:
            raise LocalProtocolError("the consumer is closed")
        self._at_home()
        if self._core is None:
            self._core = ConsumerCore(self._relayed())
            self._reader = Reader(self._core.partitions, self._config)
            if self._first_topics:
                self._core.subscribe(self._first_topics, None, None)
            self._core.is_woken = self._is_woken
        return self._core

    def take_back(self) -> None:
        """Take back what an interrupted call took and did not hand out."""
        if self._reader is not None:
            self._reader.take_back()

    def refuse_inside(self, call: str) -> None:
        """Refuse a call inside a listener of this consumer, for which it would wait."""
        if self._core is not None:
            self._core.listening.refuse(call)

    @property
    def reader(self) -> Reader:
        """What hands out records; made with `core`."""
        assert self._reader is not None
        return self._reader

    def _relayed(self) -> ConsumerConfig:
        """Return the settings without what the application has given, which may refer to this."""
        config = self._config
        return replace(
            config,
            key_deserializer=None,
            value_deserializer=None,
            on_commit=self._relay(config.on_commit),
            event_listener=self._relay(config.event_listener),
        )

    def _relay(self, function: T, *, is_once: bool = False) -> T:
        if function is None:
            return function
        return cast("T", Relay(Given(function, self._given), is_once=is_once))

    def farewell(self) -> Farewell | None:
        """Return what is done without `close`: the member leaves its group.

        What the last poll handed out is not committed, and no listener is called.
        """
        return left_open.farewell(self._core)

    def end_at_exit(self) -> None:
        """Leave the group, on another loop: the process ends, and this one runs no more."""
        if not (self.is_owned or self._is_closed):
            self._is_closed = left_open.leave(self._core, self._home)

    def end_without_loop(self) -> None:
        """Leave the group, in a thread: the loop is closed, and a finalizer must not wait."""
        if not self._is_closed:
            self._is_closed = left_open.leave(self._core, self._home, aside=True)

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: Listens | None = None,
    ) -> None:
        """Join the group for these topics; listeners are called, and records come, in `poll`.

        The member joins in the background at once: `poll` need not be called for that.

        Args:
            topics: Topics; replaces what was subscribed to before.
            pattern: Or a regular expression: all topics whose names it matches from the start.
                With `group_protocol="consumer"` the broker resolves a string (in RE2's syntax);
                a compiled one is resolved here.
            listener: Told about partitions; see `RebalanceListener`.

        Raises:
            ConfigError: There is no group id.
            LocalProtocolError: Partitions were assigned by hand.
            ValueError: There are both or neither of topics and a pattern, or one is malformed.
        """
        names = arguments.topics(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("give topics or a pattern, one of them")
        is_ours = self._config.group_protocol != "consumer"
        found = arguments.pattern_or_none(pattern, "pattern", is_ours=is_ours)
        told = arguments.listener_or_none(listener, "listener")
        given = None if told is None else Given(told)
        self.core.subscribe(names, found, None if given is None else ListenerRelay(given))
        self._listener = given or self._listener

    async def unsubscribe(self) -> None:
        """Leave the group, or forget what was assigned by hand.

        With auto-commit, what the last `poll` or step of a loop handed out is committed first, by
        the rule of `close`.
        """
        self.refuse_inside("unsubscribe")
        await self.core.unsubscribe(DIRECT, self._last.undone())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out."""
        self.core.assign(arguments.partitions(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions this consumer reads."""
        return self.core.partitions.assigned

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self.core.topics

    # ------------------------------------------------------------------------------- read

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Return the next records, by partition; empty when none came in time.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Most records to return; `max_poll_records` by default.

        Raises:
            KafkaError: The group or a partition cannot be read; see `retriable` and `fatal`.
            RemoteProtocolError: Records are corrupt; names partition and offset.
            RecordDeserializationError: A deserializer raised; `seek` behind the record to go on.
        """
        count = arguments.records_or_none(max_records) or self._config.max_poll_records
        core = await self._ready(timeout_ms)
        return {} if core.was_woken else self._delivered(self.reader.poll(count))

    async def poll_arrow(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> pa.RecordBatch:
        """Return the next records as columns, those of Spark's own Kafka source.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Most rows; whatever was fetched by default.

        Raises:
            KafkaError: As `poll`.
            RemoteProtocolError: As `poll`.
        """
        count = arguments.records_or_none(max_records)
        core = await self._ready(timeout_ms)
        return self._delivered(self.reader.columns(0 if core.was_woken else count))

    async def poll_membership(self, timeout_ms: int = 0) -> None:
        """Be a member of the group without reading: callbacks run, the group sees a live member.

        Returns after a callback, a `wakeup`, or the time-out.
        """
        self.refuse_inside("poll_membership")
        await self.core.ready(Deadline(arguments.timeout_ms(timeout_ms)), DIRECT, reads=False)

    async def _ready(self, timeout_ms: float) -> ConsumerCore:
        self.refuse_inside("poll")
        deadline = Deadline(arguments.timeout_ms(timeout_ms))
        if self._is_polling:
            raise LocalProtocolError("another poll of this consumer is running")
        core = self.core
        self._is_polling = True
        self._last.begin()
        try:
            await asyncio.sleep(0)  # other tasks run, heartbeats too, also when records are there
            await core.ready(deadline, DIRECT)
        finally:
            self._is_polling = False
        self._last.handed_out()  # the next step hands it out; nothing comes between
        return core

    def __aiter__(self) -> Self:
        """Return the consumer: its records are what it iterates over."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record, waiting `consumer_timeout_ms` for it, for ever by default.

        Iteration and `poll` take from the same buffer: a record that a loop did not get to is
        handed out by the next `poll`. Asking for a record says that the application is done with
        those before, which auto-commit may commit from then on.

        Raises:
            StopAsyncIteration: None came in time, or `wakeup` was called.
            KafkaError: As `poll`.
            RemoteProtocolError: As `poll`.
            RecordDeserializationError: As `poll`.
        """
        record = None if self._is_polling else self._buffered()
        deadline = Deadline(self._config.consumer_timeout_ms)
        while record is None:
            try:
                core = await self._ready(deadline.left_ms(LONGEST_WAIT_MS))
            except BrokerUnavailableError as error:
                if deadline.over or error is not self.core.cluster.unreachable:
                    raise
                continue  # a loop waits; the log says for what
            self._poll_due = time.monotonic() + GIVE_WAY_EVERY_S
            record = None if core.was_woken else self.reader.next()
            if record is None and (core.was_woken or deadline.over):
                raise StopAsyncIteration
        return self._delivered(record)

    def _delivered(self, taken: T) -> T:
        """Note that the application gets what was taken; no handler of a signal comes between."""
        self.reader.is_undelivered = False
        return taken

    def _buffered(self) -> ConsumerRecord | None:
        """Return a record that is there already, unless it is time to look after other things."""
        self.refuse_inside("iteration")
        core = self._core
        if core is None or core.has_news or time.monotonic() >= self._poll_due:
            return None
        return self.reader.next()

    def wakeup(self) -> None:
        """End the poll that waits, or the next one.

        Never raises and takes no lock: any thread may call it, and handlers of signals.
        """
        self._is_woken = True
        core = self._core
        if core is not None and self._home is not None and not self._is_closed:
            core.is_woken = True
            self._home.call_soon(core.notify)

    # ----------------------------------------------------------------------------- commits

    async def commit(
        self,
        offsets: CommitOffsets | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store positions with the group.

        Args:
            offsets: What to store, the next offset to read in each partition; by default the
                positions of all, which are behind the last records that were handed out. After a
                seek to an end, it waits for the position of that.
            timeout_ms: How long it may take; `default_api_timeout_ms` by default.

        Raises:
            CommitFailedError: The partitions may belong to another member now.
            RebalanceInProgressError: Poll, then commit again.
            PartialFailureError: Some partitions do not exist, or a seek to an end of them did not
                find it in time; the others are stored.
            KafkaError: The broker refuses, or does not answer in time.
        """
        self.core.committing()
        deadline = self._deadline(timeout_ms)
        if offsets is None:
            await commit_positions(self.core, self._position, deadline)
        else:
            await self.core.commit(arguments.offsets(offsets), deadline)

    def commit_async(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> asyncio.Task[None]:
        """As `commit`, without waiting for the answer.

        Args:
            offsets: As for `commit`. What a seek to an end has not found yet is left out, and a
                WARNING names it.
            on_commit: Called with the offsets, and None or the error, inside a later poll or
                `close`; the setting `on_commit` by default.

        Returns:
            A task that ends when the answer is there.
        """
        core = self.core
        core.committing()
        if offsets is None:
            core.partitions.tell_sought(self._config.group_id, "commit_async")
        wanted = core.commit_positions() if offsets is None else arguments.offsets(offsets)
        given = arguments.function_or_none(on_commit, "on_commit") or self._config.on_commit
        told = self._relay(given, is_once=True)
        return core.start(core.commit(wanted, self._deadline(None), told))

    def store_offsets(self, offsets: CommitOffsets | ConsumerRecord) -> None:
        """Say up to where the application is done: auto-commit and `commit` take it from there.

        Args:
            offsets: The next offset to read in each partition, or the record that is done.

        Raises:
            LocalProtocolError: A partition is not assigned, or `enable_auto_offset_store` is true,
                so that the next poll would say something else.
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
        self.core.partitions.store(arguments.offsets(offsets))

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out.

        Raises:
            ConfigError: There is no group id.
            KafkaError: The broker refuses, or does not answer in time.
        """
        wanted = arguments.partitions(partitions)
        self.core.committing()
        assert self.core.coordinator is not None
        return await fetch_committed(self.core.coordinator, wanted, self._deadline(timeout_ms))

    async def close(
        self,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if that is automatic, leave the group and close the connections.

        What the last `poll` or step of a loop handed out is committed if this task got it, or one
        that has ended well, and no exception is being handled: else it is unknown how far the
        application came. An exception that was caught before cannot be seen. When the call is
        cancelled, this goes on behind it, and the next call takes over where it is.

        Args:
            timeout_s: How long leaving may take; after that the connections are closed anyway.
            operation: Whether the member tells the group that it leaves (KIP-1092).
        """
        await self.end(DIRECT, self._last.undone(), timeout_s, operation)

    async def end(
        self,
        caller: Caller,
        undone: Undone,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """As `close`, for the faces of a consumer.

        Args:
            caller: Calls the listeners.
            undone: Says why the application may not be done with what the last poll handed out.
            timeout_s: As for `close`.
            operation: As for `close`.
        """
        self.refuse_inside("close")
        deadline = Deadline(arguments.timeout_s(timeout_s, "timeout_s") * 1000)
        arguments.instance(operation, "operation", GroupMembershipOperation)
        if self._is_closed:
            return
        core = self._core
        try:
            if core is not None:
                self._at_home()
                await core.close(deadline, caller, operation, undone)
        finally:
            self._is_closed = core is None or core.ending.is_over  # else it was cut off
