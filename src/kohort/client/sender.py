"""What a producer does behind `send`: takes batches, sends them, and tells what became of them.

It runs on one loop; records may be added from any thread. A record costs no hand-over of its own:
the loop is woken when a batch is full, and when there is one after there was none.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kohort.client._deliveries import Delivery
from kohort.client._open_batches import OpenBatches
from kohort.client.accumulator import Accumulator, Batch, Identity
from kohort.client.backoff import CHANCE, Deadline, may_pass, needs_help
from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ProducerConfig
from kohort.client.delivery import (
    DEFECT,
    LostRecords,
    broken,
    closed,
    not_in_time,
    tell_all,
    unsure,
)
from kohort.client.partitioner import partitioner_named
from kohort.client.produce_requests import answers_of, produce_request, reasons_of
from kohort.client.producer_topics import ProducerTopics
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.types import TopicPartition
from kohort.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.schema import Buffer

log = logging.getLogger("kohort.client")

_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# How many times its size a batch may grow while the brokers, or this process, do not keep up.
GROWTH = 16

_MAX_INT32 = 0x7FFFFFFF
_ENOUGH_ROOM = 1_048_576

NewRecord: TypeAlias = tuple[
    str, object, object, Sequence[tuple[str, Buffer | None]] | None, int | None, int | None
]
"""Topic, value, key, headers, partition and timestamp of a record, as `send` takes them."""


class Sender:
    """Sends records of one producer.

    Args:
        config: Settings.
        cluster: The brokers.
        notify: Has the loop call a function, from any thread.
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
            largest_batch=min(config.max_request_size, GROWTH * config.batch_size),
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            largest_record=config.max_request_size,
            partitioner=partitioner_named(config.partitioner),
        )
        self.topics = ProducerTopics(config, cluster, self.batches)
        self._accumulator = Accumulator(
            max_in_flight=config.max_in_flight_requests_per_connection,
            delivery_timeout_ms=config.delivery_timeout_ms,
        )
        self._room = threading.Condition()  # re-entrant: a signal handler may send, too
        self._threads_waiting = 0
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._requests: dict[asyncio.Task[None], int] = {}
        self._identifying: asyncio.Task[None] | None = None
        self._no_identity: KohortError | None = None
        self._loop_task: asyncio.Task[None] | None = None
        # Nobody looks at the futures any more: the log is told what could not be delivered.
        self.is_alone = False
        self._lost = LostRecords()
        cluster.on_metadata.append(self._wake.set)

    # --------------------------------------------------------------------- from any thread

    def lacks(self, topic: str, partition: int | None) -> bool:
        """Return whether a topic is not known, or a partition of it."""
        count = self.batches.partitions_of(topic)
        return count is None or (partition is not None and partition >= count)

    def now_ms(self) -> int:
        """Return the time of the loop's clock."""
        return int(self._now() * 1000)

    def wait_for_room(self, size: int, deadline: Deadline) -> bool:
        """Block this thread until there is room for `size` bytes; return whether there is."""
        wanted = self._wanted(size)
        with self._room:
            # Said before the first look, or a release between the two would go unnoticed.
            self._threads_waiting += 1
            try:
                return self._room.wait_for(lambda: self.batches.has_room(wanted), deadline.left_s())
            finally:
                self._threads_waiting -= 1

    def _wanted(self, size: int) -> int:
        # A thread that waited adds several records then; else it would wait again for each.
        return max(size, min(_ENOUGH_ROOM, self._config.buffer_memory // 4))

    # ------------------------------------------------------------------------- on the loop

    def start(self) -> None:
        """Begin to send."""
        self._loop_task = asyncio.create_task(self._run())
        self._cluster.request_refresh()  # from now on every metadata.max.age.ms

    async def room(self, size: int, deadline: Deadline) -> bool:
        """Wait until there is room for `size` bytes; return whether there is."""
        wanted = self._wanted(size)
        try:
            async with asyncio.timeout(deadline.left_s()):
                while not self.batches.has_room(wanted):
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def add(self, given: NewRecord, deadline: Deadline) -> Delivery:
        """Add a record once topic, partition and memory are there.

        Raises:
            KafkaError: They are not there in time, or the record cannot be sent.
            TypeError: An argument has a type that does not fit.
            ValueError: A number is out of its range.
        """
        topic, value, key, headers, partition, _ = given
        while (delivery := self.batches.add(Delivery, *given)) is None:
            if self.lacks(topic, partition):
                await self.topics.find(topic, partition, deadline)
            elif not await self.room(self.batches.size_of(value, key, headers), deadline):
                raise self.no_room()
        return delivery

    def undone(self) -> list[Batch]:
        """Return all batches whose fate is not known; none of them waits for more records."""
        self.batches.seal_all()
        self._collect()
        return self._accumulator.undone()

    async def flush(self, deadline: Deadline, timeout_s: float | None) -> None:
        """Wait until the fate of all records added so far is known.

        Args:
            deadline: Until when.
            timeout_s: What the caller gave, for the text of the error.

        Raises:
            RequestTimedOutError: That took too long.
        """
        batches = self.undone()
        self._wake.set()
        try:
            async with asyncio.timeout(deadline.left_s()):
                for batch in batches:
                    while not batch.fate.is_settled:
                        await self._progress.wait()
        except TimeoutError:
            cause = self._why_undone()
            raise not_in_time(self._accumulator.undone(), timeout_s, cause) from cause

    def refuse(self) -> None:
        """Take no more records, except from callbacks of deliveries, which run on this thread."""
        self.batches.refusal = closed()
        self._tell_threads()

    async def close(self, late: KohortError | None) -> None:
        """End; what is still there fails.

        Args:
            late: Why something is left; None when nothing is.
        """
        why = self.batches.fatal = self.batches.fatal or late or closed()
        self._tell_threads()
        tasks = [task for task in (self._loop_task, self._identifying) if task is not None]
        tasks += list(self._requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._abandon(why)
        for batch in self._accumulator.undone():  # a task that never began has told nobody
            self._give_up(batch, why)
        self._pulse()
        self._lost.log()

    async def _run(self) -> None:
        while True:
            self.batches.is_notified = False
            self._wake.clear()
            due = self._turn_or_end(int(self._now() * 1000))
            timeout = None if due is None else max(0.0, due / 1000 - self._now())
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _turn_or_end(self, now: int) -> int | None:
        """Take a turn; when it breaks down, all records fail: else they would wait for ever."""
        try:
            return self._turn(now)
        except Exception as error:
            log.exception(DEFECT)
            self.batches.fatal = self.batches.fatal or broken(error)
            self._abandon(self.batches.fatal)
            return None

    def _turn(self, now: int) -> int | None:
        """Give up what is too old and send what is ready; return when to look again."""
        open_due = self.batches.seal_due(now)
        self._collect()
        for batch in self._accumulator.expired(now):
            self._fail(batch, self._timed_out(batch))
        if self.batches.fatal is not None:
            self._abandon(self.batches.fatal)
        elif self._accumulator.identity is not None or not self._config.enable_idempotence:
            self._send_ready(now)
        elif self._identifying is None:
            self._identifying = asyncio.create_task(self._identify())
        self.batches.is_behind = self._accumulator.has_waiting
        due = self._accumulator.next_due(now)
        return min((each for each in (open_due, due) if each is not None), default=None)

    def _collect(self) -> None:
        while self.batches.sealed:
            self._accumulator.add(self.batches.sealed.popleft())

    def _send_ready(self, now: int) -> None:
        requests = self._accumulator.take(
            now, self._leader_of, self._room_at, self._config.max_request_size
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

    async def _identify(self) -> None:
        """Become a producer that the brokers know (KIP-98)."""
        attempts = 0
        while self._accumulator.identity is None and self.batches.fatal is None:
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=_MAX_INT32
            )
            try:
                answer = await self._cluster.send_any(request)
                if answer.error_code:
                    raise KafkaError(answer.error_code, "no producer id")
                identity = Identity(answer.producer_id, answer.producer_epoch)
                self._accumulator.identity = identity
            except KohortError as error:
                self._no_identity = error
                if needs_help(error) and not isinstance(error, RemoteProtocolError):
                    self.batches.fatal = error
                attempts += 1
                await asyncio.sleep(self._backoff_ms(attempts) / 1000)
        self._wake.set()

    # ---------------------------------------------------------------------------- requests

    async def _send(self, node: int, batches: list[Batch]) -> None:
        try:
            await self._exchange(node, batches)
        except KohortError as error:
            self._cluster.request_refresh()
            for batch in self._unsettled(batches):
                self._again_or_fail(batch, error)
        except asyncio.CancelledError:
            self._give_up_all(batches, self.batches.fatal or closed())
            raise
        except Exception as error:
            log.exception(DEFECT)
            self._give_up_all(batches, broken(error))
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._requests.pop(task, None)
            self._wake.set()
            self._pulse()

    def _unsettled(self, batches: Iterable[Batch]) -> list[Batch]:
        """Return those of a request's batches that nothing was decided about yet."""
        return [batch for batch in batches if self._accumulator.is_in_flight(batch)]

    def _give_up_all(self, batches: Iterable[Batch], error: KohortError) -> None:
        for batch in self._unsettled(batches):
            self._give_up(batch, unsure(error))

    async def _exchange(self, node: int, batches: list[Batch]) -> None:
        now = int(self._now() * 1000)
        left = min(self._accumulator.deadline(batch) for batch in batches) - now
        timeout_ms = max(1, min(self._config.request_timeout_ms, left))
        request = produce_request(batches, self._config, timeout_ms)
        if self._config.required_acks == 0:
            connection = await self._cluster.connection(node, Purpose.CONTROL)
            connection.tell(request, timeout_ms)
            for batch in batches:
                self._deliver(batch, -1, -1)
            return
        response = await self._cluster.send(node, request, timeout_ms=timeout_ms)
        self._settle(batches, response)

    def _settle(self, batches: Iterable[Batch], response: ProduceResponse) -> None:
        answers = answers_of(response)
        for batch in batches:
            try:
                self._settle_one(batch, answers.get(batch.partition))
            except Exception as error:  # the others have answers of their own
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
        where = f"{batch.partition.topic}-{batch.partition.partition}"
        texts = [where, answer.error_message]
        refused = KafkaError(code, ": ".join(text for text in texts if text))
        if answer.record_errors:
            self._refuse(batch, code, where, reasons_of(answer, where))
        elif code in _OUT_OF_ORDER:
            self._settle_out_of_order(batch, refused)
        elif code in _TOO_LARGE and batch.builder.count > 1:
            self._divide(batch)
        elif code in _FENCED:
            self.batches.fatal = refused
            self._give_up(batch, refused)
        else:
            self._cluster.request_refresh()
            self._again_or_fail(batch, refused)

    def _refuse(self, batch: Batch, code: int, where: str, reasons: dict[int, KohortError]) -> None:
        """KIP-467: the broker takes nothing of a batch with a record that it does not take."""
        self._note_lost(batch, KafkaError(code, where))
        self._accumulator.gave_up(batch)
        self._released()
        why = f"{where}: another record of the same batch is refused"
        tell_all(batch.fate.failed(KafkaError(ErrorCode.INVALID_RECORD, why), reasons))
        self._pulse()

    def _divide(self, batch: Batch) -> None:
        """KIP-126: what is too large together is sent in parts of at most half the size."""
        most = min(self._config.batch_size, batch.builder.size // 2)
        self._accumulator.divide(batch, batch.parts(most))

    def _settle_out_of_order(self, batch: Batch, error: KafkaError) -> None:
        if self._accumulator.is_early(batch):
            self._again(batch, error)
            return
        if not self._accumulator.renumber(batch):
            lost = f"{error}: the broker has lost records of this producer that it acknowledged"
            self._give_up(batch, KafkaError(error.code, lost.removeprefix(f"{error.name}: ")))

    def _again_or_fail(self, batch: Batch, error: KohortError) -> None:
        if not may_pass(error):
            self._give_up(batch, error if isinstance(error, KafkaError) else unsure(error))
        elif self._accumulator.deadline(batch) <= int(self._now() * 1000):
            self._give_up(batch, self._timed_out(batch, error))
        else:
            self._again(batch, error)

    def _again(self, batch: Batch, error: KohortError) -> None:
        batch.trouble = error
        not_before = int(self._now() * 1000) + self._backoff_ms(batch.attempts)
        self._accumulator.again(batch, not_before)

    def _backoff_ms(self, attempts: int) -> int:
        first, most = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        return int(min(most, first * 2 ** min(attempts - 1, 20)) * CHANCE.uniform(0.8, 1.2))

    # ----------------------------------------------------------------------------- outcome

    def _deliver(self, batch: Batch, base_offset: int, append_time: int) -> None:
        self._accumulator.done(batch)
        self._released()
        tell_all(batch.fate.delivered(base_offset, append_time))

    def _give_up(self, batch: Batch, error: KohortError) -> None:
        self._accumulator.gave_up(batch)
        self._fail(batch, error)

    def _note_lost(self, batch: Batch, error: KohortError) -> None:
        if self.is_alone:
            self._lost.note(batch.partition, batch.builder.count, error)

    def _fail(self, batch: Batch, error: KohortError) -> None:
        self._note_lost(batch, error)
        self._released()
        tell_all(batch.fate.failed(error))
        self._pulse()

    def _released(self) -> None:
        self.batches.released_bytes = self._accumulator.released_bytes
        self._tell_threads()

    def _tell_threads(self) -> None:
        if self._threads_waiting:
            with self._room:
                self._room.notify_all()

    def _abandon(self, why: KohortError) -> None:
        self.batches.seal_all()
        self._collect()
        for batch in self._accumulator.abandon():
            self._fail(batch, unsure(why) if batch.attempts else why)

    def _pulse(self) -> None:
        self._progress.set()
        self._progress.clear()

    # -------------------------------------------------------------------------------- causes

    def _timed_out(self, batch: Batch, cause: KohortError | None = None) -> RequestTimedOutError:
        topic, partition = batch.partition
        cause = cause or self._trouble(batch)
        error = RequestTimedOutError(
            f"{batch.builder.count} records for {topic}-{partition} were not acknowledged in"
            f" {self._config.delivery_timeout_ms} ms (delivery.timeout.ms)"
            + (f": {cause}" if cause else "")
        )
        error.__cause__ = cause
        return error

    def no_room(self) -> RequestTimedOutError:
        """Return the error of a record for which no memory became free; from any thread."""
        config, cause = self._config, self._why_undone()
        why = cause or "records are added faster than the brokers take them"
        error = RequestTimedOutError(
            f"buffer.memory of {config.buffer_memory} bytes was full for {config.max_block_ms} ms:"
            f" {why}"
        )
        error.__cause__ = cause
        return error

    def _why_undone(self) -> KohortError | None:
        causes = (self._trouble(batch) for batch in self._accumulator.undone())
        return next((each for each in causes if each is not None), None)

    def _trouble(self, batch: Batch) -> KohortError | None:
        """Return the last thing that was said about why a batch is not written."""
        unidentified = None if self._accumulator.identity else self._no_identity
        causes = batch.trouble, self._cluster.unreachable, unidentified
        said = next((each for each in causes if each is not None), None)
        return said or self.topics.trouble(batch.partition)
