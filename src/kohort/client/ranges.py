"""Read a range of offsets of one partition as Arrow batches: the data plane of Spark's executors.

No group, no thread and no event loop. While one answer is decoded the broker already works on the
next, which waits in the kernel's socket buffer.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast

from kohort.client.backoff import Backoff, Deadline
from kohort.client.config import ConsumerConfig, from_kafka, make
from kohort.client.range_connection import BlockingConnection, ConnectionPool
from kohort.client.records import without_aborted
from kohort.client.versions import FETCH_BY_NAME
from kohort.errors import (
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.values import dataclass
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from kohort.wire.schema import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

# Measured on two cores: from 1 MiB up the fetches are no slower than a bare socket, and what is in
# flight still fits the socket buffer and the cache.
FETCH_BYTES = 4 * 1024 * 1024

# About how large an Arrow batch becomes; what is compressed well is cut into several.
BATCH_BYTES = 16 * 1024 * 1024

_UNANSWERED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
_BATCH_PREFIX = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_HEADER_SIZE = 61
_LENGTH_END = 12

Address = tuple[str, int]


class RangeLostError(KafkaError):
    """Offsets that were to be read are not in the partition any more."""


class _Leaders:
    """Where partitions were found last, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, int], Address] = {}

    def get(self, key: tuple[str, str, int]) -> Address | None:
        with self._lock:
            return self._known.get(key)

    def put(self, key: tuple[str, str, int], address: Address) -> None:
        with self._lock:
            self._known[key] = address

    def forget(self, key: tuple[str, str, int]) -> None:
        with self._lock:
            self._known.pop(key, None)


_POOL = ConnectionPool()
_LEADERS = _Leaders()


def close_idle_connections() -> None:
    """Close the connections that this process keeps for its next range."""
    _POOL.clear()


