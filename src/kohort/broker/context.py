"""The context of a request's handler: the broker, the caller, and fetches that wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from kohort.broker.authorization.acls import ANONYMOUS, Rights
from kohort.broker.faults import Faults
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message

if TYPE_CHECKING:
    import uuid

    from kohort.broker.authorization.acls import Acls
    from kohort.broker.config import BrokerConfig
    from kohort.broker.coordination.coordinator import GroupCoordinator
    from kohort.broker.coordination.transactions import Transactions
    from kohort.broker.log.directory import DataDirectory, Topic
    from kohort.broker.log.partition_log import PartitionLog
    from kohort.broker.net.credentials import Credentials

NODE_ID = 1
"""Id of the only broker."""


class Appends:
    """Fetches that wait for new records, by partition."""

    def __init__(self) -> None:
        """Start without waiting fetches."""
        self._waiting: dict[TopicPartition, set[Callable[[], None]]] = {}

    def appended(self, partition: TopicPartition) -> None:
        """Wake all fetches that wait for a partition."""
        for wake in tuple(self._waiting.get(partition, ())):
            wake()

    async def wait_until(
        self, partitions: Collection[TopicPartition], enough: Callable[[], bool], timeout_s: float
    ) -> None:
        """Return when `enough()` is true, or after the timeout.

        There is no polling: `enough` is called at the start, in case of an append since its last
        call, and after each append to one of the partitions.
        """
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done() and enough():
                woken.set_result(None)

        def give_up() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = loop.call_later(timeout_s, give_up)
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(wake)
        try:
            wake()
            await woken
        finally:
            timer.cancel()
            for partition in partitions:
                readers = self._waiting[partition]
                readers.discard(wake)
                if not readers:
                    del self._waiting[partition]


class BrokerContext(Struct):
    """The broker, as its handlers see it.

    Attributes:
        config: Its settings.
        data: The data directory.
        coordinator: The group coordinator.
        transactions: The transaction coordinator.
        appends: Fetches that wait for new records.
        credentials: The users.
        address: Host and port that clients are told to connect to.
        clock: Returns seconds since the epoch.
        faults: Faults to inject.
        acls: The ACLs; None: there is no authorization, and clients may do everything.
    """

    config: BrokerConfig
    data: DataDirectory
    coordinator: GroupCoordinator
    transactions: Transactions
    appends: Appends
    credentials: Credentials
    address: tuple[str, int]
    clock: Callable[[], float] = time.time
    faults: Faults = field(default_factory=Faults)
    acls: Acls | None = None

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.clock() * 1000)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with this id."""
        for topic in self.data.topics.values():
            if topic.topic_id == topic_id:
                return topic
        return None

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition exists."""
        topic = self.data.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partitions

    def log(self, topic: str, number: int) -> PartitionLog:
        """Return the log of a partition.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR.
        """
        partition = TopicPartition(topic, number)
        if not self.has(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return self.data.log(partition)


class Caller(Struct, frozen=True):
    """The client that sent a request, and the request's version.

    Attributes:
        version: Version of the request.
        client_id: Client id of the request.
        host: Address of the client, as Kafka prints it ("/127.0.0.1").
        rights: The client's permissions.
    """

    version: int
    client_id: str
    host: str
    rights: Rights = Rights(None, ANONYMOUS, "")


Answer: TypeAlias = Message | Awaitable[Message] | None
"""A response, now or later; None where the request expects none."""

Handler: TypeAlias = Callable[[BrokerContext, Message, Caller], Answer]
"""Answers requests of one API."""
