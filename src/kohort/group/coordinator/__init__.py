"""The coordinator of groups: one `Shard` for each partition of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.group.coordinator.config import CoordinatorConfig
    from kohort.group.coordinator.consumer.topics import TopicsImage, TopicView
    from kohort.group.coordinator.events import (
        JobDone,
        RequestArrived,
        ShardEvent,
        Tick,
        TopicsChanged,
        TopicsDeleted,
        Unload,
    )
    from kohort.group.coordinator.shard import Shard

__all__ = [
    "CoordinatorConfig",
    "JobDone",
    "RequestArrived",
    "Shard",
    "ShardEvent",
    "Tick",
    "TopicView",
    "TopicsChanged",
    "TopicsDeleted",
    "TopicsImage",
    "Unload",
]

__getattr__ = importer(
    __name__,
    {
        "CoordinatorConfig": ".config",
        "JobDone": ".events",
        "RequestArrived": ".events",
        "Shard": ".shard",
        "ShardEvent": ".events",
        "Tick": ".events",
        "TopicView": ".consumer.topics",
        "TopicsChanged": ".events",
        "TopicsDeleted": ".events",
        "TopicsImage": ".consumer.topics",
        "Unload": ".events",
    },
)
