"""Assignors that run in a member (KIP-848, K60, K61): who is asked, and what its answer is worth.

When a new epoch needs a target assignment, and all members know an assignor of their own, one of
them is asked for it in the answer to its heartbeat. It asks back for the group (prepare), computes,
and sends the result (install). Nobody waits for it: every member goes on with the target as it was.
Whatever goes wrong, the coordinator's own assignor makes the target instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from immutables import Map

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer import target, validate
from kohort.group.coordinator.consumer.draft import ConsumerDraft
from kohort.group.coordinator.consumer.group import ConsumerGroup, Member, Target
from kohort.group.coordinator.consumer.jobs import InstallJob, NewTarget
from kohort.group.coordinator.consumer.refused import Refused
from kohort.group.coordinator.consumer.session import Computation, Install
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.group.coordinator.events import ConsumerAssignmentExpired, RequestArrived
from kohort.group.events import AssignmentAsked, AssignorFellBack
from kohort.group.values import replace
from kohort.types import TopicPartition
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    InstalledMember,
    PreparedMember,
    PreparedTopic,
)
from kohort.wire.messages.consumer_group import (
    AssignmentMetadata,
    ClientAssignor,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

Prepare = RequestArrived[ConsumerGroupPrepareAssignmentRequest]

# What one member may say about its assignors; what all say together is bounded by the config.
_MOST_ASSIGNORS = 16
_MOST_METADATA_BYTES = 64 * 1024
# To tell a member more, and to read as much, would take so long (100 ms and more) that others felt
# it: messages are written and read where heartbeats are answered.
_MOST_MEMBERS_AND_PARTITIONS = 250_000


def check(request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse assignors that are none, or too many.

    Raises:
        Refused: INVALID_REQUEST.
    """
    assignors = request.client_assignors
    if not assignors:
        return
    names = {each.name for each in assignors}
    if len(assignors) > _MOST_ASSIGNORS or sum(map(_size, assignors)) > _MOST_METADATA_BYTES:
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors are too many or too large.")
    if len(names) < len(assignors) or any(not name.strip() for name in names):
        raise Refused(ErrorCode.INVALID_REQUEST, "ClientAssignors must have names, each once.")
    if any(not each.minimum_version <= each.version <= each.maximum_version for each in assignors):
        raise Refused(ErrorCode.INVALID_REQUEST, "A version of ClientAssignors is out of range.")


def _size(assignor: ClientAssignor) -> int:
    return len(assignor.name) + len(assignor.metadata)


