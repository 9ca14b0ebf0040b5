"""The coordinator of groups: one `Shard` for each partition of `__consumer_offsets`.

The path of a request, in reading order: `shard` runs it through the table of `lifecycle`. If the
shard is ready, `dispatch` finds the kind of its group (`kinds`, with the interfaces in `kind`) and
that kind's function for it. A classic heartbeat continues in `classic.kind`, `classic.table` and
`classic.sync`, a heartbeat of the consumer protocol in `consumer.kind` and `consumer.heartbeat`.
Services common to all kinds are in `services`. The log state is in `records`, the session state in
`session`; `state` adds each kind's part to both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.group.coordinator.config import CoordinatorConfig
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
    from kohort.group.coordinator.topics import TopicsImage, TopicView

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

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "CoordinatorConfig": ".config",
            "JobDone": ".events",
            "RequestArrived": ".events",
            "Shard": ".shard",
            "ShardEvent": ".events",
            "Tick": ".events",
            "TopicView": ".topics",
            "TopicsChanged": ".events",
            "TopicsDeleted": ".events",
            "TopicsImage": ".topics",
            "Unload": ".events",
        },
    )
