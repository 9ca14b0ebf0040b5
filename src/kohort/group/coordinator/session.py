"""Session state of a shard: what is not in the log, and is gone when the shard is."""

from __future__ import annotations

from dataclasses import field

from immutables import Map

from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.fold import loaded_group
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer import configs, route
from kohort.group.coordinator.consumer.group import ConsumerGroup
from kohort.group.coordinator.consumer.jobs import ConsumerJob
from kohort.group.coordinator.consumer.session import NOTHING_KNOWN, ConsumerSession
from kohort.group.coordinator.draft import router as draft_router
from kohort.group.coordinator.draft.group import DraftGroup
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob
from kohort.group.coordinator.events import Deadline
from kohort.group.coordinator.records import LogState
from kohort.group.effects import Effects, Reply
from kohort.group.events import GroupEvent
from kohort.group.machine import Deadlines, State
from kohort.values import dataclass, replace
from kohort.wire.messages.group_records import GroupRecord


class Lifecycle(State):
    """Whether a shard may answer (C74): Kafka's names are INITIAL, LOADING and ACTIVE."""

    DOWN = "Down"
    CATCH_UP = "Catch-up"
    READY = "Ready"


@dataclass(frozen=True, slots=True)
class ShardSession:
    """Session state of a shard; a value.

    Attributes:
        lifecycle: Whether it may answer.
        groups: Groups that have members or wait for some; all others are in the log as they are.
        deadlines: What is due when.
        draft_groups: Groups of the draft protocol that have consumers or wait for some.
        consumer: What is known of the groups of the consumer protocol.
    """

    lifecycle: Lifecycle = Lifecycle.DOWN
    groups: Map[str, ClassicGroup] = Map()
    deadlines: Deadlines[Deadline] = field(default_factory=Deadlines)
    draft_groups: Map[str, DraftGroup] = Map()
    consumer: ConsumerSession = NOTHING_KNOWN

    def group(self, log: LogState, group_id: str) -> ClassicGroup:
        """Return a group: the live one, or the empty one in the log, or one that does not exist."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        stored = log.groups.get(group_id)
        if stored is not None:
            return loaded_group(group_id, stored)
        exists = group_id in log.offsets
        return ClassicGroup(
            group_id=group_id, state=GroupState.EMPTY if exists else GroupState.DEAD
        )

    def with_group(self, group_id: str, group: ClassicGroup | None) -> ShardSession:
        """Take a classic group over as it is now; None: there is none of this id any more."""
        group = group or ClassicGroup(group_id=group_id)
        return replace(self, groups=_with_group(self.groups, group))

    def group_ids(self, log: LogState) -> list[str]:
        """Return the ids of all groups."""
        ids = {*self.groups, *log.groups, *log.offsets, *log.consumer_groups}
        return sorted(ids | {*self.draft_groups, *log.draft_groups})


@dataclass(slots=True)
class ShardDecision:
    """What one event does to a shard, while it is worked out. See `ClassicDecision`."""

    config: CoordinatorConfig
    log: LogState
    session: ShardSession
    now: int
    wall_ms: int = 0
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    draft_jobs: list[DraftAssignmentJob] = field(default_factory=list)
    consumer_jobs: list[ConsumerJob] = field(default_factory=list)
    # Consumer groups as the records so far make them; None: forgotten.
    consumer_groups: dict[str, ConsumerGroup | None] = field(default_factory=dict)

    @property
    def state(self) -> Lifecycle:
        """Whether the shard may answer."""
        return self.session.lifecycle

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return a group of the consumer protocol as it is by now."""
        if group_id in self.consumer_groups:
            return self.consumer_groups[group_id]
        return self.log.consumer_groups.get(group_id)

    def config_of(self, group_id: str) -> CoordinatorConfig:
        """Return the settings that hold for a consumer group: its own where it has any."""
        own = self.log.group_configs.get(group_id)
        return self.config if own is None else configs.effective(self.config, own)

    def run_group(self, group_id: str, trigger: type[object], event: object) -> None:
        """Put an event to one group, and take over what it leads to."""
        if draft_router.handled(self, group_id, trigger, event):
            return
        if route.handled(self, group_id, trigger, event):
            return
        session = self.session
        before = session.group(self.log, group_id)
        decision = ClassicDecision(
            self.config, self.log, self.now, self.wall_ms, before, session.deadlines
        )
        CLASSIC_GROUP.run(decision, trigger, event)
        groups = session.groups
        if decision.group is not before:
            groups = _with_group(groups, decision.group)
        self.session = replace(session, groups=groups, deadlines=decision.deadlines)
        self.records += decision.records
        self.replies += decision.replies
        self.observed += decision.observed

    def effects(self) -> Effects[ShardSession]:
        """Return what the event leads to."""
        return Effects(
            self.session,
            tuple(self.records),
            tuple(self.replies),
            tuple(self.observed),
            draft_jobs=tuple(self.draft_jobs),
            consumer_jobs=tuple(self.consumer_jobs),
        )


def _with_group(groups: Map[str, ClassicGroup], group: ClassicGroup) -> Map[str, ClassicGroup]:
    """Keep a group only if the log alone does not say all about it."""
    in_log = group.state is GroupState.DEAD or (
        group.state is GroupState.EMPTY and not group.pending
    )
    if not in_log:
        return groups.set(group.group_id, group)
    return groups.delete(group.group_id) if group.group_id in groups else groups