# ------------------------------------------------------------------------------------ the choice


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An assignor that all members know, and who of them reads what all the others say."""

    name: str
    members: frozenset[str]


def chosen(draft: ConsumerDraft) -> str | None:
    """Return the assignor that members are to run, None for the coordinator's own.

    All members must know it, and one of them must read the metadata of all. As in the classic
    protocol each member votes for the first such one of its list; equal votes: the first by name.
    """
    group = draft.existing
    everybody = len(group.members)
    known = [name for name, count in sorted(group.client_assignors.items()) if count == everybody]
    if not known or _is_too_large(draft):
        return None
    usable = {name for name in known if _candidate(draft, name).members}
    votes = dict.fromkeys(sorted(usable), 0)
    for member in group.members.values() if usable else ():
        votes[next(each.name for each in member.client_assignors if each.name in usable)] += 1
    return min(votes, key=lambda name: (-votes[name], name), default=None)


def _candidate(draft: ConsumerDraft, name: str) -> _Candidate:
    """Return who may compute: a range of versions that covers all, and no failure so far."""
    group = draft.existing
    entries = {member_id: _entry(member, name) for member_id, member in group.members.items()}
    versions = [entry.version for entry in entries.values()]
    lowest, highest = min(versions), max(versions)
    failed = draft.session.unreliable.get(group.group_id, frozenset())
    able = (
        member_id
        for member_id, entry in entries.items()
        if entry.minimum_version <= lowest and highest <= entry.maximum_version
    )
    return _Candidate(name, frozenset(able) - failed)


def _entry(member: Member, name: str) -> ClientAssignor:
    return next(each for each in member.client_assignors if each.name == name)


def _is_too_large(draft: ConsumerDraft) -> bool:
    group, topics = draft.existing, draft.topics.by_name
    size = len(group.members) + sum(topics[t].partitions for t in group.topics if t in topics)
    said = sum(_size(each) for m in group.members.values() for each in m.client_assignors)
    return size > _MOST_MEMBERS_AND_PARTITIONS or said > draft.config.group_max_bytes


# ------------------------------------------------------------------------------------- asking


def ask(draft: ConsumerDraft) -> bool:
    """Let a member make the target of the group's epoch; False: the coordinator has to.

    The first capable member whose heartbeat is answered is asked: it is certainly there.
    """
    assignor = chosen(draft)
    if assignor is None:
        return False
    _note(draft, Computation(draft.existing.epoch, assignor))
    return True


def should_compute(draft: ConsumerDraft, member: Member) -> bool:
    """Whether the answer to this member's heartbeat asks it to compute.

    It does until the result is there, for an answer can be lost.
    """
    group = draft.existing
    run = draft.session.computing.get(group.group_id)
    if run is None or run.token or not member.client_assignors:
        return False
    if run.member_id in group.members:
        return run.member_id == member.member_id
    if member.member_id not in _candidate(draft, run.assignor).members:
        return False
    _note(draft, replace(run, member_id=member.member_id, prepared=None), member)
    draft.observed.append(
        AssignmentAsked(
            group=group.group_id,
            now=draft.now,
            generation=group.epoch,
            member=member.member_id,
            assignor=run.assignor,
        )
    )
    return True


def reconsider(draft: ConsumerDraft) -> None:
    """Take the question back when a member has come that does not know the assignor."""
    run = draft.session.computing.get(draft.group_id)
    if run is not None and run.prepared is None and not _is_known(draft.existing, run.assignor):
        _forget(draft)


def _is_known(group: ConsumerGroup, assignor: str) -> bool:
    return group.client_assignors.get(assignor, 0) == len(group.members)


def trust_again(draft: ConsumerDraft, member_id: str) -> None:
    """A member that says something new of its assignors may be asked again."""
    session, group_id = draft.session, draft.group_id
    failed = session.unreliable.get(group_id, frozenset()) - {member_id}
    if failed:
        draft.session = replace(session, unreliable=session.unreliable.set(group_id, failed))
    elif group_id in session.unreliable:
        draft.session = replace(session, unreliable=session.unreliable.delete(group_id))


def _note(draft: ConsumerDraft, run: Computation, member: Member | None = None) -> None:
    """Take note of who computes; the time for it runs from when a member is asked."""
    timeout_ms = draft.config.group_consumer_client_assignment_timeout_ms
    if member is not None:
        timeout_ms = min(timeout_ms, max(member.rebalance_timeout_ms, 0))
    computing = draft.session.computing.set(draft.group_id, run)
    draft.session = replace(draft.session, computing=computing)
    due = draft.now + timeout_ms
    draft.deadlines = draft.deadlines.set(ConsumerAssignmentExpired(draft.group_id), due)


def _forget(draft: ConsumerDraft) -> None:
    computing = draft.session.computing.delete(draft.group_id)
    draft.session = replace(draft.session, computing=computing)
    draft.deadlines = draft.deadlines.cancel(ConsumerAssignmentExpired(draft.group_id))


# ------------------------------------------------------------------------------------ falling back


def expire(draft: ConsumerDraft) -> None:
    """No result in time: the coordinator's assignor makes the target."""
    run = draft.session.computing.get(draft.group_id)
    if run is not None and not run.token:
        _fall_back(draft, run, "no assignment in time")


