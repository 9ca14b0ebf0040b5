"""The coordinator of groups: one `Shard` for each partition of `__consumer_offsets`.

The path of a request, in reading order: `shard` puts it to the table of `lifecycle`; where the
shard is ready, `dispatch` finds the kind of its group (`kinds`, whose terms are in `kind`) and the
function of that kind that serves it. A classic heartbeat then goes on in `classic.kind`,
`classic.table` and `classic.sync`, one of the consumer protocol in `consumer.kind` and
`consumer.heartbeat`. Everything that all kinds serve alike is in `services`. The log state is in
`records`, the session state in `session`, both with what each kind keeps in `state`.
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

__getattr__ = importer(
    __name__,
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
