"""What a broker stores of a topic."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import field

from kohort.values import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of this broker.

    Attributes:
        name: Its name.
        topic_id: Its id (KIP-516); a topic that is deleted and made again has another.
        partitions: How many it has.
        configs: Its own settings, by Kafka's dotted names.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
