"""The conversion between classic and consumer groups, as `kinds` lists it.

The consumer kind receives `TO_CLASSIC` and uses nothing else of this folder. `cells` handles the
requests that members of one protocol send to a group of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kohort.group.coordinator.classic import kind as classic
from kohort.group.coordinator.classic.group import ClassicGroup
from kohort.group.coordinator.consumer.decision import Passage
from kohort.group.coordinator.consumer.kind import ConsumerKind, forgotten, tried
from kohort.group.coordinator.consumer.state.log_records import GROUPS
from kohort.group.coordinator.consumer.state.session import SESSION
from kohort.group.coordinator.kind import Group, Serve
from kohort.group.coordinator.migration import classic_members, downgrade, upgrade
from kohort.group.coordinator.session import ShardDecision
from kohort.wire.messages.membership import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest


def _find(shard: ShardDecision, group_id: str) -> ClassicGroup:
    return classic.find(shard.session, shard.log, group_id)


def _keep(shard: ShardDecision, group_id: str, other: Group | None) -> None:
    group = cast("ClassicGroup | None", other) or ClassicGroup(group_id=group_id)
    shard.session = classic.keep(shard.session, group)


TO_CLASSIC = Passage(
    other=_find,
    keep=_keep,
    begin=upgrade.begin,
    after_leaving=downgrade.after_leaving,
    go_on=classic_members.go_on,
)
"""The conversion from a classic group to a consumer group and back (K40 to K48)."""


def cells(consumer: ConsumerKind) -> Mapping[tuple[object, str], Serve]:
    """Return the function for requests of one protocol to groups of the other, by API and kind.

    Classic groups use nothing of the consumer protocol except this conversion.
    """
    join = tried(TO_CLASSIC, classic_members.join)

    def join_or_take_over(shard: ShardDecision, group_id: str, event: object) -> None:
        """K42: join; an empty group may change its protocol in both directions."""
        group = GROUPS.of(shard.log)[group_id]
        if group.members:
            join(shard, group_id, event)
            return
        shard.records += group.tombstones()
        left = forgotten(shard, SESSION.of(shard.session), group_id)
        shard.session = SESSION.put(shard.session, left)
        classic.run(shard, group_id, JoinGroupRequest, event)

    return {
        (JoinGroupRequest, consumer.name): join_or_take_over,
        (SyncGroupRequest, consumer.name): tried(TO_CLASSIC, classic_members.sync),
        (HeartbeatRequest, consumer.name): tried(TO_CLASSIC, classic_members.beat),
        **{(api, "classic"): consumer.serves[api] for api in consumer.apis},
    }
