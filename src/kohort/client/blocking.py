"""Brokers over blocking sockets: for a Spark task, which has one thread and reads one partition."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from kohort.client.auth import NoAuthentication
from kohort.client.config import ClientConfig
from kohort.client.connection import Answered, BecameReady, Connection, Failed
from kohort.client.frames import Allocate, plain_buffer
from kohort.client.metadata import ClusterMetadata, from_response
from kohort.errors import (
    BrokerUnavailableError,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.types import TopicPartition
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

# A task reads one partition: the kernel may hold a whole answer while the last one is decoded.
_RECEIVE_BUFFER = 4 * 1024 * 1024


class BlockingConnection:
    """One socket; requests may be sent before earlier ones are answered.

    Args:
        host: Where the broker listens.
        port: Where the broker listens.
        config: Settings.
        allocate: Makes the memory of a received frame.

    Raises:
        BrokerUnavailableError: Nobody answers; it names each address and its cause.
    """

    def __init__(
        self, host: str, port: int, config: ClientConfig, allocate: Allocate = plain_buffer
    ) -> None:
        self.address = f"{host}:{port}"
        self._setup_ms = config.socket_connection_setup_timeout_ms
        self._machine = Connection(
            client_id=config.client_id,
            authenticator=NoAuthentication(),
            setup_timeout_ms=self._setup_ms,
            allocate=allocate,
        )
        self._answers: dict[int, Message | KohortError] = {}
        self._is_ready = False
        with self._complaints():
            self._socket = socket.create_connection((host, port), self._setup_ms / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        try:
            self._machine.opened(_now())
            while not self._is_ready:
                self._exchange(_now() + self._setup_ms)
        except BaseException:
            self.close()
            raise

    def submit(self, request: Request[R], timeout_ms: int, at_most: int | None = None) -> int:
        """Send a request; return the token to ask for its answer with."""
        general = cast("Request[Message]", request)
        token = self._machine.submit(general, _now(), timeout_ms, at_most=at_most)
        self._send()
        return token

    def answer(self, token: int, timeout_ms: int) -> Message:
        """Wait for an answer.

        Raises:
            KafkaError: There is none in time, or the connection broke; it is closed then.
            RemoteProtocolError: The answer is not Kafka's protocol; it is closed then.
        """
        deadline = _now() + timeout_ms
        try:
            while token not in self._answers:
                self._exchange(deadline)
        except KohortError:
            self.close()
            raise
        answer = self._answers.pop(token)
        if isinstance(answer, KohortError):
            raise answer
        return answer

    def request(self, request: Request[R], timeout_ms: int) -> R:
        """Send a request and wait for its answer; errors as `answer`."""
        return cast("R", self.answer(self.submit(request, timeout_ms), timeout_ms))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    @property
    def is_open(self) -> bool:
        """Whether the socket is open."""
        return self._socket.fileno() >= 0

    # ------------------------------------------------------------------------------- inside

    def _send(self) -> None:
        with self._complaints():
            for frame in self._machine.output(_now()):
                self._socket.sendall(frame)
        self._collect()

    def _exchange(self, deadline: int) -> None:
        """Send what is to be sent and receive once."""
        self._send()
        left = deadline - _now()
        if left <= 0:
            raise RequestTimedOutError(f"{self.address}: no answer in time")
        with self._complaints():
            self._socket.settimeout(left / 1000)
            count = self._socket.recv_into(self._machine.buffer())
        if count == 0:
            raise BrokerUnavailableError(f"{self.address} closed the connection")
        try:
            self._machine.received(count, _now())
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self.address}: {error}") from None
        self._collect()

    def _collect(self) -> None:
        for event in self._machine.events():
            if isinstance(event, BecameReady):
                self._is_ready = True
            elif isinstance(event, Answered):
                self._answers[event.token] = event.response
            elif isinstance(event, Failed):
                self._answers[event.token] = event.error

    @contextmanager
    def _complaints(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise RequestTimedOutError(f"{self.address}: no answer in time") from None
        except OSError as error:
            cause = error.strerror or str(error)
            raise BrokerUnavailableError(f"{self.address}: {cause}") from None


class BlockingCluster:
    """Connections to the brokers of one cluster.

    Args:
        config: Settings.
        allocate: Makes the memory of received frames.
    """

    def __init__(self, config: ClientConfig, allocate: Allocate = plain_buffer) -> None:
        self.config = config
        self.metadata = ClusterMetadata()
        self._allocate = allocate
        self._connections: dict[int, BlockingConnection] = {}

    def leader(self, partition: TopicPartition) -> BlockingConnection | None:
        """Return a connection to a partition's leader, None when it has none."""
        leader = self.metadata.leader(partition)
        if leader is None:
            self.refresh(partition.topic)
            leader = self.metadata.leader(partition)
        return None if leader is None else self._connect(leader)

    def refresh(self, topic: str) -> None:
        """Fetch a topic's metadata from whichever broker answers.

        Raises:
            BrokerUnavailableError: None does.
        """
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        causes: list[str] = []
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        random.shuffle(known)
        for host, port in dict.fromkeys(known + self.config.addresses()):
            try:
                connection = BlockingConnection(host, port, self.config)
                try:
                    response = connection.request(request, self.config.request_timeout_ms)
                finally:
                    connection.close()
            except KafkaError as error:
                causes.append(str(error))
            else:
                self.metadata = from_response(response)
                return
        raise BrokerUnavailableError("; ".join(dict.fromkeys(causes)))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _connect(self, node_id: int) -> BlockingConnection:
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            node = self.metadata.nodes[node_id]
            connection = BlockingConnection(node.host, node.port, self.config, self._allocate)
            self._connections[node_id] = connection
        return connection


def _now() -> int:
    return int(time.monotonic() * 1000)
