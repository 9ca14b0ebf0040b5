"""The bytes inside JoinGroup and SyncGroup: a consumer's subscription and its assignment.

The group protocol does not interpret them; each starts with an int16 version. Readers of a newer
version read the part they know (KIP-429, KIP-792, KIP-881).
"""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Int32,
    Message,
    NullableBytes,
    NullableString,
    String,
    Struct,
    message,
    since,
)


class ConsumerProtocolTopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic."""

    topic: String
    partitions: tuple[Int32, ...]


@message(versions=(0, 3))
class ConsumerProtocolSubscription(Message, frozen=True, kw_only=True):
    """A member's subscription, and its partitions while it joins."""

    topics: tuple[String, ...]
    user_data: NullableBytes = None
    owned_partitions: Annotated[
        tuple[ConsumerProtocolTopicPartitions, ...], since(1), IGNORABLE
    ] = ()
    generation_id: Annotated[Int32, since(2), IGNORABLE] = -1
    rack_id: Annotated[NullableString, since(3), IGNORABLE] = None


@message(versions=(0, 3))
class ConsumerProtocolAssignment(Message, frozen=True, kw_only=True):
    """The leader's assignment for a member."""

    assigned_partitions: tuple[ConsumerProtocolTopicPartitions, ...]
    user_data: NullableBytes = None