class RangeReader:
    """Reads ranges of offsets; holds no connection itself.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        settings: Consumer settings by Kafka's own names; `max.partition.fetch.bytes` is 4 MiB
            unless given.

    Raises:
        ConfigError: An address or a setting is malformed.
    """

    def __init__(
        self, bootstrap_servers: str, settings: Mapping[str, object] | None = None
    ) -> None:
        given = {"max.partition.fetch.bytes": FETCH_BYTES, **(settings or {})}
        self._bootstrap = bootstrap_servers
        self._settings = make(
            ConsumerConfig,
            from_kafka(ConsumerConfig, {**given, "bootstrap.servers": bootstrap_servers}),
        )

    def read(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        to_offset: int,
        include_headers: bool = False,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of [from_offset, to_offset), in order, as Spark's Kafka columns.

        Changes of the leader and broken connections are ridden out as long as something was read
        within `default.api.timeout.ms`.

        Args:
            topic: Topic name.
            partition: Partition number.
            from_offset: First offset.
            to_offset: Offset after the last.
            include_headers: Whether there is a column `headers`.

        Raises:
            RangeLostError: The offsets are not in the partition (any more).
            KafkaError: The broker refuses, or no broker could be asked in time.
            RemoteProtocolError: What the broker sent are not records.
        """
        one = _Range(self, topic, partition, from_offset, to_offset)
        with closing(one.parts()) as parts:
            for part in parts:
                yield from part.decoded(one, include_headers)

    @property
    def settings(self) -> ConsumerConfig:
        """The settings in force."""
        return self._settings

    def leader(self, topic: str, partition: int, deadline: Deadline) -> Address:
        """Return where the partition is, by asking if it is not known.

        Raises:
            KafkaError: The partition is not there, has no leader, or nobody could be asked.
        """
        key = (self._bootstrap, topic, partition)
        known = _LEADERS.get(key)
        if known is not None:
            return known
        found = self._look_up(topic, partition, deadline)
        _LEADERS.put(key, found)
        return found

    def forget_leader(self, topic: str, partition: int) -> None:
        """Ask again the next time."""
        _LEADERS.forget((self._bootstrap, topic, partition))

    def connect(self, address: Address, deadline: Deadline) -> BlockingConnection:
        """Return a connection, a kept one if there is one."""
        kept = _POOL.take(*address, self._settings.client_id)
        if kept is not None:
            return kept
        timeout_ms = max(1, deadline.left_ms(self._settings.socket_connection_setup_timeout_ms))
        return BlockingConnection(*address, self._settings.client_id, timeout_ms)

    def keep(self, address: Address, connection: BlockingConnection) -> None:
        """Give back a connection that has no unanswered request."""
        _POOL.give(*address, self._settings.client_id, connection)

    def _look_up(self, topic: str, partition: int, deadline: Deadline) -> Address:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        causes: list[str] = []
        for address in self._settings.addresses():
            try:
                answer = self._ask(address, request, deadline)
            except (BrokerUnavailableError, RequestTimedOutError) as error:
                causes.append(str(error))
            else:
                return _leader_of(answer, topic, partition)
        raise BrokerUnavailableError("; ".join(causes))

    def _ask(
        self, address: Address, request: MetadataRequest, deadline: Deadline
    ) -> MetadataResponse:
        connection = self.connect(address, deadline)
        try:
            timeout_ms = max(1, deadline.left_ms(self._settings.request_timeout_ms))
            answer = connection.request(request, timeout_ms)
        except BaseException:
            connection.close()
            raise
        self.keep(address, connection)
        return answer


def _leader_of(answer: MetadataResponse, topic: str, partition: int) -> Address:
    described = next((each for each in answer.topics if each.name == topic), None)
    if described is None:
        raise RemoteProtocolError(f"the metadata lacks {topic}, which was asked for")
    if described.error_code:
        raise KafkaError(described.error_code, f"topic {topic}")
    parts: Mapping[int, MetadataResponsePartition] = {
        each.partition_index: each for each in described.partitions
    }
    if partition not in parts:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
    leader_id = parts[partition].leader_id
    broker = next((each for each in answer.brokers if each.node_id == leader_id), None)
    if broker is None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
    return broker.host, broker.port


@dataclass(frozen=True, slots=True)
class _Part:
    """What one answer holds.

    Attributes:
        records: Record batches, in memory that the next answer overwrites.
        start: First offset wanted.
        end: Offset after the last whole batch, or the range's end.
    """

    records: Buffer
    start: int
    end: int

    def decoded(self, whole: _Range, include_headers: bool) -> Iterator[pa.RecordBatch]:
        from kohort.wire.records.arrow import Fetched, decode_to_arrow

        at = self.start
        while at < self.end:
            fetched = Fetched(whole.topic, whole.partition, self.records, at, whole.to_offset)
            batch, (following,) = decode_to_arrow(
                [fetched],
                include_headers=include_headers,
                check_crc=whole.settings.check_crcs,
                max_bytes=BATCH_BYTES,
            )
            if batch.num_rows:
                yield batch
            if following <= at:
                return  # the rest was aborted
            at = following


class _Range:
    """One call of `RangeReader.read`: where it stands, and how it goes on after an error."""

    def __init__(
        self, reader: RangeReader, topic: str, partition: int, from_offset: int, to_offset: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.settings = reader.settings
        self._is_committed = reader.settings.isolation_level == "read_committed"
        self._reader = reader
        self._next = from_offset
        self._backoff = Backoff(
            reader.settings.retry_backoff_ms, reader.settings.retry_backoff_max_ms
        )
        self._deadline = Deadline(reader.settings.default_api_timeout_ms)
        self._obstacle: KafkaError | None = None

    def parts(self) -> Generator[_Part, None, None]:
        """Yield what was fetched, until the range is through or the time without progress over."""
        while self._next < self.to_offset:
            try:
                yield from self._parts_from_leader()
            except RangeLostError:
                raise
            except KafkaError as error:
                self._reader.forget_leader(self.topic, self.partition)
                self._pause(error)

    def _pause(self, error: KafkaError) -> None:
        """Wait before the next attempt, or raise when there is no use in one."""
        if not error.retriable:
            raise error
        # The last attempt may be cut off by our own time-out: what a broker said tells more.
        if self._obstacle is None or error.code not in _UNANSWERED:
            self._obstacle = error
        if self._deadline.over:
            known = self._obstacle
            why = str(known).removeprefix(f"{known.name}: ")
            raise KafkaError(known.code, f"{self}: nothing came from {self._next} on: {why}")
        pause = self._backoff.next_s()
        left = self._deadline.left_s()
        threading.Event().wait(pause if left is None else min(pause, left))

    def _parts_from_leader(self) -> Iterator[_Part]:
        address = self._reader.leader(self.topic, self.partition, self._deadline)
        connection = self._reader.connect(address, self._deadline)
        clean = False
        try:
            token = self._ask(connection)
            while True:
                part = self._part(cast("FetchResponse", connection.answer(token)))
                if part is not None:
                    self._next = part.end
                    self._obstacle = None
                    self._backoff.reset()
                    self._deadline = Deadline(self.settings.default_api_timeout_ms)
                if self._next >= self.to_offset:
                    clean = True
                else:
                    token = self._ask(connection, hurried=part is not None)
                if part is not None:
                    yield part
                if clean:
                    return
        finally:
            # With a request unanswered, or in an unknown state, it is of no use to anybody else.
            if clean:
                self._reader.keep(address, connection)
            else:
                connection.close()

    def _ask(self, connection: BlockingConnection, *, hurried: bool = True) -> int:
        if not hurried:
            self._pause(RequestTimedOutError("the broker has nothing"))
        wanted = FetchPartition(
            partition=self.partition,
            fetch_offset=self._next,
            partition_max_bytes=self.settings.max_partition_fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self.settings.max_partition_fetch_bytes,
            isolation_level=int(self._is_committed),
            topics=(FetchTopic(topic=self.topic, partitions=(wanted,)),),
        )
        timeout_ms = max(1, self._deadline.left_ms(self.settings.request_timeout_ms))
        return connection.send(request, timeout_ms, at_most=FETCH_BY_NAME)

    def _part(self, response: FetchResponse) -> _Part | None:
        """Return what the answer holds, None for nothing."""
        data = self._data(response)
        if response.error_code:
            raise KafkaError(response.error_code, str(self))
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._lost(data)
        if data.error_code:
            raise KafkaError(data.error_code, str(self))
        records = data.records
        if records is None or len(records) == 0:
            return None
        return self._measured(records, data.aborted_transactions)

    def _measured(self, records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> _Part:
        end = min(_end_of(records, self._next), self.to_offset)
        if end <= self._next:
            raise RemoteProtocolError(f"{self}: the broker sent no whole batch from {self._next}")
        if self._is_committed:
            records = without_aborted(memoryview(records), aborted)
        return _Part(records, self._next, end)

    def _data(self, response: FetchResponse) -> PartitionData:
        for topic in response.responses:
            for data in topic.partitions:
                if topic.topic == self.topic and data.partition_index == self.partition:
                    return data
        raise RemoteProtocolError(f"{self}: the answer lacks the partition that was asked for")

    def _lost(self, data: PartitionData) -> RangeLostError:
        holds = ""
        if data.log_start_offset >= 0 and data.high_watermark >= 0:
            holds = f" (the log holds {data.log_start_offset} to {data.high_watermark})"
        return RangeLostError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self}: the records from {self._next} on are gone{holds}; they were deleted before"
            " they were read, or the topic was made anew",
        )

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.from_offset} to {self.to_offset}"


def _end_of(records: Buffer, start: int) -> int:
    """Return the offset after the last whole batch, `start` when there is none.

    Only lengths and offsets are looked at, so that the next request can leave at once; whether
    these are record batches at all is seen when they are decoded.
    """
    end = start
    at = 0
    while len(records) - at >= _HEADER_SIZE:
        base_offset, length = _BATCH_PREFIX.unpack_from(records, at)
        if length < _HEADER_SIZE - _LENGTH_END or at + _LENGTH_END + length > len(records):
            break
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, at + _LAST_OFFSET_DELTA_AT)
        end = base_offset + delta + 1
        at += _LENGTH_END + length
    return max(end, start)
