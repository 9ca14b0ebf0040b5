"""A rebalance: everybody is called, everybody joins, the coordinator assigns (D4, D5, D9)."""

from __future__ import annotations

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import fold
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.coordinator.draft.group import Consumer, DraftState
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.events import JoinExpired, SessionExpired
from kohort.group.coordinator.group import Parked
from kohort.group.events import (
    Assigned,
    Cause,
    GenerationStarted,
    MemberJoined,
    RebalanceStarted,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft import DraftJoinGroupResponse

NONE, PREPARE = DraftState.NONE, DraftState.PREPARE_FOR_REBALANCE
REBALANCING, STEADY = DraftState.REBALANCING, DraftState.STEADY


# --------------------------------------------------------------------------- prepare for rebalance


def prepare(change: GroupChange, cause: Cause, consumer_id: str = "") -> None:
    """D4: from now on every heartbeat is answered ILLEGAL_GENERATION, until all have joined.

    D13: who has not come within the longest session timeout of the group is dead.
    """
    group = change.group
    change.observed.append(
        RebalanceStarted(
            group=group.group_id,
            now=change.now,
            generation=group.generation,
            member=consumer_id,
            cause=cause,
        )
    )
    change.enter(PREPARE)
    change.start(JoinExpired(group.group_id), group.longest_session_ms)
    go_on_if_all_joined(change)


def go_on_if_all_joined(change: GroupChange) -> None:
    """D5, D9: the next step needs the join of every consumer of the present generation."""
    if change.group.all_joined:
        go_on(change)


def go_on(change: GroupChange) -> None:
    """Begin a generation with those who have joined; without any the group is over."""
    group = change.group
    for consumer_id in sorted(group.consumers):
        if consumer_id not in group.joining:
            remove(change, consumer_id, Cause.JOIN_TIMED_OUT)
    change.cancel(JoinExpired(group.group_id))
    if change.group.consumers or change.group.newcomers:
        _begin_generation(change)
    else:
        _end(change)


def _end(change: GroupChange) -> None:
    """D15: the log keeps the generation and the sequence of a group that nobody is in."""
    change.enter(NONE)
    assignor = change.config.draft_assignor
    change.records.append(fold.group_record(change.group, assignor, {}, {}))


# ------------------------------------------------------------------------------------- rebalancing


def _begin_generation(change: GroupChange) -> None:
    """D5, D9: the next generation, an id for whoever has none, and the assignment as a job."""
    known = change.group.consumers
    group = change.group = change.group.with_ids()
    for consumer in group.sorted_consumers():
        if consumer.consumer_id not in known:
            _say_joined(change, consumer)
    change.group = replace(group, generation=group.generation + 1, job=0)
    change.enter(REBALANCING)
    change.observed.append(
        GenerationStarted(
            group=group.group_id,
            now=change.now,
            generation=change.group.generation,
            protocol=change.config.draft_assignor,
            leader="",
            members=tuple(sorted(group.consumers)),
        )
    )
    start_job(change)


def _say_joined(change: GroupChange, consumer: Consumer) -> None:
    change.observed.append(
        MemberJoined(
            group=change.group.group_id,
            now=change.now,
            member=consumer.consumer_id,
            client_id=consumer.client_id,
            client_host=consumer.host,
        )
    )


def start_job(change: GroupChange) -> None:
    """D5: let the partitions be shared out; the result of an earlier job counts no more."""
    group = change.group = replace(change.group, job=change.group.job + 1)
    change.jobs.append(
        DraftAssignmentJob(
            group.group_id,
            group.generation,
            group.job,
            change.config.draft_assignor,
            {each.consumer_id: each.topics for each in group.sorted_consumers()},
            present_topics(change),
        )
    )


def present_topics(change: GroupChange) -> dict[str, int]:
    """Return how many partitions the group's topics have now; those that do not exist are out."""
    known = change.topics.by_name
    return {name: known[name].partitions for name in sorted(change.group.topics) if name in known}


# ------------------------------------------------------------------------------------------ steady


def is_stale(change: GroupChange, done: DraftJobDone) -> bool:
    """Whether the result belongs to another attempt than the last one."""
    group, job = change.group, done.job
    return (job.generation, job.number) != (group.generation, group.job)


def is_failed(_change: GroupChange, done: DraftJobDone) -> bool:
    """Whether the assignor raised."""
    return done.owned is None


def give_up(change: GroupChange, _done: DraftJobDone) -> None:
    """The assignor raised: nobody can be told anything better than to go."""
    answer_all(change, ErrorCode.UNKNOWN_SERVER_ERROR)
    change.enter(PREPARE)
    change.start(JoinExpired(change.group.group_id), change.group.longest_session_ms)


def become_steady(change: GroupChange, done: DraftJobDone) -> None:
    """D6, D7: write the generation down, then tell everybody who it is and what it owns."""
    group, owned = change.group, done.owned or {}
    record = fold.group_record(group, done.job.assignor, done.job.topics, owned)
    change.records.append(record)
    change.enter(STEADY)
    change.observed.append(
        Assigned(
            group=group.group_id,
            now=change.now,
            generation=group.generation,
            assignments=tuple((each, tuple(owned[each])) for each in sorted(owned)),
        )
    )
    for consumer_id, parked in sorted(group.joining.items()):
        tell(change, parked, consumer_id, tuple(owned.get(consumer_id, ())))
        restart_session(change, group.consumers[consumer_id])
    change.group = replace(change.group, joining=Map())
    _follow_up(change, done)


def _follow_up(change: GroupChange, done: DraftJobDone) -> None:
    """D10, D14: who came while the assignment was made needs the next rebalance."""
    if change.group.newcomers:
        prepare(change, Cause.MEMBER_JOINED)
    elif present_topics(change) != done.job.topics:
        prepare(change, Cause.TOPICS_CHANGED)


def tell(
    change: GroupChange, parked: Parked, consumer_id: str, owned: tuple[TopicPartition, ...]
) -> None:
    """Answer a join: the generation, the consumer's id (D7, D8) and what it owns."""
    response = DraftJoinGroupResponse(
        error_code=ErrorCode.NONE,
        group_id=change.group.group_id,
        group_generation_id=change.group.generation,
        consumer_id=consumer_id,
        partitions_to_own=fold.on_wire(owned),
    )
    change.reply(parked.token, response, parked.version)


# ----------------------------------------------------------------------------------------- helpers


def refuse(change: GroupChange, parked: Parked, code: ErrorCode, consumer_id: str = "") -> None:
    """Answer a join with an error."""
    response = DraftJoinGroupResponse(
        error_code=code, group_id=change.group.group_id, consumer_id=consumer_id
    )
    change.reply(parked.token, response, parked.version)


def answer_all(change: GroupChange, code: ErrorCode) -> None:
    """Answer every join that is parked with an error; who had no id has none."""
    for consumer_id, parked in sorted(change.group.joining.items()):
        refuse(change, parked, code, consumer_id)
    for newcomer in change.group.newcomers:
        refuse(change, newcomer.parked, code)
    change.group = replace(change.group, joining=Map(), newcomers=())


def restart_session(change: GroupChange, consumer: Consumer) -> None:
    """D12: count the consumer's silence from now."""
    deadline = SessionExpired(change.group.group_id, consumer.consumer_id)
    change.start(deadline, consumer.session_timeout_ms)


def remove(change: GroupChange, consumer_id: str, cause: Cause) -> None:
    """Take a consumer out of the group: its id means nothing any more."""
    change.cancel(SessionExpired(change.group.group_id, consumer_id))
    change.group = change.group.without_consumer(consumer_id)
    change.say_left(consumer_id, cause)
