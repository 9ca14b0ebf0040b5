"""Assignors that run in a member (KIP-848, K60, K61).

When a new epoch needs a target assignment and all members share a client-side assignor, the answer
to one member's heartbeat asks it to compute the target. That member requests the group (prepare),
computes, and sends the result (install). No member waits: each continues with the old target. If
any step fails, the coordinator's own assignor computes the target instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer import target, validate
from kohort.group.coordinator.consumer.decision import ConsumerDecision, InstallJob
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, Target
from kohort.group.coordinator.consumer.state.session import Computation, Install, Prepare
from kohort.group.coordinator.consumer.validate import Refused
from kohort.group.coordinator.events import ConsumerAssignmentExpired
from kohort.group.coordinator.jobs import NewTarget
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.events import AssignmentAsked, AssignorFellBack
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentResponse,
    InstalledMember,
    PreparedMember,
    PreparedTopic,
)
from kohort.wire.messages.consumer_group import (
    AssignmentMetadata,
    ClientAssignor,
    TopicPartitions,
)

# Beyond this size, encoding and decoding the messages takes 100 ms and more, which delays other
# members' heartbeats on the same thread.
_MOST_MEMBERS_AND_PARTITIONS = 250_000


# ------------------------------------------------------------------------------------ the choice


def chosen(decision: ConsumerDecision) -> str | None:
    """Return the assignor that a member should run, None for the coordinator's own.

    All members must support it, and one must be able to read all members' metadata. As in the
    classic protocol, each member votes for the first such assignor of its list; a tie goes to the
    first by name.
    """
    group = decision.existing
    total = len(group.members)
    known = [name for name, count in sorted(group.client_assignors.items()) if count == total]
    if not known or _is_too_large(decision):
        return None
    usable = {name for name in known if able(decision, name)}
    votes = dict.fromkeys(sorted(usable), 0)
    for member in group.members.values() if usable else ():
        votes[next(each.name for each in member.client_assignors if each.name in usable)] += 1
    return min(votes, key=lambda name: (-votes[name], name), default=None)


def able(decision: ConsumerDecision, name: str) -> frozenset[str]:
    """Return the members whose version range covers all others and that have not failed."""
    group = decision.existing
    entries = {member_id: entry_of(member, name) for member_id, member in group.members.items()}
    versions = [entry.version for entry in entries.values()]
    lowest, highest = min(versions), max(versions)
    covering = (
        member_id
        for member_id, entry in entries.items()
        if entry.minimum_version <= lowest and highest <= entry.maximum_version
    )
    return frozenset(covering) - decision.session.unreliable.get(group.group_id, frozenset())


def entry_of(member: Member, name: str) -> ClientAssignor:
    """Return a member's entry for an assignor that it supports."""
    return next(each for each in member.client_assignors if each.name == name)


def _is_too_large(decision: ConsumerDecision) -> bool:
    group, topics = decision.existing, decision.topics.by_name
    size = len(group.members) + sum(topics[t].partitions for t in group.topics if t in topics)
    announced = (each for member in group.members.values() for each in member.client_assignors)
    said = sum(map(validate.assignor_size, announced))
    return size > _MOST_MEMBERS_AND_PARTITIONS or said > decision.config.group_max_bytes


# ------------------------------------------------------------------------------------- asking


def ask(decision: ConsumerDecision) -> bool:
    """Have a member compute the target for the group's epoch; return False if none can.

    The first capable member to send a heartbeat is asked, because it is alive.
    """
    assignor = chosen(decision)
    if assignor is None:
        return False
    _note(decision, Computation(decision.existing.epoch, assignor))
    return True


def should_compute(decision: ConsumerDecision, member: Member) -> bool:
    """Return whether the answer to this member's heartbeat asks it to compute.

    Answers repeat the request until the result arrives, because one can be lost.
    """
    group = decision.existing
    run = decision.session.computing.get(group.group_id)
    if run is None or run.token or not member.client_assignors:
        return False
    if run.member_id in group.members:
        return run.member_id == member.member_id
    if member.member_id not in able(decision, run.assignor):
        return False
    _note(decision, replace(run, member_id=member.member_id, prepared=None), member)
    decision.observed.append(
        AssignmentAsked(
            group=group.group_id,
            now=decision.now,
            generation=group.epoch,
            member=member.member_id,
            assignor=run.assignor,
        )
    )
    return True


def reconsider(decision: ConsumerDecision) -> None:
    """Withdraw the request if a member without the assignor joins.

    A member that has already fetched the group may still send its result, unless it has left.
    """
    run = decision.session.computing.get(decision.group_id)
    if run is None or run.token or _is_known(decision.existing, run.assignor):
        return
    if run.prepared is None or run.member_id not in decision.existing.members:
        forget(decision)