def _fall_back(draft: ConsumerDraft, run: Computation, reason: str, *, blamed: bool = True) -> None:
    """Let the coordinator's assignor make the target, and do not ask that member again."""
    _forget(draft)
    group = draft.group
    if group is None or not group.members:
        return
    if blamed and run.member_id is not None:
        _distrust(draft, group, run.member_id)
    draft.observed.append(
        AssignorFellBack(
            group=draft.group_id,
            now=draft.now,
            generation=group.epoch,
            member=run.member_id or "",
            assignor=run.assignor,
            reason=reason,
        )
    )
    target.begin(draft)


def _distrust(draft: ConsumerDraft, group: ConsumerGroup, member_id: str) -> None:
    unreliable = draft.session.unreliable
    failed = unreliable.get(draft.group_id, frozenset()) | {member_id}
    present = frozenset(each for each in failed if each in group.members)
    draft.session = replace(draft.session, unreliable=unreliable.set(draft.group_id, present))


# ------------------------------------------------------------------------------------- prepare


def prepare(draft: ConsumerDraft, arrived: Prepare) -> None:
    """K61: tell the member that was asked all that its assignor needs to know.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, as the proposal says.
    """
    request = arrived.request
    run = _run_of(draft, request.group_id, request.member_id, request.member_epoch)
    if run.token:
        raise _not_asked(request.member_id)
    group = draft.existing
    assignor = chosen(draft)
    if assignor is None or request.member_id not in _candidate(draft, assignor).members:
        message = f"Not all members of group {request.group_id} can use {run.assignor} any more."
        _fall_back(draft, run, message, blamed=False)
        response = ConsumerGroupPrepareAssignmentResponse(
            error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message=clipped(message)
        )
    else:
        run = replace(
            run, epoch=group.epoch, assignor=assignor, prepared=group, topics=draft.topics
        )
        computing = draft.session.computing.set(draft.group_id, run)
        draft.session = replace(draft.session, computing=computing)
        response = _prepared(group, draft.topics, assignor)
    draft.reply(arrived.token, response, arrived.version)


def _run_of(draft: ConsumerDraft, group_id: str, member_id: str, epoch: int) -> Computation:
    """Return what this member was asked to compute."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    if draft.group is None:
        raise validate.unknown_group(group_id)
    member = draft.group.members.get(member_id)
    if member is None:
        raise validate.unknown_member(group_id, member_id)
    # A heartbeat that was answered meanwhile may have moved it on.
    if epoch not in (member.epoch, member.previous_epoch):
        raise Refused(ErrorCode.STALE_MEMBER_EPOCH, f"Member {member_id} is not in epoch {epoch}.")
    run = draft.session.computing.get(group_id)
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
    entry = _entry(member, assignor)
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


def install(draft: ConsumerDraft, arrived: Install) -> None:
    """K61: let a job look at what a member made.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; nothing else follows.
    """
    request = arrived.request
    run = _run_of(draft, request.group_id, request.member_id, request.member_epoch)
    if request.error:
        _fall_back(draft, run, "the member's assignor failed")
        _answer(draft, arrived)
    elif run.prepared is None or request.group_epoch != run.epoch:
        message = f"Group {request.group_id} wants no assignment for epoch {request.group_epoch}."
        _fall_back(draft, run, message)
        _answer(draft, arrived, ErrorCode.STALE_MEMBER_EPOCH, message)
    else:
        token = draft.take_token()
        draft.jobs.append(InstallJob(token, run.prepared, run.topics, run.assignor, request))
        session = draft.session
        draft.session = replace(
            session,
            computing=session.computing.set(draft.group_id, replace(run, token=token)),
            installing=session.installing.set(token, arrived),
        )


def _answer(
    draft: ConsumerDraft,
    arrived: Install,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> None:
    response = ConsumerGroupInstallAssignmentResponse(
        error_code=code, error_message=clipped(message)
    )
    draft.reply(arrived.token, response, arrived.version)


def make(job: InstallJob) -> NewTarget:
    """Do the job: return what changes, held against the group as the member was told it."""
    group, topics = job.group, job.topics
    try:
        given = _checked(group, topics, job.request.members)
    except Refused as wrong:
        return NewTarget(error=wrong.message or wrong.code.name, code=wrong.code)
    changed, assignments, words = [], [], {}
    for member_id in sorted(group.members):
        entry = given.get(member_id)
        partitions = _target(entry.topic_partitions) if entry else Map()
        word = _word(job.assignor, entry)
        assignments.append((member_id, _named(partitions, topics)))
        if group.target.get(member_id) != partitions or group.words.get(member_id) != word:
            changed.append((member_id, group.members[member_id].instance_id, partitions))
            words[member_id] = word
    return NewTarget(tuple(changed), tuple(assignments), words=words)


def installed(draft: ConsumerDraft, token: int, made: NewTarget) -> None:
    """K61: take the member's result, or make another one if it cannot be one."""
    arrived = draft.session.installing.get(token)
    if arrived is None:
        return
    draft.session = replace(draft.session, installing=draft.session.installing.delete(token))
    run = draft.session.computing.get(draft.group_id)
    if run is None or run.token != token or draft.group is None:
        _answer(draft, arrived, ErrorCode.STALE_MEMBER_EPOCH, "The group has gone on without it.")
    elif made.error is not None:
        _fall_back(draft, run, made.error)
        _answer(draft, arrived, made.code, made.error)
    else:
        _forget(draft)
        target.store(draft, run.epoch, made)
        _answer(draft, arrived)


