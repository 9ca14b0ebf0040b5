"""The coordinator's view of the group, in the same form for all group protocols."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import is_
from uuid import UUID

from msgspec import Struct

from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Owned
from kohort.group.coordinator.consumer.state.group import GroupState as ConsumerGroupState
from kohort.group.coordinator.draft import kind as draft_router
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.session import Lifecycle
from kohort.group.coordinator.shard import Shard
from kohort.group.subscription import decode_assignment
from kohort.types import TopicPartition


class MemberView(Struct, frozen=True):
    """A member, from the coordinator's view.

    Attributes:
        epoch: Its generation or member epoch.
        previous: The former epoch, while the answer with the new one may be in flight.
        instance: Its group instance id, None for a dynamic member.
        assigned: Its assignment, None if undecided.
    """

    epoch: int
    previous: int
    instance: str | None
    assigned: frozenset[TopicPartition] | None


class GroupView(Struct, frozen=True):
    """The group.

    Attributes:
        state: Name of its state.
        epoch: Its generation or epoch.
        members: Its members by member id.
        is_settled: Whether the group has reached its assignment.
    """

    state: str
    epoch: int
    members: Mapping[str, MemberView]
    is_settled: bool

    def is_current(self, member_id: str, epoch: int) -> bool:
        """Return whether a member with this id and epoch exists now."""
        member = self.members.get(member_id)
        return member is not None and epoch >= 0 and epoch in (member.epoch, member.previous)


class Views:
    """Views of one group in different shards, cached while nothing changes.

    Most events are heartbeats, which write nothing and do not change the group.

    Args:
        group_id: The group.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        # The input of the last view; the values are immutable, so comparing identity is enough.
        self._of: tuple[object, ...] = ()
        self._last: GroupView | None = None

    def of(self, shard: Shard) -> GroupView:
        """Return a shard's view."""
        consumer = shard.log.consumer_groups.get(self._group_id)
        stored = shard.log.groups.get(self._group_id)
        live = shard.session.groups.get(self._group_id)
        draft = shard.log.draft_groups.get(self._group_id)
        drafted = shard.session.draft_groups.get(self._group_id)
        made_of = (
            consumer,
            stored,
            live,
            draft,
            drafted,
            shard.session.topics,
            shard.state,
        )
        same = len(self._of) == len(made_of) and all(map(is_, self._of, made_of))
        if self._last is None or not same or not any(made_of[:5]):
            self._of, self._last = made_of, view(shard, self._group_id)
        return self._last


def view(shard: Shard, group_id: str) -> GroupView:
    """Return a shard's view of a group."""
    consumer = shard.log.consumer_groups.get(group_id)
    if consumer is not None:
        return _consumer(shard, consumer)
    if draft_router.is_draft(shard.session, shard.log, group_id):
        return _draft(shard, group_id)
    return _classic(shard, shard.session.group(shard.log, group_id))


def _consumer(shard: Shard, group: ConsumerGroup) -> GroupView:
    names = shard.session.topics.names
    members = {
        member.member_id: MemberView(
            member.epoch,
            member.previous_epoch,
            member.instance_id,
            _named(member.assigned, names) | _named(member.revoking, names),
        )
        for _, member in sorted(group.members.items())
    }
    settled = group.state is ConsumerGroupState.STABLE
    return GroupView(group.state.name, group.epoch, members, settled)


def _named(owned: Owned, names: Mapping[UUID, str]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(names[topic_id], number)
        for topic_id, numbers in owned.items()
        if topic_id in names
        for number in numbers
    )


def _classic(shard: Shard, group: ClassicGroup) -> GroupView:
    stored = shard.log.groups.get(group.group_id)
    stable = group.state is GroupState.STABLE and shard.state is Lifecycle.READY
    members: dict[str, MemberView] = {}
    for member in group.sorted_members():
        assigned = None
        if stable and stored is not None:
            assigned = _decoded(stored.assignment_of(member.member_id))
        members[member.member_id] = MemberView(
            group.generation, group.generation, member.group_instance_id, assigned
        )
    return GroupView(group.state.name, group.generation, members, stable)


def _draft(shard: Shard, group_id: str) -> GroupView:
    group = draft_router.group_of(shard.session, shard.log, group_id)
    stored = shard.log.draft_groups.get(group_id)
    steady = group.state is DraftState.STEADY and shard.state is Lifecycle.READY
    owned = stored.owned if steady and stored is not None else None
    members = {
        each.consumer_id: MemberView(
            group.generation,
            group.generation,
            None,
            frozenset(owned.get(each.consumer_id, ())) if owned is not None else None,
        )
        for each in group.sorted_consumers()
    }
    return GroupView(group.state.name, group.generation, members, steady)


@lru_cache(maxsize=1024)
def _decoded(assignment: bytes) -> frozenset[TopicPartition]:
    return decode_assignment(assignment)[0]
