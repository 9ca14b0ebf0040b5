"""ConsumerGroupHeartbeat: rejections, joins and responses (K5 to K14)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Cause, MemberJoined, RebalanceStarted
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue

FULL: dict[str, Any] = {
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": ("t",),
    "held": {},
}


@pytest.fixture
def group() -> ConsumerDialogue:
    dialogue = ConsumerDialogue(group_consumer_heartbeat_interval_ms=1234)
    dialogue.topics(t=4, u=2)
    return dialogue


@pytest.mark.parametrize(
    ("member_id", "epoch", "changes"),
    [
        ("", 0, {}),
        ("  ", 0, {}),
        ("m", 0, {"group_id": ""}),
        ("m", 0, {"group_id": " "}),
        ("m", 0, {"instance_id": ""}),
        ("m", 0, {"rack_id": " "}),
        ("m", 0, {"rebalance_timeout_ms": -1}),
        ("m", 0, {"held": None}),
        ("m", 0, {"held": {"t": [0]}}),
        ("m", 0, {"subscribed_topic_names": None}),
        ("m", -2, {}),
        ("m", -3, {}),
    ],
)
def test_k5_a_request_says_what_it_has_to(
    group: ConsumerDialogue, member_id: str, epoch: int, changes: dict[str, Any]
) -> None:
    code = group.refused(member_id, epoch, **{**FULL, **changes})
    assert code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [1, -1])
def test_k5_only_who_joins_in_version_0_may_lack_an_id(group: ConsumerDialogue, epoch: int) -> None:
    assert group.refused("", epoch, version=0) is ErrorCode.INVALID_REQUEST


def test_k8_version_0_is_given_an_id(group: ConsumerDialogue) -> None:
    answer = group.enter("", "t", version=0)
    assert answer.member_id
    assert list(group.group.members) == [answer.member_id]


@pytest.mark.parametrize(
    "subscription",
    [
        {"subscribed_topic_names": tuple(f"{at:01000}" for at in range(5))},
        {"subscribed_topic_regex": "x" * 4_001},
    ],
)
def test_k5_a_subscription_that_no_record_can_hold(subscription: dict[str, Any]) -> None:
    """With the error that Kafka returns when its log refuses the record."""
    group = ConsumerDialogue(group_member_max_bytes=4_000)
    group.topics(t=4)
    group.settled("a")
    code = group.refused("m", 0, **{**FULL, **subscription})
    assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group.refused("a", group.member("a").epoch, **subscription) is code
    assert list(group.group.members) == ["a"]


def test_k5_an_assignor_nobody_knows(group: ConsumerDialogue) -> None:
    code = group.refused("m", 0, **FULL, server_assignor="mine")
    assert code is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("epoch", [1, -1])
def test_k6_a_group_nobody_knows(group: ConsumerDialogue, epoch: int) -> None:
    assert group.refused("m", epoch) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [1, -1])
def test_k6_a_member_nobody_knows(group: ConsumerDialogue, epoch: int) -> None:
    group.settled("a")
    assert group.refused("m", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_k6_a_full_group_keeps_its_members() -> None:
    group = ConsumerDialogue(group_consumer_max_size=2)
    group.topics(t=4)
    group.settled("a", "b")
    assert group.refused("c", 0, **FULL) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.enter("b", "t").error_code == 0


def test_k10_k13_the_first_member_gets_everything_at_once(group: ConsumerDialogue) -> None:
    """K1: the response also has the broker's heartbeat interval, which is sent only then."""
    answer = group.enter("a", "t", "u")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 1234)
    assert group.told(answer) == {"t": {0, 1, 2, 3}, "u": {0, 1}}
    assert (group.group.epoch, group.group.assignment_epoch) == (2, 2)
    assert [type(fact) for fact in group.observed[:2]] == [MemberJoined, RebalanceStarted]


