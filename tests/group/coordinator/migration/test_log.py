"""Migrated groups, loaded from a compacted log (B1 to B3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.fold import group_tombstone
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.state import LogState
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.clients import NAMES, MovingClients
from tests.group.coordinator.migration.dialogue import MixedDialogue

Scenario = Callable[[], MixedDialogue]


def upgraded_with_commits() -> MixedDialogue:
    group = MixedDialogue()
    member, other = group.stable_classic("s0", "c1")
    group.commit(member, 1)
    group.enter("z", "t")
    group.commit(member, 1)
    joined = group.joined(member, instance="s0")
    group.commit(member, joined.generation_id)
    group.leave((other, None))
    group.settle_consumer("z")
    return group


def upgraded_half_way() -> MixedDialogue:
    group = MixedDialogue()
    member, _ = group.stable_classic("s0", "s1")
    group.enter("z", "t")
    group.joined(member, instance="s0", owned=range(4))
    return group


def downgraded_by_leaving() -> MixedDialogue:
    group = upgraded_with_commits()
    group.heartbeat("z", -1)
    (member,) = group.shard.log.groups[GROUP].members
    group.settle_evenly([group.join_classic(member, instance="s0")])
    return group


def downgraded_by_replacing() -> MixedDialogue:
    group = MixedDialogue()
    group.enter("z", "t", instance_id="i-z", subscribed_topic_regex="u.*")
    group.settle_consumer("z")
    group.heartbeat("z", -2, instance_id="i-z")
    group.joined(instance="i-z")
    return group


def there_and_back_twice() -> MixedDialogue:
    group = downgraded_by_leaving()
    group.enter("z", "t")
    (member,) = group.group.static.values()
    group.joined(member, instance="s0")
    group.settle_consumer("z")
    group.heartbeat("z", -1)
    group.leave((member, "s0"))
    group.enter("z", "t")
    return group


@pytest.mark.parametrize(
    "play",
    [
        upgraded_with_commits,
        upgraded_half_way,
        downgraded_by_leaving,
        downgraded_by_replacing,
        there_and_back_twice,
    ],
)
def test_b1_b3_any_compaction_of_the_log_loads_to_the_same_groups(play: Scenario) -> None:
    """The scenarios in which Kafka's coordinator failed to load (KAFKA-19862, KAFKA-21117)."""
    group = play()
    group.check_log()
    group.reload()


def test_b2_tombstones_for_nobody_change_nothing() -> None:
    """KAFKA-17306: of unknown members, groups and classic groups."""
    for group in (MixedDialogue(), upgraded_half_way(), downgraded_by_leaving()):
        before = group.shard.log
        for state in (LogState(), before):
            after = state
            for record in (
                *log_records.member_tombstones(GROUP, "nobody"),
                *ConsumerGroup(group_id="no group").tombstones(),
                group_tombstone("no group"),
            ):
                after = after.apply(record)
            assert after == state


def test_k41_a_group_goes_on_where_it_was_when_it_is_loaded() -> None:
    """A reload in the middle of an upgrade: no member has to rejoin."""
    group = upgraded_half_way()
    member = group.group.static["s0"]
    group.reload()
    assert group.beat(member, 1, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.synced(member, 1) == group.target(member)["t"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["work"] * 8 + ["change", "leave", "wait", "reload"]),
        st.sampled_from(NAMES),
    ),
    min_size=20,
    max_size=100,
)


@settings(max_examples=60)
@given(steps=STEPS)
def test_s1_whatever_happens_nobody_shares_a_partition(steps: list[tuple[str, str]]) -> None:
    """K40, K41, K45, K47: members of both kinds join, leave and switch, and the shard moves.

    After each step no partition has two owners, and in the end every one has an owner.
    """
    clients = MovingClients()
    for action, name in steps:
        clients.do(action, name)
        clients.nobody_shares_a_partition()
    clients.settle()
    assert clients.everything_is_read()
