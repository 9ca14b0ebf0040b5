"""`group.consumer.migration.policy`: bidirectional, upgrade, downgrade or disabled (K40, K47)."""

from __future__ import annotations

import pytest

from kohort.broker.config import BrokerConfig
from kohort.errors import ConfigError, ErrorCode
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.dialogue import MixedDialogue

FULL = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("t",), "held": {}}


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_k40_a_group_with_members_stays_classic(policy: str) -> None:
    group = MixedDialogue(group_consumer_migration_policy=policy)
    (member,) = group.stable_classic("s0")
    assert group.refused("z", 0, **FULL) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.beat(member, 1) == ErrorCode.NONE
    group.leave((member, None))
    assert group.enter("z", "t").error_code == 0, "a group without members is free to change"


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_k47_a_group_of_classic_members_stays_a_consumer_group(policy: str) -> None:
    group = MixedDialogue(group_consumer_migration_policy=policy)
    group.enter("z", "t")
    joined = group.joined(instance="s0")
    group.heartbeat("z", -1)
    assert list(group.group.static) == ["s0"]
    assert group.beat(joined.member_id, joined.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    again = group.joined(joined.member_id, instance="s0")
    assert group.synced(again.member_id, again.generation_id) == {0, 1, 2, 3}
    group.reload()
    assert group.beat(again.member_id, again.generation_id) == ErrorCode.NONE
    group.leave((again.member_id, None))
    assert group.group.state.value == "Empty"


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_k47_nor_is_a_replaced_consumer_a_reason(policy: str) -> None:
    group = MixedDialogue(group_consumer_migration_policy=policy)
    group.enter("z", "t", instance_id="i-z")
    joined = group.joined(instance="i-z")
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert group.synced(joined.member_id, 2) == {0, 1, 2, 3}
    assert GROUP in group.shard.log.consumer_groups


def test_k40_both_ways_is_the_default() -> None:
    assert BrokerConfig().coordinator().group_consumer_migration_policy == "bidirectional"
    config = BrokerConfig(group_consumer_migration_policy="upgrade")
    assert config.coordinator().group_consumer_migration_policy == "upgrade"
    with pytest.raises(ConfigError, match="bidirectional, upgrade, downgrade, disabled"):
        BrokerConfig(group_consumer_migration_policy="both")
