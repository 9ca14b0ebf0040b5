"""The record of a draft group in the `__consumer_offsets` topic.

The version of its key is far above those that Kafka uses, so Kafka skips it.
"""

from __future__ import annotations

from kohort.wire.codec.schema import Int16, Int32, Message, String, Struct, message
from kohort.wire.messages.draft import TopicAndPartition


@message(versions=(30001, 30001))
class DraftGroupKey(Message, frozen=True, kw_only=True):
    """Identifies a group."""

    group: String


class DraftGroupConsumer(Struct, frozen=True, kw_only=True):
    """A consumer of a stored group, and its partitions."""

    consumer_id: String
    client_id: String
    consumer_host: String
    session_timeout_ms: Int32
    heartbeat_frequency: Int16
    topics: tuple[String, ...]
    partitions: tuple[TopicAndPartition, ...]


class DraftGroupTopic(Struct, frozen=True, kw_only=True):
    """The partition count of a topic when the group's partitions were assigned."""

    topic: String
    partitions: Int32


@message(versions=(0, 0))
class DraftGroupValue(Message, frozen=True, kw_only=True):
    """A group when it became steady, or when its last consumer left."""

    generation: Int32
    next_sequence: Int32
    assignor: String
    topics: tuple[DraftGroupTopic, ...]
    consumers: tuple[DraftGroupConsumer, ...]


KIND: tuple[type[DraftGroupKey], type[DraftGroupValue]] = (DraftGroupKey, DraftGroupValue)
