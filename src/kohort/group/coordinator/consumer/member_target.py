"""A target that a member makes (K61): its input and its result."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer import client_assignors, target, validate
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.jobs import InstallJob
from kohort.group.coordinator.consumer.refused import Refused
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, Target
from kohort.group.coordinator.consumer.state.session import Computation, Install, Prepare
from kohort.group.coordinator.jobs import NewTarget
from kohort.group.coordinator.topics import TopicsImage
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentResponse,
    InstalledMember,
    PreparedMember,
    PreparedTopic,
)
from kohort.wire.messages.consumer_group import AssignmentMetadata, TopicPartitions

# ------------------------------------------------------------------------------------- prepare


def prepare(decision: ConsumerDecision, arrived: Prepare) -> None:
    """K61: send the member that was asked the input of its assignor.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, as the proposal says.
    """
    request = arrived.request
    run = _run_of(decision, request.group_id, request.member_id, request.member_epoch)
    if run.token:
        raise _not_asked(request.member_id)
    group = decision.existing
    assignor = client_assignors.chosen(decision)
    if assignor is None or request.member_id not in client_assignors.able(decision, assignor):
        message = f"Not all members of group {request.group_id} can use {run.assignor} any more."
        client_assignors.fall_back(decision, run, message, blamed=False)
        response = ConsumerGroupPrepareAssignmentResponse(
            error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message=clipped(message)
        )
    else:
        run = replace(
            run, epoch=group.epoch, assignor=assignor, prepared=group, topics=decision.topics
        )
        computing = decision.session.computing.set(decision.group_id, run)
        decision.session = replace(decision.session, computing=computing)
        response = _prepared(group, decision.topics, assignor)
    decision.reply(arrived.token, response, arrived.version)


def _run_of(decision: ConsumerDecision, group_id: str, member_id: str, epoch: int) -> Computation:
    """Return the computation that this member was asked for."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    if decision.group is None:
        raise validate.unknown_group(group_id)
    member = decision.group.members.get(member_id)
    if member is None:
        raise validate.unknown_member(group_id, member_id)
    # A heartbeat answered in the meantime may have changed its epoch.
    if epoch not in (member.epoch, member.previous_epoch):
        raise Refused(ErrorCode.STALE_MEMBER_EPOCH, f"Member {member_id} is not in epoch {epoch}.")
    run = decision.session.computing.get(group_id)
    if run is None or run.member_id != member_id:
        raise _not_asked(member_id)
    return run


def _not_asked(member_id: str) -> Refused:
    message = f"Member {member_id} was not asked for an assignment."
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, message)


def _prepared(
    group: ConsumerGroup, topics: TopicsImage, assignor: str
) -> ConsumerGroupPrepareAssignmentResponse:
    return ConsumerGroupPrepareAssignmentResponse(
        group_epoch=group.epoch,
        assignor_name=assignor,
        members=tuple(
            _prepared_member(group, topics, group.members[member_id], assignor)
            for member_id in sorted(group.members)
        ),
        topics=tuple(
            PreparedTopic(
                topic_id=topics.by_name[name].topic_id,
                topic_name=name,
                num_partitions=topics.by_name[name].partitions,
            )
            for name in sorted(group.topics)
            if name in topics.by_name
        ),
    )


def _prepared_member(
    group: ConsumerGroup, topics: TopicsImage, member: Member, assignor: str
) -> PreparedMember:
    entry = client_assignors.entry_of(member, assignor)
    owned = group.target_of(member.member_id)
    return PreparedMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        subscribed_topic_names=tuple(
            sorted(name for name in group.topics_of(member) if name in topics.by_name)
        ),
        reason=entry.reason,
        version=entry.version,
        metadata=entry.metadata,
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(owned[topic_id])))
            for topic_id in sorted(owned)
            if topic_id in topics.names
        ),
    )


# ------------------------------------------------------------------------------------- install


def install(decision: ConsumerDecision, arrived: Install) -> None:
    """K61: check a member's result in a job.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; nothing else follows.
    """
    request = arrived.request
    run = _run_of(decision, request.group_id, request.member_id, request.member_epoch)
    if request.error:
        client_assignors.fall_back(decision, run, "the member's assignor failed")
        _answer(decision, arrived)
    elif run.prepared is None or request.group_epoch != run.epoch:
        message = f"Group {request.group_id} wants no assignment for epoch {request.group_epoch}."
        client_assignors.fall_back(decision, run, message)
        _answer(decision, arrived, ErrorCode.STALE_MEMBER_EPOCH, message)
    else:
        token = decision.take_token()
        decision.jobs.append(InstallJob(token, run.prepared, run.topics, run.assignor, request))
        session = decision.session
        decision.session = replace(
            session,
            computing=session.computing.set(decision.group_id, replace(run, token=token)),
            installing=session.installing.set(token, arrived),
        )


