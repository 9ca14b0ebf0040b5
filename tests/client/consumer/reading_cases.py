"""Helpers for tests of reading: a topic with records on either broker, and checks of commits."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.client import Consumer, ConsumerRecord

COUNT = 300
LONG_MS = 60_000
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def settings(bootstrap: str, protocol: str = "classic", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "group_id": uuid.uuid4().hex,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    } | more


def stored(config: dict[str, Any], topic: str) -> int | None:
    """Return the group's committed offsets, as another client sees them."""
    only_group = {key: config[key] for key in ("bootstrap_servers", "group_id")}
    with Consumer(**only_group) as reader:
        found = reader.committed(TopicPartition(topic, 0))
    return found[TopicPartition(topic, 0)].offset if found else None


def poll(client: Consumer, **arguments: int) -> list[ConsumerRecord]:
    """Poll until there are records."""
    while True:
        found = client.poll(1_000, **arguments)
        if found:
            return [record for records in found.values() for record in records]
