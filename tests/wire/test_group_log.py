"""Records of the group log: what was written is read, what is newer is passed over."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.group_log import decode_record, encode_record
from kohort.wire.messages import consumer_group_records
from kohort.wire.messages.consumer_group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kohort.wire.messages.group_config_records import GroupConfigKey, GroupConfigValue
from kohort.wire.messages.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.wire.values import any_messages

POSITION = OffsetCommitKey(group="g", topic="t", partition=0)
GROUP = GroupMetadataKey(group="g")


@given(key=any_messages(OffsetCommitKey, 1), value=st.none() | any_messages(OffsetCommitValue, 3))
def test_positions_are_read_as_written(
    key: OffsetCommitKey, value: OffsetCommitValue | None
) -> None:
    assert decode_record(*encode_record(key, value)) == GroupRecord(key, value)


@given(key=any_messages(GroupMetadataKey, 2), value=st.none() | any_messages(GroupMetadataValue, 3))
def test_groups_are_read_as_written(
    key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    """C70."""
    assert decode_record(*encode_record(key, value)) == GroupRecord(key, value)


@given(
    key=any_messages(GroupConfigKey, 30_002), value=st.none() | any_messages(GroupConfigValue, 0)
)
def test_settings_of_groups_are_read_as_written(
    key: GroupConfigKey, value: GroupConfigValue | None
) -> None:
    """A kind of ours, under a version that Kafka is far from and passes over."""
    assert decode_record(*encode_record(key, value)) == GroupRecord(key, value)


@pytest.mark.parametrize("kind", consumer_group_records.KINDS, ids=lambda kind: kind[0].__name__)
@given(data=st.data())
def test_consumer_groups_are_read_as_written(
    kind: tuple[type[GroupKey], type[GroupValue]], data: st.DataObject
) -> None:
    """K55."""
    key = data.draw(any_messages(kind[0], kind[0].max_version))
    value = data.draw(st.none() | any_messages(kind[1], 0))
    assert decode_record(*encode_record(key, value)) == GroupRecord(key, value)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (OffsetCommitValue(offset=1, metadata="", commit_timestamp=1), 4),
        (OffsetCommitValue(offset=1, metadata="", commit_timestamp=1, expire_timestamp=5), 1),
        (
            OffsetCommitValue(offset=1, metadata="", commit_timestamp=1, topic_id=uuid.UUID(int=7)),
            4,
        ),
    ],
)
def test_the_version_written_is_that_of_apache_kafka(
    value: OffsetCommitValue, version: int
) -> None:
    _, written = encode_record(POSITION, value)
    assert written is not None
    assert written[:2] == version.to_bytes(2, "big")
    assert decode_record(encode_record(POSITION, None)[0], written) == GroupRecord(POSITION, value)


@pytest.mark.parametrize("kind", [-1, 9, 15, 17, 32767])
def test_kinds_that_are_not_known_are_passed_over(kind: int) -> None:
    """C71: a newer Kafka may have written them."""
    assert decode_record(kind.to_bytes(2, "big", signed=True) + b"anything", b"\0\0") is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\5", b"\xff\xff", b"\0\3\0\0"])
def test_values_of_known_kinds_must_be_well_formed(value: bytes) -> None:
    for key in (POSITION, GROUP):
        with pytest.raises(RemoteProtocolError):
            decode_record(encode_record(key, None)[0], value)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\2\0\5g", b"\0\2\0\1g\0"])
def test_keys_of_known_kinds_must_be_well_formed(key: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_record(key, None)


def test_key_and_value_belong_together() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=1)
    with pytest.raises(LocalProtocolError, match="OffsetCommitValue with a GroupMetadataKey"):
        encode_record(GROUP, value)


# What Kafka 4.3 wrote for a member of the consumer protocol.
MEMBER_OF_KAFKA = b"\0\0\0\0\x06bench\x0b/127.0.0.1\x02\x02t\x01\0\0\x13\x88\0\x01\0\x01\0"


def test_a_tagged_structure_that_is_null() -> None:
    """K55: Kafka writes it, as a varint, because null is not the default that its code has."""
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    record = decode_record(encode_record(key, None)[0], MEMBER_OF_KAFKA)
    assert record is not None
    assert isinstance(record.value, ConsumerGroupMemberMetadataValue)
    assert record.value.classic_member_metadata is None
    assert record.value.rebalance_timeout_ms == 5000
    assert encode_record(key, record.value)[1] == MEMBER_OF_KAFKA