def test_k12_only_who_sends_a_heartbeat_takes_a_step(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    before = group.member("b")
    group.enter("c", "t")
    group.heartbeat("a", group.member("a").epoch, held={"t": group.has("a")["t"]})
    assert group.member("a").revoking
    assert group.member("b") == before


def test_k10_a_topic_that_does_not_exist_is_waited_for(group: ConsumerDialogue) -> None:
    assert group.told(group.enter("a", "nowhere")) == {}
    group.topics(t=4, u=2, nowhere=1)
    assert group.told(group.heartbeat("a", 2)) == {"nowhere": {0}}


def test_k13_a_heartbeat_that_changes_nothing_is_answered_shortly(group: ConsumerDialogue) -> None:
    group.settled("a")
    size, epoch = len(group.log), group.member("a").epoch
    answer = group.heartbeat("a", epoch)
    assert (answer.member_epoch, answer.assignment) == (epoch, None)
    answer = group.heartbeat("a", epoch, held={"t": range(4)}, subscribed_topic_names=("t",))
    assert answer.assignment is None
    assert len(group.log) == size


@pytest.mark.parametrize(
    "subscription", [{"subscribed_topic_names": ("t",)}, {"subscribed_topic_regex": ""}]
)
def test_k13_a_full_request_is_told_everything(
    group: ConsumerDialogue, subscription: dict[str, Any]
) -> None:
    group.settled("a")
    answer = group.heartbeat("a", 2, held={}, rebalance_timeout_ms=30_000, **subscription)
    assert group.told(answer) == {"t": {0, 1, 2, 3}}


def test_k10_another_subscription_is_a_new_epoch(group: ConsumerDialogue) -> None:
    group.settled("a")
    answer = group.heartbeat("a", 2, subscribed_topic_names=("t", "u"))
    assert (answer.member_epoch, group.group.epoch) == (3, 3)
    assert group.told(answer) == {"t": {0, 1, 2, 3}, "u": {0, 1}}


def test_k10_the_order_of_a_subscription_means_nothing(group: ConsumerDialogue) -> None:
    group.settled("a", topics=("t", "u"))
    group.heartbeat("a", 2, subscribed_topic_names=("u", "t", "u"))
    assert group.group.epoch == 2


@pytest.mark.parametrize(
    ("change", "attribute", "value"),
    [
        ({"rack_id": "r1"}, "rack_id", "r1"),
        ({"rebalance_timeout_ms": 7}, "rebalance_timeout_ms", 7),
        ({"server_assignor": "range"}, "server_assignor", "range"),
    ],
)
def test_k10_other_facts_are_written_and_move_nothing(
    group: ConsumerDialogue, change: dict[str, Any], attribute: str, value: object
) -> None:
    """A change of only the rack never takes effect (KAFKA-20909)."""
    group.settled("a")
    group.heartbeat("a", 2, **change)
    assert getattr(group.member("a"), attribute) == value
    assert (group.group.epoch, group.member("a").epoch) == (2, 2)


def test_k11_the_assignor_is_the_one_most_members_ask_for(group: ConsumerDialogue) -> None:
    group.enter("a", "t", "u")
    assert group.describe_group().assignor_name == "uniform"
    group.enter("b", "t", "u", server_assignor="range")
    assert group.describe_group().assignor_name == "range"
    # each topic separately, unlike uniform
    assert group.target("a") == {"t": {0, 1}, "u": {0}}
    assert group.target("b") == {"t": {2, 3}, "u": {1}}
    for other in "cd":
        group.enter(other, "t", "u", server_assignor="uniform")
    assert group.describe_group().assignor_name == "uniform"


def test_k14_a_topic_that_grows_is_noticed_at_the_next_heartbeat(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    epoch = group.group.epoch
    group.topics(t=6, u=2)
    assert group.group.epoch == epoch
    group.heartbeat("b", epoch)
    assert group.group.epoch == epoch + 1
    group.converge("a", "b")
    assert {len(group.has(each)["t"]) for each in "ab"} == {3}
    changes = [fact for fact in group.observed if isinstance(fact, RebalanceStarted)]
    assert changes[-1].cause is Cause.TOPICS_CHANGED


def test_k14_other_topics_do_not_matter(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.topics(t=4, u=9, other=1)
    group.heartbeat("a", 2)
    assert group.group.epoch == 2


def test_k14_a_topic_that_is_deleted_leaves_the_assignment(group: ConsumerDialogue) -> None:
    group.settled("a", topics=("t", "u"))
    gone = group.image.by_name["u"].topic_id
    group.topics(t=4)
    answer = group.heartbeat("a", 2, held={"t": range(4)})
    assert group.told(answer) == {"t": {0, 1, 2, 3}}
    assert answer.member_epoch == 3
    assert gone not in group.group.owners


def test_k14_a_topic_made_anew_is_another_one(group: ConsumerDialogue) -> None:
    group.settled("a")
    before = group.image.by_name["t"].topic_id
    group.topics(u=2)
    group.topics(t=4, u=2)
    after = group.image.by_name["t"].topic_id
    answer = group.heartbeat("a", 2, held={})
    assert answer.assignment is not None
    assert [each.topic_id for each in answer.assignment.topic_partitions] == [after]
    assert before != after


def test_k56_a_new_target_waits_for_the_interval() -> None:
    """K2, KIP-1263: a member that joins too soon gets its partitions at a later heartbeat."""
    group = ConsumerDialogue(group_consumer_assignment_interval_ms=1_000)
    group.topics(t=4)
    assert group.told(group.enter("a", "t")) == {"t": {0, 1, 2, 3}}
    group.advance(999)
    answer = group.enter("b", "t")
    assert (answer.member_epoch, group.told(answer)) == (2, {})
    assert (group.group.epoch, group.group.assignment_epoch) == (3, 2)
    group.advance(1)
    group.heartbeat("a", 2, held={"t": range(4)})
    assert group.group.assignment_epoch == 3


def test_k40_a_classic_group_without_members_makes_room(group: ConsumerDialogue) -> None:
    member, *_ = group.stable("c0")
    assert group.refused("a", 0, **FULL) is ErrorCode.GROUP_ID_NOT_FOUND
    group.leave((member, None))
    assert group.enter("a", "t").error_code == 0
    assert dict(group.shard.log.groups) == {}


def test_k45_a_consumer_group_without_members_makes_room(group: ConsumerDialogue) -> None:
    group.settled("a")
    answer = group.answers[group.join(protocol_type="consumer")]
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    group.heartbeat("a", -1)
    group.stable("c0")
    assert dict(group.shard.log.consumer_groups) == {}
