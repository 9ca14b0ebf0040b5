"""The consumer itself, on its loop; `AsyncConsumer` and `Consumer` are two faces of it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from kohort.client.auto_commit import AutoCommit
from kohort.client.backoff import Deadline
from kohort.client.cluster import Cluster
from kohort.client.committer import Committer
from kohort.client.config import ConsumerConfig
from kohort.client.coordinator import Coordinator
from kohort.client.fetcher import Fetcher
from kohort.client.frames import fetch_buffer
from kohort.client.handover import Handover
from kohort.client.listener import (
    Listens,
    RebalanceListener,
    Told,
    call_listener,
    enter_listener,
    method_for,
)
from kohort.client.membership import Membership, make_membership
from kohort.client.metrics import GROUP as METRICS_GROUP
from kohort.client.partitions import Partitions
from kohort.client.patterns import whole_name
from kohort.client.positions import Positions
from kohort.client.reading import failure_to_raise
from kohort.client.transport import now_ms
from kohort.errors import ConfigError, KafkaError, KohortError, LocalProtocolError
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import CallbackDone, GroupMembershipOperation, RejoinAsked
from kohort.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger("kohort.client")

T = TypeVar("T")


class Caller(Protocol):
    """Makes a call in the thread that polls."""

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` and return what it returns."""


