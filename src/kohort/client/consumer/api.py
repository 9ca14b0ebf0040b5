"""The blocking consumer: the asyncio one in a thread of its own.

The application's thread decodes and runs listeners; the client's thread owns sockets, heartbeats
and the member machine, so a slow application is still a live member of its group.
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
from kohort.client.blocking.lifecycle import Farewell
from kohort.client.blocking.serving import Serve
from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig, OnCommit, from_kafka
from kohort.client.consumer.aio import LONGEST_WAIT_MS, POLL_EVERY_S, AsyncConsumer, CommitOffsets
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

    One thread polls; listeners are called inside its `poll`. Other threads may ask and commit
    meanwhile, and end a waiting poll with `wakeup`; what changes positions (`seek`, `assign`,
    `pause`) belongs to the thread that polls.

    Methods take a `partition`, or several `partitions`, as `TopicPartition`. `timeout_ms` is the
    most milliseconds to wait for the brokers, by default `default_api_timeout_ms`.

    Args:
        *topics: Topics to subscribe to at once.
        **settings: Kafka's settings in snake_case; see `ConsumerSettings`.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    _async: AsyncConsumer

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._async = AsyncConsumer(*topics, **settings)
        self._async.is_owned = True
        self._config = self._async.config
        super().__init__("kohort-consumer")
        self._pollers: dict[str, list[int]] = {}
        self._core: ConsumerCore | None = None
        self._poll_due = 0.0
        self._last = LastThread()

    @classmethod
    def from_config(cls, settings: Mapping[str, object], *topics: str) -> Self:
        """Make a consumer of Kafka's own keys (`bootstrap.servers`); values may be strings.

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
        """Leave the group, or forget what was assigned by hand.

        With auto-commit, what the last `poll` or step of a loop handed out is committed first, by
        the rule of `close`.
        """
        self._async.refuse_inside("unsubscribe")
        undone = self._last.undone()
        self._take_back()
        self._thread.run_serving(lambda serve: self._async.core.unsubscribe(serve, undone))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out."""
        wanted = arguments.partitions(partitions)
        self._on_loop(lambda: self._async.assign(wanted))

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
            RecordDeserializationError: A deserializer raised; `seek` behind the record to go on.
        """
        count = arguments.records_or_none(max_records) or self._config.max_poll_records
        return self._hand_out("poll", lambda: self._polled(timeout_ms, count))

    def poll_arrow(self, timeout_ms: int = 0, max_records: int | None = None) -> pa.RecordBatch:
        """Return the next records as columns, those of Spark's own Kafka source.

        Args:
            timeout_ms: How long to wait for the first record.
            max_records: Most rows; whatever was fetched by default.

        Raises:
            KafkaError: As `poll`.
            RemoteProtocolError: As `poll`.
        """
        count = arguments.records_or_none(max_records)
        return self._hand_out("poll_arrow", lambda: self._columns(timeout_ms, count))

    def poll_membership(self, timeout_ms: int = 0) -> None:
        """Be a member of the group without reading: callbacks run, the group sees a live member.

        Returns after a callback, a `wakeup`, or the time-out.
        """
        self._hand_out("poll_membership", lambda: self._ready(timeout_ms, reads=False))

    def __iter__(self) -> Self:
        """Return the consumer: its records are what it iterates over."""
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record, waiting `consumer_timeout_ms` for it, for ever by default.

        Iteration and `poll` take from the same buffer: a record that a loop did not get to is
        handed out by the next `poll`. Asking for a record says that the application is done with
        those before, which auto-commit may commit from then on.

        Raises:
            StopIteration: None came in time, or `wakeup` was called.
            KafkaError: As `poll`.
            RemoteProtocolError: As `poll`.
            RecordDeserializationError: As `poll`.
        """
        return self._hand_out("iteration", self._next)

    def _polled(self, timeout_ms: int, count: int) -> Records:
        core = self._ready(timeout_ms)
        return {} if core.was_woken else self._async.reader.poll(count)

    def _columns(self, timeout_ms: int, count: int | None) -> pa.RecordBatch:
        core = self._ready(timeout_ms)
        return self._async.reader.columns(0 if core.was_woken else count)

    def _next(self) -> ConsumerRecord:
        record = self._buffered()
        return record if record is not None else self._awaited()

    def _hand_out(self, call: str, take: Callable[[], T]) -> T:
        """Hand something out, or take it back: a handler of a signal may raise at any time.

        It may do so at each call, also of those that take back: then the next call does that.
        """
        self._begin(call)
        try:
            taken = take()
            self._pollers.clear()
            reader = self._async.reader
            reader.is_undelivered = False  # no call from here on, at which a handler may raise
            return taken
        except BaseException:
            self._async.take_back()
            self._pollers.clear()
            raise

    def _buffered(self) -> ConsumerRecord | None:
        """Return a record that is there already, unless it is time to look after other things."""
        core = self._core
        if core is None or core.has_news or time.monotonic() >= self._poll_due:
            return None
        self._last.ident = get_ident()
        return self._async.reader.next()

    def _awaited(self) -> ConsumerRecord:
        deadline = Deadline(self._config.consumer_timeout_ms)
        while True:
            try:
                core = self._ready(deadline.left_ms(LONGEST_WAIT_MS))
            except BrokerUnavailableError as error:
                if deadline.over or error is not self._async.core.cluster.unreachable:
                    raise
                continue  # a loop waits; the log says for what
            self._poll_due = time.monotonic() + POLL_EVERY_S
            record = None if core.was_woken else self._async.reader.next()
            if record is not None:
                return record
            if core.was_woken or deadline.over:
                raise StopIteration

    def _ready(self, timeout_ms: float, *, reads: bool = True) -> ConsumerCore:
        deadline = Deadline(arguments.timeout_ms(timeout_ms))
        self._thread.check()
        if not reads:
            return self._asked(deadline, reads=False)
        self._last.ident = None  # the application is done with what it had
        core = self._core
        if core is not None:
            core.was_woken = False
        if core is None or not core.handover.wait(deadline):
            core = self._asked(deadline, reads=True)
        self._last.ident = get_ident()
        return core

    def _asked(self, deadline: Deadline, *, reads: bool) -> ConsumerCore:
        make = self._make_ready
        core = self._core = self._thread.run_serving(lambda serve: make(deadline, serve, reads))
        return core

    async def _make_ready(self, deadline: Deadline, serve: Serve, reads: bool) -> ConsumerCore:
        core = self._async.core
        await core.ready(deadline, serve, reads=reads)
        return core

    def _begin(self, call: str) -> None:
        """Keep two threads from reading at once, and listeners from waiting for themselves."""
        self._async.refuse_inside(call)
        mine = [get_ident()]
        poller = self._pollers.setdefault("thread", mine)
        # In its own thread this call is one of them.
        if poller is not mine and self._reads_in(poller[0]) > (poller[0] == get_ident()):
            raise LocalProtocolError("another poll of this consumer is running")
        self._pollers["thread"] = mine
        self._async.take_back()

    def _take_back(self) -> None:
        """Take back what an interrupted call took, before what was handed out is committed."""
        poller = self._pollers.get("thread")
        if poller is None or not self._reads_in(poller[0]):
            self._async.take_back()

    def _reads_in(self, thread: int) -> int:
        """Return how many polls of this consumer a thread is in, one within another."""
        return lifecycle.count_calls(thread, Consumer._hand_out.__code__, self)

    def wakeup(self) -> None:
        """End the poll that waits, or the next one.

        Never raises and takes no lock: any thread may call it, and handlers of signals, at any
        time. It does nothing after `close`, and in a forked child.
        """
        self._async.wakeup()

    # --------------------------------------------------------------------------- positions

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record, looking it up if need be.

        Raises:
            LocalProtocolError: The partition is not assigned.
            KafkaError: It cannot be found out in time.
        """
        return self._thread.run(lambda: self._async.position(partition, timeout_ms))

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition, as far as it is known."""
        return self._on_loop(self._async.positions)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end of a partition when it was last fetched from; None before that."""
        return self._on_loop(lambda: self._async.highwater(partition))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets the position is behind the end of the last fetch (KIP-666)."""
        return self._on_loop(lambda: self._async.current_lag(partition))

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

    def commit(self, offsets: CommitOffsets | None = None, timeout_ms: int | None = None) -> None:
        """Store positions with the group; see `AsyncConsumer.commit`."""
        self._thread.run(lambda: self._async.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> Future[None]:
        """As `commit`, without waiting for the answer.

        Args:
            offsets: As for `commit`. What a seek to an end has not found yet is left out, and a
                WARNING names it.
            on_commit: Called with the offsets, and None or the error, inside a later poll or
                `close`; the setting `on_commit` by default.

        Returns:
            A future of the answer.
        """
        answer: Future[None] = Future()
        self._on_loop(lambda: _pass_on(self._async.commit_async(offsets, on_commit), answer))
        return answer

    def store_offsets(self, offsets: CommitOffsets | ConsumerRecord) -> None:
        """Say up to where the application is done; see `AsyncConsumer.store_offsets`."""
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
        """Return the first record at or after `timestamps` (milliseconds); None: there is none."""
        return self._thread.run(lambda: self._async.offsets_for_times(timestamps, timeout_ms))

    def partitions_for_topic(
        self, topic: str, timeout_ms: int | None = None
    ) -> frozenset[int] | None:
        """Return the numbers of the partitions of `topic`; None when the topic does not exist."""
        return self._thread.run(lambda: self._async.partitions_for_topic(topic, timeout_ms))

    def topic_metadata(
        self, topics: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicMetadata]:
        """Return ids and partitions of topics; those that do not exist are left out."""
        wanted = arguments.topics(topics)
        return self._thread.run(lambda: self._async.topic_metadata(wanted, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> frozenset[str]:
        """Return the names of all topics that the client may see."""
        return self._thread.run(lambda: self._async.topics(timeout_ms))

    def close(
        self,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        """Commit if that is automatic, leave the group and close the connections.

        What the last `poll` or step of a loop handed out is committed if this thread got it, or one
        that has ended, and no exception is being handled: else it is unknown how far the
        application came. An exception that was caught before cannot be seen.

        Args:
            timeout_s: How long leaving may take; after that the connections are closed anyway.
            operation: Whether the member tells the group that it leaves (KIP-1092).

        Any number of threads may call it. In the handler of a signal it ends the poll that the
        signal interrupted, which then raises LocalProtocolError, and it counts a record that is
        being worked on as done, for it cannot see that: call `wakeup` there.
        """
        self._end(self._last.undone(), timeout_s, operation)

    def _end(
        self,
        undone: Undone,
        timeout_s: float = 30.0,
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> None:
        self._async.refuse_inside("close")
        arguments.timeout_s(timeout_s, "timeout_s")
        arguments.instance(operation, "operation", GroupMembershipOperation)
        self._take_back()
        self._core = None
        self._thread.close(
            lambda serve: self._async.end(serve, undone, timeout_s, operation),
            timeout_s,
            goes_on=True,
        )

    def _farewell(self) -> Farewell | None:
        return self._async.farewell()

    def forked(self) -> object:
        """In a forked child: give up what belongs to the parent, its buffered records too."""
        parents = super().forked()
        self._core = None
        self._pollers.clear()
        return parents


def _pass_on(task: asyncio.Task[None], answer: Future[None]) -> None:
    """Have a future of another thread end as a task does."""

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(None)

    task.add_done_callback(ended)
