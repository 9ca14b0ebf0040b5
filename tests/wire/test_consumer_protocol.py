"""What clients put inside JoinGroup and SyncGroup, versions that do not exist yet included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
)
from tests.wire.kio_adapter import kio_bytes, kio_class, to_kio
from tests.wire.values import messages

versions = st.integers(0, 3)
OWNED = (ConsumerProtocolTopicPartitions(topic="t", partitions=(0, 2)),)
SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=("t", "u"), user_data=b"x", owned_partitions=OWNED, generation_id=5, rack_id="r"
)


@given(version=versions, data=st.data())
def test_subscriptions_are_a_version_and_kios_bytes(version: int, data: st.DataObject) -> None:
    value = data.draw(messages(ConsumerProtocolSubscription, version))
    written = encode_subscription(value, version)
    theirs = to_kio(value, version, kio_class(ConsumerProtocolSubscription, version))
    assert written == version.to_bytes(2, "big") + kio_bytes(theirs)
    assert decode_subscription(written) == value
    assert subscribed_topics(written) == frozenset(value.topics)


@given(version=versions, data=st.data())
def test_assignments_are_a_version_and_kios_bytes(version: int, data: st.DataObject) -> None:
    value = data.draw(messages(ConsumerProtocolAssignment, version))
    written = encode_assignment(value, version)
    theirs = to_kio(value, version, kio_class(ConsumerProtocolAssignment, version))
    assert written == version.to_bytes(2, "big") + kio_bytes(theirs)
    assert decode_assignment(written) == value


@pytest.mark.parametrize("version", [4, 99, 32767])
def test_newer_versions_are_read_as_what_is_known_of_them(version: int) -> None:
    known = encode_subscription(SUBSCRIPTION, 3)
    newer = version.to_bytes(2, "big") + known[2:] + b"what version 4 has"
    assert decode_subscription(newer) == SUBSCRIPTION
    assert subscribed_topics(newer) == frozenset({"t", "u"})


def test_an_older_version_leaves_out_what_it_lacks() -> None:
    read = decode_subscription(encode_subscription(SUBSCRIPTION, 1))
    assert read.owned_partitions == OWNED
    assert (read.generation_id, read.rack_id) == (-1, None)


def test_bytes_after_the_known_ones_are_tolerated_in_every_version() -> None:
    for version in range(4):
        written = encode_subscription(SUBSCRIPTION, version) + b"more"
        assert decode_subscription(written).topics == ("t", "u")


def test_topics_are_read_from_metadata_whose_rest_is_broken() -> None:
    broken = encode_subscription(SUBSCRIPTION, 3)[:18]
    assert subscribed_topics(broken) == frozenset({"t", "u"})
    with pytest.raises(RemoteProtocolError):
        decode_subscription(broken)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff", b"connect", b"\0\1"]
)
def test_bytes_that_are_no_subscription_have_no_topics(data: bytes) -> None:
    assert subscribed_topics(data) is None
    with pytest.raises(RemoteProtocolError):
        decode_subscription(data)
    with pytest.raises(RemoteProtocolError):
        decode_assignment(data)


def test_versions_that_cannot_be_written_are_our_error() -> None:
    for version in (-1, 4):
        with pytest.raises(LocalProtocolError):
            encode_subscription(SUBSCRIPTION, version)
        with pytest.raises(LocalProtocolError):
            encode_assignment(ConsumerProtocolAssignment(assigned_partitions=()), version)
