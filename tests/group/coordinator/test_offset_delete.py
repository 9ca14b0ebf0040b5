"""OffsetDelete of a classic group (C56, KIP-496)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.member.commits import CommitIdentity, commit_request
from kohort.group.subscription import Subscription, encode_subscription
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.group.coordinator.dialogue import GROUP, Dialogue

FLIGHTS = encode_subscription(Subscription(topics=frozenset({"flights"})))


def commit(talk: Dialogue, identity: CommitIdentity, *topics: str) -> None:
    positions = {TopicPartition(topic, 0): OffsetAndMetadata(7) for topic in topics}
    answer = talk.get(commit_request(GROUP, identity, None, positions))
    assert {p.error_code for t in answer.topics for p in t.partitions} == {0}


def delete(talk: Dialogue, *topics: str, group_id: str = GROUP) -> tuple[int, list[int]]:
    """Return the error of the request, and that of each topic's partition 0."""
    partitions = (OffsetDeleteRequestPartition(partition_index=0),)
    wanted = tuple(OffsetDeleteRequestTopic(name=t, partitions=partitions) for t in topics)
    answer = talk.get(OffsetDeleteRequest(group_id=group_id, topics=wanted))
    return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]


def stored(talk: Dialogue) -> set[str]:
    return {partition.topic for partition in talk.shard.log.offsets_of(GROUP)}


def test_c56_no_group_has_nothing_to_delete() -> None:
    talk = Dialogue()
    assert delete(talk, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert delete(talk, "t", group_id="") == (ErrorCode.INVALID_GROUP_ID, [])  # C4


def test_c56_of_an_empty_group_everything_can_go_and_what_is_not_there_is_no_error() -> None:
    talk = Dialogue()
    commit(talk, CommitIdentity("", -1), "t", "u")
    assert delete(talk, "t", "never") == (0, [0, 0])
    assert stored(talk) == {"u"}
    talk.reload()
    assert stored(talk) == {"u"}


def test_c56_what_a_member_subscribes_to_stays() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a", protocols=(("range", FLIGHTS),))
    commit(talk, CommitIdentity(a, 1), "flights", "old")
    expected = (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
    assert delete(talk, "flights", "old") == expected
    assert stored(talk) == {"flights"}


def test_c56_metadata_that_cannot_be_read_keeps_everything() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a", protocols=(("range", b"?"),))
    commit(talk, CommitIdentity(a, 1), "old")
    assert delete(talk, "old") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])


def test_c56_members_that_are_not_consumers_keep_everything() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a", protocol_type="connect")
    commit(talk, CommitIdentity(a, 1), "old")
    assert delete(talk, "old") == (ErrorCode.NON_EMPTY_GROUP, [])
    talk.leave((a, None))
    assert delete(talk, "old") == (0, [0])
