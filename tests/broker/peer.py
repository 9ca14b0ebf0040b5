"""A client with one blocking socket that sends arbitrary requests."""

from __future__ import annotations

import socket
import struct
from typing import Self, TypeVar, cast

from kohort.types import TopicPartition
from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from kohort.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kohort.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

R = TypeVar("R", bound=Message)

PRODUCE_BY_NAME = 12
FETCH_BY_NAME = 12
CREATE_TOPICS = 7
TIMEOUT_S = 20.0


class Peer:
    """One connection; requests are answered in order."""

    def __init__(self, bootstrap_servers: str, timeout_s: float = TIMEOUT_S) -> None:
        host, port = bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Request[R], version: int) -> R:
        """Send a request and return its response."""
        self.send(request, version)
        return cast("R", self.answer(apis.response_class(request.api_key), version))

    def send(self, request: Message, version: int) -> None:
        """Send a request without waiting for a response."""
        self._correlation_id += 1
        self.socket.sendall(frame.encode_request(request, version, self._correlation_id, "peer"))

    def answer(self, cls: type[R], version: int) -> R:
        """Read the next response."""
        data = memoryview(self.frame())
        assert frame.correlation_id_of(data) == self._correlation_id
        return frame.decode_response(cls, version, data)

    def frame(self) -> bytes:
        """Read the next frame, without its length."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection; waits for that, or for a response."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    # ------------------------------------------------------------------------------- shorthand

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; underscores in setting names stand for dots."""
        settings = tuple(
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        )
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=(),
            configs=settings,
        )
        answer = self.ask(CreateTopicsRequest(topics=(wanted,)), CREATE_TOPICS)
        assert answer.topics[0].error_code == 0, answer

    def produce(
        self, partition: TopicPartition, batch: bytes, acks: int = -1
    ) -> PartitionProduceResponse:
        """Append one batch."""
        answer = self.ask(produce_request(partition, batch, acks), PRODUCE_BY_NAME)
        return answer.responses[0].partition_responses[0]

    def fetch(
        self, partition: TopicPartition, offset: int, max_wait_ms: int = 0, max_bytes: int = 1 << 20
    ) -> PartitionData:
        """Read, starting at an offset."""
        request = fetch_request(partition, offset, max_wait_ms, max_bytes)
        answer = self.ask(request, FETCH_BY_NAME)
        return answer.responses[0].partitions[0]


def produce_request(partition: TopicPartition, batch: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request with one batch for one partition."""
    data = PartitionProduceData(index=partition.partition, records=batch)
    topic = TopicProduceData(name=partition.topic, partition_data=(data,))
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=(topic,))


def fetch_request(
    partition: TopicPartition, offset: int, max_wait_ms: int, max_bytes: int
) -> FetchRequest:
    """Return a request for one partition, starting at an offset."""
    wanted = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    topic = FetchTopic(topic=partition.topic, partitions=(wanted,))
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=(topic,))
