"""Which request or event goes to which consumer group, and what of the older APIs concerns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer import (
    classic_requests,
    client_assignors,
    describe,
    heartbeat,
    leave,
    member_target,
)
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.group import Member, MemberState
from kohort.group.coordinator.consumer.log_records import group_tombstones
from kohort.group.coordinator.consumer.resuming import attempt, failed, job_done
from kohort.group.coordinator.consumer.session import (
    ConsumerSession,
    Heartbeat,
    Install,
    Prepare,
)
from kohort.group.coordinator.describe import ALL_OPERATIONS
from kohort.group.coordinator.events import (
    ConsumerAssignmentExpired,
    ConsumerDeadline,
    JobDone,
    RequestArrived,
    TopicsChanged,
)
from kohort.group.coordinator.migration import classic_members
from kohort.group.effects import Reply
from kohort.values import replace
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kohort.wire.messages.membership import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.group.coordinator.session import ShardDecision

M = TypeVar("M", bound=Message)

Work = Callable[[ConsumerDecision], ConsumerDecision]


def run(shard: ShardDecision, group_id: str, work: Work) -> None:
    """Do something to one group, and take over what it leads to."""
    session = shard.session
    before = shard.consumer_group(group_id)
    classic = None if before else session.group(shard.log, group_id)
    started = ConsumerDecision(
        config=shard.config_of(group_id),
        group_id=group_id,
        now=shard.now,
        wall_ms=shard.wall_ms,
        group=before,
        session=session.consumer,
        deadlines=session.deadlines,
        log=shard.log,
        classic=classic,
    )
    decision = work(started)
    if decision.group is not before:
        decision.say_state(before, classic)
        shard.consumer_groups[group_id] = decision.group
    consumer = decision.session
    if decision.group is None and group_id in consumer.seen:
        consumer = _forgotten(shard, consumer, group_id)
    if consumer is not session.consumer or decision.deadlines is not session.deadlines:
        shard.session = replace(session, consumer=consumer, deadlines=decision.deadlines)
    if decision.classic is not classic:
        shard.session = shard.session.with_group(group_id, decision.classic)
    shard.records += decision.records
    shard.replies += decision.replies
    shard.observed += decision.observed
    shard.consumer_jobs += decision.jobs


def _forgotten(shard: ShardDecision, consumer: ConsumerSession, group_id: str) -> ConsumerSession:
    """Forget a group that is gone; who still waited for its target is a member of nothing."""
    run = consumer.targets.get(group_id)
    if run is not None and run.waiting is not None:
        arrived = run.waiting.arrived
        response = failed(arrived, ErrorCode.UNKNOWN_MEMBER_ID)
        shard.replies.append(Reply(arrived.token, response, arrived.version))
    return consumer.without(group_id)


# -------------------------------------------------------------------------------------- requests


def answer_heartbeat(shard: ShardDecision, arrived: Heartbeat) -> None:
    """Answer a ConsumerGroupHeartbeat."""
    group_id = arrived.request.group_id
    _answer_one(shard, arrived, group_id, lambda trial: heartbeat.answer(trial, arrived))


def answer_prepare(shard: ShardDecision, arrived: Prepare) -> None:
    """Answer a ConsumerGroupPrepareAssignment (K61)."""
    _answer_one(
        shard, arrived, arrived.request.group_id, lambda t: member_target.prepare(t, arrived)
    )


def answer_install(shard: ShardDecision, arrived: Install) -> None:
    """Answer a ConsumerGroupInstallAssignment (K61)."""
    _answer_one(
        shard, arrived, arrived.request.group_id, lambda t: member_target.install(t, arrived)
    )


def _answer_one(
    shard: ShardDecision,
    arrived: RequestArrived[M],
    group_id: str,
    work: Callable[[ConsumerDecision], None],
) -> None:
    run(shard, group_id, lambda decision: attempt(decision, arrived, work))


def answer_describe(
    shard: ShardDecision, arrived: RequestArrived[ConsumerGroupDescribeRequest]
) -> None:
    """K38: describe the groups of this protocol; all others are not found."""
    described = []
    for group_id in arrived.request.group_ids:
        group = shard.consumer_group(group_id)
        if not group_id:
            described.append(describe.failed(group_id, ErrorCode.INVALID_GROUP_ID))
        elif group is None:
            known = shard.log.knows(group_id) or group_id in shard.session.groups
            message = f"Group {group_id} is not a consumer group." if known else None
            described.append(describe.not_found(group_id, message))
        else:
            topics = shard.session.consumer.topics
            default = shard.config.group_consumer_assignors[0]
            described.append(describe.describe(group, topics, default))
    if arrived.request.include_authorized_operations:
        described = [
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS)
            for group in described
        ]
    response = ConsumerGroupDescribeResponse(groups=tuple(described))
    shard.replies.append(Reply(arrived.token, response, arrived.version))


_Speak = Callable[[ConsumerDecision, RequestArrived[Message]], None]
_CLASSIC_MEMBERS: dict[type[object], _Speak] = {
    JoinGroupRequest: cast("_Speak", classic_members.join),
    SyncGroupRequest: cast("_Speak", classic_members.sync),
    HeartbeatRequest: cast("_Speak", classic_members.beat),
}


def handled(shard: ShardDecision, group_id: str, trigger: type[object], event: object) -> bool:
    """Answer what the classic APIs ask of a group of this protocol.

    Returns:
        False: there is no such group, or it has just made room for a classic one.
    """
    group = shard.consumer_group(group_id)
    if group is None:
        return False
    if trigger is JoinGroupRequest and not group.members:
        # An empty group may change its protocol in both directions.
        shard.records += group_tombstones(group)
        shard.consumer_groups[group_id] = None
        consumer = _forgotten(shard, shard.session.consumer, group_id)
        shard.session = replace(shard.session, consumer=consumer)
        return False
    speak = _CLASSIC_MEMBERS.get(trigger)
    if speak is None:
        run(
            shard,
            group_id,
            lambda decision: classic_requests.answer(decision, shard.log, trigger, event),
        )
    else:
        arrived = cast("RequestArrived[Message]", event)
        run(
            shard,
            group_id,
            lambda decision: attempt(decision, arrived, lambda trial: speak(trial, arrived)),
        )
    return True


# ---------------------------------------------------------------------------------------- events


def take_topics(shard: ShardDecision, changed: TopicsChanged) -> None:
    """K14: take note of the topics; each group looks at them at its next heartbeat."""
    consumer = replace(shard.session.consumer, topics=changed.topics)
    shard.session = replace(shard.session, consumer=consumer)


def finish_job(shard: ShardDecision, done: JobDone) -> None:
    """Take the result of a job."""
    shard.wall_ms = done.wall_ms
    run(shard, done.group_id, lambda decision: job_done(decision, done))


def expire(shard: ShardDecision, expired: ConsumerDeadline) -> None:
    """K30, K46: a member was silent or slow for too long."""

    def work(decision: ConsumerDecision) -> ConsumerDecision:
        leave.expire(decision, expired)
        return decision

    run(shard, expired.group_id, work)


def expire_assignment(shard: ShardDecision, expired: ConsumerAssignmentExpired) -> None:
    """K61: a member was asked for an assignment, and made none in time."""

    def work(decision: ConsumerDecision) -> ConsumerDecision:
        client_assignors.expire(decision)
        return decision

    run(shard, expired.group_id, work)


def start_sessions(shard: ShardDecision) -> None:
    """K30: after a load each member has its session, and its rebalance timeout, from now on."""
    for group_id, group in sorted(shard.log.consumer_groups.items()):
        members = [group.members[each] for each in sorted(group.members)]

        def work(decision: ConsumerDecision, members: list[Member] = members) -> ConsumerDecision:
            for member in members:
                decision.start_session(member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    decision.start_rebalance(member)
            return decision

        run(shard, group_id, work)


def release(shard: ShardDecision) -> None:
    """C73: whoever waits for a job asks another coordinator."""
    session = shard.session.consumer
    waiting: list[RequestArrived[Message]] = []
    waiting += [run.waiting.arrived for _, run in sorted(session.targets.items()) if run.waiting]
    waiting += [arrived for _, arrived in sorted(session.installing.items())]
    for arrived in waiting:
        response = failed(arrived, ErrorCode.NOT_COORDINATOR)
        shard.replies.append(Reply(arrived.token, response, arrived.version))
    shard.session = replace(shard.session, consumer=ConsumerSession())
