"""The group coordinator's shell: gives the state machines of `kohort.group` a log, a clock and ids.

There is one shard per partition of `__consumer_offsets`. All rules of the group protocol are in
`kohort.group`; this module only does I/O, reads clocks and draws random numbers.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

from kohort.broker.coordination import jobs
from kohort.broker.log.directory import DataDirectory, Topic
from kohort.broker.log.partition_log import PartitionLog
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.decision import ConsumerJob
from kohort.group.coordinator.events import (
    JobDone,
    RequestArrived,
    ShardEvent,
    Tick,
    TopicsChanged,
    TopicsDeleted,
    Unload,
)
from kohort.group.coordinator.jobs import DraftJobDone, Job
from kohort.group.coordinator.records import TransactionEnd
from kohort.group.coordinator.refusals import refuse
from kohort.group.coordinator.session import Lifecycle
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.group.events import GroupEvent
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.group_log import decode_record
from kohort.wire.messages.group_records import GroupMetadataValue, GroupRecord
from kohort.wire.records import Record, decode_records, encode_batch
from kohort.wire.records.marker import Marker, committed_by

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
# C7: the error for a client when the records of its request could not be appended.
_APPEND_ERRORS = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_LOAD_RECORDS_PER_STEP = 500
_LOAD_AGAIN_MS = 1_000
# For expiry checks and new targets: they write many records, each of which is valid on its own.
_BYTES_PER_BATCH = 256 * 1024
_NEVER = 1 << 63
_NOTHING_AHEAD = jobs.EncodedAhead()
# This many members and partitions, or names and expressions, take about two milliseconds.
_AT_ONCE = 2_000


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that a group belongs to (C1).

    This is Java's `String.hashCode`, made non-negative, modulo the number of partitions.
    """
    value = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8) + data[at + 1]) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


