"""What one event does to one consumer group, while it is worked out.

`write` also applies the record to the decision's group, so that each step sees what the steps
before it did; the log state itself changes only when the shell applies the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, cast

from kohort.group.coordinator.classic.group import ClassicGroup
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer import fold, log_records
from kohort.group.coordinator.consumer.group import ConsumerGroup, Member
from kohort.group.coordinator.consumer.jobs import ConsumerJob
from kohort.group.coordinator.consumer.session import ConsumerSession
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.group.coordinator.events import (
    ConsumerJoinExpired,
    ConsumerRebalanceExpired,
    ConsumerSessionExpired,
    ConsumerSyncExpired,
    Deadline,
)
from kohort.group.effects import Reply
from kohort.group.events import (
    Cause,
    GroupEvent,
    GroupStateChanged,
    MemberLeft,
    MemberReconciled,
    RebalanceStarted,
)
from kohort.group.machine import Deadlines
from kohort.types import TopicPartition
from kohort.values import dataclass, replace
from kohort.wire.messages.consumer_group_records import ConsumerGroupKey, ConsumerGroupValue
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.group.coordinator.records import LogState


@dataclass(slots=True)
class ConsumerDecision:
    """One group, and what is to be done about it.

    Attributes:
        config: Settings of the coordinator.
        group_id: Id of the group.
        now: Time of the event in milliseconds.
        wall_ms: Time of day of the event.
        group: The group as it will be, None when there is none.
        session: Session state of the shard's consumer groups as it will be.
        deadlines: The shard's deadlines as they will be.
        log: Log state before this event.
        classic: The classic group of this id as it will be, None while there is a consumer group.
        records: Records to append.
        replies: Answers to release after that.
        observed: What happened.
        jobs: Slow work to begin.
    """

    config: CoordinatorConfig
    group_id: str
    now: int
    wall_ms: int
    group: ConsumerGroup | None
    session: ConsumerSession
    deadlines: Deadlines[Deadline]
    log: LogState
    classic: ClassicGroup | None = None
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    jobs: list[ConsumerJob] = field(default_factory=list)

    @property
    def topics(self) -> TopicsImage:
        """The topics of the cluster."""
        return self.session.topics

    @property
    def existing(self) -> ConsumerGroup:
        """The group, which is known to be there."""
        assert self.group is not None
        return self.group

    def write(self, records: Iterable[GroupRecord]) -> None:
        """Append records, and see the group as they make it."""
        for record in records:
            self.records.append(record)
            key = cast("ConsumerGroupKey", record.key)
            self.group = fold.apply(
                self.group, key, cast("ConsumerGroupValue | None", record.value)
            )

    def reply(self, token: int, response: Message, version: int) -> None:
        """Answer a request."""
        self.replies.append(Reply(token, response, version))

    def copy(self) -> ConsumerDecision:
        """Return a decision that goes on from here and can be thrown away."""
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
        """Begin a new epoch of the group: its target assignment has to be made anew (K10)."""
        group = self.existing
        value = self.topics.metadata_hash(group.topics) if metadata_hash is None else metadata_hash
        self.write([log_records.epoch_record(group.group_id, group.epoch + 1, value)])
        self.observed.append(
            RebalanceStarted(
                group=group.group_id,
                now=self.now,
                generation=group.epoch,
                member=member_id,
                cause=cause,
            )
        )

    # ------------------------------------------------------------------------------- members

    def start_session(self, member_id: str) -> None:
        """Let a member be silent for the session timeout from now on.

        A classic member has chosen its own (K46).
        """
        member = self.existing.members.get(member_id)
        timeout_ms = self.config.group_consumer_session_timeout_ms
        if member is not None and member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        key = ConsumerSessionExpired(self.existing.group_id, member_id)
        self.deadlines = self.deadlines.set(key, self.now + timeout_ms)

    def start_rebalance(self, member: Member) -> None:
        """K30: give a member its rebalance timeout to give partitions up."""
        key = ConsumerRebalanceExpired(self.existing.group_id, member.member_id)
        self.deadlines = self.deadlines.set(key, self.now + max(member.rebalance_timeout_ms, 0))

    def cancel_rebalance(self, member_id: str) -> None:
        """K30: the member has given up what it had to."""
        key = ConsumerRebalanceExpired(self.existing.group_id, member_id)
        self.deadlines = self.deadlines.cancel(key)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Stop all deadlines of a member."""
        deadlines = self.deadlines.cancel(ConsumerSessionExpired(group_id, member_id))
        deadlines = deadlines.cancel(ConsumerRebalanceExpired(group_id, member_id))
        deadlines = deadlines.cancel(ConsumerJoinExpired(group_id, member_id))
        self.deadlines = deadlines.cancel(ConsumerSyncExpired(group_id, member_id))

    # ------------------------------------------------------------------------------- facts

    def say_left(self, group_id: str, member_id: str, cause: Cause) -> None:
        """Report that a member is gone."""
        self.observed.append(
            MemberLeft(group=group_id, now=self.now, member=member_id, cause=cause)
        )

    def say_reconciled(self, member: Member) -> None:
        """Report what a member has now; topics that are gone are left out."""
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

    def say_state(self, before: ConsumerGroup | None, classic: ClassicGroup | None) -> None:
        """Report the group's state if it is another one now.

        Args:
            before: The group before the event.
            classic: The classic group that it was then, if it was one.
        """
        after = self.group
        if after is None and self.classic is not None:
            return  # what it became speaks for itself
        old = before.state.value if before else classic.state.value if classic else "Dead"
        new = after.state.value if after else "Dead"
        known = after or before
        if old != new and known is not None:
            self.observed.append(
                GroupStateChanged(
                    group=known.group_id,
                    now=self.now,
                    generation=known.epoch,
                    before=old,
                    after=new,
                )
            )
