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
from typing import TypeAlias, cast

from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ConsumerConfig
from kohort.client.connection import Failed
from kohort.client.offsets import shown
from kohort.client.partitions import EARLIEST, LATEST, Partitions, PartitionState
from kohort.client.records import whole_chunk, without_aborted
from kohort.client.transport import BrokerConnection, Ended
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
    leader_epoch: int


_AskedOf: TypeAlias = dict[TopicPartition, _Asked]


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
        self._busy: set[int] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.is_on = False
        cluster.on_metadata.append(self.pump)

    def pump(self) -> None:
        """Send what can be sent now."""
        if self._closed or not self.is_on:
            return
        # Most calls find every partition in a request and nothing to do.
        idle = [state for state in self._partitions if state.is_idle]
        if not idle:
            return
        now = asyncio.get_running_loop().time()
        wanted: dict[int, _AskedOf] = {}
        unread: set[int] = set()
        for state in idle:
            known = self._cluster.metadata.led(state.partition)
            if known is None:
                self._cluster.request_refresh()
            elif state.chunks:
                unread.add(known.leader)
            elif state.position is not None and state.not_before <= now:
                asked = _Asked(state, state.incarnation, state.fetch_offset, known.leader_epoch)
                wanted.setdefault(known.leader, {})[state.partition] = asked
        for leader, of_leader in wanted.items():
            if leader not in unread and leader not in self._busy:
                self._start(leader, of_leader)
        self._wake_for_delayed(idle, now)

    async def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._connecting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------- inside

    def _wake_for_delayed(self, states: Iterable[PartitionState], now: float) -> None:
        later = [state.not_before for state in states if state.not_before > now]
        if later and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(min(later), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def _start(self, leader: int, asked: _AskedOf) -> None:
        for each in asked.values():
            each.state.is_fetching = True
        self._busy.add(leader)
        connection = self._cluster.opened(leader, Purpose.FETCH)
        if connection is not None:
            self._ask(connection, leader, asked)
            return
        task = asyncio.create_task(self._connect(leader, asked))
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._break(error)

    async def _connect(self, leader: int, asked: _AskedOf) -> None:
        try:
            connection = await self._cluster.connection(leader, Purpose.FETCH)
        except KohortError as error:
            self._ended(leader, asked, error)
        else:
            self._ask(connection, leader, asked)

    def _ask(self, connection: BrokerConnection, leader: int, asked: _AskedOf) -> None:
        topics, has_ids = self._topics(asked.values())
        config = self._config
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.isolation_level == "read_committed"),
            topics=topics,
        )
        connection.ask(
            request,
            config.request_timeout_ms + config.fetch_max_wait_ms,
            lambda end: self._ended(leader, asked, _answer(end, leader)),
            at_most=None if has_ids else FETCH_BY_NAME,
        )

    def _ended(self, leader: int, asked: _AskedOf, answer: FetchResponse | KohortError) -> None:
        if self._closed:
            return
        self._busy.discard(leader)
        try:
            self._take(answer, asked)
        except Exception as error:  # noqa: BLE001  # the next poll raises it
            self._break(error)
            return
        for each in asked.values():
            if each.incarnation == each.state.incarnation:
                each.state.is_fetching = False
        self._on_change()
        self.pump()

    def _break(self, error: BaseException) -> None:
        """Stop for what should not have happened: it must neither be waited out nor tried again."""
        self._closed = True
        self._on_error(error)

    def _take(self, answer: FetchResponse | KohortError, asked: _AskedOf) -> None:
        if isinstance(answer, KohortError):
            self._failed(answer, asked)
            return
        for each in self._missing(answer, asked):
            self._delay(each.state)

    def _topics(self, asked: Iterable[_Asked]) -> tuple[tuple[FetchTopic, ...], bool]:
        topics: dict[str, list[FetchPartition]] = {}
        for each in asked:
            partition = each.state.partition
            entry = FetchPartition(
                partition=partition.partition,
                current_leader_epoch=each.leader_epoch,
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

    def _missing(self, response: FetchResponse, asked: _AskedOf) -> Iterable[_Asked]:
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

    def _failed(self, error: KohortError, asked: _AskedOf) -> None:
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


def _answer(end: Ended, leader: int) -> FetchResponse | KohortError:
    if isinstance(end, Failed):
        return end.error
    response = cast("FetchResponse", end.response)
    if response.error_code:
        return KafkaError(response.error_code, f"fetch from broker {leader}")
    return response
