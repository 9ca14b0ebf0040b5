"""What a producer does behind `send`: takes batches, sends them, and tells what became of them.

It runs on one loop; records may be added from any thread. A record costs no hand-over of its own:
the loop is woken when a batch is full, and when there is one after there was none.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kohort.client.accumulator import Accumulator, Batch, Identity, OpenBatches
from kohort.client.backoff import Deadline
from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ProducerConfig
from kohort.client.delivery import Delivery, NewRecord, RecordMetadata, tell
from kohort.client.partitioner import StickyPartitioner, partition_for_key
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.types import TopicPartition
from kohort.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest

_OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# How many times its size a batch may grow while the brokers, or this process, do not keep up.
GROWTH = 16

_MAX_INT32 = 0x7FFFFFFF

Sent: TypeAlias = Batch[Delivery]


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
        self._open = OpenBatches[Delivery](
            batch_size=config.batch_size,
            largest_batch=min(config.max_request_size, GROWTH * config.batch_size),
            linger_ms=config.linger_ms,
        )
        self._accumulator = Accumulator[Delivery](
            max_in_flight=config.max_in_flight_requests_per_connection,
            delivery_timeout_ms=config.delivery_timeout_ms,
        )
        self._partitioner = StickyPartitioner(config.batch_size)
        # Guards _open and _added_bytes; everything else belongs to the loop.
        self._room = threading.Condition(threading.Lock())
        self._added_bytes = 0
        self._threads_waiting = 0
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._is_notified = False
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._requests: dict[asyncio.Task[None], int] = {}
        self._identifying: asyncio.Task[None] | None = None
        self._fatal: KohortError | None = None
        self._loop_task: asyncio.Task[None] | None = None
        cluster.on_metadata.append(self._wake.set)

    # --------------------------------------------------------------------- from any thread

    def partitions_of(self, topic: str) -> int | None:
        """Return how many partitions a topic has, None when that is not known."""
        known = self._cluster.metadata.topics.get(topic)
        return len(known.partitions) or None if known and not known.error_code else None

    def append(self, record: NewRecord, partitions: int, delivery: Delivery) -> bool:
        """Add a record.

        Args:
            record: The record.
            partitions: How many partitions its topic has.
            delivery: Told of its fate.

        Returns:
            False when there is no room for it now.

        Raises:
            KafkaError: There is no such partition, or the producer has failed for good.
        """
        with self._room:
            if self._fatal is not None:
                raise self._fatal
            if not self._has_room(record.size):
                return False
            partition = self._choose(record, partitions)
            now = int(self._now() * 1000)
            news = self._open.append(
                TopicPartition(record.topic, partition),
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                delivery,
                record.size,
                now,
                hurried=not self._open.sealed and not self._accumulator.has_waiting,
            )
            self._added_bytes += record.size
        if news and not self._is_notified:
            self._is_notified = True
            self._notify(self._wake.set)
        return True

    def wait_for_room(self, size: int, timeout_s: float) -> bool:
        """Block this thread until there is room for `size` bytes; return whether there is."""
        with self._room:
            # Said before the first look, or a release between the two would go unnoticed.
            self._threads_waiting += 1
            try:
                return self._room.wait_for(lambda: self._has_room(size), timeout_s)
            finally:
                self._threads_waiting -= 1

    def _has_room(self, size: int) -> bool:
        used = self._added_bytes - self._accumulator.released_bytes
        return used + size <= self._config.buffer_memory or self._fatal is not None

    def _choose(self, record: NewRecord, partitions: int) -> int:
        if record.partition is not None:
            if not 0 <= record.partition < partitions:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{record.topic} has {partitions} partitions, no {record.partition}",
                )
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, partitions)
        return self._partitioner.choose(record.topic, partitions, record.size)

    # ------------------------------------------------------------------------- on the loop

    def start(self) -> None:
        """Begin to send."""
        self._loop_task = asyncio.create_task(self._run())

    async def find_topic(self, topic: str, deadline: Deadline) -> int:
        """Return how many partitions a topic has, waiting until it is there.

        Raises:
            KafkaError: It is not there in time, may not be used, or no broker answers.
        """
        news = self._cluster.unwatched([topic])
        try:
            async with self._cluster.within(deadline, f"metadata of topic {topic}"):
                return await self._found(topic, deadline)
        except BaseException:
            self._cluster.forget_topics(news)
            raise

    async def _found(self, topic: str, deadline: Deadline) -> int:
        pause = self._cluster.retry_backoff()
        metadata = await self._cluster.ensure_topics([topic], deadline)
        while True:
            found = self.partitions_of(topic)
            if found is not None:
                return found
            known = metadata.topics.get(topic)
            code = known.error_code if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = KafkaError(code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
            await self._cluster.wait_after(error, pause, deadline)
            metadata = await self._cluster.refresh(deadline)

    async def room(self, size: int, deadline: Deadline) -> bool:
        """Wait until there is room for `size` bytes; return whether there is."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                while not self._has_room(size):
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until the fate of all records added so far is known.

        Raises:
            RequestTimedOutError: That took too long.
        """
        with self._room:
            self._open.seal_all()
        self._collect()
        self._wake.set()
        batches = self._accumulator.undone()
        try:
            async with asyncio.timeout(timeout_s):
                for batch in batches:
                    while not batch.is_done:
                        await self._progress.wait()
        except TimeoutError:
            left = sum(len(batch.deliveries) for batch in batches if not batch.is_done)
            raise RequestTimedOutError(
                f"{left} records were not acknowledged in {timeout_s} s{self._trouble()}"
            ) from None

    async def close(self, timeout_s: float | None) -> None:
        """Send what is there within the time; what is left then fails."""
        try:
            if self._fatal is None:
                await self.flush(timeout_s)
        except RequestTimedOutError as error:
            self._fatal = error
        self._fatal = self._fatal or LocalProtocolError("the producer is closed")
        tasks = [task for task in (self._loop_task, self._identifying) if task is not None]
        tasks += list(self._requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._abandon(self._fatal)

    async def _run(self) -> None:
        while True:
            self._is_notified = False
            self._wake.clear()
            due = self._turn(int(self._now() * 1000))
            timeout = None if due is None else max(0.0, due / 1000 - self._now())
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _turn(self, now: int) -> int | None:
        """Give up what is too old and send what is ready; return when to look again."""
        with self._room:
            open_due = self._open.seal_due(now)
        self._collect()
        for batch in self._accumulator.expired(now):
            self._fail(batch, self._timed_out(batch))
        if self._fatal is not None:
            self._abandon(self._fatal)
        elif self._accumulator.identity is not None or not self._config.enable_idempotence:
            self._send_ready(now)
        elif self._identifying is None:
            self._identifying = asyncio.create_task(self._identify())
        due = self._accumulator.next_due(now)
        return min((each for each in (open_due, due) if each is not None), default=None)

    def _collect(self) -> None:
        while self._open.sealed:
            self._accumulator.add(self._open.sealed.popleft())

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
        while self._accumulator.identity is None and self._fatal is None:
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
                if not (isinstance(error, KafkaError) and error.retriable):
                    self._fatal = error
                attempts += 1
                await asyncio.sleep(self._backoff_ms(attempts) / 1000)
        self._wake.set()

    # ---------------------------------------------------------------------------- requests

    async def _send(self, node: int, batches: list[Sent]) -> None:
        try:
            await self._exchange(node, batches)
        except KafkaError as error:
            self._cluster.request_refresh()
            for batch in batches:
                self._again_or_fail(batch, error)
        except KohortError as error:
            for batch in batches:
                self._give_up(batch, error)
        except asyncio.CancelledError:
            closed = self._fatal or LocalProtocolError("the producer is closed")
            for batch in batches:
                self._give_up(batch, closed)
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._requests.pop(task, None)
            self._wake.set()
            self._pulse()

    async def _exchange(self, node: int, batches: list[Sent]) -> None:
        now = int(self._now() * 1000)
        left = min(self._accumulator.deadline(batch) for batch in batches) - now
        timeout_ms = max(1, min(self._config.request_timeout_ms, left))
        request = self._request(batches, timeout_ms)
        if self._config.required_acks == 0:
            connection = await self._cluster.connection(node, Purpose.CONTROL)
            connection.tell(request, timeout_ms)
            for batch in batches:
                self._deliver(batch, -1, -1)
            return
        response = await self._cluster.send(node, request, timeout_ms=timeout_ms)
        self._settle(batches, response)

    def _request(self, batches: Iterable[Sent], timeout_ms: int) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.partition
            data = PartitionProduceData(index=partition, records=batch.encode(self._config.codec))
            topics.setdefault(topic, []).append(data)
        return ProduceRequest(
            acks=self._config.required_acks,
            timeout_ms=timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=name, partition_data=tuple(data))
                for name, data in topics.items()
            ),
        )

    def _settle(self, batches: Iterable[Sent], response: ProduceResponse) -> None:
        answers = {
            TopicPartition(topic.name, each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                error = RemoteProtocolError("the answer lacks a partition that was produced to")
                self._give_up(batch, error)
            else:
                self._settle_one(batch, answer)

    def _settle_one(self, batch: Sent, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._deliver(batch, answer.base_offset, answer.log_append_time_ms)
            return
        where = f"{batch.partition.topic}-{batch.partition.partition}"
        texts = [where, answer.error_message]
        error = KafkaError(code, ": ".join(text for text in texts if text))
        if answer.record_errors:
            self._refuse(batch, code, where, answer.record_errors)
        elif code in _OUT_OF_ORDER:
            self._settle_out_of_order(batch, error)
        elif code in _FENCED:
            self._fatal = error
            self._give_up(batch, error)
        else:
            self._cluster.request_refresh()
            self._again_or_fail(batch, error)

    def _refuse(
        self, batch: Sent, code: int, where: str, errors: Iterable[BatchIndexAndErrorMessage]
    ) -> None:
        """KIP-467: the broker takes nothing of a batch with a record that it does not take."""
        reasons = {each.batch_index: each.batch_index_error_message for each in errors}
        self._accumulator.gave_up(batch)
        self._released()
        for index, (delivery, _) in enumerate(batch.deliveries):
            if index in reasons:
                tell(delivery, KafkaError(code, f"{where}: {reasons[index] or 'it is refused'}"))
            else:
                why = f"{where}: another record of the same batch is refused"
                tell(delivery, KafkaError(ErrorCode.INVALID_RECORD, why))
        self._pulse()

    def _settle_out_of_order(self, batch: Sent, error: KafkaError) -> None:
        if self._accumulator.is_early(batch):
            self._again(batch)
            return
        if not self._accumulator.renumber(batch):
            lost = f"{error}: the broker has lost records of this producer that it acknowledged"
            self._give_up(batch, KafkaError(error.code, lost.removeprefix(f"{error.name}: ")))

    def _again_or_fail(self, batch: Sent, error: KafkaError) -> None:
        if not error.retriable:
            self._give_up(batch, error)
        elif self._accumulator.deadline(batch) <= int(self._now() * 1000):
            self._give_up(batch, self._timed_out(batch, error))
        else:
            self._again(batch)

    def _again(self, batch: Sent) -> None:
        not_before = int(self._now() * 1000) + self._backoff_ms(batch.attempts)
        self._accumulator.again(batch, not_before)

    def _backoff_ms(self, attempts: int) -> int:
        first, most = self._config.retry_backoff_ms, self._config.retry_backoff_max_ms
        return int(min(most, first * 2 ** min(attempts - 1, 20)) * random.uniform(0.8, 1.2))

    # ----------------------------------------------------------------------------- outcome

    def _deliver(self, batch: Sent, base_offset: int, append_time: int) -> None:
        self._accumulator.done(batch)
        self._released()
        topic, partition = batch.partition
        for index, (delivery, timestamp) in enumerate(batch.deliveries):
            offset = base_offset + index if base_offset >= 0 else -1
            when = append_time if append_time >= 0 else timestamp
            tell(delivery, RecordMetadata(topic, partition, offset, when))

    def _give_up(self, batch: Sent, error: KohortError) -> None:
        self._accumulator.gave_up(batch)
        self._fail(batch, error)

    def _fail(self, batch: Sent, error: KohortError) -> None:
        self._released()
        for delivery, _ in batch.deliveries:
            tell(delivery, error)
        self._pulse()

    def _released(self) -> None:
        if self._threads_waiting:
            with self._room:
                self._room.notify_all()

    def _abandon(self, why: KohortError) -> None:
        with self._room:
            self._open.seal_all()
        self._collect()
        for batch in self._accumulator.abandon():
            self._fail(batch, why)

    def _pulse(self) -> None:
        self._progress.set()
        self._progress.clear()

    def _timed_out(self, batch: Sent, cause: KafkaError | None = None) -> RequestTimedOutError:
        topic, partition = batch.partition
        why = f": {cause}" if cause else self._trouble()
        return RequestTimedOutError(
            f"{len(batch.deliveries)} records for {topic}-{partition} were not acknowledged in"
            f" {self._config.delivery_timeout_ms} ms{why}"
        )

    def _trouble(self) -> str:
        return f": {self._cluster.unreachable}" if self._cluster.unreachable else ""
