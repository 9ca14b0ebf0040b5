"""Fetch: read batches, and wait for more if there are too few."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.handlers.list_offsets import ISOLATION_LEVELS, READ_COMMITTED
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import LEADER_EPOCH, PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.records import iter_batches

# Longest wait that a request may ask for; clients ask for less than their request timeout.
_MAX_WAIT_MS = 60_000


def fetch(
    broker: BrokerContext, request: FetchRequest, caller: Caller
) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once if there is enough to read, else after the next append or the maximum wait.

    Fetch sessions (KIP-227) are not kept. The response has session id 0, and clients then name all
    their partitions in each request, as the protocol specifies.
    """
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    reading = _Reading(broker, request, by_id=caller.version >= 13)
    if request.max_wait_ms <= 0 or reading.is_enough():
        return reading.response()
    return reading.wait()


class _Reading:
    """One fetch request, which may read the logs several times before it is answered."""

    def __init__(self, broker: BrokerContext, request: FetchRequest, by_id: bool) -> None:
        self._broker = broker
        self._request = request
        self._by_id = by_id
        self._committed = request.isolation_level == READ_COMMITTED
        self._missing = (
            ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    async def wait(self) -> FetchResponse:
        """Answer after appends have brought enough bytes, or after the client's maximum wait."""
        timeout_s = min(self._request.max_wait_ms, _MAX_WAIT_MS) / 1000
        partitions = [
            TopicPartition(topic.name, wanted.partition)
            for topic, wanted in self._wanted()
            if topic is not None
        ]
        await self._broker.appends.wait_until(partitions, self.is_enough, timeout_s)
        return self.response()

    def is_enough(self) -> bool:
        """Whether to answer now: there are enough bytes, or an error to report."""
        if self._request.min_bytes > 1:
            answer = self.response()
            parts = [part for topic in answer.responses for part in topic.partitions]
            total = sum(len(part.records or b"") for part in parts)
            failed = any(part.error_code for part in parts)
            return failed or total >= self._request.min_bytes
        return any(self._has_news(topic, wanted) for topic, wanted in self._wanted())

    def _has_news(self, topic: Topic | None, wanted: FetchPartition) -> bool:
        if self._request.isolation_level not in ISOLATION_LEVELS:
            return True
        if topic is None or not 0 <= wanted.partition < topic.partitions:
            return True
        try:
            log = self._broker.data.log(TopicPartition(topic.name, wanted.partition))
        except KafkaError:
            return True
        if self._committed and log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            return wanted.fetch_offset < log.last_stable_offset
        return wanted.fetch_offset != log.log_end_offset

    def _wanted(self) -> Iterator[tuple[Topic | None, FetchPartition]]:
        for fetched in self._request.topics:
            topic = self._topic(fetched)
            for wanted in fetched.partitions:
                yield topic, wanted

    def _topic(self, fetched: FetchTopic) -> Topic | None:
        if self._by_id:
            return self._broker.topic_by_id(fetched.topic_id)
        return self._broker.data.topics.get(fetched.topic)

    def response(self) -> FetchResponse:
        """Read the available batches, within the limits of the client and the broker."""
        left = min(max(self._request.max_bytes, 0), self._broker.config.fetch_max_bytes)
        is_empty = True
        responses = []
        for fetched in self._request.topics:
            topic = self._topic(fetched)
            parts = []
            for wanted in fetched.partitions:
                part = self._part(topic, wanted, left, is_empty)
                left -= len(part.records or b"")
                is_empty = is_empty and not part.records
                parts.append(part)
            responses.append(
                FetchableTopicResponse(
                    topic=fetched.topic, topic_id=fetched.topic_id, partitions=tuple(parts)
                )
            )
        return FetchResponse(responses=tuple(responses))

    def _part(
        self, topic: Topic | None, wanted: FetchPartition, left: int, is_first: bool
    ) -> PartitionData:
        try:
            return self._read(topic, wanted, left, is_first)
        except KafkaError as error:
            return PartitionData(
                partition_index=wanted.partition,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )

    def _read(
        self, topic: Topic | None, wanted: FetchPartition, left: int, is_first: bool
    ) -> PartitionData:
        if self._request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if topic is None or not 0 <= wanted.partition < topic.partitions:
            raise KafkaError(self._missing)
        if wanted.current_leader_epoch > LEADER_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self._broker.data.log(TopicPartition(topic.name, wanted.partition))
        limit = min(wanted.partition_max_bytes, left)
        # KIP-74: the first batch is returned however small the limit is, so that the client makes
        # progress. The batches after it respect the limit, or the response would exceed the
        # client's maximum.
        has_room = is_first or limit > 0
        stable = log.last_stable_offset
        before = stable if self._committed else None
        records: bytes | memoryview = b""
        if has_room:
            records = log.read(wanted.fetch_offset, limit, at_least_one=is_first, before=before)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=log.log_end_offset,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=_aborted(log, wanted, records) if self._committed else None,
            records=records,
        )


def _aborted(
    log: PartitionLog, wanted: FetchPartition, records: bytes | memoryview
) -> tuple[AbortedTransaction, ...]:
    """List the aborted transactions that may have records in this response (KIP-98)."""
    if not records or not log.producers.aborted:
        return ()
    *_, last = iter_batches(records)
    within = log.producers.aborted_within(wanted.fetch_offset, last[0].next_offset)
    return tuple(
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in within
    )
