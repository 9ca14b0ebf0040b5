"""Reads one range of one partition into Arrow: what a Spark task does, in one thread.

The next answer is on its way while the last one is decoded, and answers are received into memory
that is used again. Connections stay open for the next task of the same process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from kohort.client.backoff import Backoff
from kohort.client.blocking import BlockingCluster, BlockingConnection
from kohort.client.config import ConsumerConfig, make_from_kafka
from kohort.client.metadata import PartitionMetadata
from kohort.client.offsets import shown
from kohort.client.records import whole_chunk, without_aborted
from kohort.client.versions import FETCH_BY_NAME
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    import pyarrow as pa

_MIB = 1024 * 1024
_FETCH_BYTES = 8 * _MIB
_FIRST_BUFFER = 16 * _MIB
_MAX_WAIT_MS = 500


class RangeLostError(KafkaError):
    """Records of the range are not in the partition: deleted, or never there."""

    def __init__(self, message: str) -> None:
        """Make the error with a message that names partition and offsets."""
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class ReusedBuffer:
    """Memory for received frames, the same for all: a frame is valid until the next but one."""

    def __init__(self) -> None:
        self._buffers = [memoryview(b""), memoryview(b"")]

    def __call__(self, size: int) -> memoryview:
        """Return memory for a frame."""
        self._buffers.reverse()
        if len(self._buffers[0]) < size:
            self._buffers[0] = memoryview(bytearray(max(size, _FIRST_BUFFER)))
        return self._buffers[0][:size]


class _Process(threading.local):
    """The open connections of one thread; a forked process begins with none."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.clusters: dict[tuple[tuple[str, str], ...], BlockingCluster] = {}

    def cluster(self, settings: Mapping[str, str], config: ConsumerConfig) -> BlockingCluster:
        if self.pid != os.getpid():
            self.clusters, self.pid = {}, os.getpid()
        key = tuple(sorted(settings.items()))
        if key not in self.clusters:
            self.clusters[key] = BlockingCluster(config, ReusedBuffer())
        return self.clusters[key]


