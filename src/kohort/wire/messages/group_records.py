"""Records of the classic protocol in the `__consumer_offsets` topic.

Key and value of each record start with an int16 version. The version of the key identifies the
kind of record: 0 and 1 an offset commit, 2 a group; `consumer_group_records` has the others.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
    Bytes,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Tag,
    Uuid,
    between,
    message,
    since,
)
from kohort.wire.messages.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from kohort.wire.messages.draft_records import DraftGroupKey, DraftGroupValue
from kohort.wire.messages.group_config_records import GroupConfigKey, GroupConfigValue


@message(versions=(0, 1))
class OffsetCommitKey(Message, frozen=True, kw_only=True):
    """Identifies a committed offset by group and partition."""

    group: String
    topic: String
    partition: Int32


@message(versions=(0, 4), flexible_since=4)
class OffsetCommitValue(Message, frozen=True, kw_only=True):
    """A committed offset."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3), IGNORABLE] = -1
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, between(1, 1), IGNORABLE] = -1
    topic_id: Annotated[Uuid, since(4), Tag(0), IGNORABLE] = ZERO_UUID


@message(versions=(2, 2))
class GroupMetadataKey(Message, frozen=True, kw_only=True):
    """Identifies a group."""

    group: String


class MemberMetadata(Struct, frozen=True, kw_only=True):
    """A member of a stored group; only its subscription for the chosen assignor is kept."""

    member_id: String
    group_instance_id: Annotated[NullableString, since(3), IGNORABLE] = None
    client_id: String
    client_host: String
    rebalance_timeout: Annotated[Int32, since(1), IGNORABLE] = 0
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(versions=(0, 4), flexible_since=4)
class GroupMetadataValue(Message, frozen=True, kw_only=True):
    """A classic group when its members got their assignment, or when it became empty."""

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp: Annotated[Int64, since(2), IGNORABLE] = -1
    members: tuple[MemberMetadata, ...]


GroupKey: TypeAlias = (
    OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey | DraftGroupKey | GroupConfigKey
)
GroupValue: TypeAlias = (
    OffsetCommitValue | GroupMetadataValue | ConsumerGroupValue | DraftGroupValue | GroupConfigValue
)


class GroupRecord(msgspec.Struct, frozen=True):
    """A record of the log: an offset or group, and its new value, or None if it was deleted.

    Attributes:
        key: Identifies the offset or group.
        value: Its new value.
        producer_id: The producer that committed the offset in a transaction (KIP-98), else -1.
        producer_epoch: Its epoch.
    """

    key: GroupKey
    value: GroupValue | None
    producer_id: int = -1
    producer_epoch: int = -1