def _answer(
    decision: ConsumerDecision,
    arrived: Install,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> None:
    response = ConsumerGroupInstallAssignmentResponse(
        error_code=code, error_message=clipped(message)
    )
    decision.reply(arrived.token, response, arrived.version)


def make(job: InstallJob) -> NewTarget:
    """Do the job: return the changes, checked against the group as it was sent to the member."""
    group, topics = job.group, job.topics
    try:
        given = _checked(group, topics, job.request.members)
    except Refused as wrong:
        return NewTarget(error=wrong.message or wrong.code.name, code=wrong.code)
    changed, assignments = [], []
    for member_id in sorted(group.members):
        entry = given.get(member_id)
        partitions = _target(entry.topic_partitions) if entry else {}
        word = _word(job.assignor, entry)
        assignments.append((member_id, _named(partitions, topics)))
        said = group.words.get(member_id) == word
        if not said or not target.is_stored(group, member_id, partitions):
            changed.append(target.changed_target(group, member_id, partitions, word))
    return NewTarget(tuple(changed), tuple(assignments))


def installed(decision: ConsumerDecision, token: int, made: NewTarget) -> None:
    """K61: use the member's result, or make another target if it is invalid."""
    arrived = decision.session.installing.get(token)
    if arrived is None:
        return
    decision.session = replace(
        decision.session, installing=decision.session.installing.delete(token)
    )
    run = decision.session.computing.get(decision.group_id)
    if run is None or run.token != token or decision.group is None:
        _answer(
            decision, arrived, ErrorCode.STALE_MEMBER_EPOCH, "The group has gone on without it."
        )
    elif made.error is not None:
        client_assignors.fall_back(decision, run, made.error)
        _answer(decision, arrived, made.code, made.error)
    else:
        client_assignors.forget(decision)
        target.store(decision, run.epoch, made)
        _answer(decision, arrived)


def _checked(
    group: ConsumerGroup, topics: TopicsImage, members: Iterable[InstalledMember]
) -> Mapping[str, InstalledMember]:
    """Refuse unknown members, and partitions that are unwanted, missing or assigned twice."""
    given: dict[str, InstalledMember] = {}
    taken: dict[uuid.UUID, set[int]] = {}
    for entry in members:
        member = group.members.get(entry.member_id)
        if member is None or entry.member_id in given:
            raise validate.unknown_member(group.group_id, entry.member_id)
        if len(entry.metadata) > client_assignors.MOST_METADATA_BYTES:
            raise Refused(ErrorCode.INVALID_REQUEST, "The metadata of an assignment is too large.")
        subscribed = topics.ids(group.topics_of(member))
        for topic in entry.topic_partitions:
            if topic.topic_id not in subscribed:
                message = f"{entry.member_id} does not subscribe to topic {topic.topic_id}."
                raise Refused(ErrorCode.INVALID_REQUEST, message)
            size = topics.by_name[topics.names[topic.topic_id]].partitions
            if not _take(taken.setdefault(topic.topic_id, set()), topic, size):
                raise _given_twice(topics, topic, [*given.values(), entry])
        given[entry.member_id] = entry
    return given


def _take(taken: set[int], topic: TopicPartitions, size: int) -> bool:
    """Add partitions of one topic to those assigned already; whole sets, for speed.

    Returns:
        Whether none of them was assigned already.
    """
    numbers = set(topic.partitions)
    if numbers and not (min(numbers) >= 0 and max(numbers) < size):
        message = f"A partition of topic {topic.topic_id} is not there."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if len(numbers) < len(topic.partitions) or not numbers.isdisjoint(taken):
        return False
    taken |= numbers
    return True


def _given_twice(
    topics: TopicsImage, topic: TopicPartitions, members: Iterable[InstalledMember]
) -> Refused:
    """Return a text that names the partition assigned twice, and its members."""
    owners: dict[int, list[str]] = {}
    for entry in members:
        for each in entry.topic_partitions:
            if each.topic_id == topic.topic_id:
                for number in each.partitions:
                    owners.setdefault(number, []).append(entry.member_id)
    number, (one, other, *_) = min(each for each in owners.items() if len(each[1]) > 1)
    name = f"{topics.names[topic.topic_id]}-{number}"
    to = f"twice to {one}" if one == other else f"to two members: {one} and {other}"
    return Refused(ErrorCode.INVALID_REQUEST, f"{name} is given {to}.")


def _target(topic_partitions: Iterable[TopicPartitions]) -> Target:
    by_id: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topic_partitions:
        by_id[topic.topic_id] = by_id.get(topic.topic_id, frozenset()).union(topic.partitions)
    return {topic_id: numbers for topic_id, numbers in by_id.items() if numbers}


def _word(assignor: str, entry: InstalledMember | None) -> AssignmentMetadata:
    if entry is None:
        return AssignmentMetadata(assignor=assignor)
    return AssignmentMetadata(assignor=assignor, version=entry.version, metadata=entry.metadata)


def _named(partitions: Target, topics: TopicsImage) -> tuple[TopicPartition, ...]:
    names = sorted((topics.names[topic_id], numbers) for topic_id, numbers in partitions.items())
    return tuple(TopicPartition(name, each) for name, numbers in names for each in sorted(numbers))
