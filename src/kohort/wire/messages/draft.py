"""JoinGroup and Heartbeat of the first design of Kafka's group protocol, from 2014.

They changed before Kafka 0.9 was released, so no Kafka client or broker knows them. Their API keys
are far above Kafka's own. The version and correlation id that start each message in the design are
in the header of every Kafka request and response.
"""

from __future__ import annotations

from kohort.wire.codec.schema import Int16, Int32, Message, Request, String, Struct, message


@message(api_key=30001, versions=(0, 0))
class DraftJoinGroupRequest(Request["DraftJoinGroupResponse"], frozen=True, kw_only=True):
    """Join a group, or rejoin it; without a consumer id, as a new consumer."""

    group_id: String
    consumer_host: String
    session_timeout_ms: Int32
    heartbeat_frequency: Int16
    topics: tuple[String, ...]
    consumer_id: String


class TopicAndPartition(Struct, frozen=True, kw_only=True):
    """A partition that a consumer owns."""

    topic: String
    partition: Int32


@message(api_key=30001, versions=(0, 0))
class DraftJoinGroupResponse(Message, frozen=True, kw_only=True):
    """The new generation, the consumer's id in it, and its partitions."""

    error_code: Int16
    group_id: String
    group_generation_id: Int32 = -1
    consumer_id: String = ""
    partitions_to_own: tuple[TopicAndPartition, ...] = ()


@message(api_key=30002, versions=(0, 0))
class DraftHeartbeatRequest(Request["DraftHeartbeatResponse"], frozen=True, kw_only=True):
    """Report that a consumer is alive."""

    group_id: String
    group_generation_id: Int32
    consumer_id: String


@message(api_key=30002, versions=(0, 0))
class DraftHeartbeatResponse(Message, frozen=True, kw_only=True):
    """Whether the consumer may continue; ILLEGAL_GENERATION asks it to rejoin."""

    error_code: Int16