class ConsumerCore:
    """One consumer. All methods run on one loop.

    Args:
        config: Settings.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self.changed = asyncio.Event()
        self.cluster = Cluster(config, allocate=fetch_buffer)
        self.cluster.allow_auto_topic_creation = config.allow_auto_create_topics
        self.cluster.on_metadata.append(self._on_metadata)
        self.partitions = Partitions()
        self.coordinator = (
            None if config.group_id is None else Coordinator(self.cluster, config.group_id)
        )
        self.committer = (
            None
            if self.coordinator is None
            else Committer(
                self.cluster, self.coordinator, config.group_instance_id, self.partitions.topic_id
            )
        )
        self.auto_commit = (
            None
            if self.committer is None
            else AutoCommit(config, self.partitions, self.committer, self.notify)
        )
        self.positions = Positions(
            self.cluster, config, self.partitions, self.coordinator, self._asks_as, self.notify
        )
        self.fetcher = Fetcher(self.cluster, config, self.partitions, self.notify, self.raise_later)
        self.membership: Membership | None = None
        self.topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._broker_pattern: str | None = None
        self._listener: Listens = RebalanceListener()
        self._errors: list[BaseException] = []
        self._deferred: set[asyncio.Task[None]] = set()
        self._woken = False
        self._reads = False
        self._call_error: Exception | None = None
        self._begun: dict[int, tuple[Ownership, int]] = {}
        self.handover = Handover(self._set_aside, self._found)

    def notify(self) -> None:
        """Have a waiting poll look again."""
        self.changed.set()
        self.handover.offer()

    def raise_later(self, error: BaseException) -> None:
        """Have the next poll raise an error."""
        self._errors.append(error)
        self.notify()

    def wakeup(self) -> None:
        """End the poll that waits, or the next one."""
        self._woken = True
        self.notify()

    # ------------------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: str | re.Pattern[str] | None,
        listener: Listens | None,
    ) -> None:
        """Be a member of the group, for topics or for those that match a pattern."""
        if self.config.group_id is None:
            raise ConfigError("subscribe needs a group_id; assign does not")
        if self.membership is None and self.partitions.assigned:
            raise LocalProtocolError("assign and subscribe exclude each other: unsubscribe first")
        if listener is not None:
            self._listener = listener
        self._broker_pattern = self._pattern = None
        if self.config.group_protocol == "consumer" and isinstance(pattern, str):
            self._broker_pattern = whole_name(pattern)
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
            self.committer.membership = self.membership
        self.cluster.watch_topics(self.topics)
        if self._pattern is None:
            self.membership.subscribe(self.topics, self._broker_pattern)
        self.cluster.request_refresh()

    async def unsubscribe(self, caller: Caller) -> None:
        """Leave the group, or forget what was assigned by hand."""
        if self.membership is None:
            self.partitions.remove(self.partitions.assigned)
            return
        self._pattern = self._broker_pattern = None
        self.topics = frozenset()
        self.cluster.wants_all_topics = False
        self.membership.subscribe(frozenset())
        await self._serve(caller, is_leaving=True)

    def enforce_rebalance(self, reason: str) -> None:
        """Have the group rebalance (KIP-568)."""
        if self.membership is None:
            raise LocalProtocolError("only a member can have its group rebalance: subscribe first")
        if self.membership.coordinator_decides:
            raise LocalProtocolError(
                "with group.protocol=consumer the coordinator alone decides when to rebalance"
            )
        self.membership.run(RejoinAsked(reason))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics, by Kafka's groups and names."""
        if self.coordinator is None:
            return {}
        joins = self.config.group_protocol != "consumer"
        assigned = len(self.partitions.assigned)
        return {METRICS_GROUP: self.coordinator.metrics.values(assigned, now_ms(), joins=joins)}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's assignment."""
        subscribes = self.topics or self._broker_pattern is not None
        if self.membership is not None and subscribes:
            raise LocalProtocolError("assign and subscribe exclude each other: unsubscribe first")
        wanted = frozenset(partitions)
        self.partitions.remove(self.partitions.assigned - wanted)
        self.partitions.add(wanted)
        self.cluster.watch_topics({partition.topic for partition in wanted})
        self.cluster.request_refresh()

    def _asks_as(self) -> CommitIdentity | None:
        """Say as whom offsets are asked for: a member of the consumer protocol has to (L37)."""
        return self.membership.asks_as if self.membership is not None else None

    def _on_metadata(self) -> None:
        for name in self.topics:
            topic = self.cluster.metadata.topics.get(name)
            if topic and topic.error_code and not KafkaError(topic.error_code).retriable:
                self._errors.append(KafkaError(topic.error_code, name))
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
        self.notify()

    # -------------------------------------------------------------------------------- poll

    async def ready(self, deadline: Deadline, caller: Caller, *, reads: bool = True) -> None:
        """Do what a poll does before it reads: callbacks, and wait for records and set them aside.

        Args:
            deadline: How long to wait.
            caller: Makes callbacks.
            reads: Whether records are wanted; else it ends after a callback, too.

        Raises:
            BrokerUnavailableError: No broker was ever reached, and time is up.
            Exception: What a listener raised, or why a partition cannot be read.
        """
        self.partitions.mark_consumed()
        self._begin(reads)
        is_last = False
        while True:
            if self.membership is not None:
                self.membership.polled()
            self.changed.clear()
            served = await self._serve(caller)
            self._go_on()
            self._raise_first(is_last)
            if self._woken or (served and not reads) or (reads and self._has_records()):
                self._woken = False
                self._take_chunks()
                return
            if is_last:
                return
            is_last = await self._wait_alive(deadline)

    def _take_chunks(self) -> None:
        """Set aside what is going to be handed out now, so that the next fetch can begin."""
        for state in self.partitions:
            state.take_chunk()
        self.fetcher.pump()

    def _set_aside(self) -> bool | None:
        """Do what `ready` does, for a poll that waits; see `Handover`."""
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
        """Say what there is for a poll; see `Handover`."""
        membership = self.membership
        if membership is not None and (membership.callbacks or membership.errors):
            return False
        if self._errors or self._call_error is not None or self._woken or not self.fetcher.is_on:
            return False
        found = None
        for state in self.partitions:
            if state.failure is not None:
                return False
            if state.has_records:
                found = True
        return found

    async def _wait_alive(self, deadline: Deadline) -> bool:
        """Wait for news as an application that lives: its group must hear of it now and then."""
        alive = Deadline(self.config.max_poll_interval_ms / 4)
        left_s, alive_s = deadline.left_s(), alive.left_s()
        if alive_s is None or (left_s is not None and left_s <= alive_s):
            return await self.wait_for_news(deadline)
        await self.wait_for_news(alive)
        return False

    async def wait_for_news(self, deadline: Deadline) -> bool:
        """Wait for news; return whether the time is up."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self.changed.wait()
        except TimeoutError:
            return True
        return False

    def _begin(self, reads: bool) -> None:
        self._reads = reads
        self.fetcher.is_on = reads
        if not self.cluster.metadata.nodes:
            self.cluster.request_refresh()
        if self.auto_commit is not None:
            self.auto_commit.start()

    def _go_on(self) -> None:
        if self._reads:
            self.positions.find()
            self.fetcher.pump()

    def _has_records(self) -> bool:
        return any(state.has_records for state in self.partitions)

    def _raise_first(self, is_last: bool) -> None:
        """Raise what the application must hear of."""
        if self.membership is not None:
            self._errors += self.membership.errors
            self.membership.errors.clear()
        self._raise_noted()
        failure = failure_to_raise(self.partitions, is_idle=is_last)
        if failure is not None:
            raise failure
        # a poll shorter than one attempt to connect learns nothing yet
        if is_last and not self.cluster.metadata.nodes and self.cluster.unreachable is not None:
            raise self.cluster.unreachable

    def _raise_noted(self) -> None:
        if self._call_error is not None:
            self._errors.append(self._call_error)
            self._call_error = None
        if self._errors:
            raise self._errors.pop(0)

    # --------------------------------------------------------------------------- callbacks

    async def _serve(self, caller: Caller, *, is_leaving: bool = False) -> bool:
        """Make the calls that the member wants made; return whether there were any."""
        served = False
        while self.membership is not None and self.membership.callbacks:
            callback = self.membership.callbacks[0]
            if self._is_due(callback):
                self.membership.callbacks.popleft()
                await self._make(callback, caller)
                served = True
            elif is_leaving and self.auto_commit is not None:
                await self.auto_commit.end_before(callback)
            else:
                break
        return served

    def _is_due(self, callback: Callback) -> bool:
        """Whether a call may be made now. From here on its partitions are not read."""
        assert self.auto_commit is not None
        if callback.change is Ownership.ASSIGNED:
            self.partitions.add(callback.partitions, held=True)
            return True
        self.partitions.hold(callback.partitions, True)
        if self._change(callback) is Ownership.REVOKED:
            return self.auto_commit.is_done_before(callback)
        self.auto_commit.abandon()
        return True

    async def _make(self, callback: Callback, caller: Caller) -> None:
        change = self._change(callback)
        method = method_for(self._listener, change)
        self._begun[callback.token] = change, now_ms()
        try:
            if change is Ownership.ASSIGNED:
                await self._tell_assignor(callback, caller)
            told = await caller.call(lambda: call_listener(method, callback.partitions))
        except Exception as error:  # noqa: BLE001  # the poll raises it once the member knows
            self._done(callback, error)
            return
        except BaseException:  # an interrupted listener has been told
            self._done(callback, None)
            raise
        if told is None:
            self._done(callback, None)
            return
        task = asyncio.ensure_future(self._later(callback, told))
        self._deferred.add(task)
        task.add_done_callback(self._deferred.discard)

    async def _tell_assignor(self, callback: Callback, caller: Caller) -> None:
        """Have its assignor called where the listener is: it may block, and it may call back."""
        assert self.membership is not None
        tell = self.membership.member.tell_assignor
        try:
            if callback.assignor:
                await caller.call(lambda: call_listener(lambda _: tell(callback), frozenset()))
        except Exception as error:  # noqa: BLE001  # the poll raises it, and nothing else changes
            self._note_call_error(error)

    def _note_call_error(self, error: Exception) -> None:
        """L6: the first error of a rebalance is raised; the later calls were made all the same."""
        if self._call_error is None:
            self._call_error = error
        else:
            log.error("another call of the same rebalance failed, too", exc_info=error)

    def _change(self, callback: Callback) -> Ownership:
        """Return what is true now: a member that fell out while the call waited lost all it had."""
        assert self.membership is not None
        is_member = self.membership.member.session.is_member
        if callback.change is Ownership.REVOKED and not is_member:
            return Ownership.LOST
        return callback.change

    async def _later(self, callback: Callback, told: Told) -> None:
        enter_listener()
        try:
            await (asyncio.wrap_future(told) if isinstance(told, Future) else told)  # type: ignore[misc]  # None was dealt with by the caller
        except Exception as error:  # noqa: BLE001  # the next poll raises it
            self._done(callback, error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if task.cancelling():  # the consumer stops
                raise
            self._done(callback, KohortError("what the listener waited for was cancelled"))
        else:
            self._done(callback, None)

    def _done(self, callback: Callback, error: Exception | None) -> None:
        if callback.change is Ownership.ASSIGNED:
            self.partitions.hold(callback.partitions, False)
        else:
            self.partitions.remove(callback.partitions)
            if self.committer is not None:
                self.committer.forget(callback.partitions)
        if error is not None:
            self._note_call_error(error)
        if self._broker_pattern is not None:  # only the broker knows which topics match
            self.topics = frozenset(each.topic for each in self.partitions.assigned)
        assert self.membership is not None
        assert self.coordinator is not None
        change, begun = self._begun.pop(callback.token)
        self.coordinator.metrics.called(change, now_ms() - begun, now_ms())
        self.membership.run(CallbackDone(callback.token, str(error) if error else None))
        self._go_on()

    # ----------------------------------------------------------------------------- commits

    def committing(self) -> Committer:
        """Return who commits.

        Raises:
            ConfigError: There is no group.
        """
        if self.committer is None:
            raise ConfigError("commits need a group_id")
        return self.committer

    def commit_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions: what a commit without offsets stores."""
        self.partitions.mark_consumed()
        return self.partitions.consumed()

    # ------------------------------------------------------------------------------- close

    async def close(
        self, deadline: Deadline, caller: Caller, operation: GroupMembershipOperation
    ) -> None:
        """Commit if that is automatic, leave the group, close the connections."""
        if self.auto_commit is not None:
            self.auto_commit.stop_timer()
        self.fetcher.is_on = False
        self.notify()
        self.partitions.mark_consumed()
        try:
            async with asyncio.timeout(deadline.left_s()):
                if self.membership is not None:
                    await self._leave(caller, operation)
                elif self.auto_commit is not None:
                    await self.auto_commit.commit(self.partitions.assigned)
        except TimeoutError:
            log.warning("the group could not be left in time")
        finally:
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
        for task in self._deferred:
            task.cancel()
        await asyncio.gather(*self._deferred, return_exceptions=True)
        await self.cluster.close()
