"""A rebalance step by step: members reconcile separately, no partition has two (K20 to K25)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.group import MemberState
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue

STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


@pytest.fixture
def group() -> ConsumerDialogue:
    dialogue = ConsumerDialogue()
    dialogue.topics(t=6)
    return dialogue


def progress(group: ConsumerDialogue, member_id: str) -> tuple[MemberState, int]:
    member = group.member(member_id)
    return member.state, member.epoch


def test_k20_k21_k22_k23_three_members_one_after_the_other(group: ConsumerDialogue) -> None:
    """The steps of Kafka's testReconciliationProcess (T10)."""
    group.settled("a", "b")
    epoch = group.group.epoch
    # c joins and is at the new epoch at once, but its partitions are still owned
    answer = group.enter("c", "t")
    assert (answer.member_epoch, group.told(answer)) == (epoch + 1, {})
    assert progress(group, "c") == (UNRELEASED, epoch + 1)
    # a must revoke one, and stays in its epoch until it has
    before, after = group.has("a")["t"], group.target("a")["t"]
    (moved,) = before - after
    answer = group.heartbeat("a", epoch)
    assert (answer.member_epoch, group.told(answer)) == (epoch, {"t": after})
    assert progress(group, "a") == (UNREVOKED, epoch)
    # it has not yet: nothing changes, with or without a report of its partitions
    for held in (None, {"t": before}):
        answer = group.heartbeat("a", epoch, held=held)
        assert (answer.member_epoch, answer.assignment) == (epoch, None)
    assert group.told(group.heartbeat("c", epoch + 1, held={})) is None
    # now it has: it advances, and c gets the partition, though b has not been told yet
    answer = group.heartbeat("a", epoch, held={"t": after})
    assert (answer.member_epoch, answer.assignment) == (epoch + 1, None)
    assert progress(group, "a") == (STABLE, epoch + 1)
    answer = group.heartbeat("c", epoch + 1)
    assert group.told(answer) == {"t": {moved}}
    assert progress(group, "c") == (UNRELEASED, epoch + 1)
    # b revokes too, and c has everything
    after = group.target("b")["t"]
    group.heartbeat("b", epoch)
    group.heartbeat("b", epoch, held={"t": after})
    answer = group.heartbeat("c", epoch + 1, held={"t": [moved]})
    assert group.told(answer) == group.target("c")
    assert progress(group, "c") == (STABLE, epoch + 1)
    assert group.group.state.value == "Stable"


