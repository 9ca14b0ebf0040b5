"""What only we say of assignors that run in a member: others read as if it were not there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire.codec import coding
from kohort.wire.codec.schema import Message, fields_of
from kohort.wire.messages import client_assignors
from kohort.wire.messages.consumer_group import (
    PRIVATE_TAGS,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.consumer_group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
)
from tests.wire.kio_adapter import is_private
from tests.wire.values import any_messages

MESSAGES: list[type[Message]] = [
    client_assignors.ConsumerGroupPrepareAssignmentRequest,
    client_assignors.ConsumerGroupPrepareAssignmentResponse,
    client_assignors.ConsumerGroupInstallAssignmentRequest,
    client_assignors.ConsumerGroupInstallAssignmentResponse,
]
OLD: list[tuple[type[Message], int]] = [
    (ConsumerGroupHeartbeatRequest, 1),
    (ConsumerGroupHeartbeatResponse, 1),
    (ConsumerGroupMemberMetadataValue, 0),
    (ConsumerGroupTargetAssignmentMemberValue, 0),
]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_messages_are_read_as_written(cls: type[Message], data: st.DataObject) -> None:
    """K61."""
    message: Any = data.draw(any_messages(cls, 0))
    assert coding.decode(cls, 0, coding.encode(message, 0)) == message


@pytest.mark.parametrize(("cls", "version"), OLD, ids=str)
@given(data=st.data())
def test_tagged_fields_are_read_as_written(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    """K60."""
    message: Any = data.draw(any_messages(cls, version))
    assert coding.decode(cls, version, coding.encode(message, version)) == message


def test_what_has_nothing_to_say_about_assignors_is_as_before() -> None:
    """K60: no byte of ours reaches a client that sent none."""
    tagged = coding.encode(ConsumerGroupHeartbeatResponse(member_epoch=3), 1)
    assert coding.encode(ConsumerGroupHeartbeatResponse(member_epoch=3), 0) == tagged
    assert bytes(tagged).endswith(b"\xff\x00")  # no assignment, no tags


def test_the_tags_are_far_above_kafkas() -> None:
    """K60."""
    ours = [
        spec.tag for cls, version in OLD for spec in fields_of(cls, version) if is_private(spec)
    ]
    assert ours == [PRIVATE_TAGS + 1, PRIVATE_TAGS + 1, PRIVATE_TAGS + 2, *[PRIVATE_TAGS + 1] * 2]


def test_the_requests_are_far_above_kafkas() -> None:
    """K61."""
    assert {each.api_key for each in MESSAGES} == {30_003, 30_004}
