"""Bugs of the consumer protocol (KIP-848). Its groups have no table, so they are planted around."""

from __future__ import annotations

from typing import Any

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.state.log_records import GROUPS
from kohort.group.coordinator.events import JobDone, RequestArrived, Tick
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.session import ShardDecision
from kohort.group.machine import Decision
from kohort.values import replace
from kohort.wire.messages.consumer_group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.consumer_group_records import ConsumerGroupCurrentMemberAssignmentKey
from kohort.wire.messages.offsets import OffsetCommitRequest
from tests.simulation.planting.bug import Plant, afterwards, bug, changed

_P = "consumer"


def _first(spoil: Any) -> Plant:
    """Plant: requests are changed before they are handled."""

    def change(line: Any) -> Any:
        handler = line.handler

        def both(decision: Decision[Any], event: Any) -> None:
            handler(decision, spoil(decision, event))

        return replace(line, handler=both)

    return changed(SHARD, RequestArrived, "answer", change)


def _member_epoch(decision: ShardDecision, request: Any) -> int:
    group = GROUPS.of(decision.log).get(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    return member.epoch if member is not None else -3


def _any_epoch_commits(decision: ShardDecision, event: RequestArrived[Any]) -> RequestArrived[Any]:
    request = event.request
    if not isinstance(request, OffsetCommitRequest):
        return event
    epoch = _member_epoch(decision, request)
    if epoch < 0 or request.generation_id_or_member_epoch < 0:
        return event
    return replace(event, request=replace(request, generation_id_or_member_epoch=epoch))


def _any_epoch_beats(decision: ShardDecision, event: RequestArrived[Any]) -> RequestArrived[Any]:
    request = event.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.member_epoch <= 0:
        return event
    epoch = _member_epoch(decision, request)
    return event if epoch < 0 else replace(event, request=replace(request, member_epoch=epoch))


def _tell_target(decision: ShardDecision, event: RequestArrived[Any]) -> None:
    """Give a member its whole target, even partitions that others still have (crabka #521)."""
    request = event.request
    if not isinstance(request, ConsumerGroupHeartbeatRequest):
        return
    group = GROUPS.of(decision.log).get(request.group_id)
    if group is None:
        return
    topics = tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(group.target_of(request.member_id).items())
    )
    assignment = Assignment(topic_partitions=topics)
    for index, reply in enumerate(decision.replies):
        response = reply.response
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            continue
        if response.error_code == ErrorCode.NONE and topics:
            told = replace(response, assignment=assignment)
            decision.replies[index] = replace(reply, response=told)


def _forget_records(decision: ShardDecision, event: RequestArrived[Any]) -> None:
    if isinstance(event.request, ConsumerGroupHeartbeatRequest):
        decision.records = [
            record
            for record in decision.records
            if not isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey)
        ]


def _forget_target(decision: ShardDecision, _event: object) -> None:
    decision.records.clear()


def _no_time(decision: ShardDecision, _event: Tick) -> None:
    decision.records.clear()


def _older_epoch(decision: ShardDecision, _event: object) -> None:
    for index, reply in enumerate(decision.replies):
        response = reply.response
        if isinstance(response, ConsumerGroupHeartbeatResponse) and response.member_epoch > 2:
            older = replace(response, member_epoch=response.member_epoch - 1)
            decision.replies[index] = replace(reply, response=older)


def plant_all() -> None:
    """Register the bugs of this file."""
    bug("commit of any epoch", "a commit of a stale epoch is taken", _first(_any_epoch_commits), _P)
    bug("beat of any epoch", "a fenced member's heartbeat is taken", _first(_any_epoch_beats), _P)
    answer = (SHARD, RequestArrived, "answer")
    bug(
        "target at once",
        "a member gets its target while others have it (B4: KAFKA-16147)",
        afterwards(*answer, _tell_target),
        _P,
    )
    bug(
        "member unwritten",
        "a member's partitions are answered and not written",
        afterwards(*answer, _forget_records),
        _P,
    )
    bug("older epoch", "a member gets an older epoch", afterwards(*answer, _older_epoch), _P)
    bug(
        "target unwritten",
        "a target that was made is not written",
        afterwards(SHARD, JobDone, "hear", _forget_target),
        _P,
    )
    bug(
        "expiry unwritten",
        "an expired member stays in the log",
        afterwards(SHARD, Tick, "let_expire", _no_time),
        _P,
    )
