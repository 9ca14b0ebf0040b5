"""What a handler works with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid

    from kohort.broker.appends import Appends
    from kohort.broker.config import BrokerConfig
    from kohort.broker.coordinator import GroupCoordinator
    from kohort.broker.log.directory import DataDirectory, Topic

NODE_ID = 1
"""Id of the one broker."""


@dataclass(slots=True)
class BrokerContext:
    """The broker, as its handlers see it.

    Attributes:
        config: Its settings.
        data: What it stores.
        coordinator: The group coordinator.
        appends: Where long polls wait for new records.
        address: Host and port that clients are told to connect to.
    """

    config: BrokerConfig
    data: DataDirectory
    coordinator: GroupCoordinator
    appends: Appends
    address: tuple[str, int]
    clock: Callable[[], float] = time.time

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.clock() * 1000)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with this id."""
        for topic in self.data.topics.values():
            if topic.topic_id == topic_id:
                return topic
        return None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and how.

    Attributes:
        version: Version of the request.
        client_id: What the client calls itself.
        host: Its address, as Kafka prints it ("/127.0.0.1").
    """

    version: int
    client_id: str
    host: str
