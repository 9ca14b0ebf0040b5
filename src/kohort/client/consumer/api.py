"""The blocking consumer: the asyncio consumer in a thread of its own.

The application's thread decodes records and runs listeners. The client's thread owns sockets,
heartbeats and the member's state machine, so a slow application stays a live member of its group.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, cast

from kohort.client.blocking import lifecycle
from kohort.client.blocking.portal_call import PortalCall
from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig, OnCommit, from_kafka
from kohort.client.consumer.aio import (
    LONGEST_WAIT_MS,
    POLL_EVERY_S,
    AsyncConsumer,
    CommitOffsets,
    internals_of,
)
from kohort.client.consumer.commits.offsets import OffsetAndTimestamp
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.group_calls import GroupCalls
from kohort.client.consumer.last_poll import LastThread, Undone
from kohort.client.consumer.listener import Listens
from kohort.client.consumer.reading import Records
from kohort.client.consumer.records import ConsumerRecord
from kohort.client.net.backoff import Deadline
from kohort.client.net.metadata import TopicMetadata
from kohort.errors import BrokerUnavailableError, LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.config.settings import ConsumerSettings

T = TypeVar("T")


class Consumer(GroupCalls):
    """Reads topics, alone or as a member of a consumer group.

        with Consumer("flights", bootstrap_servers="localhost:9092", group_id="delays") as consumer:
            for record in consumer:
                print(record.value)

    One thread polls; its `poll` calls the listeners. Meanwhile other threads may query and commit,
    and end a waiting poll with `wakeup`. Only the polling thread may change positions (`seek`,
    `assign`, `pause`).

    Methods take a `partition`, or several `partitions`, as `TopicPartition`. `timeout_ms` is the
    maximum wait for the brokers in milliseconds, by default `default_api_timeout_ms`.

    Args:
        *topics: Topics to subscribe to immediately.
        **settings: Kafka's settings in snake_case; see `ConsumerSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    _async: AsyncConsumer

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._async = AsyncConsumer(*topics, **settings)
        super().__init__("kohort-consumer", internals_of(self._async))
        self._config = internals_of(self._async).config
        self._pollers: dict[str, list[int]] = {}
        self._core: ConsumerCore | None = None
        self._poll_due = 0.0
        self._last = LastThread()

    @classmethod
    def from_config(cls, settings: Mapping[str, object], *topics: str) -> Self:
        """Make a consumer from Kafka's setting names (`bootstrap.servers`); values may be strings.

        Raises:
            ConfigError: A setting is unknown, malformed or not supported.
        """
        known = cast("ConsumerSettings", from_kafka(ConsumerConfig, settings))
        return cls(*topics, **known)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._last.undone(kind, in_with=True))

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Listens | None = None,
    ) -> None:
        """Join the group for these topics, in the background; see `AsyncConsumer.subscribe`."""
        names = arguments.topics(topics)
        self._on_loop(lambda: self._async.subscribe(names, pattern=pattern, listener=listener))

    def unsubscribe(self) -> None:
        """Leave the group, or drop a manual assignment.

        With auto-commit, records of the last `poll` or iteration are committed first, by the same
        rule as in `close`.
        """
        self._internals.refuse_in_listener("unsubscribe")
        undone = self._last.undone()
        self._restore_undelivered()
        self._thread.run_portal_call(lambda call: self._internals.core.unsubscribe(call, undone))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group assigning them."""
        wanted = arguments.partitions(partitions)
        self._on_loop(lambda: self._async.assign(wanted))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._on_loop(self._async.assignment)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._on_loop(self._async.subscription)

    # ------------------------------------------------------------------------------- read

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
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
        return self._hand_out("poll", lambda: self._polled(timeout_ms, count))

    def poll_arrow(self, timeout_ms: int = 0, max_records: int | None = None) -> pa.RecordBatch:
        """Return the next records as columns, with the schema of Spark's Kafka source.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Maximum number of rows; all that was fetched by default.

        Raises:
            KafkaError: See `poll`.
            RemoteProtocolError: See `poll`.
        """
        count = arguments.records_or_none(max_records)
        return self._hand_out("poll_arrow", lambda: self._columns(timeout_ms, count))

    def poll_membership(self, timeout_ms: int = 0) -> None:
        """Stay in the group without reading: callbacks run, and the member counts as alive.

        Returns after a callback, a `wakeup`, or the timeout.
        """
        self._hand_out("poll_membership", lambda: self._ready(timeout_ms, reads=False))

    def __iter__(self) -> Self:
        """Return the consumer, which iterates over its records."""
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; wait up to `consumer_timeout_ms`, without limit by default.

        Iteration and `poll` share one buffer: records that a loop did not reach are returned by the
        next `poll`. Asking for a record marks the earlier ones as processed, so auto-commit may
        commit them.

        Raises:
            StopIteration: No record arrived in time, or `wakeup` was called.
            KafkaError: See `poll`.
            RemoteProtocolError: See `poll`.
            RecordDeserializationError: See `poll`.
        """
        return self._hand_out("iteration", self._next)

    def _polled(self, timeout_ms: int, count: int) -> Records:
        core = self._ready(timeout_ms)
        return {} if core.was_woken else self._internals.reader.poll(count)

    def _columns(self, timeout_ms: int, count: int | None) -> pa.RecordBatch:
        core = self._ready(timeout_ms)
        return self._internals.reader.columns(0 if core.was_woken else count)

    def _next(self) -> ConsumerRecord:
        record = self._buffered()
        return record if record is not None else self._awaited()

    def _hand_out(self, call: str, take: Callable[[], T]) -> T:
        """Return records, or take them back: a signal handler may raise at any time.

        It may raise in any call, including those that take records back: then the next call does
        so.
        """
        self._begin(call)
        try:
            taken = take()
            self._pollers.clear()
            reader = self._internals.reader
            reader.is_undelivered = False  # no calls from here on, so no handler can raise
            return taken
        except BaseException:
            self._internals.restore_undelivered()
            self._pollers.clear()
            raise

    def _buffered(self) -> ConsumerRecord | None:
        """Return a buffered record, unless other work is due."""
        core = self._core
        if core is None or core.has_news or time.monotonic() >= self._poll_due:
            return None
        self._last.ident = get_ident()
        return self._internals.reader.next()

    def _awaited(self) -> ConsumerRecord:
        deadline = Deadline(self._config.consumer_timeout_ms)
        while True:
            try:
                core = self._ready(deadline.left_ms(LONGEST_WAIT_MS))
            except BrokerUnavailableError as error:
                if deadline.over or error is not self._internals.core.cluster.unreachable:
                    raise
                continue  # iteration keeps waiting; the log says for what
            self._poll_due = time.monotonic() + POLL_EVERY_S
            record = None if core.was_woken else self._internals.reader.next()
            if record is not None:
                return record
            if core.was_woken or deadline.over:
                raise StopIteration

    def _ready(self, timeout_ms: float, *, reads: bool = True) -> ConsumerCore:
        deadline = Deadline(arguments.timeout_ms(timeout_ms))
        self._thread.check()
        if not reads:
            return self._asked(deadline, reads=False)
        self._last.ident = None  # the application has processed its records
        core = self._core
        if core is not None:
            core.was_woken = False
        if core is None or not core.poll_waiter.wait(deadline):
            core = self._asked(deadline, reads=True)
        self._last.ident = get_ident()
        return core

    def _asked(self, deadline: Deadline, *, reads: bool) -> ConsumerCore:
        make = self._make_ready
        core = self._core = self._thread.run_portal_call(lambda call: make(deadline, call, reads))
        return core

    async def _make_ready(self, deadline: Deadline, call: PortalCall, reads: bool) -> ConsumerCore:
        core = self._internals.core
        await core.ready(deadline, call, reads=reads)
        return core

    def _begin(self, call: str) -> None:
        """Prevent two threads from reading at once, and listeners from waiting for themselves."""
        self._internals.refuse_in_listener(call)
        mine = [get_ident()]
        poller = self._pollers.setdefault("thread", mine)
        # In its own thread, this call counts as one of them.
        if poller is not mine and self._reads_in(poller[0]) > (poller[0] == get_ident()):
            raise LocalProtocolError("another poll of this consumer is running")
        self._pollers["thread"] = mine
        self._internals.restore_undelivered()

    def _restore_undelivered(self) -> None:
        """Take back records of an interrupted call before returned records are committed."""
        poller = self._pollers.get("thread")
        if poller is None or not self._reads_in(poller[0]):
            self._internals.restore_undelivered()

    def _reads_in(self, thread: int) -> int:
        """Return how many nested polls of this consumer a thread is running."""
        return lifecycle.count_calls(thread, Consumer._hand_out.__code__, self)

    def wakeup(self) -> None:
        """End the waiting poll, or the next one.

        Never raises and takes no lock: any thread or signal handler may call it at any time. It
        does nothing after `close` or in a forked child.
        """
        self._async.wakeup()

    # --------------------------------------------------------------------------- positions

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record; look it up if necessary.

        Raises:
            LocalProtocolError: The partition is not assigned.
            KafkaError: The offset cannot be determined in time.
        """
        return self._thread.run(lambda: self._async.position(partition, timeout_ms))

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition whose offset is known."""
        return self._on_loop(self._async.positions)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition at its last fetch; None before the first."""
        return self._on_loop(lambda: self._async.highwater(partition))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how far the position is behind the end offset of the last fetch (KIP-666)."""
        return self._on_loop(lambda: self._async.current_lag(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from `offset` in a partition."""
        self._on_loop(lambda: self._async.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the first record of these partitions, by default of all."""
        self._on_loop(lambda: self._async.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move past the last record of these partitions, by default of all."""
        self._on_loop(lambda: self._async.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions; fetched records are kept."""
        self._on_loop(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._on_loop(lambda: self._async.resume(*partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._on_loop(self._async.paused)

    # ----------------------------------------------------------------------------- commits

    def commit(self, offsets: CommitOffsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit positions to the group; see `AsyncConsumer.commit`."""
        self._thread.run(lambda: self._async.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> Future[None]:
        """Commit like `commit`, without waiting for the answer.

        Args:
            offsets: See `commit`. Partitions with an unfinished seek to the beginning or end are
                left out, and named in a WARNING.
            on_commit: Called with the offsets, and None or the error, during a later poll or
                `close`; the setting `on_commit` by default.

        Returns:
            A future that completes when the answer arrives.
        """
        answer: Future[None] = Future()
        self._on_loop(lambda: _pass_on(self._async.commit_async(offsets, on_commit), answer))
        return answer

    def store_offsets(self, offsets: CommitOffsets | ConsumerRecord) -> None:
        """Set the offsets up to which records are processed; see `AsyncConsumer.store_offsets`."""
        self._on_loop(lambda: self._async.store_offsets(offsets))

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
        wanted = arguments.partitions(partitions)
        return self._thread.run(lambda: self._async.beginning_offsets(wanted, timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        wanted = arguments.partitions(partitions)
        return self._thread.run(lambda: self._async.end_offsets(wanted, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after `timestamps` (milliseconds); None without one."""
        return self._thread.run(lambda: self._async.offsets_for_times(timestamps, timeout_ms))

    def partitions_for_topic(
        self, topic: str, timeout_ms: int | None = None
    ) -> frozenset[int] | None:
        """Return the numbers of the partitions of `topic`; None when the topic does not exist."""
        return self._thread.run(lambda: self._async.partitions_for_topic(topic, timeout_ms))

    def topic_metadata(
        self, topics: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicMetadata]:
        """Return ids and partitions of topics; missing topics are left out."""
        wanted = arguments.topics(topics)
        return self._thread.run(lambda: self._async.topic_metadata(wanted, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> frozenset[str]:
        """Return the names of all topics visible to the client."""
        return self._thread.run(lambda: self._async.topics(timeout_ms))

    def close(
        self,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if auto-commit is on, leave the group and close the connections.

        Records of the last `poll` or iteration are committed if this thread got them, or one that
        has ended, and no exception is being handled: otherwise it is unknown how far the
        application got. Exceptions that were caught earlier are not visible here.

        Args:
            timeout_s: Maximum time for leaving, in seconds; then the connections are closed anyway.
            operation: Whether the member tells the group that it leaves (KIP-1092).

        Any number of threads may call it. In a signal handler, it makes the interrupted poll raise
        LocalProtocolError, and counts a record that is still being processed as done, because it
        cannot know: call `wakeup` there instead.
        """
        self._end(self._last.undone(), timeout_s, operation)

    def _end(
        self,
        undone: Undone,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        self._internals.refuse_in_listener("close")
        arguments.timeout_s(timeout_s, "timeout_s")
        arguments.instance(operation, "operation", GroupMembershipOperation)
        self._restore_undelivered()
        self._core = None
        self._thread.close(
            lambda call: self._internals.close(call, undone, timeout_s, operation),
            timeout_s,
            goes_on=True,
        )

    def _forked(self) -> object:
        """In a forked child: drop what belongs to the parent, including its buffered records."""
        parents = super()._forked()
        self._core = None
        self._pollers.clear()
        return parents


def _pass_on(task: asyncio.Task[None], answer: Future[None]) -> None:
    """Complete a future of another thread with the outcome of a task."""

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(None)

    task.add_done_callback(ended)