class GroupCoordinator:
    """All shards of this broker."""

    def __init__(
        self,
        data: DataDirectory,
        config: CoordinatorConfig,
        partitions: int,
        publish: Callable[[GroupEvent], None],
        rack: str | None = None,
    ) -> None:
        """Create a coordinator without loaded shards; `start` loads them.

        Args:
            data: Directory with the group log.
            config: Limits and timeouts.
            partitions: Number of partitions of the offsets topic.
            publish: Called with every event that the state machines report.
            rack: Rack of this broker, and so of every replica (KIP-881); None: not known.
        """
        self._data = data
        self._rack = rack
        self._config = config
        self._publish = publish
        self._tokens = 0
        self._loads = 0
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._reloading: set[asyncio.Future[None]] = set()  # or they may be collected on their way
        self._again: dict[int, int] = {}  # when a shard that the disk did not let load is due
        self._asking = 0
        self._answer: Message | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed = _NEVER
        self.shards = [Shard(config) for _ in range(partitions)]
        self._worker = ThreadPoolExecutor(1, "kohort-coordinator")
        self._listed: Mapping[str, Topic] | None = None
        self._topics = NO_TOPICS

    # ------------------------------------------------------------------------------- life

    async def start(self) -> None:
        """Load every shard; meanwhile requests are answered as the state of each shard allows."""
        for number in range(len(self.shards)):
            await self._try_to_load(number)

    def stop(self) -> None:
        """Answer all parked requests, and cancel the timer."""
        for number in range(len(self.shards)):
            self._run(number, Unload())
        if self._timer is not None:
            self._timer.cancel()
        for reload in self._reloading:
            reload.cancel()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def is_loading(self) -> bool:
        """Whether the log of a shard is being read; compaction must wait, as it would move records.

        A reader that saw part of the log before and part after compaction could miss records (B1).
        """
        return self._loads > 0

    async def _load(self, number: int) -> None:
        self._loads += 1
        try:
            await self._read_log(number)
        finally:
            self._loads -= 1

    async def _read_log(self, number: int) -> None:
        shard = self.shards[number]
        shard.load_started()
        self._tell_topics(number)
        partition = TopicPartition(OFFSETS_TOPIC, number)
        if self._data.has_log(partition):
            log = self._data.log(partition)
            with log.files.storage.reading(log.directory):
                for count, record in enumerate(_records(log)):
                    shard.apply(record)
                    if count % _LOAD_RECORDS_PER_STEP == 0:
                        await asyncio.sleep(0)
        for fact in shard.load_finished(self._now()):
            self._publish(fact)
        self._rearm()

    # ------------------------------------------------------------------------------- requests

    def shard_of(self, group_id: str) -> int:
        """Return the number of the shard that a group belongs to."""
        return partition_of(group_id, len(self.shards))

    def request(
        self, number: int, request: Message, version: int, client_id: str, host: str
    ) -> Message | asyncio.Future[Message]:
        """Send a request to a shard; return its response, or a future if the request is parked."""
        self._tokens += 1
        token = self._tokens
        event = RequestArrived(
            token=token,
            request=request,
            version=version,
            client_id=client_id,
            client_host=host,
            unique_id=str(uuid.uuid4()),
            wall_ms=self._wall_ms(),
            regex_error=jobs.regex_error(request, self._config.group_member_max_bytes),
        )
        self._load_if_due(number)
        self._tell_topics(number)
        self._asking = token
        self._run(number, event)
        self._asking = 0
        answer, self._answer = self._answer, None
        if answer is not None:
            return answer
        parked = asyncio.get_running_loop().create_future()
        self._waiting[token] = parked
        parked.add_done_callback(lambda _: self._waiting.pop(token, None))
        return parked

    def end_transaction(self, number: int, marker: Marker) -> None:
        """Apply the offsets that a producer committed in a transaction, or drop them (C54).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, or COORDINATOR_LOAD_IN_PROGRESS; nothing has changed.
        """
        shard = self.shards[number]
        if shard.state is not Lifecycle.READY:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"shard {number} is not loaded"
            )
        log = self._data.log(TopicPartition(OFFSETS_TOPIC, number))
        log.append_marker(marker, self._wall_ms())
        shard.apply(TransactionEnd(marker.producer_id, marker.committed))

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Tell every shard that topics were deleted."""
        for number, shard in enumerate(self.shards):
            if shard.state is Lifecycle.READY:
                self._run(number, TopicsDeleted(topics))

    # ------------------------------------------------------------------------------- the machine

    def _run(
        self, number: int, event: ShardEvent, ahead: jobs.EncodedAhead = _NOTHING_AHEAD
    ) -> None:
        shard = self.shards[number]
        effects = shard.decide(event, self._now())
        if effects.records:
            try:
                self._append(number, event, effects.records, ahead)
            except KafkaError as error:
                if not _is_refused(event, error):
                    self._demote(number, error)
                self._answer_failed(event, error)
                return
            for record in effects.records:
                shard.apply(record)
        shard.install(effects.session)
        for reply in effects.replies:
            self._release(reply.token, reply.response)
        for fact in effects.observed:
            self._publish(fact)
        for job in (*effects.consumer_jobs, *effects.draft_jobs):
            self._do(number, job)
        self._arm(shard.next_deadline())

    # ------------------------------------------------------------------------------- slow work

    def _do(self, number: int, job: Job) -> None:
        """Run a small job at once, and a large one in the background."""
        if job.size <= _AT_ONCE:
            self._job_done(number, job, jobs.do(job))
            return
        loop, shard = asyncio.get_running_loop(), self.shards[number]

        def work() -> tuple[jobs.Result, jobs.EncodedAhead]:
            result = jobs.do(job)
            return result, jobs.EncodedAhead(result)

        def done(future: Future[tuple[jobs.Result, jobs.EncodedAhead]]) -> None:
            if not future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(take, *future.result())

        def take(result: jobs.Result, ahead: jobs.EncodedAhead) -> None:
            if self.shards[number] is shard:  # else the shard was reloaded without this job
                self._job_done(number, job, result, ahead)

        self._worker.submit(work).add_done_callback(done)

    def _job_done(
        self,
        number: int,
        job: Job,
        result: jobs.Result,
        ahead: jobs.EncodedAhead = _NOTHING_AHEAD,
    ) -> None:
        if isinstance(result, DraftJobDone):
            self._run(number, result)
        else:
            token = cast("ConsumerJob", job).token
            self._run(number, JobDone(token, job.group_id, result, self._wall_ms()), ahead)

    def _tell_topics(self, number: int) -> None:
        """Pass the current topics to a shard before it answers (K14)."""
        listed = self._data.topics
        if listed is not self._listed:
            views = (
                (name, TopicView.of(topic.topic_id, topic.partitions, self._rack))
                for name, topic in listed.items()
            )
            self._listed, self._topics = listed, TopicsImage.of(views, self._topics)
        if self.shards[number].session.topics is not self._topics:
            self._run(number, TopicsChanged(self._topics))

    # ------------------------------------------------------------------------------- the log

    def _append(
        self,
        number: int,
        event: ShardEvent,
        records: tuple[GroupRecord, ...],
        ahead: jobs.EncodedAhead,
    ) -> None:
        """Append the records of a request as one batch, and those of a timer in several."""
        now = self._wall_ms()
        log = self._data.log(TopicPartition(OFFSETS_TOPIC, number))
        for piece in _batches(event, records, ahead):
            batch = [Record(at, now, *pair) for at, pair in enumerate(piece)]
            if records[0].producer_id < 0:
                log.append(encode_batch(batch), now)
                continue
            pending = encode_batch(
                batch,
                producer_id=records[0].producer_id,
                producer_epoch=records[0].producer_epoch,
                is_transactional=True,
            )
            log.append(pending, now, by_coordinator=True)

    def _answer_failed(self, event: ShardEvent, error: KafkaError) -> None:
        """C7: answer a request whose records were not appended, without the log's own error."""
        if isinstance(event, RequestArrived):
            known = ErrorCode(error.code)
            code = _APPEND_ERRORS.get(known, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            request = cast("Request[Message]", event.request)
            self._release(event.token, refuse(request, event.version, code))

    def _demote(self, number: int, error: KafkaError) -> None:
        """Unload a shard whose log failed, and load it again from the log."""
        told = error.code == ErrorCode.KAFKA_STORAGE_ERROR  # the storage has logged it
        level = logging.DEBUG if told else logging.ERROR
        logger.log(level, "the group log of shard %d failed: %s", number, error)
        old = self.shards[number]
        for reply in old.decide(Unload(), self._now()).replies:
            self._release(reply.token, reply.response)
        self._load_again(number)

    def _load_again(self, number: int) -> None:
        self.shards[number] = Shard(self._config)
        loading = asyncio.ensure_future(self._try_to_load(number))
        self._reloading.add(loading)
        loading.add_done_callback(self._reloading.discard)

    def _load_if_due(self, number: int) -> None:
        """Retry after a storage error: the disk may have been full only for a moment."""
        if self._again.get(number, _NEVER) <= self._now():
            del self._again[number]
            self._load_again(number)

    async def _try_to_load(self, number: int) -> None:
        """Load a shard; if its log cannot be decoded, its groups stay without a coordinator.

        Storage errors are logged where they occur; a later request retries the load.
        """
        try:
            await self._load(number)
        except (KohortError, OSError) as error:  # bad contents, or an unreadable disk
            if isinstance(error, KafkaError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._again[number] = self._now() + _LOAD_AGAIN_MS
            else:
                logger.error(
                    "%s-%d cannot be loaded until this broker restarts; its groups have no "
                    "coordinator until then: %s",
                    OFFSETS_TOPIC,
                    number,
                    error,
                )
            self._run(number, Unload())

    def _release(self, token: int, response: Message) -> None:
        if token == self._asking:
            self._answer = response
            return
        waiting = self._waiting.pop(token, None)
        if waiting is not None and not waiting.done():  # else the client has disconnected
            waiting.set_result(response)

    # ------------------------------------------------------------------------------- time

    def _rearm(self) -> None:
        """Set the timer to the earliest deadline or before; firing too early does no harm."""
        for shard in self.shards:
            self._arm(shard.next_deadline())

    def _arm(self, due: int | None) -> None:
        if due is None or due >= self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(due - self._now(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)
        self._armed = due

    def _on_timer(self) -> None:
        self._armed = _NEVER
        now = self._now()
        for number in range(len(self.shards)):
            while (due := self.shards[number].next_deadline()) is not None and due <= now:
                self._run(number, Tick(wall_ms=self._wall_ms()))
        self._rearm()

    def _now(self) -> int:
        return int(time.monotonic() * 1000)

    def _wall_ms(self) -> int:
        return int(time.time() * 1000)


def _is_refused(event: ShardEvent, error: KafkaError) -> bool:
    """C6: whether the request was too large: the log is intact and has no part of it."""
    return isinstance(event, RequestArrived) and error.code == ErrorCode.MESSAGE_TOO_LARGE


def _records(log: PartitionLog) -> Iterator[GroupRecord | TransactionEnd]:
    for header, batch in log.batches():
        if header.is_control:
            committed = committed_by(batch)
            if committed is not None:
                yield TransactionEnd(header.producer_id, committed)
            continue
        for record in decode_records(batch):
            if record.key is None:
                continue
            known = decode_record(record.key, record.value)
            if known is not None and header.is_transactional:
                known = replace(known, producer_id=header.producer_id)
            if known is not None:
                yield known


def _batches(
    event: ShardEvent,
    records: tuple[GroupRecord, ...],
    ahead: jobs.EncodedAhead = _NOTHING_AHEAD,
) -> Iterable[list[jobs.Encoded]]:
    """Split the records of an event into batches; the log stores each batch whole or not at all.

    If a timer writes a classic group, the group is being converted from a consumer group. Such
    records stay in one batch: half a conversion would leave a group of neither kind.
    """
    pairs = [ahead.pair(record) for record in records]
    moves = any(isinstance(record.value, GroupMetadataValue) for record in records)
    return [pairs] if isinstance(event, RequestArrived) or moves else _pieces(pairs)


def _pieces(pairs: list[jobs.Encoded]) -> Iterator[list[jobs.Encoded]]:
    """Split records into batches of moderate size.

    This is safe where each record is valid on its own: for expired offsets and groups, and for
    target assignments, where the record that activates them comes last.
    """
    piece: list[jobs.Encoded] = []
    size = 0
    for key, value in pairs:
        size += len(key) + len(value or b"")
        if piece and size > _BYTES_PER_BATCH:
            yield piece
            piece, size = [], len(key) + len(value or b"")
        piece.append((key, value))
    yield piece