_PROCESS = _Process()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A Fetch that was sent: to whom, and from which offset."""

    connection: BlockingConnection
    token: int
    offset: int


class RangeReader:
    """Reads ranges of partitions.

    Args:
        bootstrap_servers: `host:port` of some brokers.
        settings: Other settings by Kafka's names; those of groups are of no consequence.

    Raises:
        ConfigError: A setting is unknown or malformed.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str]) -> None:
        self._settings = {**settings, "bootstrap.servers": bootstrap_servers}
        config = make_from_kafka(ConsumerConfig, self._settings)
        if "max.partition.fetch.bytes" not in settings:
            config = replace(config, max_partition_fetch_bytes=_FETCH_BYTES)
        self._config = config

    def read(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        to_offset: int,
        include_headers: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read the records from `from_offset` up to and without `to_offset`.

        Args:
            topic: Topic.
            partition: Partition.
            from_offset: First offset.
            to_offset: Offset after the last one.
            include_headers: Whether to have the column `headers`.

        Yields:
            Batches with Spark's Kafka columns, none of them empty.

        Raises:
            RangeLostError: The partition does not have the records any more.
            KafkaError: The brokers did not answer in time.
            RemoteProtocolError: The records are corrupt; names partition and offset.
        """
        cluster = _PROCESS.cluster(self._settings, self._config)
        reading = _Reading(
            cluster, self._config, TopicPartition(topic, partition), to_offset, include_headers
        )
        return reading.run(from_offset)


class _Reading:
    """One range while it is read."""

    def __init__(
        self,
        cluster: BlockingCluster,
        config: ConsumerConfig,
        partition: TopicPartition,
        end: int,
        include_headers: bool,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._partition = partition
        self._end = end
        self._include_headers = include_headers
        self._pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._progress_at = time.monotonic()

    def run(self, position: int) -> Iterator[pa.RecordBatch]:
        asked: _Asked | None = None
        try:
            while position < self._end:
                asked = asked or self._ask_patiently(position)
                data = self._answer(asked)
                asked = None
                if data is None or not data.records:
                    self._check_patience(data)
                    continue
                chunk = whole_chunk(memoryview(data.records), position)
                if chunk is None:
                    raise RemoteProtocolError(f"{self._place(position)}: no whole record batch")
                if chunk.next_offset < self._end:
                    asked = self._ask(chunk.next_offset)
                batch = self._decode(chunk.records, position, data)
                position = chunk.next_offset
                self._progress_at = time.monotonic()
                if batch.num_rows:
                    yield batch
        finally:
            if asked is not None:
                asked.connection.close()  # an answer that nobody reads is on its way

    def _decode(self, records: memoryview, position: int, data: PartitionData) -> pa.RecordBatch:
        from kohort.wire.records.arrow import Fetched, decode_to_arrow

        if self._config.isolation_level == "read_committed":
            records = without_aborted(records, data.aborted_transactions)
        part = Fetched(*self._partition, records, position, self._end)
        return decode_to_arrow(
            [part], include_headers=self._include_headers, check_crc=self._config.check_crcs
        ).batch

    def _ask_patiently(self, position: int) -> _Asked:
        """Send the next Fetch; wait for a leader if there is none."""
        while True:
            asked = self._ask(position)
            if asked is not None:
                return asked
            self._check_patience(None)

    def _ask(self, position: int) -> _Asked | None:
        try:
            connection = self._cluster.leader(self._partition)
            if connection is None:
                self._check_exists()
                return None
            request, at_most = self._request(position)
            timeout_ms = self._config.request_timeout_ms
            return _Asked(connection, connection.submit(request, timeout_ms, at_most), position)
        except KafkaError as error:
            self._passing(error)
            return None

    def _request(self, position: int) -> tuple[FetchRequest, int | None]:
        topic = self._cluster.metadata.topics.get(self._partition.topic)
        topic_id = topic.topic_id if topic else ZERO_UUID
        known = self._cluster.metadata.partition(self._partition) or PartitionMetadata(0, -1)
        size = self._config.max_partition_fetch_bytes
        part = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=known.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=size,
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max(size, self._config.fetch_max_bytes),
            isolation_level=int(self._config.isolation_level == "read_committed"),
            topics=(
                FetchTopic(topic=self._partition.topic, topic_id=topic_id, partitions=(part,)),
            ),
            rack_id=self._config.client_rack or "",
        )
        return request, None if topic_id.int else FETCH_BY_NAME

    def _answer(self, asked: _Asked) -> PartitionData | None:
        """Wait for an answer; None when it has to be asked for again."""
        try:
            answer = asked.connection.answer(asked.token, self._config.request_timeout_ms)
            response = cast("FetchResponse", answer)
            if response.error_code:
                raise KafkaError(response.error_code, self._place(asked.offset))
            data = next((each for topic in response.responses for each in topic.partitions), None)
            if data is None:
                raise RemoteProtocolError(f"{self._place(asked.offset)}: an answer without it")
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise self._lost(asked.offset)
            if data.error_code:
                raise KafkaError(data.error_code, self._place(asked.offset))
        except KafkaError as error:
            self._passing(error)
            return None
        return data

    def _passing(self, error: KafkaError) -> None:
        """Raise an error that stays; else have the leader looked up again."""
        if not error.retriable or self._is_impatient():
            raise error
        topic = self._partition.topic
        try:
            self._cluster.refresh(topic)
        except KafkaError:
            if self._is_impatient():
                raise

    def _check_patience(self, data: PartitionData | None) -> None:
        if self._is_impatient():
            end = "" if data is None else f"; it ends at {data.high_watermark}"
            raise RangeLostError(f"{shown(self._partition)} has nothing up to {self._end}{end}")
        if data is None:
            time.sleep(self._pause.next_s())

    def _is_impatient(self) -> bool:
        waited = time.monotonic() - self._progress_at
        return waited * 1000 > self._config.default_api_timeout_ms

    def _check_exists(self) -> None:
        topic = self._cluster.metadata.topics.get(self._partition.topic)
        if topic is None or self._partition.partition not in topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shown(self._partition))
        self._cluster.refresh(self._partition.topic)

    def _lost(self, offset: int) -> RangeLostError:
        return RangeLostError(
            f"{shown(self._partition)} has no offset {offset} any more; it was to be read up to"
            f" {self._end}. Records were deleted before they were read, or the topic was made anew"
        )

    def _place(self, offset: int) -> str:
        return f"{shown(self._partition)} at offset {offset}"
