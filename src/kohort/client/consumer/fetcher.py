"""Fetch record batches ahead of the application: one request at a time per leader.

A leader is asked for all its partitions as soon as the last chunk of any of them has gone to the
application, so the next answer is in transit while the last one is processed; and never sooner, so
that a long poll for quiet partitions does not delay a busy one. Only changes are sent over the
network (`fetch_session`).

A partition that was just assigned, or had a seek, would wait for a long poll that was sent without
it. So it is fetched once over another connection, without waiting for records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import cast

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.commits.offsets import shown
from kohort.client.consumer.fetch_session import AskedOf, FetchSession, alone
from kohort.client.consumer.partitions import EARLIEST, LATEST, Asked, Partitions, PartitionState
from kohort.client.consumer.records import whole_chunk, without_aborted
from kohort.client.measures import FetchMeasures, precise_ms
from kohort.client.net.backoff import may_pass, needs_help
from kohort.client.net.cluster import Cluster, Purpose
from kohort.client.net.connection import Failed
from kohort.client.net.incidents import SHOWN_BY_METADATA
from kohort.client.net.transport import BrokerConnection, Ended
from kohort.client.net.versions import FETCH_BY_NAME
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    error_name,
    with_right,
)
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

log = logging.getLogger("kohort.client")

# The connection for this extra fetch, and how long it may delay other requests there.
_LOOK = Purpose.CONTROL
_LOOK_BYTES = 1 << 20

# A leader that moves is not a problem; this many refusals of a partition in a row are.
_REFUSALS = 4
_DOUBLINGS = 20


class Fetcher:
    """Keeps the partitions supplied with records, on the loop.

    Args:
        cluster: The brokers.
        config: Settings.
        partitions: The partitions to read.
        on_change: Called when there is news for the application.

    Attributes:
        is_on: Whether records are wanted.
        broken: The unexpected error that stopped it.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        partitions: Partitions,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partitions = partitions
        self._on_change = on_change
        self._busy: set[int] = set()
        self._sessions: defaultdict[int, FetchSession] = defaultdict(FetchSession)
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.is_on = False
        self.broken: BaseException | None = None
        self.measures = FetchMeasures(lambda: partitions.given_out)
        cluster.on_metadata.append(self.pump)

    def pump(self) -> None:
        """Send all fetches that can be sent now."""
        if self._closed or not self.is_on:
            return
        # In most calls every partition is in a request, and there is nothing to do.
        idle = [state for state in self._partitions if state.is_idle]
        if not idle:
            return
        now = asyncio.get_running_loop().time()
        wanted: defaultdict[int, dict[TopicPartition, Asked]] = defaultdict(dict)
        unread: set[int] = set()
        for state in idle:
            if state.is_remade(self._cluster.metadata):
                self._begin_anew(state)
                continue
            asked = self._asked(state)
            if asked is None:
                self._cluster.request_refresh()
            elif state.chunks:
                unread.add(asked.leader)
            elif state.position is not None and state.not_before <= now:
                wanted[asked.leader][state.partition] = asked
        for leader, of_leader in wanted.items():
            if leader in self._busy:
                self._look(leader, of_leader)
            elif leader not in unread:
                self._start(leader, of_leader)
        self._wake_for_delayed(idle, now)

    def drop_spoiled(self) -> None:
        """Fetch records again that could not be decoded; while the application waits in a poll."""
        for state in self._partitions:
            if state.is_spoiled and state.trouble is not None:
                self._note_trouble(state, state.trouble.error)
                state.drop_spoiled()

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

    def _asked(self, state: PartitionState) -> Asked | None:
        """Return the fetch entry of a partition; None while no leader is known.

        It stays the same object while unchanged, which a session relies on.
        """
        asked, metadata = state.asked, self._cluster.metadata
        if asked is not None and asked.metadata is metadata and asked.is_wanted:
            return asked
        known = metadata.led(state.partition)
        if known is None:
            return None
        entry = FetchPartition(
            partition=state.partition.partition,
            current_leader_epoch=known.leader_epoch,
            fetch_offset=state.fetch_offset,
            partition_max_bytes=self._config.max_partition_fetch_bytes,
        )
        topic_id = metadata.topics[state.partition.topic].topic_id
        if state.topic_id is None and state.position is not None and topic_id.int:
            state.topic_id = topic_id
        state.asked = Asked(state, state.incarnation, metadata, known.leader, topic_id, entry)
        return state.asked

    def _start(self, leader: int, asked: AskedOf) -> None:
        for each in asked.values():
            each.state.is_fetching = True
            each.state.is_new = False
        self._busy.add(leader)
        self._send(Purpose.FETCH, leader, asked)

    def _look(self, leader: int, wanted: AskedOf) -> None:
        """Fetch new partitions at once, while a long poll waits for the others."""
        new = {partition: each for partition, each in wanted.items() if each.state.is_new}
        for each in new.values():
            each.state.is_new = False
        if new:
            self._send(_LOOK, leader, new)

    def _send(self, purpose: Purpose, leader: int, asked: AskedOf) -> None:
        connection = self._cluster.opened(leader, purpose)
        if connection is not None:
            self._ask(connection, purpose, leader, asked)
            return
        task = asyncio.create_task(self._connect(purpose, leader, asked))
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._break(error)

    async def _connect(self, purpose: Purpose, leader: int, asked: AskedOf) -> None:
        try:
            connection = await self._cluster.connection(leader, purpose)
        except KohortError as error:
            self._ended(purpose, leader, asked, error)
        else:
            self._ask(connection, purpose, leader, asked)

    def _ask(
        self, connection: BrokerConnection, purpose: Purpose, leader: int, asked: AskedOf
    ) -> None:
        config = self._config
        wait_ms, max_bytes = config.fetch_wait_ms, config.fetch_max_bytes
        if purpose is _LOOK:
            wait_ms, max_bytes = 0, min(max_bytes, _LOOK_BYTES)
            fetch = alone(asked)
        else:
            fetch = self._sessions[leader].ask(asked)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(config.isolation_level == "read_committed"),
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=fetch.topics,
            forgotten_topics_data=fetch.forgotten,
        )
        has_ids = all(each.topic_id.int for each in asked.values())
        begun = precise_ms()

        def ended(end: Ended) -> None:
            answer = _answer(end, leader)
            if isinstance(answer, FetchResponse):
                now = precise_ms()
                self.measures.answered(answer, now - begun, now)
            self._ended(purpose, leader, asked, answer)

        connection.ask(
            request,
            config.request_timeout_ms + wait_ms,
            ended,
            at_most=None if has_ids else FETCH_BY_NAME,
        )

    def _ended(
        self, purpose: Purpose, leader: int, asked: AskedOf, answer: FetchResponse | KohortError
    ) -> None:
        if self._closed:
            return
        is_look = purpose is _LOOK
        try:
            if not is_look:
                self._busy.discard(leader)
                self._take(self._sessions[leader], answer, asked)
            elif not isinstance(answer, KohortError):  # otherwise the next fetch returns it again
                self._take_all(answer, asked)
        except Exception as error:  # noqa: BLE001  # the next poll raises it
            self._break(error)
            return
        for each in asked.values():
            if each.is_current and not is_look:
                each.state.is_fetching = False
        self._on_change()
        self.pump()

    def _break(self, error: BaseException) -> None:
        """Stop because of an unexpected error, which must be neither ignored nor retried."""
        self._closed = True
        self.broken = error
        self._on_change()

    def _take(
        self, session: FetchSession, answer: FetchResponse | KohortError, asked: AskedOf
    ) -> None:
        if isinstance(answer, KohortError):
            if not session.failed(answer):
                self._failed(answer, asked)
            return
        answered = self._take_all(answer, asked)
        if session.is_whole:
            for each in asked.keys() - answered:
                self._delay(asked[each].state)
        session.answered(answer)

    def _take_all(self, response: FetchResponse, asked: AskedOf) -> set[TopicPartition]:
        """Process an answer; return the partitions it contained."""
        answered = set()
        for topic in response.responses:
            name = topic.topic or self._cluster.metadata.topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                each = asked.get(partition)
                if each is None or partition in answered:
                    continue
                answered.add(partition)
                if each.is_wanted:
                    self._take_partition(each, data)
        return answered

    def _take_partition(self, asked: Asked, data: PartitionData) -> None:
        state = asked.state
        if data.error_code:
            self._refused(asked, data.error_code)
            return
        if not data.records:
            state.heal()
        if state.refusals and (state.trouble is None or state.trouble.is_over):
            state.refusals = 0
            where = shown(state.partition)
            self._cluster.incidents.over(("fetch", where), f"{where} can be fetched again")
        state.high_watermark = state.end = data.high_watermark
        if self._config.isolation_level == "read_committed":
            state.end = data.last_stable_offset
        self.measures.found(state, precise_ms())
        if not data.records:
            return
        try:
            chunk = whole_chunk(memoryview(data.records), asked.entry.fetch_offset)
            if chunk is None or chunk.is_empty:
                raise RemoteProtocolError(
                    f"no whole record batch from there on in {len(data.records)} bytes"
                )
            if self._config.isolation_level == "read_committed":
                chunk.records = without_aborted(chunk.records, data.aborted_transactions)
        except RemoteProtocolError as error:
            place = f"{shown(state.partition)} at offset {asked.entry.fetch_offset}"
            self._note_trouble(state, RemoteProtocolError(f"{place}: {error}"))
            return
        state.chunks.append(chunk)
        state.fetch_offset = chunk.next_offset
        self._partitions.put_last(state)

    def _refused(self, asked: Asked, code: int) -> None:
        state = asked.state
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(asked)
        elif KafkaError(code).retriable:
            self._cluster.request_refresh()
            self._delay(state)
            self._note_refusal(asked, code)
        else:
            place = f"{shown(state.partition)} at offset {asked.entry.fetch_offset}"
            self._cluster.request_refresh()
            self._stop_or_retry(state, KafkaError(code, with_right(code, place, "READ")))

    def _stop_or_retry(self, state: PartitionState, error: KohortError) -> None:
        if needs_help(error):
            state.failure = error
        else:
            self._note_trouble(state, error)

    def _note_trouble(self, state: PartitionState, error: KohortError) -> None:
        """Make the next poll raise an error, log it, and fetch again after a growing pause."""
        state.refusals += 1
        state.note_trouble(error)
        self._delay(state)
        where = shown(state.partition)
        text = f"{error}; {where} is fetched again until it can be read"
        self._cluster.incidents.note(("fetch", where), str(error), text)

    def _note_refusal(self, asked: Asked, code: int) -> None:
        """Log a lasting refusal, unless the metadata show it as well and are logged."""
        asked.state.refusals += 1
        if asked.state.refusals < _REFUSALS or code in SHOWN_BY_METADATA:
            return
        name, where = error_name(code), shown(asked.state.partition)
        self._cluster.incidents.note(
            ("fetch", where),
            name,
            f"{where} cannot be fetched at offset {asked.entry.fetch_offset}: {name}, says broker"
            f" {asked.leader}; trying again until it can",
        )

    def _out_of_range(self, asked: Asked) -> None:
        state = asked.state
        if state.current is not None:
            self._delay(state)  # records fetched earlier come first
        elif self._config.auto_offset_reset == "none":
            place = f"{shown(state.partition)} has no offset {asked.entry.fetch_offset}"
            state.failure = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, place)
        else:
            earliest = self._config.auto_offset_reset == "earliest"
            state.look_up(EARLIEST if earliest else LATEST)
            state.out_of_range = asked.entry.fetch_offset  # logged once the skipped range is known

    def _begin_anew(self, state: PartitionState) -> None:
        """Start a recreated topic where the settings say, and log it."""
        if state.current is not None or state.chunks:
            return  # records of the old topic come first
        before, now = state.topic_id, self._cluster.metadata.topic_id(state.partition.topic)
        what = (
            f"{shown(state.partition)} was deleted and recreated: its id was {before} and is {now}"
        )
        reset = self._config.auto_offset_reset
        if reset == "none":
            state.failure = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"{what}. Offset {state.fetch_offset} belongs to the old topic, and"
                " auto.offset.reset is none: seek to continue",
            )
            self._on_change()
            return
        log.warning(
            "%s. Offset %d belongs to the old topic: continuing at the %s of the new one",
            f"{self._cluster.incidents.client}: {what}",
            state.fetch_offset,
            reset,
        )
        state.begin_anew(EARLIEST if reset == "earliest" else LATEST)
        self._on_change()

    def _failed(self, error: KohortError, asked: AskedOf) -> None:
        log.debug("fetch failed: %s", error)
        for each in asked.values():
            if not each.is_current:
                continue
            if isinstance(error, KafkaError) and error.retriable:
                each.state.heal()  # a lost broker may return with good records
                self._delay(each.state)
            elif may_pass(error):  # logged where it was noticed, once for all partitions
                each.state.refusals += 1
                each.state.note_trouble(error)
                self._delay(each.state)
            else:
                self._stop_or_retry(each.state, error)
        if not needs_help(error):
            self._cluster.request_refresh()

    def _delay(self, state: PartitionState) -> None:
        """Fetch it again after a pause, which grows while its records cannot be read."""
        config = self._config
        is_bad = state.trouble is not None and not state.trouble.is_over
        times = min(state.refusals - 1, _DOUBLINGS) if is_bad else 0
        pause_ms = config.retry_backoff_ms * 2 ** max(times, 0)
        longest_ms = max(config.retry_backoff_ms, config.retry_backoff_max_ms)
        now = asyncio.get_running_loop().time()
        state.not_before = now + min(pause_ms, longest_ms) / 1000


def _answer(end: Ended, leader: int) -> FetchResponse | KohortError:
    if isinstance(end, Failed):
        return end.error
    response = cast("FetchResponse", end.response)
    if response.error_code:
        return KafkaError(response.error_code, f"fetch from broker {leader}")
    return response
