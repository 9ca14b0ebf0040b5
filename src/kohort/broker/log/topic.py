"""A topic's stored properties, and the file that lists all topics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping

from msgspec import Struct, field


class Topic(Struct, frozen=True):
    """A topic of this broker.

    Attributes:
        name: Its name.
        topic_id: Its id (KIP-516), which differs after the topic was deleted and recreated.
        partitions: Number of partitions.
        configs: Its own settings, by Kafka's dotted names.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


def as_json(topics: Iterable[Topic]) -> bytes:
    """Return the content of the file of topics."""
    rows = [
        {
            "name": topic.name,
            "id": str(topic.topic_id),
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
        }
        for topic in topics
    ]
    return json.dumps(rows, indent=1).encode()


def from_json(content: bytes) -> dict[str, Topic]:
    """Parse the file of topics, and return them by name.

    Raises:
        ValueError: It is damaged, or not such a file.
    """
    if not content:
        raise ValueError("it is empty")
    rows = json.loads(content)
    if not isinstance(rows, list):
        raise ValueError("it is not a list")  # of a file, not of an argument
    topics = [_topic(row) for row in rows]
    return {topic.name: topic for topic in topics}


def _topic(row: object) -> Topic:
    match row:
        case {
            "name": str(name),
            "id": str(topic_id),
            "partitions": int(partitions),
            "configs": dict(configs),
        } if partitions > 0 and all(isinstance(value, str) for value in configs.values()):
            return Topic(name, uuid.UUID(topic_id), partitions, configs)
        case _:
            raise ValueError(f"it has an invalid entry: {row}")
