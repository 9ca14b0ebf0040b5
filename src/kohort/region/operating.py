"""Runs the state machine of an operator: its consumer, its work, and its records in the log.

Everything here runs on one event loop; the application's function runs elsewhere and takes its
items from the inbox (`kohort.region.work`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from immutables import Map

from kohort.client import AsyncConsumer, RebalanceListener
from kohort.client.consumer.aio import internals_of
from kohort.client.net.transport import now_ms
from kohort.errors import BrokerUnavailableError, KafkaError, KohortError
from kohort.region.errors import SourceError
from kohort.region.machines.events import (
    Append,
    Appended,
    Assigned,
    Close,
    CutFailed,
    CutMade,
    Delivered,
    Discarded,
    Folded,
    OperatorEffects,
    OperatorInput,
    PartitionsLost,
    Read,
    Revoked,
    StartFound,
    Stopped,
    Tick,
    WentUnhealthy,
)
from kohort.region.machines.records import Contribution, Partitions, RegionPartition
from kohort.region.machines.state import RegionState
from kohort.region.metrics import OperatorMetrics
from kohort.region.reports import Reports
from kohort.region.settings import Patience
from kohort.region.source import SOURCE_GONE, Sources, check_topic, what_is_gone
from kohort.region.work import Cut, CutParts, Discard, Inbox, Load, Report, Stop
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.client import ConsumerRecord
    from kohort.region.draining import Draining
    from kohort.region.log.control import ControlLog
    from kohort.region.machines.operator import OperatorMachine
    from kohort.region.starts import StartPosition
    from kohort.region.states import StateTopic

log = logging.getLogger("kohort.region")

_POLL_MS = 100
# After a reset the group may be about to rebalance, which would undo what is read now.
_THROTTLE_S = 0.1
_LOOK_S = 0.05
# How long closing waits for the removal of states that otherwise only a sweep would find.
_CLEAR_UP_S = 5.0
# How long the brokers may not know an assigned topic.
_APPEARS_S = 60.0
_wait = asyncio.sleep


class Operating(RebalanceListener):
    """One operator on the event loop.

    Args:
        machine: The state machine.
        control: The region's log; `follow` must be running.
        states: Stores the states of partitions.
        consumer: A member of the region's group.
        inbox: Receives the work for the application's function.
        start: Where to start partitions that the region has never read.
        fetches: Whether the consumer reads; otherwise it is only a member, and others read.
        draining: Drains as in IBM Streams for its part of checkpoints; None: processing continues.
    """

    def __init__(
        self,
        machine: OperatorMachine,
        control: ControlLog,
        states: StateTopic,
        consumer: AsyncConsumer,
        inbox: Inbox,
        start: StartPosition,
        *,
        fetches: bool = True,
        draining: Draining | None = None,
    ) -> None:
        self.machine = machine
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._control = control
        self._states = states
        self._consumer = consumer
        self._inbox = inbox
        self._start = start
        self._fetches = fetches
        self._draining = draining
        self._loop = asyncio.get_running_loop()
        self._reports = Reports(self._loop, self._reported)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._revocation: asyncio.Event | None = None
        self._patience = Patience()
        self._sources = Sources(consumer)
        # The assigned partitions; those being read, and those about to be read.
        self._places: dict[TopicPartition, RegionPartition] = {}
        self._reads: dict[RegionPartition, int] = {}
        self._preparing: dict[RegionPartition, int] = {}
        self._is_throttled = self._is_full = False
        self._completed = 0
        # The group's offsets show the last complete checkpoint; there is one commit at a time.
        self._shown_next = RegionState()
        self._is_showing = False
        self._has_swept = False
        self._removing: set[asyncio.Task[None]] = set()
        self.metrics = OperatorMetrics()

    # ------------------------------------------------------------------------------- the machine

    def tell(self, event: OperatorInput) -> None:
        """Pass an input to the state machine, and carry out its effects.

        Timers and other threads also call this, so an error ends the operator here.
        """
        if self.closed.done():
            return
        try:
            self._decide(event)
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self.fail(error)

    def _decide(self, event: OperatorInput) -> None:
        effects = self.machine.decide(event, now_ms())
        self.machine.install(effects)
        for fact in effects.observed:
            level = logging.WARNING if fact.is_warning else logging.INFO
            name = self._control.region, self.machine.config.id
            log.log(level, "region %s: %s: %s", *name, fact.text)
        self._do(effects)
        if self._draining is not None:
            self._look_at_drain(self._draining)

    def _look_at_drain(self, draining: Draining) -> None:
        """End the drain once the log has the contribution, or the checkpoint has failed."""
        session = self.machine.session
        if session.cut is None and session.contribution is None and draining.end():
            self._is_throttled = True

    def _do(self, effects: OperatorEffects) -> None:
        if effects.discard is not None:
            self._discard(effects.discard)
        if effects.stops:
            self._stop(effects.stops)
        if effects.cut is not None:
            self.metrics.begin_drain(now_ms())
            if self._draining is not None:
                self._draining.begin()
            self._inbox.put(Cut(effects.cut.checkpoint, effects.cut.attempt))
        for partition in sorted(effects.find_starts):
            is_added = partition in effects.find_beginnings
            self._begin(self._find_start(partition, is_added=is_added))
        for read in effects.reads:
            self._preparing[read.partition] = read.read
            self._begin(self._read(read))
        if effects.append is not None:
            self._begin(self._append(effects.append))
        if effects.ends_revocation and self._revocation is not None:
            self._revocation.set()
        self._set_timer(effects.deadline)
        if effects.failed is not None:
            self.fail(effects.failed)
        elif effects.is_closed and not self.closed.done():
            self.closed.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Stop the operator with an error."""
        if self._revocation is not None:
            self._revocation.set()
        if not self.closed.done():
            self.closed.set_exception(error)

    def _begin(
        self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]] | None = None
    ) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if among is not None:
            among.add(task)
            task.add_done_callback(among.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def _set_timer(self, deadline: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline / 1000, self.tell, Tick())

    def folded(self, state: RegionState) -> None:
        """Pass the region's state to the state machine."""
        self.tell(Folded(state, self._control.reader.evicted.get(self.machine.config.id, "")))
        if state.completed > self._completed:
            self._completed, self._shown_next = state.completed, state
            self._begin(self._remove_replaced(state), self._removing)
            if not self._is_showing and self._draining is None:
                self._is_showing = True
                self._begin(self._show())
        if state.controller == self.machine.config.id.incarnation and not self._has_swept:
            self._has_swept = True
            self._begin(self._sweep(state))

    async def _sweep(self, state: RegionState) -> None:
        """Remove states left behind by killed processes; one process does this, once."""
        name = self.machine.config.id
        try:
            count = await self._states.sweep(state)
        except KohortError as error:
            log.debug("%s: old states could not be removed: %s", name, error)
        else:
            log.log(
                logging.INFO if count else logging.DEBUG, "%s: %d old states removed", name, count
            )

    async def _remove_replaced(self, state: RegionState) -> None:
        """Remove the states that a checkpoint has replaced."""
        try:
            await self._states.forget(state)
        except KohortError as error:
            log.debug("%s: replaced states could not be removed: %s", self.machine.config.id, error)

    async def _show(self) -> None:
        """Commit the positions of the last complete checkpoint to the group, for monitoring.

        A region never reads these offsets, so it continues if they cannot be stored.
        """
        shown = None
        while (state := self._shown_next) is not shown:
            shown = state
            offsets = {
                place: OffsetAndMetadata(known.position)
                for place, partition in self._places.items()
                if (known := state.partition(partition)).position is not None
            }
            try:
                if offsets:
                    await self._consumer.commit(offsets)
            except KohortError as error:
                log.debug("%s: offsets could not be committed: %s", self.machine.config.id, error)
        self._is_showing = False

    async def clear_up(self) -> None:
        """Wait a while for the removal of states replaced by the last checkpoint."""
        if self._removing:
            await asyncio.wait(set(self._removing), timeout=_CLEAR_UP_S)

    async def stop(self) -> None:
        """Stop at once: the log is no longer read, so revocations are not waited for."""
        self.closed.cancel()
        if self._revocation is not None:
            self._revocation.set()
        self._set_timer(None)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Start a clean stop, with a last checkpoint."""
        self.tell(Close())

    # --------------------------------------------------------------------------------- the group

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        """Hold the revocation until the machine releases it."""
        if not partitions:
            return
        self._revocation = asyncio.Event()
        self.tell(Revoked(self._forget(partitions)))
        if not self.closed.done():
            await self._revocation.wait()
        self._revocation = None

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition], /) -> None:
        """Pass the loss to the machine: other members may own these partitions."""
        if partitions:
            self.tell(PartitionsLost(self._forget(partitions)))

    def _forget(self, partitions: frozenset[TopicPartition]) -> Partitions:
        known = frozenset(self._places.pop(each) for each in partitions if each in self._places)
        self.metrics.own(self._places.values())
        return known

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> None:
        """Pause the partitions until the machine decides where to read from."""
        self.metrics.rebalances += 1
        for each in partitions:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)  # so that no offset is looked up meanwhile
        added = {}
        for each in sorted(partitions):
            topic_id = await self._topic_id(each.topic)
            added[each] = RegionPartition(each.topic, topic_id, each.partition)
        self._sources.assigned(added.values())
        self._places |= added
        self.metrics.own(self._places.values())
        if added:
            self.tell(Assigned(frozenset(added.values()), self._counts()))

    def _counts(self) -> Map[str, int]:
        """Return how many partitions the group's topics have, by topic id."""
        metadata = internals_of(self._consumer).core.cluster.metadata
        assigned = {each.topic for each in self._places}
        topics = map(metadata.topics.get, self._consumer.subscription() | assigned)
        return Map({str(each.topic_id): len(each.partitions) for each in topics if each})

    async def _topic_id(self, topic: str) -> str:
        """Return the id of a topic; an assignment may arrive before the topic's metadata.

        Raises:
            SourceError: The brokers do not know the topic in time.
        """
        cluster = internals_of(self._consumer).core.cluster
        end = self._loop.time() + _APPEARS_S
        while (found := cluster.metadata.topic_id(topic)) is None:
            if self._loop.time() > end:
                raise SourceError(
                    f"the group assigned partitions of {topic}, but the brokers have not known the "
                    f"topic for {_APPEARS_S:g} s: it was deleted, or this worker may not see it. "
                    "Start the worker again when the topic exists, or without it"
                )
            cluster.request_refresh()
            await asyncio.sleep(_LOOK_S)
        return str(found)

    # ------------------------------------------------------------------------------------ reading

    async def poll(self) -> None:
        """Poll until cancelled; membership requires it even while there is nothing to read."""
        while not self.closed.done():
            self._sources.look()
            if not self._fetches:
                await self._be_member()
                continue
            if self._is_throttled:
                await _wait(_THROTTLE_S)
            if self._draining is not None:
                await self._draining.may_poll()
            self._press_back()
            records = await self._polled()
            for place, found in records.items():
                partition = self._places.get(place)
                read = None if partition is None else self._reads.get(partition)
                if partition is not None and read is not None:
                    check_topic(self._consumer, partition)
                    self._inbox.put_records(partition, read, found)

    async def _be_member(self) -> None:
        try:
            await self._consumer.poll_membership(_POLL_MS)
        except BrokerUnavailableError:
            if not self._patience.is_left():
                raise

    async def _polled(self) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        try:
            return await self._consumer.poll(_POLL_MS, self._inbox.polled_max)
        except BrokerUnavailableError:
            if not self._patience.is_left():
                raise
            return {}
        except KafkaError as error:
            if error.code not in SOURCE_GONE:
                raise
            read = [place for place, each in self._places.items() if each in self._reads]
            raise SourceError(await what_is_gone(self._consumer, error, read)) from error

    def _press_back(self) -> None:
        """Pause the partitions while the queue is full; polls continue."""
        is_full = self._inbox.is_full
        if is_full == self._is_full:
            return
        self._is_full = is_full
        read = [place for place, each in self._places.items() if each in self._reads]
        if is_full:
            self.metrics.queue_full_pauses += 1
            self._consumer.pause(*read)
        else:
            self._consumer.resume(*read)

    def _discard(self, attempt: int) -> None:
        self._reads.clear()
        self._preparing.clear()
        self._pause(self._places)
        self._is_throttled = True
        self._inbox.put(Discard(attempt))

    def _stop(self, partitions: Partitions) -> None:
        for each in partitions:
            self._reads.pop(each, None)
            self._preparing.pop(each, None)
        self._pause({place: each for place, each in self._places.items() if each in partitions})
        self._inbox.put(Stop(partitions))

    def _pause(self, places: Mapping[TopicPartition, RegionPartition]) -> None:
        here = self._consumer.assignment()
        self._consumer.pause(*(place for place in places if place in here))

    async def _find_start(self, partition: RegionPartition, *, is_added: bool) -> None:
        place = TopicPartition(partition.topic, partition.partition)
        offset = await self._start.find(self._consumer, place, is_added=is_added)
        self.tell(StartFound(partition, offset))

    async def _read(self, read: Read) -> None:
        state = await self._states.load(read.partition, read.state)
        if self._preparing.get(read.partition) != read.read:
            return  # a newer `Read` has arrived meanwhile
        place = TopicPartition(read.partition.topic, read.partition.partition)
        if self._places.get(place) != read.partition:
            return
        check_topic(self._consumer, read.partition)
        del self._preparing[read.partition]
        self._reads[read.partition] = read.read
        self._inbox.put(Load(read.partition, read.read, read.offset, state))
        if self._fetches:
            self._consumer.seek(place, read.offset)
            if not self._is_full:
                self._consumer.resume(place)

    async def ends(self) -> dict[RegionPartition, int]:
        """Return the current end offsets of the assigned partitions.

        Raises:
            KafkaError: The brokers do not answer.
        """
        places = dict(self._places)
        found = await self._consumer.end_offsets(list(places)) if places else {}
        return {partition: found[place] for place, partition in places.items()}

    # ------------------------------------------------------------------------ reports of the work

    def report(self, report: Report | Exception) -> None:
        """Take the result of an item; may be called from any thread."""
        self._reports.put(report)

    def _reported(self, report: Report | Exception) -> None:
        match report:
            case CutParts():
                self._begin(self._store(report))
            case Delivered():
                self._is_throttled = False
                self.tell(report)
            case Stopped() | Discarded():
                self.tell(report)
            case _:
                self.tell(WentUnhealthy(str(report)))
                self.fail(report)

    async def _store(self, parts: CutParts) -> None:
        cut = parts.cut
        try:
            if self._draining is not None:
                await self._draining.commit(cut.positions, self._places)
        except KohortError as error:
            why = f"its offsets could not be committed to the group: {error}"
            self.tell(CutFailed(cut.checkpoint, cut.attempt, why))
            return
        references = await self._states.store(
            parts.states, cut.checkpoint, cut.attempt, self.machine.config.id
        )
        made: CutMade = replace(cut, states=Map(references))
        self.tell(made)

    async def _append(self, append: Append) -> None:
        read_to = await self._control.append(append.records)
        if any(isinstance(each, Contribution) for each in append.records):
            self.metrics.end_drain(now_ms())
        self.tell(Appended(append.token, read_to))
