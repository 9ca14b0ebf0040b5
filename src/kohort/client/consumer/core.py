"""The core of a consumer, on its loop; `AsyncConsumer` and `Consumer` are its facades."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import TypeVar

from kohort.client.blocking import lifecycle
from kohort.client.blocking.close_task import CloseTask
from kohort.client.config.definitions import ConsumerConfig, OnCommit
from kohort.client.consumer.callbacks import Callbacks, Caller
from kohort.client.consumer.commits.auto_commit import AutoCommit
from kohort.client.consumer.commits.committer import Committer, Offsets, cancelled_commit
from kohort.client.consumer.fetcher import Fetcher
from kohort.client.consumer.last_poll import Undone
from kohort.client.consumer.listener import Listens, ReentrancyGuard
from kohort.client.consumer.membership.factory import make_membership
from kohort.client.consumer.membership.shell import Membership
from kohort.client.consumer.partitions import Partitions
from kohort.client.consumer.poll_waiter import PollWaiter
from kohort.client.consumer.positions import Positions
from kohort.client.consumer.reading import failure_to_raise
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.frames import fetch_buffer
from kohort.client.net.metadata import refusal_of_topic
from kohort.errors import ConfigError, KafkaError, KohortError, LocalProtocolError
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import GroupMembershipOperation, RejoinAsked
from kohort.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_NOTHING = "nothing to read"


class ConsumerCore:
    """One consumer. All methods run on one loop.

    Args:
        config: Settings.

    Attributes:
        is_woken: Whether a poll must end; set by any thread, then `notify` runs on the loop.
        was_woken: Whether the last poll ended because of `is_woken`.
        reentrancy: Tracks whether a listener of this consumer is running.
        close_task: Closes this consumer.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self.changed = asyncio.Event()
        self.reentrancy = ReentrancyGuard()
        self.cluster = Cluster(config, allocate=fetch_buffer)
        self.cluster.allow_auto_topic_creation = config.allow_auto_create_topics
        self.cluster.on_metadata.append(self._on_metadata)
        self.cluster.reachability.on_refused = self.notify
        self.partitions = Partitions(stores_offsets=config.enable_auto_offset_store)
        self.cluster.watched_partitions = lambda: self.partitions.assigned
        self.coordinator = (
            None if config.group_id is None else Coordinator(self.cluster, config.group_id)
        )
        self.committer: Committer | None = None
        self.auto_commit: AutoCommit | None = None
        self.callbacks: Callbacks | None = None
        if self.coordinator is not None:
            self.committer = Committer(
                self.cluster, self.coordinator, config.group_instance_id, self.partitions.topic_id
            )
            self.auto_commit = AutoCommit(config, self.partitions, self.committer, self.notify)
            self.callbacks = Callbacks(
                self.partitions,
                self.coordinator,
                self.committer,
                self.auto_commit,
                self.reentrancy,
                self._on_partitions,
            )
        if self.committer is not None and config.on_commit is not None:
            self.committer.told = partial(self._tell, config.on_commit)
        self.positions = Positions(
            self.cluster, config, self.partitions, self.coordinator, self._asks_as, self.notify
        )
        self.fetcher = Fetcher(self.cluster, config, self.partitions, self.notify)
        self.membership: Membership | None = None
        self.topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._broker_pattern: str | None = None
        self._errors: list[BaseException] = []
        self._refused: dict[str, KafkaError] = {}  # topics, according to the last metadata
        self.is_woken = self.was_woken = self._reads = self._was_reached = False
        self._started: set[asyncio.Task[None]] = set()
        self.close_task = CloseTask("the consumer")
        self.poll_waiter = PollWaiter(self._set_aside, self._found)

    def notify(self) -> None:
        """Make a waiting poll check again."""
        self.changed.set()
        self.poll_waiter.offer()

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: str | re.Pattern[str] | None,
        listener: Listens | None,
    ) -> None:
        """Join the group for topics, or for topics that match a pattern."""
        self.close_task.refuse()
        if self.config.group_id is None:
            raise ConfigError("subscribe needs a group_id; assign does not")
        if self.membership is None and self.partitions.assigned:
            raise LocalProtocolError("assign and subscribe exclude each other: unsubscribe first")
        assert self.callbacks is not None
        if listener is not None:
            self.callbacks.listener = listener
        self._broker_pattern = self._pattern = None
        if self.config.group_protocol == "consumer" and isinstance(pattern, str):
            self._broker_pattern = pattern
        elif pattern is not None:
            self._pattern = re.compile(pattern)
        self.topics = frozenset(topics)
        self.cluster.wants_all_topics = self._pattern is not None
        if self.membership is None:
            assert self.coordinator is not None
            assert self.committer is not None
            self.membership = make_membership(
                self.cluster, self.coordinator, self.config, self.notify
            )
            self.committer.membership = self.callbacks.membership = self.membership
        self._watch(self.topics)
        if self._pattern is None:
            self.membership.subscribe(self.topics, self._broker_pattern)
        self.cluster.request_refresh()

    async def unsubscribe(self, caller: Caller, undone: Undone) -> None:
        """Leave the group, or drop a manual assignment.

        Args:
            caller: Makes callbacks.
            undone: Returns why the application may not have processed all records.
        """
        self.close_task.refuse()
        if self.auto_commit is not None:
            self.auto_commit.settle(undone)
        if self.membership is None:
            self._drop(self.partitions.assigned)
            return
        self._pattern = self._broker_pattern = None
        self.topics = frozenset()
        self._refused.clear()
        self.cluster.wants_all_topics = False
        self.membership.subscribe(frozenset())
        await self._serve(caller, is_leaving=True)

    def enforce_rebalance(self, reason: str) -> None:
        """Trigger a rebalance of the group (KIP-568)."""
        if self.membership is None:
            raise LocalProtocolError("only a member can trigger a rebalance: subscribe first")
        if self.membership.coordinator_decides:
            raise LocalProtocolError(
                "with group.protocol=consumer the coordinator alone decides when to rebalance"
            )
        self.membership.run(RejoinAsked(reason))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's assignment."""
        subscribes = self.topics or self._broker_pattern is not None
        if self.membership is not None and subscribes:
            raise LocalProtocolError("assign and subscribe exclude each other: unsubscribe first")
        wanted = frozenset(partitions)
        self._drop(self.partitions.assigned - wanted)
        self.partitions.add(wanted)
        self._watch(each.topic for each in wanted)
        self.cluster.request_refresh()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        if self.auto_commit is not None:
            self.auto_commit.leave_behind(partitions)
        self.partitions.remove(partitions)

    def _watch(self, topics: Iterable[str]) -> None:
        """Keep metadata of topics fresh; topics of a pattern are not recreated once deleted."""
        self._refused.clear()
        may_create = self.config.allow_auto_create_topics and not self._wants_pattern
        self.cluster.allow_auto_topic_creation = may_create
        self.cluster.watch_topics(topics)

    @property
    def _wants_pattern(self) -> bool:
        return self._pattern is not None or self._broker_pattern is not None

    def _asks_as(self) -> CommitIdentity | None:
        """Return the identity for offset queries; the consumer protocol requires one (L37)."""
        return self.membership.asks_as if self.membership is not None else None

    def _on_metadata(self) -> None:
        # a broker that is stopping or starting may return no brokers, not even itself
        self._was_reached = self._was_reached or bool(self.cluster.metadata.nodes)
        self._refused.clear()
        metadata, creates = self.cluster.metadata, self.cluster.allow_auto_topic_creation
        for name in self.topics:
            if (error := refusal_of_topic(metadata, name, "READ", creates=creates)) is not None:
                self._refused[name] = error
        if self._pattern is not None and self.membership is not None:
            found = frozenset(
                name
                for name, topic in self.cluster.metadata.topics.items()
                if self._pattern.match(name)
                and not (topic.is_internal and self.config.exclude_internal_topics)
            )
            if found != self.topics:
                self.topics = found
                self.membership.subscribe(found)
            elif not found:
                self.membership.look()
        self.notify()

    # -------------------------------------------------------------------------------- poll

    async def ready(self, deadline: Deadline, caller: Caller, *, reads: bool = True) -> None:
        """Prepare a poll: run callbacks, wait for records and set them aside.

        Args:
            deadline: When to stop waiting.
            caller: Makes callbacks.
            reads: Whether records are wanted; if not, it also ends after a callback.

        Raises:
            BrokerUnavailableError: No broker was reached before the deadline.
            Exception: An exception of a listener, or why a partition cannot be read.
        """
        self._begin(reads)
        is_last = self.was_woken = False
        while True:
            self.close_task.refuse()
            if self.membership is not None:
                self.membership.polled()
            self.changed.clear()
            served = await self._serve(caller)
            self._go_on()
            self._raise_first(is_last)
            if self.is_woken or (served and not reads) or (reads and self._has_records()):
                if self.is_woken:  # otherwise a signal handler may set it at this moment
                    self.is_woken, self.was_woken = False, True
                self._take_chunks()
                return
            if is_last:
                return
            is_last = await self._wait_alive(deadline)

    def _take_chunks(self) -> None:
        """Set aside records that will be returned now, so that the next fetch can start."""
        for state in self.partitions:
            state.take_chunk()
        self.fetcher.pump()

    def _set_aside(self) -> bool | None:
        """Do the work of `ready` for a waiting poll; see `PollWaiter`."""
        found = self._found()
        if found is False:
            return False
        if self.membership is not None:
            self.membership.polled()
        if found is None:
            self._go_on()
            return None if self._found() is None else False
        self.partitions.mark_consumed()
        self._take_chunks()
        return True

    def _found(self) -> bool | None:
        """Return what is available for a poll; see `PollWaiter`."""
        if self.has_news or not self.fetcher.is_on:
            return False
        found = None
        for state in self.partitions:
            if state.failure is not None or state.is_spoiled or state.has_trouble_news:
                return False
            if state.has_records:
                found = True
        return found

    @property
    def has_news(self) -> bool:
        """Whether a poll has work to do or errors to raise before it returns records."""
        membership = self.membership
        if membership is not None and (membership.errors or membership.fatal is not None):
            return True
        are_due = self.callbacks is not None and self.callbacks.are_due
        refused = self.cluster.reachability.refused
        errors = self._errors or self._refused
        return bool(are_due or refused or errors or self.is_woken or self.close_task.is_begun)

    async def _wait_alive(self, deadline: Deadline) -> bool:
        """Wait for news; meanwhile signal now and then that the application is alive."""
        alive = Deadline(self.config.max_poll_interval_ms / 4)
        left_s, alive_s = deadline.left_s(), alive.left_s()
        if alive_s is None or (left_s is not None and left_s <= alive_s):
            return await self.wait_for_news(deadline)
        await self.wait_for_news(alive)
        return False

    async def wait_for_news(self, deadline: Deadline) -> bool:
        """Wait for news; return whether the deadline has passed."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self.changed.wait()
        except TimeoutError:
            return True
        return False

    def _begin(self, reads: bool) -> None:
        if reads and not (self.topics or self.partitions.assigned or self._wants_pattern):
            text = "poll returns nothing: the consumer has no topics; subscribe or assign first"
            self.cluster.incidents.note(_NOTHING, "", text)
        self._reads = reads
        self.fetcher.is_on = reads
        if reads:  # otherwise the application may still be processing records
            self.partitions.mark_consumed()
            self.fetcher.drop_spoiled()
        if not self.cluster.metadata.nodes:
            self.cluster.request_refresh()
        if self.auto_commit is not None:
            self.auto_commit.start()

    def _go_on(self) -> None:
        if self._reads:
            self.positions.find()
            self.fetcher.pump()

    async def _serve(self, caller: Caller, *, is_leaving: bool = False) -> bool:
        """Run the application's pending callbacks; return whether there were any."""
        if self.callbacks is None:
            return False
        return await self.callbacks.serve(caller, is_leaving=is_leaving)

    def _on_partitions(self) -> None:
        """Continue with the current partitions."""
        if self._broker_pattern is not None:  # only the broker knows which topics match
            self.topics = frozenset(each.topic for each in self.partitions.assigned)
        self._go_on()

    def _has_records(self) -> bool:
        return any(state.has_records for state in self.partitions)

    def _raise_first(self, is_last: bool) -> None:
        """Raise errors that the application must handle."""
        if self.membership is not None:
            self._errors += self.membership.errors
            self.membership.errors.clear()
        self._raise_noted()
        fatal = self.fetcher.broken or (self.membership.fatal if self.membership else None)
        fatal = self.cluster.reachability.refused or fatal
        if fatal is not None:
            raise fatal.with_traceback(None)  # at every poll: the next one would wait forever
        failure = failure_to_raise(self.partitions, is_idle=is_last)
        if failure is not None:
            raise failure
        # a poll shorter than one connection attempt learns nothing
        if is_last and not self._was_reached and self.cluster.unreachable is not None:
            raise self.cluster.unreachable

    def _raise_noted(self) -> None:
        if self.callbacks is not None and self.callbacks.error is not None:
            self._errors.append(self.callbacks.error)
            self.callbacks.error = None
        if self._errors:
            raise self._errors.pop(0)
        if self._refused:
            raise self._refused.pop(min(self._refused))

    # ----------------------------------------------------------------------------- commits

    def committing(self) -> Committer:
        """Return the committer.

        Raises:
            ConfigError: There is no group.
        """
        if self.committer is None:
            raise ConfigError("commits need a group_id")
        return self.committer

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run work in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._started.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._started.discard(task)
        if not task.cancelled():
            self.cluster.incidents.judge_commit(task.exception())

    def commit_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of a commit without arguments: positions, or stored offsets."""
        self.partitions.mark_consumed()
        return self.partitions.consumed()

    async def commit(
        self, offsets: Offsets, deadline: Deadline, on_commit: OnCommit | None = None
    ) -> None:
        """Commit offsets, and have the next poll call `on_commit` with the outcome."""
        failure: KohortError | None = cancelled_commit()
        try:
            with self.partitions.committing(offsets):
                await self.committing().commit(offsets, deadline)
            failure = None
        except KohortError as error:
            failure = error
            raise
        finally:
            if on_commit is not None:
                self._tell(on_commit, offsets, failure)

    def _tell(self, on_commit: OnCommit, offsets: Offsets, error: KohortError | None) -> None:
        """Report the outcome of a commit in the next poll."""
        assert self.callbacks is not None
        self.callbacks.answered(on_commit, offsets, error)
        self.notify()

    # ------------------------------------------------------------------------------- close

    async def close(
        self,
        deadline: Deadline,
        caller: Caller,
        operation: GroupMembershipOperation,
        undone: Undone,
    ) -> None:
        """Commit if auto-commit is on, leave the group, close the connections.

        If the call is cancelled, closing continues; another call resumes it.

        Args:
            deadline: When to stop waiting for leaving.
            caller: Makes callbacks.
            operation: Whether to tell the group.
            undone: Returns why the application may not have processed all records; then only
                records that were processed before the last poll are committed.
        """
        close = partial(self._close, caller, operation, undone)
        await self.close_task.wait(close, deadline)

    async def _close(
        self, caller: Caller, operation: GroupMembershipOperation, undone: Undone
    ) -> None:
        if self.auto_commit is not None:
            self.auto_commit.stop_timer()
            self.auto_commit.settle(undone)
        self.fetcher.is_on = False
        self.notify()
        try:
            async with self.close_task.limit():
                await asyncio.gather(*self._started, return_exceptions=True)
                if self.membership is not None:
                    await self._leave(caller, operation)
                elif self.auto_commit is not None:
                    await self.auto_commit.commit(self.partitions.assigned)
                await self._serve(caller, is_leaving=True)
        except TimeoutError:
            group = self.config.group_id
            late = f"group {group} could not be left in time: it goes on after the session timeout"
            alone = "work in progress could not be finished in time, and is given up"
            self.cluster.incidents.say(alone if group is None else late)
        finally:
            lifecycle.closes_connections()
            await self._stop()
        self._raise_noted()

    async def _leave(self, caller: Caller, operation: GroupMembershipOperation) -> None:
        assert self.membership is not None
        await self._serve(caller, is_leaving=True)
        self.membership.begin_close(operation)
        while not self.membership.is_closed:
            self.changed.clear()
            await self._serve(caller, is_leaving=True)
            if not self.membership.is_closed:
                await self.changed.wait()

    async def _stop(self) -> None:
        if self.membership is not None:
            await self.membership.stop()
        await self.positions.close()
        await self.fetcher.close()
        if self.auto_commit is not None:
            await self.auto_commit.stop()
        if self.callbacks is not None:
            await self.callbacks.stop()
        for task in self._started:
            task.cancel()
        await asyncio.gather(*self._started, return_exceptions=True)
        await self.cluster.close()