def _checked(
    group: ConsumerGroup, topics: TopicsImage, members: Iterable[InstalledMember]
) -> Mapping[str, InstalledMember]:
    """Refuse who is not a member, what is not wanted or not there, and what is given twice."""
    given: dict[str, InstalledMember] = {}
    taken: dict[uuid.UUID, set[int]] = {}
    for entry in members:
        member = group.members.get(entry.member_id)
        if member is None or entry.member_id in given:
            raise validate.unknown_member(group.group_id, entry.member_id)
        if len(entry.metadata) > _MOST_METADATA_BYTES:
            raise Refused(ErrorCode.INVALID_REQUEST, "The metadata of an assignment is too large.")
        subscribed = topics.ids(group.topics_of(member))
        for topic in entry.topic_partitions:
            if topic.topic_id not in subscribed:
                message = f"{entry.member_id} does not subscribe to topic {topic.topic_id}."
                raise Refused(ErrorCode.INVALID_REQUEST, message)
            size = topics.by_name[topics.names[topic.topic_id]].partitions
            _take(taken.setdefault(topic.topic_id, set()), topic, size)
        given[entry.member_id] = entry
    return given


def _take(taken: set[int], topic: TopicPartitions, size: int) -> None:
    """Add partitions of one topic to those that are given already; whole sets, for speed."""
    numbers = set(topic.partitions)
    if numbers and not (min(numbers) >= 0 and max(numbers) < size):
        message = f"A partition of topic {topic.topic_id} is not there."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if len(numbers) < len(topic.partitions) or not numbers.isdisjoint(taken):
        message = f"A partition of topic {topic.topic_id} is assigned twice."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    taken |= numbers


def _target(topic_partitions: Iterable[TopicPartitions]) -> Target:
    by_id: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topic_partitions:
        by_id[topic.topic_id] = by_id.get(topic.topic_id, frozenset()).union(topic.partitions)
    return Map({topic_id: numbers for topic_id, numbers in by_id.items() if numbers})


def _word(assignor: str, entry: InstalledMember | None) -> AssignmentMetadata:
    if entry is None:
        return AssignmentMetadata(assignor=assignor)
    return AssignmentMetadata(assignor=assignor, version=entry.version, metadata=entry.metadata)


def _named(partitions: Target, topics: TopicsImage) -> tuple[TopicPartition, ...]:
    names = sorted((topics.names[topic_id], numbers) for topic_id, numbers in partitions.items())
    return tuple(TopicPartition(name, each) for name, numbers in names for each in sorted(numbers))
