"""Encodes and decodes records of the `__consumer_offsets` topic.

Key and value each start with an int16 version; the key's version also identifies the kind of
record. A null value is a tombstone: the offset or the group was deleted.
"""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.wire.codec import coding
from kohort.wire.codec.schema import Buffer
from kohort.wire.messages import consumer_group_records, draft_records, group_config_records
from kohort.wire.messages.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_KINDS: dict[int, tuple[type[GroupKey], type[GroupValue]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    **{kind[0].max_version: kind for kind in consumer_group_records.KINDS},
    draft_records.KIND[0].max_version: draft_records.KIND,
    group_config_records.KIND[0].max_version: group_config_records.KIND,
}


def encode_record(key: GroupKey, value: GroupValue | None) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a log record, in the versions that Kafka 4 writes.

    Raises:
        LocalProtocolError: Key and value do not belong together, or a field does not fit.
    """
    kind = _KINDS[key.max_version][1]
    if value is not None and not isinstance(value, kind):
        raise LocalProtocolError(f"{type(value).__name__} with a {type(key).__name__}")
    encoded_key = coding.encode_versioned(key, key.max_version)
    if value is None:
        return encoded_key, None
    return encoded_key, coding.encode_versioned(value, _value_version(value))


def decode_record(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """Decode a record of the log; None if its kind is unknown.

    Newer brokers write further kinds: readers skip them, as Kafka does.

    Raises:
        RemoteProtocolError: It is of a known kind, but malformed.
    """
    view = memoryview(key)
    version, at = coding.read_version(view)
    if version not in _KINDS:
        return None
    key_class, value_class = _KINDS[version]
    read_key = coding.decode_rest(key_class, version, view, at)
    if value is None:
        return GroupRecord(read_key, None)
    view = memoryview(value)
    version, at = coding.read_version(view)
    return GroupRecord(read_key, coding.decode_rest(value_class, version, view, at))


def _value_version(value: GroupValue) -> int:
    """Return the version in which Apache Kafka 4.3 writes the value."""
    if isinstance(value, OffsetCommitValue):
        return 4 if value.expire_timestamp == -1 else 1
    return 3 if isinstance(value, GroupMetadataValue) else value.max_version
