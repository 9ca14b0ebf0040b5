"""Reads a range of offsets of one partition as Arrow batches: the data plane of Spark's executors.

No group, no thread and no event loop. While one response is decoded, the broker already prepares
the next, which waits in the kernel's socket buffer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast
from uuid import UUID

from msgspec import Struct

from kohort.client.config.definitions import ConsumerConfig, from_kafka, make
from kohort.client.consumer.records import ClippedTimes, without_aborted
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.versions import FETCH_BY_NAME
from kohort.errors import (
    ErrorCode,
    KafkaError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.spark.source.fetch.range_parts import NOTES, Part, scan
from kohort.spark.source.fetch.range_places import POOL, Place, Places, TopicRemadeError
from kohort.wire.codec.schema import ZERO_UUID, Buffer
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.client")

# Measured on two cores: from 1 MiB up, fetches are as fast as a bare socket, and data in flight
# still fits into the socket buffer and the cache.
FETCH_BYTES = 4 * 1024 * 1024

# A broker that lags behind may still send the id of a deleted topic. So a different id is accepted
# only after brokers have sent it for this long.
REMADE_PATIENCE_MS = 3_000

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_UNANSWERED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_REMEDY = (
    "set failOnDataLoss=false to continue without them, and make retention longer than a reader may"
    " be behind"
)


class RangeLostError(KafkaError):
    """Requested offsets are no longer in the partition.

    Attributes:
        resume_at: First offset of the range that can still be read, or its end if there is none.
    """

    def __init__(self, code: int, message: str = "", resume_at: int = -1) -> None:
        """Create the error; `resume_at` as the attribute."""
        self.resume_at = resume_at
        super().__init__(code, message)


class OffsetRange(Struct, frozen=True):
    """A range of offsets of one partition.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        from_offset: First offset.
        to_offset: Offset after the last one.
        topic_id: Id of the topic (KIP-516); None: any topic with that name.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    topic_id: UUID | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.from_offset} to {self.to_offset}"


def close_idle_connections() -> None:
    """Close the connections that this process keeps for its next range."""
    POOL.clear()


