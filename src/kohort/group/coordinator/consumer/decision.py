"""The effects of one event on one consumer group, including jobs, while its handlers run.

`write` also applies the record to the decision's group, so that each step sees the earlier ones'
changes; the log state itself changes only when the shell applies the records.

A job is slow work that the shell may run in any thread, because it is a self-contained value. Its
result returns to the shard as `JobDone`. The group may have changed meanwhile; the result of an
obsolete job is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias, cast

from msgspec import Struct, field

from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member
from kohort.group.coordinator.consumer.state.session import ConsumerSession
from kohort.group.coordinator.decision import GroupDecision
from kohort.group.coordinator.events import (
    ConsumerJoinExpired,
    ConsumerRebalanceExpired,
    ConsumerSessionExpired,
    ConsumerSyncExpired,
    RequestArrived,
)
from kohort.group.coordinator.kind import Group
from kohort.group.coordinator.session import ShardDecision
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.events import Cause, MemberReconciled
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.client_assignors import ConsumerGroupInstallAssignmentRequest
from kohort.wire.messages.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.membership import JoinGroupRequest


class TargetJob(Struct, frozen=True):
    """Compute a target assignment (K11).

    Attributes:
        token: Number to report the result with.
        group: The group at the start of the job.
        topics: The topics of the cluster.
        assignor: Name of the assignor.
        rack_aware: Whether it considers racks (KIP-881).
    """

    token: int
    group: ConsumerGroup
    topics: TopicsImage
    assignor: str
    rack_aware: bool = False

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.group.group_id

    @property
    def size(self) -> int:
        """Return the amount of work: members and partitions."""
        by_name = self.topics.by_name
        topics = (by_name.get(name) for name in self.group.topics)
        return len(self.group.members) + sum(view.partitions for view in topics if view)


class RegexJob(Struct, frozen=True):
    """Find the topics that match regular expressions (K50).

    Attributes:
        token: Number to report the result with.
        group_id: Id of the group.
        regexes: The expressions, in the syntax of RE2.
        topics: The topics of the cluster.
    """

    token: int
    group_id: str
    regexes: frozenset[str]
    topics: TopicsImage

    @property
    def size(self) -> int:
        """Return the amount of work: the number of names to match with expressions."""
        return len(self.regexes) * (1 + len(self.topics.by_name))


class InstallJob(Struct, frozen=True):
    """Check a member's assignment against the group for which it was computed (K61).

    Attributes:
        token: Number to report the result with.
        group: The group as it was sent to the member.
        topics: The topics as they were sent to it.
        assignor: Name of its assignor.
        request: Its result.
    """

    token: int
    group: ConsumerGroup
    topics: TopicsImage
    assignor: str
    request: ConsumerGroupInstallAssignmentRequest

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.group.group_id

    @property
    def size(self) -> int:
        """Return the amount of work: members and partitions."""
        entries = self.request.members
        given = sum(len(t.partitions) for each in entries for t in each.topic_partitions)
        return len(self.group.members) + given


ConsumerJob: TypeAlias = TargetJob | RegexJob | InstallJob


class Passage(Struct, frozen=True, kw_only=True):
    """The conversion between this kind of group and another, as this kind sees it (K40).

    Attributes:
        other: Returns the other kind's group with an id, or a missing one.
        keep: Stores the changed group of the other kind in the shard; None: there is none.
        begin: Creates a consumer group, or converts the other group into one; raises
            `Refused` if the conversion is not allowed.
        after_leaving: Converts the group if the remaining members do not use this protocol;
            returns whether it did.
        go_on: Answers a join that waited for a target (K45); the member may have changed its
            subscription meanwhile.
    """

    other: Callable[[ShardDecision, str], Group]
    keep: Callable[[ShardDecision, str, Group | None], None]
    begin: Callable[[ConsumerDecision], None]
    after_leaving: Callable[[ConsumerDecision, Collection[Member], Cause], bool]
    go_on: Callable[[ConsumerDecision, RequestArrived[JoinGroupRequest], Member, bool], None]


class ConsumerDecision(GroupDecision, kw_only=True):
    """One group, and the effects on it.

    Attributes:
        group: The group after this event, None if there is none.
        session: Session state of the shard's consumer groups after this event.
        passage: The conversion to another kind of group.
        other: The other kind's group with this id after this event; None while there is a
            consumer group.
        jobs: Jobs to start.
    """

    group: ConsumerGroup | None
    session: ConsumerSession
    passage: Passage
    other: Group | None = None
    jobs: list[ConsumerJob] = field(default_factory=list)

    @property
    def existing(self) -> ConsumerGroup:
        """Return the group, which must exist."""
        assert self.group is not None
        return self.group

    def write(self, records: Iterable[GroupRecord]) -> None:
        """Append records, and apply them to this decision's group."""
        for record in records:
            self.records.append(record)
            key = cast("ConsumerGroupKey", record.key)
            self.group = log_records.apply(
                self.group, key, cast("ConsumerGroupValue | None", record.value)
            )

    def hand_over(self, shard: ShardDecision) -> None:
        """Pass the deadlines and the effects to the shard."""
        GroupDecision.hand_over(self, shard)
        shard.consumer_jobs += self.jobs

    def copy(self) -> ConsumerDecision:
        """Return a copy for further changes, which can be discarded."""
        return replace(
            self,
            records=[*self.records],
            replies=[*self.replies],
            observed=[*self.observed],
            jobs=[*self.jobs],
        )

    def take_token(self) -> int:
        """Return the number for a new job."""
        token = self.session.next_token
        self.session = replace(self.session, next_token=token + 1)
        return token

    # ------------------------------------------------------------------------------- the epoch

    def bump_epoch(self, cause: Cause, member_id: str, metadata_hash: int | None = None) -> None:
        """Begin a new epoch of the group, which needs a new target assignment (K10)."""
        group = self.existing
        value = self.topics.metadata_hash(group.topics) if metadata_hash is None else metadata_hash
        self.write([log_records.epoch_record(group.group_id, group.epoch + 1, value)])
        self.say_rebalance(group.epoch, cause, member_id)

    # ------------------------------------------------------------------------------- members

    def start_session(self, member_id: str) -> None:
        """Start a member's session timeout from now.

        A classic member has its own timeout (K46).
        """
        member = self.existing.members.get(member_id)
        timeout_ms = self.config.group_consumer_session_timeout_ms
        if member is not None and member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.start(ConsumerSessionExpired(self.existing.group_id, member_id), timeout_ms)

    def start_rebalance(self, member: Member) -> None:
        """K30: start the rebalance timeout, within which a member must give partitions up."""
        key = ConsumerRebalanceExpired(self.existing.group_id, member.member_id)
        self.start(key, max(member.rebalance_timeout_ms, 0))

    def cancel_rebalance(self, member_id: str) -> None:
        """K30: stop the rebalance timeout, because the member has given up its partitions."""
        self.cancel(ConsumerRebalanceExpired(self.existing.group_id, member_id))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Stop all deadlines of a member."""
        self.cancel(ConsumerSessionExpired(group_id, member_id))
        self.cancel(ConsumerRebalanceExpired(group_id, member_id))
        self.cancel(ConsumerJoinExpired(group_id, member_id))
        self.cancel(ConsumerSyncExpired(group_id, member_id))

    # ------------------------------------------------------------------------------- facts

    def say_reconciled(self, member: Member) -> None:
        """Report a member's current partitions, except those of deleted topics."""
        names = self.topics.names
        has = [
            TopicPartition(names[topic_id], number)
            for owned in (member.assigned, member.revoking)
            for topic_id, numbers in owned.items()
            if topic_id in names
            for number in numbers
        ]
        self.observed.append(
            MemberReconciled(
                group=self.existing.group_id,
                now=self.now,
                member=member.member_id,
                epoch=member.epoch,
                partitions=tuple(sorted(has)),
            )
        )

    def say_changed(self, before: ConsumerGroup | None, other: Group | None) -> None:
        """Report the group's state if it has changed.

        Args:
            before: The group before the event.
            other: The other kind's group before the event, if it was one.
        """
        after = self.group
        if after is None and self.other is not None:
            return  # the new kind of group reports itself
        old = before.state.value if before else other.state.value if other else "Dead"
        new = after.state.value if after else "Dead"
        known = after or before
        if old != new and known is not None:
            self.say_state(known.epoch, old, new)