def _is_known(group: ConsumerGroup, assignor: str) -> bool:
    return group.client_assignors.get(assignor, 0) == len(group.members)


def trust_again(decision: ConsumerDecision, member_id: str) -> None:
    """Allow asking a member again after it announces its assignors again."""
    session, group_id = decision.session, decision.group_id
    failed = session.unreliable.get(group_id, frozenset()) - {member_id}
    if failed:
        decision.session = replace(session, unreliable=session.unreliable.set(group_id, failed))
    elif group_id in session.unreliable:
        decision.session = replace(session, unreliable=session.unreliable.delete(group_id))


def _note(decision: ConsumerDecision, run: Computation, member: Member | None = None) -> None:
    """Store the member that computes, and start its timeout if it was asked."""
    timeout_ms = decision.config.group_consumer_client_assignment_timeout_ms
    if member is not None:
        timeout_ms = min(timeout_ms, max(member.rebalance_timeout_ms, 0))
    computing = decision.session.computing.set(decision.group_id, run)
    decision.session = replace(decision.session, computing=computing)
    decision.start(ConsumerAssignmentExpired(decision.group_id), timeout_ms)


def forget(decision: ConsumerDecision) -> None:
    """Stop asking any member."""
    computing = decision.session.computing.delete(decision.group_id)
    decision.session = replace(decision.session, computing=computing)
    decision.cancel(ConsumerAssignmentExpired(decision.group_id))


# ------------------------------------------------------------------------------------ falling back


def expire(decision: ConsumerDecision, _expired: ConsumerAssignmentExpired) -> None:
    """Fall back to the coordinator's assignor: no result arrived in time."""
    run = decision.session.computing.get(decision.group_id)
    if run is not None and not run.token:
        fall_back(decision, run, "no assignment in time")


def fall_back(
    decision: ConsumerDecision, run: Computation, reason: str, *, blamed: bool = True
) -> None:
    """Have the coordinator's assignor compute the target, and do not ask that member again."""
    forget(decision)
    group = decision.group
    if group is None or not group.members:
        return
    if blamed and run.member_id is not None:
        _distrust(decision, group, run.member_id)
    decision.observed.append(
        AssignorFellBack(
            group=decision.group_id,
            now=decision.now,
            generation=group.epoch,
            member=run.member_id or "",
            assignor=run.assignor,
            reason=reason,
        )
    )
    target.begin(decision)


def _distrust(decision: ConsumerDecision, group: ConsumerGroup, member_id: str) -> None:
    unreliable = decision.session.unreliable
    failed = unreliable.get(decision.group_id, frozenset()) | {member_id}
    present = frozenset(each for each in failed if each in group.members)
    decision.session = replace(
        decision.session, unreliable=unreliable.set(decision.group_id, present)
    )


# ------------------------------------------------------------------------------------- prepare


def prepare(decision: ConsumerDecision, arrived: Prepare) -> None:
    """K61: send the asked member the input of its assignor.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, as in KIP-848.
    """
    request = arrived.request
    run = _run_of(decision, request.group_id, request.member_id, request.member_epoch)
    if run.token:
        raise _not_asked(request.member_id)
    group = decision.existing
    assignor = chosen(decision)
    if assignor is None or request.member_id not in able(decision, assignor):
        message = f"Not all members of group {request.group_id} can use {run.assignor} any more."
        fall_back(decision, run, message, blamed=False)
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
    """Return the computation for which this member was asked."""
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
    entry = entry_of(member, assignor)
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
    """K61: start a job that checks a member's result.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; no other effect.
    """
    request = arrived.request
    run = _run_of(decision, request.group_id, request.member_id, request.member_epoch)
    if request.error:
        fall_back(decision, run, "the member's assignor failed")
        _answer(decision, arrived)
    elif run.prepared is None or request.group_epoch != run.epoch:
        message = f"Group {request.group_id} wants no assignment for epoch {request.group_epoch}."
        fall_back(decision, run, message)
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


def check_result(job: InstallJob) -> NewTarget:
    """Run the job: check the result against the group sent to the member; return the changes."""
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
    """K61: use the member's result, or fall back if it is invalid."""
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
        fall_back(decision, run, made.error)
        _answer(decision, arrived, made.code, made.error)
    else:
        forget(decision)
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
        if len(entry.metadata) > validate.MOST_METADATA_BYTES:
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
    """Add partitions of one topic to the assigned ones, as whole sets for speed.

    Returns:
        Whether all of them were unassigned before.
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
    """Return a message that names the partition assigned twice and its members."""
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