class RangeReader:
    """Reads ranges of offsets; keeps no connection itself.

    Args:
        bootstrap_servers: `host:port`, comma separated.
        settings: Consumer settings by Kafka's own names; `max.partition.fetch.bytes` is 4 MiB by
            default. With `client.rack`, partitions are read from a replica in that rack if the
            brokers have a replica selector (KIP-392).
        fail_on_data_loss: Whether lost offsets are an error. Otherwise they are skipped, with one
            warning in the log that gives their number.

    Raises:
        ConfigError: An address or a setting is malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Mapping[str, object] | None = None,
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        given = {"max.partition.fetch.bytes": FETCH_BYTES, **(settings or {})}
        self.bootstrap_servers = bootstrap_servers
        self.fail_on_data_loss = fail_on_data_loss
        self._clipped_times = ClippedTimes()
        self._settings = make(
            ConsumerConfig,
            from_kafka(ConsumerConfig, {**given, "bootstrap.servers": bootstrap_servers}),
        )
        self.places = Places(bootstrap_servers, self._settings)

    def read(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        to_offset: int,
        include_headers: bool = False,
        *,
        topic_id: UUID | None = None,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of [from_offset, to_offset), in order, as Spark's Kafka columns.

        The arguments are the attributes of `OffsetRange`; errors as for `read_columns`.

        Args:
            topic: Topic name.
            partition: Partition number.
            from_offset: First offset.
            to_offset: Offset after the last one.
            include_headers: Whether to add a column `headers`.
            topic_id: Id that the topic must have.
        """
        wanted = OffsetRange(topic, partition, from_offset, to_offset, topic_id)
        columns = (*COLUMNS, HEADERS) if include_headers else COLUMNS
        yield from self.read_columns(wanted, columns)

    def read_columns(
        self, wanted: OffsetRange, columns: Sequence[str] = COLUMNS
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of a range, in order, as some of Spark's Kafka columns.

        Leader changes and broken connections are retried until nothing has been read for
        `default.api.timeout.ms`.

        Args:
            wanted: The range.
            columns: Names of the columns, in order.

        Raises:
            RangeLostError: The offsets are not, or no longer, in the partition.
            KafkaError: The broker refuses, or no broker answered in time.
            RemoteProtocolError: The broker sent bytes that are not records.
        """
        with closing(_Range(self, wanted).parts()) as parts:
            for part in parts:
                yield from part.decoded(columns, self._settings.check_crcs, self._clipped_times)

    @property
    def settings(self) -> ConsumerConfig:
        """The settings in force."""
        return self._settings


class _Range:
    """One call of `RangeReader.read`: its position, and its recovery from errors."""

    def __init__(self, reader: RangeReader, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._reader = reader
        self._places = reader.places
        self._settings = reader.settings
        self._is_committed = reader.settings.isolation_level == "read_committed"
        self._next = wanted.from_offset
        self._backoff = Backoff(
            reader.settings.retry_backoff_ms, reader.settings.retry_backoff_max_ms
        )
        self._deadline = Deadline(reader.settings.default_api_timeout_ms)
        self._remade_deadline: Deadline | None = None
        self._obstacle: KafkaError | None = None
        self._last: PartitionData | None = None
        self._place: Place | None = None

    def parts(self) -> Generator[Part, None, None]:
        """Yield the fetched parts until the range is read or nothing arrives for too long."""
        while self._next < self._wanted.to_offset:
            try:
                yield from self._parts_from_one_broker()
            except RangeLostError as lost:
                self._pass_over(lost)
            except KafkaError as error:
                self._leave()
                try:
                    self._pause(error)
                except RangeLostError as lost:
                    self._pass_over(lost)

    def _leave(self) -> None:
        """Handle an error: look up the partition again, or move from a replica to the leader."""
        place = self._place
        if place is not None and place.replica not in (None, place.leader):
            self._places.lead(self._wanted.topic, self._wanted.partition, place)
        else:
            self._places.forget(self._wanted.topic, self._wanted.partition)

    def _pass_over(self, lost: RangeLostError) -> None:
        """Skip lost offsets and log them, or raise if `fail_on_data_loss` is set."""
        if self._reader.fail_on_data_loss:
            raise lost
        log.warning(
            "%d records of %s-%d (offsets %d to %d) are lost and passed over, as failOnDataLoss is"
            " false: %s",
            lost.resume_at - self._next,
            self._wanted.topic,
            self._wanted.partition,
            self._next,
            lost.resume_at - 1,
            lost.message,
        )
        self._progressed(lost.resume_at)

    def _progressed(self, to: int) -> None:
        self._next = to
        self._obstacle = None
        self._remade_deadline = None
        self._backoff.reset()
        self._deadline = Deadline(self._settings.default_api_timeout_ms)

    def _pause(self, error: KafkaError) -> None:
        """Wait before the next attempt, or raise if another attempt is pointless."""
        if not error.retriable:
            raise error
        if isinstance(error, TopicRemadeError):
            self._check_remade(error)
        # Our own timeout may cut off the last attempt: an error from a broker is more informative.
        if self._obstacle is None or error.code not in _UNANSWERED:
            self._obstacle = error
        if self._deadline.over:
            raise self._given_up(self._obstacle)
        pause = self._backoff.next_s()
        left = self._deadline.left_s()
        threading.Event().wait(pause if left is None else min(pause, left))

    def _check_remade(self, error: KafkaError) -> None:
        """Raise if a topic has had a different id for long enough."""
        if self._remade_deadline is None:
            self._remade_deadline = Deadline(REMADE_PATIENCE_MS)
        if self._remade_deadline.over or self._deadline.over:
            raise RangeLostError(
                error.code, f"{self._wanted}: {error.message}; {_REMEDY}", self._wanted.to_offset
            )

    def _given_up(self, known: KafkaError) -> KafkaError:
        """Return the error for no progress within `default.api.timeout.ms`."""
        text = f"{self._wanted}: nothing came from {self._next} on: {known.message}"
        if known.code in _GONE:
            return RangeLostError(known.code, f"{text}; {_REMEDY}", self._wanted.to_offset)
        last = self._last
        if last is None or not isinstance(known, _NothingThereError):
            return KafkaError(known.code, text)
        if self._is_committed and last.last_stable_offset < last.high_watermark:
            return KafkaError(
                known.code,
                f"{text}; a transaction is open since offset {last.last_stable_offset}, and"
                " read_committed waits for its end. kafka-transactions.sh find-hanging finds one"
                " that hangs, abort ends it",
            )
        if 0 <= last.high_watermark < self._wanted.to_offset:
            where = f"the log ends at {last.high_watermark}"
            return RangeLostError(known.code, f"{text}; {where}; {_REMEDY}", self._wanted.to_offset)
        return KafkaError(known.code, text)

    def _parts_from_one_broker(self) -> Iterator[Part]:
        """Yield one broker's parts; return when the range is read or another broker is closer."""
        wanted = self._wanted
        self._place = None
        place = self._places.find(wanted.topic, wanted.partition, wanted.topic_id, self._deadline)
        self._place = place
        connection = self._places.connect(place.address, self._deadline)
        clean = False
        try:
            token = self._ask(connection, place)
            while True:
                answer = cast("FetchResponse", connection.answer(token))
                clean = True
                data = self._data(answer)
                if self._is_elsewhere(place, data):
                    return
                part = self._part(data, place)
                if part is not None:
                    self._progressed(part.end)
                if self._next < wanted.to_offset:
                    clean = False
                    token = self._ask(connection, place, hurried=part is not None)
                if part is not None:
                    yield part
                if clean:
                    return
        finally:
            # A connection with a request unanswered, or in an unknown state, cannot be reused.
            if clean:
                self._places.keep(place.address, connection)
            else:
                connection.close()

    def _is_elsewhere(self, place: Place, data: PartitionData) -> bool:
        """Whether to read from another broker instead (KIP-392)."""
        topic, partition = self._wanted.topic, self._wanted.partition
        if place.replica is None:
            if data.error_code or data.preferred_read_replica < 0 or data.records:
                return False
            node = data.preferred_read_replica
            return self._places.prefer(topic, partition, place, node) is not None
        if place.replica == place.leader or (data.records and not data.error_code):
            return False
        self._places.lead(topic, partition, place)
        return True

    def _ask(self, connection: BlockingConnection, place: Place, *, hurried: bool = True) -> int:
        if not hurried:
            self._pause(_NothingThereError("the broker has nothing"))
        wanted = FetchPartition(
            partition=self._wanted.partition,
            fetch_offset=self._next,
            partition_max_bytes=self._settings.max_partition_fetch_bytes,
        )
        topic = FetchTopic(
            topic=self._wanted.topic,
            topic_id=self._wanted.topic_id or ZERO_UUID,
            partitions=(wanted,),
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self._settings.max_partition_fetch_bytes,
            isolation_level=int(self._is_committed),
            topics=(topic,),
            rack_id=(self._settings.client_rack or "") if place.replica is None else "",
        )
        timeout_ms = max(1, self._deadline.left_ms(self._settings.request_timeout_ms))
        # A broker that cannot fetch by id uses the name, which is also in the request.
        newest = None if self._wanted.topic_id is not None else FETCH_BY_NAME
        return connection.send(request, timeout_ms, at_most=newest)

    def _part(self, data: PartitionData, place: Place) -> Part | None:
        """Return the part in the response; None if it has no records."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._lost(place)
        if data.error_code:
            raise KafkaError(data.error_code, str(self._wanted))
        self._last = data
        records = data.records
        if records is None or len(records) == 0:
            return None
        return self._measured(records, data.aborted_transactions)

    def _measured(self, records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> Part:
        wanted = self._wanted
        scanned = scan(records, self._next)
        end = min(scanned.end, wanted.to_offset)
        if end <= self._next:
            raise RemoteProtocolError(f"{wanted}: the broker sent no whole batch from {self._next}")
        if self._is_committed:
            records = without_aborted(memoryview(records), aborted)
        elif scanned.is_transactional:
            NOTES.met(self._reader.bootstrap_servers, wanted.topic)
        return Part(wanted.topic, wanted.partition, records, self._next, end, wanted.to_offset)

    def _data(self, response: FetchResponse) -> PartitionData:
        wanted = self._wanted
        if response.error_code:
            raise KafkaError(response.error_code, str(wanted))
        for topic in response.responses:
            is_it = topic.topic == wanted.topic or topic.topic_id == wanted.topic_id
            for data in topic.partitions:
                if is_it and data.partition_index == wanted.partition:
                    return data
        raise RemoteProtocolError(f"{wanted}: the response lacks the requested partition")

    def _lost(self, place: Place) -> KafkaError:
        """Return the error for an offset that the leader lacks, with the available offsets."""
        wanted = self._wanted
        first, last = self._places.bounds(
            wanted.topic, wanted.partition, place.leader, self._deadline
        )
        if first <= self._next <= last:
            return KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"{wanted}: the log moves at {self._next}"
            )
        resume_at = wanted.to_offset if self._next > last else min(first, wanted.to_offset)
        return RangeLostError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{wanted}: the records from {self._next} on are gone (the log holds {first} to {last})"
            f"; they were deleted before they were read, or the topic was recreated; {_REMEDY}",
            resume_at,
        )


class _NothingThereError(RequestTimedOutError):
    """A broker answered a fetch without records."""
