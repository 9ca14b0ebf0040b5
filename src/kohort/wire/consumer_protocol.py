"""The bytes inside JoinGroup and SyncGroup: an int16 version, then a structure of that version.

The group protocol does not interpret these bytes, so a client may have put anything there. As in
Kafka's client, a version newer than known is read as its known prefix, and bytes after that are
ignored.
"""

from __future__ import annotations

from typing import TypeVar

from kohort.errors import RemoteProtocolError
from kohort.wire.codec import coding
from kohort.wire.codec.schema import Buffer, Message
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

M = TypeVar("M", bound=Message)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Return a subscription as the metadata of a JoinGroup protocol.

    Raises:
        LocalProtocolError: The version does not exist, or a value does not fit its field.
    """
    return coding.encode_versioned(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Decode a subscription; fields that its version lacks get their defaults.

    Raises:
        RemoteProtocolError: The bytes are not a subscription.
    """
    return _decode(ConsumerProtocolSubscription, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode an assignment for SyncGroup; errors as in `encode_subscription`."""
    return coding.encode_versioned(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Read an assignment.

    Raises:
        RemoteProtocolError: The bytes are not an assignment.
    """
    return _decode(ConsumerProtocolAssignment, data)


def version_of(data: Buffer) -> int:
    """Return the version in the bytes of a subscription or assignment.

    Raises:
        RemoteProtocolError: The bytes are too short, or the version is negative.
    """
    return _checked_version(memoryview(data))[0]


def subscribed_topics(data: Buffer) -> frozenset[str] | None:
    """Return the topics of a subscription, or None if the bytes are not one.

    Coordinators read only this of their members' metadata, and like Kafka's not beyond version 0:
    groups whose members do not use the consumer protocol are legal.
    """
    view = memoryview(data)
    try:
        _, at = _checked_version(view)
        prefix, _ = coding.decode_from(ConsumerProtocolSubscription, 0, view, at)
    except RemoteProtocolError:
        return None
    return frozenset(prefix.topics)


def _decode(cls: type[M], data: Buffer) -> M:
    view = memoryview(data)
    version, at = _checked_version(view)
    message, _ = coding.decode_from(cls, min(version, cls.max_version), view, at)
    return message


def _checked_version(view: memoryview) -> tuple[int, int]:
    version, at = coding.read_version(view)
    if version < 0:
        raise RemoteProtocolError(f"version {version} of the consumer protocol")
    return version, at
