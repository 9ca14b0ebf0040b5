"""The target assignment: its timing, input and effects (K11; KIP-1263).

A job computes it. The heartbeat that triggered the job waits for it, as in Kafka; all others are
answered at once, with the previous target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.group.assignors.server import MemberSubscription, ServerAssignor
from kohort.group.coordinator.consumer.decision import ConsumerDecision, TargetJob
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, Owned, Target
from kohort.group.coordinator.consumer.state.session import Heartbeat, TargetRun, Waiting
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.jobs import ChangedTarget, NewTarget
from kohort.group.coordinator.topics import TopicsImage
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.consumer_group import AssignmentMetadata
from kohort.wire.messages.consumer_group_records import ConsumerGroupTargetAssignmentMemberKey
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.membership import JoinGroupRequest

# Computing a small group's target takes longer only on a busy machine.
_SMALL_GROUP = 20
_WORTH_A_REST_MS, _WORTH_A_REST_SMALL_MS = 5, 50
_REST = 4

# --------------------------------------------------------------------------------------- before


def is_due(decision: ConsumerDecision) -> bool:
    """Return whether the group's epoch needs a target and enough time has passed (K56).

    Computing a group's targets may take at most a fifth of the time. So a thousand members that
    join a large group one by one cost a few targets, not a thousand.
    """
    group, session = decision.existing, decision.session
    if group.assignment_epoch >= group.epoch or group.group_id in session.targets:
        return False
    if group.group_id in session.computing:
        return False
    if decision.now < session.resting.get(group.group_id, decision.now):
        return False
    made, interval = (
        group.assignment_timestamp,
        decision.config.group_consumer_assignment_interval_ms,
    )
    # A clock set back, or another broker's clock, must not delay the group.
    return not made or not interval or not made <= decision.wall_ms < made + interval


def start(
    decision: ConsumerDecision,
    arrived: Heartbeat | RequestArrived[JoinGroupRequest],
    member_id: str,
    before: Owned,
    resubscribed: bool,
) -> None:
    """Start the job, and have the request wait for it."""
    begin(decision, Waiting(arrived, member_id, before, resubscribed))


def begin(decision: ConsumerDecision, waiting: Waiting | None = None) -> None:
    """Start the job, with or without a waiting request."""
    group = decision.existing
    token = decision.take_token()
    default = decision.config.group_consumer_assignors[0]
    name = group.preferred_assignor(default)
    is_rack_aware = decision.config.group_consumer_rack_aware
    decision.jobs.append(TargetJob(token, group, decision.topics, name, is_rack_aware))
    run = TargetRun(token, group.epoch, decision.now, waiting)
    targets = decision.session.targets.set(group.group_id, run)
    decision.session = replace(decision.session, targets=targets)


def end(decision: ConsumerDecision, run: TargetRun) -> None:
    """Note that the job has ended or failed."""
    group_id, session = decision.group_id, decision.session
    took = decision.now - run.started
    resting = session.resting
    is_small = decision.group is None or len(decision.group.members) < _SMALL_GROUP
    if took >= (_WORTH_A_REST_SMALL_MS if is_small else _WORTH_A_REST_MS):
        resting = resting.set(group_id, decision.now + _REST * took)
    elif group_id in resting:
        resting = resting.delete(group_id)
    decision.session = replace(session, targets=session.targets.delete(group_id), resting=resting)


# ------------------------------------------------------------------------------------- the job


def make(job: TargetJob, assignors: Mapping[str, ServerAssignor]) -> NewTarget:
    """Run the job; pure, and slow for a large group.

    Args:
        job: The job.
        assignors: The assignors by name.
    """
    group, topics = job.group, job.topics
    subscriptions = _Subscriptions(group, topics)
    members = {member_id: subscriptions.of(each) for member_id, each in group.members.items()}
    wanted = {name: topics.by_name[name] for name in subscriptions.topics}
    counts = {name: view.partitions for name, view in wanted.items()}
    racks = {name: view.racks for name, view in wanted.items() if view.racks}
    made = assignors[job.assignor].assign(members, counts, racks)
    changed, assignments = [], []
    for member_id in sorted(group.members):
        given = made.get(member_id, frozenset())
        assignments.append((member_id, tuple(sorted(given))))
        target = _by_id(given, topics)
        if member_id in group.words or not is_stored(group, member_id, target):
            changed.append(changed_target(group, member_id, target))
    return NewTarget(tuple(changed), tuple(assignments))


def is_stored(group: ConsumerGroup, member_id: str, target: Target) -> bool:
    """Return whether this target of a member is in the log already."""
    return member_id in group.target and group.target_of(member_id) == target


def changed_target(
    group: ConsumerGroup, member_id: str, target: Target, word: AssignmentMetadata | None = None
) -> ChangedTarget:
    """Return the record for a member whose target has changed."""
    record = log_records.target_record(group.group_id, member_id, target, word)
    return ChangedTarget(member_id, group.members[member_id].instance_id, record)


class _Subscriptions:
    """The members' subscriptions and partitions as the assignor sees them, with topic names."""

    def __init__(self, group: ConsumerGroup, topics: TopicsImage) -> None:
        self._group = group
        self._topics = topics
        # Most members of a group subscribe to the same topics.
        self._names: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
        self.topics = frozenset(name for name in group.topics if name in topics.by_name)

    def of(self, member: Member) -> MemberSubscription:
        key = (member.topics, member.regex)
        names = self._names.get(key)
        if names is None:
            names = self._names[key] = self._group.topics_of(member) & self.topics
        return MemberSubscription(
            topics=names,
            owned=frozenset(self._owned(self._group.target_of(member.member_id))),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
        )

    def _owned(self, target: Target) -> Iterable[TopicPartition]:
        for topic_id, numbers in target.items():
            name = self._topics.names.get(topic_id)
            if name is not None:
                for number in numbers:
                    yield TopicPartition(name, number)


def _by_id(partitions: Iterable[TopicPartition], topics: TopicsImage) -> Target:
    by_name: dict[str, set[int]] = {}
    for name, number in partitions:
        by_name.setdefault(name, set()).add(number)
    return {topics.by_name[name].topic_id: frozenset(numbers) for name, numbers in by_name.items()}


# --------------------------------------------------------------------------------------- after


def store(decision: ConsumerDecision, epoch: int, made: NewTarget) -> None:
    """Write the changes, for the members that still exist."""
    group = decision.existing
    records = [_record_for(group, each) for each in made.changed]
    decision.write(record for record in records if record is not None)
    decision.write([log_records.assignment_epoch_record(group.group_id, epoch, decision.wall_ms)])
    decision.say_assigned(epoch, made.assignments)


def _record_for(group: ConsumerGroup, changed: ChangedTarget) -> GroupRecord | None:
    """Return the record for a member that still exists, or its replacement, else None."""
    if changed.member_id in group.members:
        return changed.record
    receiver = group.static.get(changed.instance_id or "")
    if receiver is None or receiver not in group.members:
        return None
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=receiver)
    return GroupRecord(key, changed.record.value)
