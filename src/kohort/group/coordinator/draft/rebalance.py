"""A rebalance: all consumers are asked to join and do, then the coordinator assigns (D4-D9)."""

from __future__ import annotations

from immutables import Map

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import fold
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import Consumer, DraftState
from kohort.group.coordinator.events import JoinExpired, SessionExpired
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.session import Parked
from kohort.group.events import Cause, GenerationStarted
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft import DraftJoinGroupResponse

NONE, PREPARE = DraftState.NONE, DraftState.PREPARE_FOR_REBALANCE
REBALANCING, STEADY = DraftState.REBALANCING, DraftState.STEADY


# --------------------------------------------------------------------------- prepare for rebalance


def prepare(decision: DraftDecision, cause: Cause, consumer_id: str = "") -> None:
    """D4: answer every heartbeat with ILLEGAL_GENERATION until all have joined.

    D13: a consumer that has not joined within the group's longest session timeout is dead.
    """
    group = decision.group
    decision.say_rebalance(group.generation, cause, consumer_id)
    decision.enter(PREPARE)
    decision.start(JoinExpired(group.group_id), group.longest_session_ms)
    go_on_if_all_joined(decision)


def go_on_if_all_joined(decision: DraftDecision) -> None:
    """D5, D9: continue once every consumer of the present generation has joined."""
    if decision.group.all_joined:
        go_on(decision)


def go_on(decision: DraftDecision) -> None:
    """Begin a generation with the consumers that have joined; without any, the group ends."""
    group = decision.group
    for consumer_id in sorted(group.consumers):
        if consumer_id not in group.joining:
            remove(decision, consumer_id, Cause.JOIN_TIMED_OUT)
    decision.cancel(JoinExpired(group.group_id))
    if decision.group.consumers or decision.group.newcomers:
        _begin_generation(decision)
    else:
        _end(decision)


def _end(decision: DraftDecision) -> None:
    """D15: write the empty group, which keeps its generation and sequence."""
    decision.enter(NONE)
    assignor = decision.config.draft_assignor
    decision.records.append(fold.group_record(decision.group, assignor, {}, {}))


# ------------------------------------------------------------------------------------- rebalancing


def _begin_generation(decision: DraftDecision) -> None:
    """D5, D9: begin the next generation, give new consumers ids, and start the assignment job."""
    known = decision.group.consumers
    group = decision.group = decision.group.with_ids()
    for consumer in group.sorted_consumers():
        if consumer.consumer_id not in known:
            decision.say_joined(consumer.consumer_id, consumer.client_id, consumer.host)
    decision.group = replace(group, generation=group.generation + 1, job=0)
    decision.enter(REBALANCING)
    decision.observed.append(
        GenerationStarted(
            group=group.group_id,
            now=decision.now,
            generation=decision.group.generation,
            protocol=decision.config.draft_assignor,
            leader="",
            members=tuple(sorted(group.consumers)),
        )
    )
    start_job(decision)


def start_job(decision: DraftDecision) -> None:
    """D5: start the assignment job; the result of an earlier job no longer counts."""
    group = decision.group = replace(decision.group, job=decision.group.job + 1)
    decision.jobs.append(
        DraftAssignmentJob(
            group.group_id,
            group.generation,
            group.job,
            decision.config.draft_assignor,
            {each.consumer_id: each.topics for each in group.sorted_consumers()},
            present_topics(decision),
        )
    )


def present_topics(decision: DraftDecision) -> dict[str, int]:
    """Return the current partition counts of the group's topics, except missing ones."""
    known = decision.topics.by_name
    return {name: known[name].partitions for name in sorted(decision.group.topics) if name in known}


# ------------------------------------------------------------------------------------------ steady


def is_stale(decision: DraftDecision, done: DraftJobDone) -> bool:
    """Return whether the result belongs to an earlier attempt."""
    group, job = decision.group, done.job
    return (job.generation, job.number) != (group.generation, group.job)


def is_failed(_decision: DraftDecision, done: DraftJobDone) -> bool:
    """Return whether the assignor raised."""
    return done.owned is None


def give_up(decision: DraftDecision, _done: DraftJobDone) -> None:
    """Remove all members, because the assignor raised."""
    answer_all(decision, ErrorCode.UNKNOWN_SERVER_ERROR)
    decision.enter(PREPARE)
    decision.start(JoinExpired(decision.group.group_id), decision.group.longest_session_ms)


def become_steady(decision: DraftDecision, done: DraftJobDone) -> None:
    """D6, D7: write the generation, then send each consumer its id and its partitions."""
    group, owned = decision.group, done.owned or {}
    record = fold.group_record(group, done.job.assignor, done.job.topics, owned)
    decision.records.append(record)
    decision.enter(STEADY)
    decision.say_assigned(group.generation, ((each, tuple(owned[each])) for each in sorted(owned)))
    for consumer_id, parked in sorted(group.joining.items()):
        tell(decision, parked, consumer_id, tuple(owned.get(consumer_id, ())))
        restart_session(decision, group.consumers[consumer_id])
    decision.group = replace(decision.group, joining=Map())
    _follow_up(decision, done)


def _follow_up(decision: DraftDecision, done: DraftJobDone) -> None:
    """D10, D14: rebalance again for consumers that joined during the assignment."""
    if decision.group.newcomers:
        prepare(decision, Cause.MEMBER_JOINED)
    elif present_topics(decision) != done.job.topics:
        prepare(decision, Cause.TOPICS_CHANGED)


def tell(
    decision: DraftDecision, parked: Parked, consumer_id: str, owned: tuple[TopicPartition, ...]
) -> None:
    """Answer a join with the generation, the consumer's id (D7, D8) and its partitions."""
    response = DraftJoinGroupResponse(
        error_code=ErrorCode.NONE,
        group_id=decision.group.group_id,
        group_generation_id=decision.group.generation,
        consumer_id=consumer_id,
        partitions_to_own=fold.on_wire(owned),
    )
    decision.reply(parked.token, response, parked.version)


# ----------------------------------------------------------------------------------------- helpers


def refuse(decision: DraftDecision, parked: Parked, code: ErrorCode, consumer_id: str = "") -> None:
    """Answer a join with an error."""
    response = DraftJoinGroupResponse(
        error_code=code, group_id=decision.group.group_id, consumer_id=consumer_id
    )
    decision.reply(parked.token, response, parked.version)


def answer_all(decision: DraftDecision, code: ErrorCode) -> None:
    """Answer every parked join with an error; newcomers get no id."""
    for consumer_id, parked in sorted(decision.group.joining.items()):
        refuse(decision, parked, code, consumer_id)
    for newcomer in decision.group.newcomers:
        refuse(decision, newcomer.parked, code)
    decision.group = replace(decision.group, joining=Map(), newcomers=())


def restart_session(decision: DraftDecision, consumer: Consumer) -> None:
    """D12: restart the consumer's session timeout."""
    deadline = SessionExpired(decision.group.group_id, consumer.consumer_id)
    decision.start(deadline, consumer.session_timeout_ms)


def remove(decision: DraftDecision, consumer_id: str, cause: Cause) -> None:
    """Remove a consumer from the group, and invalidate its id."""
    decision.cancel(SessionExpired(decision.group.group_id, consumer_id))
    decision.group = decision.group.without_consumer(consumer_id)
    decision.say_left(consumer_id, cause)