def test_k23_a_newer_target_is_taken_up_when_the_older_is_done(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.enter("b", "t")
    group.heartbeat("a", 2)
    assert progress(group, "a") == (UNREVOKED, 2)
    first = group.target("a")["t"]
    group.enter("c", "t")
    assert group.group.epoch == 4
    # still only the partitions that the first target took from it
    assert group.heartbeat("a", 2, held={"t": range(6)}).assignment is None
    answer = group.heartbeat("a", 2, held={"t": first})
    second = group.target("a")["t"]
    assert (answer.member_epoch, group.told(answer)) == (2, {"t": second})
    assert second < first
    answer = group.heartbeat("a", 2, held={"t": second})
    assert answer.member_epoch == 4


def test_k22_who_has_given_up_already_moves_on_at_once(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.enter("b", "t")
    answer = group.heartbeat("a", 2, held={"t": group.target("a")["t"]})
    assert answer.member_epoch == 3
    assert progress(group, "a") == (STABLE, 3)


@pytest.mark.parametrize("held", [None, {"t": range(6)}])
def test_k7_an_answer_that_was_lost_is_given_again(
    group: ConsumerDialogue, held: dict[str, range] | None
) -> None:
    """Accepted only if all its partitions are from the lost assignment, and it reports them."""
    group.settled("a")
    group.enter("b", "t")
    keeps = group.target("a")["t"]
    group.heartbeat("a", 2)
    group.heartbeat("a", 2, held={"t": keeps})
    assert group.member("a").epoch == 3
    assert group.heartbeat("a", 2, held={"t": keeps}).member_epoch == 3
    assert group.heartbeat("a", 2, held={"t": list(keeps)[:1]}).member_epoch == 3
    assert group.refused("a", 2, held=held) is ErrorCode.FENCED_MEMBER_EPOCH


def test_k7_an_epoch_from_the_future_or_the_distant_past(group: ConsumerDialogue) -> None:
    group.settled("a", "b", "c")
    epoch = group.member("a").epoch
    assert group.refused("a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refused("a", 1, held={}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_k7_who_was_fenced_joins_again_with_its_id(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    epoch = group.group.epoch
    answer = group.enter("a", "t")
    assert answer.member_epoch == epoch
    assert group.told(answer) == group.target("a")
    assert group.group.epoch == epoch


def test_k25_unsubscribed_topics_go_before_there_is_a_new_target() -> None:
    group = ConsumerDialogue(group_consumer_assignment_interval_ms=60_000)
    group.topics(t=2, u=2)
    group.settled("a", topics=("t", "u"))
    answer = group.heartbeat("a", 2, subscribed_topic_names=("t",))
    assert (group.group.epoch, group.group.assignment_epoch) == (3, 2)
    assert (answer.member_epoch, group.told(answer)) == (2, {"t": {0, 1}})
    assert progress(group, "a") == (UNREVOKED, 2)
    assert group.heartbeat("a", 2, held={"t": [0, 1]}).member_epoch == 2
    assert progress(group, "a") == (STABLE, 2)


def test_k25_more_can_be_unsubscribed_while_giving_up() -> None:
    group = ConsumerDialogue(group_consumer_assignment_interval_ms=60_000)
    group.topics(t=2, u=2, v=2)
    group.settled("a", topics=("t", "u", "v"))
    group.heartbeat("a", 2, subscribed_topic_names=("t", "u"))
    group.heartbeat("a", 2, subscribed_topic_names=("t",))
    assert group.by_name(group.member("a").revoking) == {"u": {0, 1}, "v": {0, 1}}
    assert group.has("a") == {"t": {0, 1}}


def test_k25_unsubscribed_and_given_up_already() -> None:
    group = ConsumerDialogue(group_consumer_assignment_interval_ms=60_000)
    group.topics(t=2, u=2)
    group.settled("a", topics=("t", "u"))
    answer = group.heartbeat("a", 2, held={"t": [0, 1]}, subscribed_topic_names=("t",))
    assert group.told(answer) == {"t": {0, 1}}
    assert progress(group, "a") == (STABLE, 2)


def test_k25_what_a_member_was_giving_up_may_come_back_to_it(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.enter("b", "t")
    group.heartbeat("a", 2)
    keeps = group.target("a")["t"]
    group.heartbeat("b", -1)
    answer = group.heartbeat("a", 2, held={"t": keeps})
    assert group.told(answer) == {"t": set(range(6))}
    assert progress(group, "a") == (STABLE, 4)


def test_k24_owners_are_those_who_have_a_partition_or_give_it_up(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.enter("b", "t")
    group.heartbeat("a", 2)
    topic_id = group.image.by_name["t"].topic_id
    assert dict(group.group.owners[topic_id]) == dict.fromkeys(range(6), ("a",))
    moved = set(range(6)) - group.target("a")["t"]
    group.heartbeat("a", 2, held=group.target("a"))
    assert set(group.group.owners[topic_id]) == set(range(6)) - moved


def test_k20_a_state_of_the_future_is_fenced(group: ConsumerDialogue) -> None:
    """After a downgrade: a member that revokes everything stays, others are fenced."""
    group.settled("a")
    records = [list(pair) for pair in group.log]
    # MemberEpoch, PreviousMemberEpoch, State: the ninth byte after the version
    value = records[-1][1]
    assert value is not None
    records[-1][1] = value[:10] + bytes([77]) + value[11:]
    group.log = [(bytes(key or b""), item) for key, item in records]
    group.shard = group.loaded()
    assert group.member("a").state is MemberState.UNKNOWN
    assert group.refused("a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.heartbeat("a", 2, held={}).error_code == 0
    assert progress(group, "a") == (STABLE, 2)
