"""Offsets of a group's members, and descriptions for tools (K35 to K38)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from kohort.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue, tp
from tests.group.coordinator.dialogue import GROUP


@pytest.fixture
def group() -> ConsumerDialogue:
    dialogue = ConsumerDialogue()
    dialogue.topics(t=4, u=1)
    return dialogue


def commit(
    group: ConsumerDialogue, member: str, epoch: int, number: int = 0, **more: Any
) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=(
            OffsetCommitRequestTopic(
                name=more.pop("topic", "t"),
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=7, committed_metadata=""
                    ),
                ),
            ),
        ),
    )
    answer = group.get(request, more.pop("version", 9))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_k35_a_member_commits_in_its_epoch(group: ConsumerDialogue) -> None:
    group.settled("a")
    assert commit(group, "a", 2) is ErrorCode.NONE
    assert group.shard.log.offsets_of(GROUP)[tp("t", 0)].offset == 7


@pytest.mark.parametrize(
    ("member", "epoch", "version", "code"),
    [
        ("x", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_k35_others_do_not(
    group: ConsumerDialogue, member: str, epoch: int, version: int, code: ErrorCode
) -> None:
    group.settled("a")
    assert commit(group, member, epoch, version=version) is code
    assert dict(group.shard.log.offsets) == {}


def test_k35_anybody_commits_for_a_group_without_members(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.heartbeat("a", -1)
    assert commit(group, "", -1) is ErrorCode.NONE


def test_k36_a_commit_may_cross_with_a_new_epoch(group: ConsumerDialogue) -> None:
    """KIP-1251: a member may commit partitions that it has had since that epoch."""
    group.settled("a")
    group.enter("b", "t")
    group.heartbeat("a", 2)
    keeps = sorted(group.target("a")["t"])
    gives = sorted(set(range(4)) - set(keeps))
    # while it revokes
    assert commit(group, "a", 2, gives[0]) is ErrorCode.NONE
    group.heartbeat("a", 2, held={"t": keeps})
    assert group.member("a").epoch == 3
    assert commit(group, "a", 2, keeps[0]) is ErrorCode.NONE
    assert commit(group, "a", 1, keeps[0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(group, "a", 2, gives[0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(group, "a", 3, gives[0]) is ErrorCode.NONE
    group.heartbeat("b", 3)
    assert commit(group, "b", 2, gives[0]) is ErrorCode.STALE_MEMBER_EPOCH


def test_k36_a_static_member_that_is_back_may_commit_from_its_first_epoch_on(
    group: ConsumerDialogue,
) -> None:
    group.settled("a", instance_id="i")
    group.heartbeat("a", -2, instance_id="i")
    group.enter("a2", "t", instance_id="i")
    (owned,) = group.member("a2").assigned.values()
    assert set(owned.values()) == {0}


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_k37_positions_are_told_to_members_and_tools(
    group: ConsumerDialogue, member: str | None, epoch: int, code: ErrorCode
) -> None:
    group.settled("a")
    commit(group, "a", 2)
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member, member_epoch=epoch, topics=None
    )
    (answer,) = group.get(OffsetFetchRequest(groups=(asked,)), 9).groups
    assert answer.error_code == code
    assert bool(answer.topics) == (code is ErrorCode.NONE)


def test_k37_positions_of_subscribed_topics_are_not_deleted(group: ConsumerDialogue) -> None:
    group.settled("a")
    for topic in "tu":
        commit(group, "a", 2, topic=topic)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=name, partitions=(OffsetDeleteRequestPartition(partition_index=0),)
            )
            for name in "tu"
        ),
    )
    codes = [topic.partitions[0].error_code for topic in group.get(request).topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert list(group.shard.log.offsets_of(GROUP)) == [tp("t", 0)]


def test_k37_a_group_with_members_is_not_deleted(group: ConsumerDialogue) -> None:
    group.settled("a")
    commit(group, "a", 2)
    assert group.delete() is ErrorCode.NON_EMPTY_GROUP
    group.heartbeat("a", -1)
    assert group.delete() is ErrorCode.NONE
    assert dict(group.shard.log.consumer_groups) == {}
    assert dict(group.shard.log.offsets) == {}
    assert group.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_k37_old_positions_go_when_nobody_subscribes_and_then_the_group() -> None:
    group = ConsumerDialogue(
        offsets_retention_ms=5_000,
        offsets_retention_check_interval_ms=1_000,
        group_consumer_session_timeout_ms=7_000,
    )
    group.topics(t=4, u=1)
    group.settled("a")
    for topic in "tu":
        commit(group, "a", 2, topic=topic)
    group.advance(6_500)
    assert list(group.shard.log.offsets_of(GROUP)) == [tp("t", 0)]
    group.advance(2_000)
    assert dict(group.shard.log.offsets) == {}
    assert dict(group.shard.log.consumer_groups) == {}


def test_k38_a_member_still_has_what_it_was_told_to_give_up(group: ConsumerDialogue) -> None:
    """KAFKA-20431: Kafka 4.0 to 4.3.0 left these partitions out."""
    group.settled("a", rack_id="r")
    group.enter("b", "t", server_assignor="range")
    group.heartbeat("a", 2)
    described = group.describe_group()
    assert (described.group_state, described.group_epoch) == ("Reconciling", 3)
    assert (described.assignment_epoch, described.assignor_name) == (3, "range")
    a, b = described.members
    assert (a.member_id, a.member_epoch, a.rack_id, a.member_type) == ("a", 2, "r", 1)
    assert a.subscribed_topic_names == ("t",)
    assert [each.partitions for each in a.assignment.topic_partitions] == [(0, 1, 2, 3)]
    assert [each.partitions for each in a.target_assignment.topic_partitions] == [(0, 1)]
    assert (b.member_epoch, b.assignment.topic_partitions) == (3, ())


def test_k38_other_groups_are_not_found(group: ConsumerDialogue) -> None:
    group.stable("c0")
    request = ConsumerGroupDescribeRequest(group_ids=(GROUP, "nowhere", ""))
    answer = group.get(request)
    assert [(each.error_code, each.error_message) for each in answer.groups] == [
        (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} is not a consumer group."),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group nowhere not found."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]


def test_k15_k38_the_older_tools_see_it_too(group: ConsumerDialogue) -> None:
    group.settled("a")
    described = group.get(DescribeGroupsRequest(groups=(GROUP,)), 6).groups[0]
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")

    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        groups = group.get(ListGroupsRequest(**filters)).groups
        return [(each.group_type, each.group_state, each.protocol_type) for each in groups]

    assert listed() == [("consumer", "Stable", "consumer")]
    assert listed(types_filter=("Consumer",), states_filter=("stable",)) == listed()
    assert listed(types_filter=("classic",)) == []
    assert listed(states_filter=("Assigning",)) == []
