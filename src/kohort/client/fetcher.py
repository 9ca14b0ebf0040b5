"""Fetches record batches ahead of the application: one request at a time for each leader.

A leader is asked for all its partitions as soon as the last chunk of any of them has gone to the
application, so the next answer is on its way while the last one is being handled; and never sooner,
so that a long poll for quiet partitions does not keep a busy one waiting.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ConsumerConfig
from kohort.client.offsets import shown
from kohort.client.partitions import EARLIEST, LATEST, Partitions, PartitionState
from kohort.client.records import whole_chunk, without_aborted
from kohort.client.versions import FETCH_BY_NAME
from kohort.errors import ErrorCode, KafkaError, KohortError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.values import dataclass
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.schema import ZERO_UUID

log = logging.getLogger("kohort.client")


@dataclass(frozen=True, slots=True)
class _Asked:
    state: PartitionState
    incarnation: int
    offset: int


class Fetcher:
    """Keeps the partitions supplied with records, on the loop.

    Args:
        cluster: The brokers.
        config: Settings.
        partitions: What to read.
        on_change: Called when there is something new for the application.
        on_error: Called with what should not have happened.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        partitions: Partitions,
        on_change: Callable[[], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._on_change = on_change
        self._on_error = on_error
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.is_on = False
        cluster.on_metadata.append(self.pump)

    def pump(self) -> None:
        """Send what can be sent now."""
        if self._closed or not self.is_on:
            return
        now = asyncio.get_running_loop().time()
        wanted: dict[int, list[PartitionState]] = {}
        busy: set[int] = set()
        for state in self._partitions:
            leader = self._cluster.metadata.leader(state.partition)
            if leader is None:
                if state.is_readable:
                    self._cluster.request_refresh()
            elif state.chunks and state.is_readable:
                busy.add(leader)
            elif state.is_wanted(now):
                wanted.setdefault(leader, []).append(state)
        for leader, states in wanted.items():
            if leader not in busy and leader not in self._tasks:
                self._start(leader, states)
        self._wake_for_delayed(now)

    async def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------- inside

    def _wake_for_delayed(self, now: float) -> None:
        later = [state.not_before for state in self._partitions if state.not_before > now]
        if later and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(min(later), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def _start(self, leader: int, states: list[PartitionState]) -> None:
        asked: dict[TopicPartition, _Asked] = {}
        for state in states:
            state.is_fetching = True
            asked[state.partition] = _Asked(state, state.incarnation, state.fetch_offset)
        task = asyncio.create_task(self._fetch(leader, asked))
        self._tasks[leader] = task
        task.add_done_callback(lambda done: self._finished(leader, done))

    def _finished(self, leader: int, task: asyncio.Task[None]) -> None:
        self._tasks.pop(leader, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # it must neither end in a silent wait nor be tried for ever
            self._closed = True
            self._on_error(error)
        self.pump()

    async def _fetch(self, leader: int, asked: dict[TopicPartition, _Asked]) -> None:
        topics, has_ids = self._topics(asked.values())
        config = self._config
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.isolation_level == "read_committed"),
            topics=topics,
        )
        try:
            response = await self._cluster.send(
                leader,
                request,
                purpose=Purpose.FETCH,
                timeout_ms=config.request_timeout_ms + config.fetch_max_wait_ms,
                at_most=None if has_ids else FETCH_BY_NAME,
            )
            if response.error_code:
                raise KafkaError(response.error_code, f"fetch from broker {leader}")
            for each in self._missing(response, asked):
                self._delay(each.state)
        except KohortError as error:
            self._failed(error, asked)
        finally:
            for each in asked.values():
                if each.incarnation == each.state.incarnation:
                    each.state.is_fetching = False
        self._on_change()

    def _topics(self, asked: Iterable[_Asked]) -> tuple[tuple[FetchTopic, ...], bool]:
        topics: dict[str, list[FetchPartition]] = {}
        for each in asked:
            partition = each.state.partition
            known = self._cluster.metadata.partition(partition)
            entry = FetchPartition(
                partition=partition.partition,
                current_leader_epoch=known.leader_epoch if known else -1,
                fetch_offset=each.offset,
                partition_max_bytes=self._config.max_partition_fetch_bytes,
            )
            topics.setdefault(partition.topic, []).append(entry)
        ids = {name: self._topic_id(name) for name in topics}
        made = tuple(
            FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(entries))
            for name, entries in topics.items()
        )
        return made, all(topic_id.int for topic_id in ids.values())

    def _topic_id(self, name: str) -> uuid.UUID:
        topic = self._cluster.metadata.topics.get(name)
        return topic.topic_id if topic else ZERO_UUID

    def _missing(
        self, response: FetchResponse, asked: dict[TopicPartition, _Asked]
    ) -> Iterable[_Asked]:
        """Take what was answered; return what was asked and is not in the answer."""
        missing = dict(asked)
        for topic in response.responses:
            name = topic.topic or self._cluster.metadata.topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                each = missing.pop(TopicPartition(name, data.partition_index), None)
                if each is not None and each.incarnation == each.state.incarnation:
                    self._take_partition(each, data)
        return missing.values()

    def _take_partition(self, asked: _Asked, data: PartitionData) -> None:
        state = asked.state
        if data.error_code:
            self._refused(asked, data.error_code)
            return
        state.high_watermark = data.high_watermark
        if not data.records:
            return
        try:
            chunk = whole_chunk(memoryview(data.records), asked.offset)
            if chunk is None or chunk.is_empty:
                raise RemoteProtocolError(
                    f"no whole record batch from there on in {len(data.records)} bytes"
                )
            if self._config.isolation_level == "read_committed":
                chunk.records = without_aborted(chunk.records, data.aborted_transactions)
        except RemoteProtocolError as error:
            place = f"{shown(state.partition)} at offset {asked.offset}"
            state.failure = RemoteProtocolError(f"{place}: {error}")
            return
        state.chunks.append(chunk)
        state.fetch_offset = chunk.next_offset
        self._partitions.put_last(state)

    def _refused(self, asked: _Asked, code: int) -> None:
        state = asked.state
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(asked)
        elif KafkaError(code).retriable:
            self._cluster.request_refresh()
            self._delay(state)
        else:
            place = f"{shown(state.partition)} at offset {asked.offset}"
            state.failure = KafkaError(code, place)

    def _out_of_range(self, asked: _Asked) -> None:
        state = asked.state
        if state.current is not None:
            self._delay(state)  # what was fetched before comes first
        elif self._config.auto_offset_reset == "none":
            place = f"{shown(state.partition)} has no offset {asked.offset}"
            state.failure = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, place)
        else:
            log.info(
                "%s has no offset %d: going to the %s",
                shown(state.partition),
                asked.offset,
                self._config.auto_offset_reset,
            )
            earliest = self._config.auto_offset_reset == "earliest"
            state.look_up(EARLIEST if earliest else LATEST)

    def _failed(self, error: KohortError, asked: dict[TopicPartition, _Asked]) -> None:
        is_passing = isinstance(error, KafkaError) and error.retriable
        log.debug("fetch failed: %s", error)
        for each in asked.values():
            if each.incarnation != each.state.incarnation:
                continue
            if is_passing:
                self._delay(each.state)
            else:
                each.state.failure = error
        if is_passing:
            self._cluster.request_refresh()

    def _delay(self, state: PartitionState) -> None:
        loop = asyncio.get_running_loop()
        state.not_before = loop.time() + self._config.retry_backoff_ms / 1000
