"""Consumer groups that become classic groups (K47)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Cause, GroupStateChanged, MemberLeft, ProtocolChanged
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.dialogue import MixedDialogue, partitions_in


@pytest.fixture
def group() -> MixedDialogue:
    return MixedDialogue()


def mixed(group: MixedDialogue, consumer: str = "z", **more: object) -> str:
    """Create a stable group of a static classic member, whose id is returned, and a consumer."""
    (member,) = group.stable_classic("s0")
    group.enter(consumer, "t", **more)
    epoch = group.joined(member, instance="s0").generation_id
    assert group.synced(member, epoch) == set(range(4)) - group.target(consumer)["t"]
    group.settle_consumer(consumer)
    assert group.group.state.value == "Stable"
    return member


def test_k47_who_is_left_rebalances(group: MixedDialogue) -> None:
    member = mixed(group)
    group.observed.clear()
    assert group.heartbeat("z", -1).error_code == 0
    assert dict(group.shard.log.consumer_groups) == {}
    stored = group.shard.log.groups[GROUP]
    assert (stored.generation, stored.protocol, stored.leader) == (2, "range", None)
    assert len(partitions_in(stored.assignment_of(member))) == 2
    assert group.beat(member, 2, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    (gone,) = (each for each in group.observed if isinstance(each, MemberLeft))
    assert (gone.member, gone.cause) == ("z", Cause.MEMBER_LEFT)
    (change,) = (each for each in group.observed if isinstance(each, ProtocolChanged))
    assert (change.protocol, change.generation) == ("classic", 2)
    states = [each for each in group.observed if isinstance(each, GroupStateChanged)]
    assert [(each.before, each.after) for each in states] == [("Stable", "PreparingRebalance")]
    group.settle_evenly([group.join_classic(member, instance="s0")])
    assert group.state == "Stable"
    group.check_log()


def test_k47_a_rebalance_that_the_coordinator_did_not_survive_begins_again(
    group: MixedDialogue,
) -> None:
    """Otherwise no member would read the consumer's partitions (decision 0012)."""
    member = mixed(group)
    group.heartbeat("z", -1)
    group.reload()
    assert group.beat(member, 2, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    group.settle_evenly([group.join_classic(member, instance="s0")])
    group.reload()
    assert group.beat(member, 3, "s0") == ErrorCode.NONE


def test_k47_no_deadline_of_the_old_group_is_left(group: MixedDialogue) -> None:
    member = mixed(group)
    group.heartbeat("z", -1)
    names = {type(key).__name__ for key in group.shard.session.deadlines.due_times()}
    assert names == {"SessionExpired", "JoinExpired", "RetentionCheckDue"}
    group.beat(member, 2, "s0")
    group.advance(9_000)
    assert group.state == "PreparingRebalance"


def test_k47_a_consumer_that_is_silent_leaves_a_classic_group(group: MixedDialogue) -> None:
    member = mixed(group)
    for _ in range(5):
        group.advance(9_000)
        group.beat(member, 2, "s0")
    assert GROUP in group.shard.log.groups
    assert GROUP not in group.shard.log.consumer_groups


def test_k47_a_static_consumer_is_replaced_and_nothing_moves(group: MixedDialogue) -> None:
    member = mixed(group, instance_id="i-z")
    had = group.target("z")["t"]
    group.heartbeat("z", -2, instance_id="i-z")
    back = group.joined(instance="i-z")
    assert (back.error_code, back.generation_id, back.leader) == (0, 2, "")
    assert group.state == "Stable"
    assert group.synced(back.member_id, 2) == had
    assert group.beat(member, 2, "s0") == ErrorCode.NONE
    assert group.shard.session.group(group.shard.log, GROUP).leader == min(member, back.member_id)
    group.check_log()
    group.reload()
    assert group.state == "Stable"


def test_k47_members_that_wait_for_partitions_are_not_forgotten(group: MixedDialogue) -> None:
    """One does not have all of its target yet: it is told to rebalance (decision 0012)."""
    (member,) = group.stable_classic("s0")
    group.enter("z", "t", instance_id="i-z")
    assert group.group.state.value == "Reconciling"
    back = group.joined(instance="i-z")
    assert back.error_code == 0
    assert group.state == "PreparingRebalance"
    group.settle_evenly(
        [group.join_classic(member, instance="s0"), group.join_classic(back.member_id)]
    )
    assert group.state == "Stable"


def test_k47_too_many_for_a_classic_group_stay() -> None:
    group = MixedDialogue(group_max_size=1)
    group.enter("z", "t")
    for name in ("s0", "s1"):
        assert group.joined(instance=name).error_code == 0
    group.heartbeat("z", -1)
    assert set(group.group.static) == {"s0", "s1"}
    assert group.group.epoch == 5


def test_k47_too_much_for_one_record_stays() -> None:
    """Decision 0012: a classic group is a single record of the log."""
    group = MixedDialogue(group_max_bytes=60)
    group.enter("z", "t")
    for name in ("s0", "s1"):
        assert group.joined(instance=name).error_code == 0
    group.heartbeat("z", -1)
    assert set(group.group.static) == {"s0", "s1"}


def test_k47_who_waits_for_a_target_joins_the_classic_group(group: MixedDialogue) -> None:
    (member,) = group.stable_classic("s0")
    group.enter("z", "t")
    group.holds_jobs = True
    group.topics(t=5)
    token = group.join_classic(member, instance="s0")
    assert token not in group.answers
    group.heartbeat("z", -1)
    assert group.answers[token].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    group.do_jobs()
    assert group.state == "PreparingRebalance"
    group.holds_jobs = False
    assert group.enter("z", "t").error_code == 0
    assert group.group.assignment_epoch == group.group.epoch


def test_k47_positions_stay(group: MixedDialogue) -> None:
    member = mixed(group)
    group.commit(member, 2)
    group.heartbeat("z", -1)
    assert len(group.shard.log.offsets_of(GROUP)) == 1
    group.enter("z", "t")
    assert len(group.shard.log.offsets_of(GROUP)) == 1
    group.check_log()
