"""The effects of one event on one consumer group, while its handlers run, and the jobs among them.

`write` also applies the record to the decision's group, so that each step sees what the steps
before it did; the log state itself changes only when the shell applies the records.

A job is slow work: described here, done by the shell wherever it likes. It is a self-contained
value, so it may run in any thread. Its result goes back to the shard as `JobDone`; by then the
group may have changed, and the result of an obsolete job is ignored.
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
    """Make a target assignment (K11).

    Attributes:
        token: Number to report the result with.
        group: The group as it was when the job began.
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
        """Return the amount of work: names to match with expressions."""
        return len(self.regexes) * (1 + len(self.topics.by_name))


class InstallJob(Struct, frozen=True):
    """Check a member's assignment against the group it was made for (K61).

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
    """The way between this kind of group and another, which this kind knows only through it (K40).

    Attributes:
        other: Returns the group of the other kind with an id, or one that does not exist.
        keep: Lets the shard have the group of the other kind as it is now; None: there is none.
        begin: Creates a consumer group, or converts the other group into one; raises
            `Refused` if that must not be converted.
        after_leaving: Converts the group if the remaining members do not use this protocol;
            returns whether it did.
        go_on: Answers a join that waited for a target (K45), of a member that may have subscribed
            to something else.
    """

    other: Callable[[ShardDecision, str], Group]
    keep: Callable[[ShardDecision, str, Group | None], None]
    begin: Callable[[ConsumerDecision], None]
    after_leaving: Callable[[ConsumerDecision, Collection[Member], Cause], bool]
    go_on: Callable[[ConsumerDecision, RequestArrived[JoinGroupRequest], Member, bool], None]


class ConsumerDecision(GroupDecision, kw_only=True):
    """One group, and the effects on it.

    Attributes:
        group: The group as it will be, None when there is none.
        session: Session state of the shard's consumer groups as it will be.
        passage: The way to another kind of group.
        other: The group of another kind that has this id, as it will be; None while there is a
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
        """Return the group, which is known to exist."""
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
        """Return a copy that continues from here and can be discarded."""
        return replace(
            self,
            records=[*self.records],
            replies=[*self.replies],
            observed=[*self.observed],
            jobs=[*self.jobs],
        )

    def take_token(self) -> int:
        """Return the number of a new job."""
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

        A classic member has chosen its own (K46).
        """
        member = self.existing.members.get(member_id)
        timeout_ms = self.config.group_consumer_session_timeout_ms
        if member is not None and member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.start(ConsumerSessionExpired(self.existing.group_id, member_id), timeout_ms)

    def start_rebalance(self, member: Member) -> None:
        """K30: give a member its rebalance timeout to give partitions up."""
        key = ConsumerRebalanceExpired(self.existing.group_id, member.member_id)
        self.start(key, max(member.rebalance_timeout_ms, 0))

    def cancel_rebalance(self, member_id: str) -> None:
        """K30: stop the rebalance timeout: the member has given up its partitions."""
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
            other: The group of another kind that it was then, if it was one.
        """
        after = self.group
        if after is None and self.other is not None:
            return  # the new kind of group reports itself
        old = before.state.value if before else other.state.value if other else "Dead"
        new = after.state.value if after else "Dead"
        known = after or before
        if old != new and known is not None:
            self.say_state(known.epoch, old, new)
