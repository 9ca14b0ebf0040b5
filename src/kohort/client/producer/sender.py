"""The background of a producer: takes batches, sends them, and reports the outcome.

It runs on one loop; records may be added from any thread. The loop is not woken for each record:
only when a batch is full, and for the first record after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from kohort.client.config.definitions import ProducerConfig
from kohort.client.measures import precise_ms
from kohort.client.net.backoff import Backoff, Deadline, is_denied, may_pass
from kohort.client.net.cluster import Cluster, Purpose
from kohort.client.net.transport import paused_until
from kohort.client.net.versions import PRODUCE_BY_NAME
from kohort.client.producer._deliveries import Delivery
from kohort.client.producer._open_batches import OpenBatches
from kohort.client.producer.accumulator import Accumulator
from kohort.client.producer.batch import Batch, Identity, NewRecord
from kohort.client.producer.buffer_pool import BufferPool
from kohort.client.producer.delivery import (
    DEFECT,
    LostRecords,
    broken,
    closed,
    no_room,
    not_in_time,
    tell_all,
    too_old,
    unsure,
)
from kohort.client.producer.init_producer_id import InitProducerId
from kohort.client.producer.partitioner import partitioner_named
from kohort.client.producer.requests import (
    answers_of,
    named,
    produce_request,
    reasons_of,
    refusal_of,
)
from kohort.client.producer.topics import ProducerTopics
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.types import TopicPartition
from kohort.wire.messages.produce import PartitionProduceResponse

log = logging.getLogger("kohort.client")

_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Sender:
    """Sends the records of one producer.

    Args:
        config: Settings.
        cluster: The brokers.
        notify: Makes the loop call a function; callable from any thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        notify: Callable[[Callable[[], object]], object],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._notify = notify
        self.batches = OpenBatches(
            Batch,
            lambda: int(self._now() * 1000),
            lambda: self._notify(self._wake.set),
            batch_size=config.batch_size,
            largest_batch=config.largest_batch,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            largest_record=config.max_request_size,
            partitioner=partitioner_named(config.partitioner),
        )
        self.topics = ProducerTopics(config, cluster, self.batches, self._waits_for)
        self._accumulator = Accumulator(
            max_in_flight=config.max_in_flight_requests_per_connection,
            delivery_timeout_ms=config.delivery_timeout_ms,
            renumbers=config.transactional_id is None,
        )
        self.measures = self._accumulator.measures
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._wake, self._progress = asyncio.Event(), asyncio.Event()
        self.buffer_pool = BufferPool(
            self.batches, config.buffer_memory, self._progress, lambda: notify(self._wake.set)
        )
        self._requests: dict[asyncio.Task[None], int] = {}
        self._init_producer_id = InitProducerId(config, cluster, self._on_producer_id)
        self._loop_task: asyncio.Task[None] | None = None
        # Set when no caller reads the futures: log undelivered records.
        self.is_alone = False
        self._lost = LostRecords()
        cluster.on_metadata.append(self._wake.set)

    # --------------------------------------------------------------------- from any thread

    def lacks(self, topic: str, partition: int | None) -> bool:
        """Return whether a topic, or a partition of it, is not known."""
        count = self.batches.partitions_of(topic)
        return count is None or (partition is not None and partition >= count)

    def now_ms(self) -> int:
        """Return the time of the loop's clock."""
        return int(self._now() * 1000)

    # ------------------------------------------------------------------------- on the loop

    def start(self) -> None:
        """Start sending."""
        self._loop_task = asyncio.create_task(self._run())
        self._cluster.request_refresh()  # from now on every metadata.max.age.ms

    async def add(self, given: NewRecord, deadline: Deadline) -> Delivery:
        """Add a record once its topic, partition and memory are available.

        Raises:
            KafkaError: They are not available in time, or the record cannot be sent.
            TypeError: An argument has the wrong type.
            ValueError: A number is out of range.
        """
        topic, value, key, headers, partition, _ = given
        while (delivery := self.batches.add(Delivery, *given)) is None:
            if self.lacks(topic, partition):
                await self.topics.find(topic, partition, deadline)
            elif not await self.buffer_pool.wait_on_loop(
                self.batches.size_of(value, key, headers), deadline
            ):
                raise self.no_room()
        return delivery

    def undone(self) -> list[Batch]:
        """Return all batches without a known outcome; none of them accepts more records."""
        self.batches.seal_all()
        self._collect()
        return self._accumulator.undone()

    def _waits_for(self, topic: str) -> bool:
        return any(batch.partition.topic == topic for batch in self.undone())

    async def flush(self, deadline: Deadline, timeout_s: float | None) -> None:
        """Wait until the outcome of all records added so far is known.

        Args:
            deadline: When to give up.
            timeout_s: The caller's timeout, for the error message.

        Raises:
            RequestTimedOutError: It timed out.
        """
        batches = self.undone()
        self._wake.set()
        try:
            async with asyncio.timeout(deadline.left_s()):
                for batch in batches:
                    while not batch.fate.is_settled:
                        await self._progress.wait()
        except TimeoutError:
            if all(batch.fate.is_settled for batch in batches):
                return  # finished just as the time ran out
            cause = self._why_undone()
            raise not_in_time(self._accumulator.undone(), timeout_s, cause) from cause

    def refuse(self) -> None:
        """Accept no more records, except from delivery callbacks, which run on this thread."""
        self.batches.refusal = closed()
        self.buffer_pool.tell()

    async def close(self, late: KohortError | None) -> None:
        """Stop; remaining records fail.

        Args:
            late: Why records are left; None when there are none.
        """
        why = self.batches.fatal = self.batches.fatal or late or closed()
        self.buffer_pool.tell()
        tasks = [
            task for task in (self._loop_task, self._init_producer_id.task) if task is not None
        ]
        tasks += list(self._requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._abandon(why)
        for batch in self._accumulator.undone():  # a task that never started has reported nothing
            self._give_up(batch, why)
        self._pulse()
        self._lost.log()

    async def _run(self) -> None:
        while True:
            self.batches.is_notified = False
            self._wake.clear()
            due = self._turn_or_end(self.now_ms())
            timeout = None if due is None else max(0.0, due / 1000 - self._now())
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _turn_or_end(self, now: int) -> int | None:
        """Take a turn; if it raises, all records fail: otherwise they would wait forever."""
        try:
            return self._turn(now)
        except Exception as error:
            log.exception(DEFECT)
            self.batches.fatal = self.batches.fatal or broken(error)
            self._abandon_what_can_be(self.batches.fatal)
            return None

    def _turn(self, now: int) -> int | None:
        """Give up expired batches and send ready ones; return when to check again."""
        open_due = self.batches.seal_due(now)
        if self.buffer_pool.is_wanted and not self._requests:
            self.batches.seal_all()  # only they can free memory; Java sends them, too
        self._collect()
        for batch in self._accumulator.expired(now):
            self._fail(batch, self._timed_out(batch))
        for batch in self._accumulator.denied(self.topics.denied) if self.topics.denied else ():
            self._fail(batch, self.topics.denial(batch))
        why = self._why_over()
        if why is not None:
            self._abandon(why)
        elif self._accumulator.identity is not None or not self._config.enable_idempotence:
            self._send_ready(now)
        elif self._config.transactional_id is None:
            self._init_producer_id.ask(is_wanted=self._accumulator.has_waiting)
        self.batches.is_behind = self._accumulator.has_waiting
        due = self._accumulator.next_due(now)
        return min((each for each in (open_due, due) if each is not None), default=None)

    def _why_over(self) -> KohortError | None:
        """Return why sending has stopped."""
        return self.batches.fatal

    def _collect(self) -> None:
        while self.batches.sealed:
            self._accumulator.add(self.batches.sealed.popleft())

    def _send_ready(self, now: int) -> None:
        requests = self._accumulator.take(
            now,
            self._leader_of,
            self._room_at,
            self._config.max_request_size,
            self._cluster.metadata.topic_id,
            lambda node: paused_until(self._cluster.opened(node, Purpose.CONTROL)),
        )
        for node, batches in requests.items():
            self._requests[asyncio.create_task(self._send(node, batches))] = node

    def _leader_of(self, partition: TopicPartition) -> int | None:
        leader = self._cluster.metadata.leader(partition)
        if leader is None:
            self._cluster.request_refresh()
        return leader

    def _room_at(self, node: int) -> int:
        busy = sum(1 for each in self._requests.values() if each == node)
        return self._config.max_in_flight_requests_per_connection - busy

    def _on_producer_id(self, outcome: Identity | KohortError, was_wanted: bool) -> None:
        if isinstance(outcome, Identity):
            self._accumulator.identity = outcome
        elif not is_denied(outcome):
            self.batches.fatal = self.batches.fatal or outcome
        elif was_wanted:  # otherwise the permission may exist for records that came since
            self._abandon_what_can_be(outcome)
        self._wake.set()

    # ---------------------------------------------------------------------------- requests

    async def _send(self, node: int, batches: list[Batch]) -> None:
        late = self._end_late(batches)
        try:
            await self._exchange(node, batches)
        except KohortError as error:
            self._cluster.request_refresh()
            for batch in self._unsettled(batches):
                self._again_or_fail(batch, error, is_answer=False)
        except asyncio.CancelledError:
            self._give_up_all(batches, self.batches.fatal or closed())
            raise
        except Exception as error:
            log.exception(DEFECT)
            self._give_up_all(batches, broken(error))
        finally:
            for timer in late:
                timer.cancel()
            task = asyncio.current_task()
            assert task is not None
            self._requests.pop(task, None)
            self._wake.set()
            self._pulse()

    def _end_late(self, batches: Iterable[Batch]) -> list[asyncio.TimerHandle]:
        """Schedule the end of batches that expire before their request; it continues without them.

        Giving up a request early closes its connection, where other requests wait for answers.
        """
        loop, end = asyncio.get_running_loop(), self.now_ms() + self._config.request_timeout_ms
        dues = ((batch, self._accumulator.deadline(batch)) for batch in batches)
        return [loop.call_at(due / 1000, self._end, batch) for batch, due in dues if due < end]

    def _end(self, batch: Batch) -> None:
        if self._accumulator.is_in_flight(batch):
            self._give_up(batch, unsure(self._timed_out(batch)))
            self._wake.set()

    def _unsettled(self, batches: Iterable[Batch]) -> list[Batch]:
        """Return the undecided batches of a request."""
        return [batch for batch in batches if self._accumulator.is_in_flight(batch)]

    def _give_up_all(self, batches: Iterable[Batch], error: KohortError) -> None:
        for batch in self._unsettled(batches):
            self._give_up(batch, unsure(error))

    async def _exchange(self, node: int, batches: list[Batch]) -> None:
        timeout_ms = self._config.request_timeout_ms
        request = produce_request(batches, self._config, timeout_ms)
        if self._config.required_acks == 0:
            connection = await self._cluster.connection(node, Purpose.CONTROL)
            await connection.tell(request, timeout_ms, at_most=PRODUCE_BY_NAME)
            for batch in self._unsettled(batches):
                self._deliver(batch, -1, -1)
            return
        has_ids = all(batch.topic_id for batch in batches)
        newest, begun = self._newest(has_ids), precise_ms()
        self.measures.sent(request, batches, begun)
        response = await self._cluster.send(node, request, timeout_ms=timeout_ms, at_most=newest)
        self.measures.answered(response, precise_ms() - begun, precise_ms())
        self._settle(batches, answers_of(request, response))

    def _newest(self, has_ids: bool) -> int | None:
        """Return the newest version of a Produce request to use; None for no limit."""
        return None if has_ids else PRODUCE_BY_NAME

    def _settle(
        self,
        batches: Iterable[Batch],
        answers: Mapping[TopicPartition, PartitionProduceResponse],
    ) -> None:
        for batch in self._unsettled(batches):
            try:
                self._settle_one(batch, answers.get(batch.partition))
            except Exception as error:  # the other batches have answers of their own
                log.exception(DEFECT)
                self._give_up_all([batch], broken(error))

    def _settle_one(self, batch: Batch, answer: PartitionProduceResponse | None) -> None:
        if answer is None:
            error = RemoteProtocolError("the answer lacks a partition that was produced to")
            self._again_or_fail(batch, error)
            return
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._deliver(batch, answer.base_offset, answer.log_append_time_ms)
            return
        refused = refusal_of(batch.partition, answer)
        if answer.record_errors:
            self._refuse(batch, code, reasons_of(batch.partition, answer))
        elif code in _OUT_OF_ORDER:
            self._settle_out_of_order(batch, refused)
        elif code in _TOO_LARGE and batch.builder.count > 1:
            self._divide(batch)
        elif code == ErrorCode.PRODUCER_FENCED:
            self._fenced(refused)
            self._give_up(batch, refused)
        else:
            self._cluster.request_refresh()
            self._again_or_fail(batch, refused)

    def _fenced(self, error: KafkaError) -> None:
        """Note that the broker has fenced this producer."""
        self.batches.fatal = error

    def _refuse(self, batch: Batch, code: int, reasons: dict[int, KohortError]) -> None:
        """KIP-467: the broker refuses a whole batch because of one record."""
        where = named(batch.partition)
        self._note_failed(batch, KafkaError(code, where))
        self._accumulator.gave_up(batch)
        self._released()
        why = f"{where}: another record of the same batch is refused"
        tell_all(batch.fate.failed(KafkaError(ErrorCode.INVALID_RECORD, why), reasons))
        self._pulse()

    def _divide(self, batch: Batch) -> None:
        """KIP-126: a batch that is too large is sent in parts of at most half the size."""
        most = min(self._config.batch_size, batch.builder.size // 2)
        self._accumulator.divide(batch, batch.parts(most))

    def _settle_out_of_order(self, batch: Batch, error: KafkaError) -> None:
        if self._accumulator.is_early(batch):
            self._again(batch, self._accumulator.trouble_before(batch) or error)
            return
        if not self._accumulator.renumber(batch):
            lost = f"{error}: the broker has lost records of this producer that it acknowledged"
            self._give_up(batch, KafkaError(error.code, lost.removeprefix(f"{error.name}: ")))

    def _again_or_fail(self, batch: Batch, error: KohortError, *, is_answer: bool = True) -> None:
        if not may_pass(error):
            # Without an answer, only a batch refused before it could be sent is certainly not
            # written.
            is_sure = isinstance(error, KafkaError) and (is_answer or batch.attempts == 1)
            self._give_up(batch, error if is_sure else unsure(error))
        elif self._accumulator.deadline(batch) <= self.now_ms():
            self._give_up(batch, self._timed_out(batch, error))
        else:
            self._again(batch, error)

    def _again(self, batch: Batch, error: KohortError) -> None:
        batch.trouble = error
        pause = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        not_before = self.now_ms() + int(pause.after_ms(batch.attempts))
        self._accumulator.again(batch, not_before)

    # ----------------------------------------------------------------------------- outcome

    def _deliver(self, batch: Batch, base_offset: int, append_time: int) -> None:
        self._accumulator.done(batch)
        self._released()
        tell_all(batch.fate.delivered(base_offset, append_time))

    def _give_up(self, batch: Batch, error: KohortError) -> None:
        self._accumulator.gave_up(batch)
        self._fail(batch, error)

    def failed(self, error: KohortError) -> None:
        """Note that a record will not be written; callable from any thread."""

    def _note_failed(self, batch: Batch, error: KohortError) -> None:
        self.measures.failed(batch, self.now_ms())
        if self.is_alone:
            self._lost.note(batch.partition, batch.builder.count, error)

    def _fail(self, batch: Batch, error: KohortError) -> None:
        self._note_failed(batch, error)
        self._released()
        tell_all(batch.fate.failed(error))
        self._pulse()

    def _released(self) -> None:
        self.batches.released_bytes = self._accumulator.released_bytes
        self.buffer_pool.tell()

    def _abandon(self, why: KohortError) -> None:
        try:
            self.batches.seal_all()
            self._collect()
        finally:
            for batch in self._accumulator.abandon():
                self._fail(batch, unsure(why) if batch.attempts else why)

    def _abandon_what_can_be(self, why: KohortError) -> None:
        """Like `_abandon`, after a turn raised: the same error may occur again."""
        try:
            self._abandon(why)
        except Exception:
            log.exception("%s, or remain without an answer", DEFECT)
        self.buffer_pool.tell()
        self._pulse()

    def _pulse(self) -> None:
        self._progress.set()
        self._progress.clear()

    # -------------------------------------------------------------------------------- causes

    def _timed_out(self, batch: Batch, cause: KohortError | None = None) -> RequestTimedOutError:
        return too_old(batch, self._config.delivery_timeout_ms, cause or self._trouble(batch))

    def no_room(self) -> RequestTimedOutError:
        """Return the error of a record for which no memory became free; for any thread."""
        return no_room(self._config, self._why_undone())

    def _why_undone(self) -> KohortError | None:
        causes = (self._trouble(batch) for batch in self._accumulator.undone())
        return next((each for each in causes if each is not None), None)

    def _trouble(self, batch: Batch) -> KohortError | None:
        """Return the last error that kept a batch from being written."""
        unidentified = None if self._accumulator.identity else self._init_producer_id.trouble
        causes = batch.trouble, self._cluster.unreachable, unidentified
        said = next((each for each in causes if each is not None), None)
        return said or self.topics.trouble(batch.partition)
