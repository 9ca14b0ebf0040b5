"""ConsumerGroupHeartbeat: joining, and taking and releasing partitions (K5 to K13).

A heartbeat that waited for a job continues when the job ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeVar, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer import (
    client_assignors,
    membership,
    regex,
    target,
    validate,
)
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.reconcile import Goal, next_step
from kohort.group.coordinator.consumer.state import log_records
from kohort.group.coordinator.consumer.state.group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    Member,
    MemberState,
    Owned,
    partition_metadata_tombstone,
)
from kohort.group.coordinator.consumer.state.session import Heartbeat, Waiting
from kohort.group.coordinator.consumer.validate import Refused, Reported
from kohort.group.coordinator.events import JobDone, RequestArrived
from kohort.group.coordinator.jobs import MatchedTopics, NewTarget
from kohort.group.coordinator.refusals import join_refused, refuse
from kohort.group.events import Cause
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentResponse as Installed,
)
from kohort.wire.messages.client_assignors import (
    ConsumerGroupPrepareAssignmentResponse as Prepared,
)
from kohort.wire.messages.consumer_group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.membership import JoinGroupRequest, JoinGroupResponse

R = TypeVar("R", bound=Message)


def answer(decision: ConsumerDecision, arrived: Heartbeat) -> None:
    """Answer a heartbeat, or have it wait for a target assignment.

    Raises:
        Refused: The request is refused.
    """
    request = arrived.request
    validate.check_request(request, arrived.version, decision.config.group_consumer_assignors)
    validate.check_size(request, decision.config.group_member_max_bytes)
    validate.check_client_assignors(request)
    if request.member_epoch <= LEAVE_EPOCH:
        membership.leave(decision, arrived)
    else:
        _beat(decision, arrived)


def _beat(decision: ConsumerDecision, arrived: Heartbeat) -> None:
    """K10 to K13: update the member, then the target, then the member's partitions."""
    request = arrived.request
    joins = request.member_epoch == validate.JOIN_EPOCH
    if decision.group is None and not joins:
        raise validate.unknown_group(request.group_id)
    if decision.group is None:
        decision.passage.begin(decision)
    group = decision.group or ConsumerGroup(group_id=request.group_id)
    member_id = request.member_id or arrived.unique_id
    validate.check_room(group, member_id, decision.config.group_consumer_max_size)
    member = _identified(decision, arrived, member_id)
    if member.classic is not None:
        decision.cancel_timers(
            group.group_id, member.member_id
        )  # left over from the other protocol
    updated = _updated(member, arrived)
    before = member.assigned
    resubscribed = take_note(decision, member, updated, arrived.regex_error)
    client_assignors.reconsider(decision)
    if waits_already(decision, arrived, member_id, before, resubscribed):
        return
    if target.is_due(decision) and not client_assignors.ask(decision):
        target.start(decision, arrived, member_id, before, resubscribed)
        decision.start_session(member_id)
        return
    reconcile_and_reply(decision, arrived, updated, before, resubscribed)


def waits_already(
    decision: ConsumerDecision,
    arrived: Heartbeat | RequestArrived[JoinGroupRequest],
    member_id: str,
    before: Owned,
    resubscribed: bool,
) -> bool:
    """K11: replace a waiting request by the same member's new one: its connection broke.

    The member no longer reads the answer to the earlier request. If that answer moved the member
    after the new request was answered, the member would never learn its partitions.
    """
    run = decision.session.targets.get(decision.group_id)
    waiting = run.waiting if run else None
    if run is None or waiting is None or waiting.member_id != member_id:
        return False
    decision.reply(waiting.arrived.token, _overtaken(waiting), waiting.arrived.version)
    waiting = Waiting(arrived, member_id, before, resubscribed or waiting.resubscribed)
    targets = decision.session.targets.set(decision.group_id, replace(run, waiting=waiting))
    decision.session = replace(decision.session, targets=targets)
    decision.start_session(member_id)
    return True


def _overtaken(waiting: Waiting) -> ConsumerGroupHeartbeatResponse | JoinGroupResponse:
    """Return the answer to a request that the same member's newer one replaces."""
    earlier = waiting.arrived
    if isinstance(earlier.request, JoinGroupRequest):
        return join_refused(earlier.request, earlier.version, ErrorCode.REBALANCE_IN_PROGRESS, "")
    return _heartbeat_failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The member has asked again.")


def _identified(decision: ConsumerDecision, arrived: Heartbeat, member_id: str) -> Member:
    """Return the member that sent the request, which may be a new one."""
    request = arrived.request
    if request.instance_id is not None:
        return membership.identified(decision, arrived, member_id, reported(request))
    member = decision.existing.members.get(member_id)
    if member is None:
        if request.member_epoch != validate.JOIN_EPOCH:
            raise validate.unknown_member(request.group_id, member_id)
        return Member(member_id=member_id)
    validate.check_epoch(member, request.member_epoch, reported(request))
    return member


def _updated(member: Member, arrived: Heartbeat) -> Member:
    """Return the member updated from the request; the same object if nothing has changed."""
    request = arrived.request
    names = request.subscribed_topic_names
    changes: dict[str, object] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": _or_none(request.rebalance_timeout_ms),
        "topics": None if names is None else tuple(sorted(set(names))),
        "regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "client_assignors": request.client_assignors,
        "client_id": arrived.client_id,
        "client_host": arrived.client_host,
    }
    new = {
        name: value
        for name, value in changes.items()
        if value is not None and value != getattr(member, name)
    }
    if member.classic is not None:
        new["classic"] = None
    return replace(member, **new) if new else member  # type: ignore[arg-type]  # the names are fields of Member, the values of their types


def _or_none(timeout_ms: int) -> int | None:
    return None if timeout_ms == -1 else timeout_ms


def take_note(
    decision: ConsumerDecision, member: Member, updated: Member, regex_error: str | None = None
) -> bool:
    """K10: write the member's changes, and begin a new epoch if they affect the assignment.

    As in Kafka, a change of rack does not, unless the assignors consider racks.

    Returns:
        Whether the member's subscription has changed.
    """
    group = decision.existing
    group_id = group.group_id
    is_new = member.member_id not in group.members
    if updated is not member or is_new:
        decision.write([log_records.member_record(group_id, updated)])
    renamed = updated.topics != member.topics
    expression = regex.take_note(decision, group, member, updated, regex_error)
    if is_new:
        client = updated.client_id, updated.client_host
        decision.say_joined(updated.member_id, *client, updated.instance_id)
    informed = updated.client_assignors != member.client_assignors
    if informed:
        client_assignors.trust_again(decision, updated.member_id)
    bump = renamed or informed or expression is regex.Change.RESOLVED
    if decision.config.group_consumer_rack_aware and updated.rack_id != member.rack_id:
        bump = True
    seen = decision.session.seen.get(group_id)
    # With an unresolved expression, the group's topics are unknown; they are compared later.
    changed = seen != decision.topics.version and not regex.is_unresolved(decision.existing)
    if bump or changed:
        cause = Cause.MEMBER_JOINED if is_new else Cause.SUBSCRIPTION_CHANGED
        _refresh_metadata(decision, bump, cause, member.member_id)
    regex.refresh(decision)
    return renamed or expression is not regex.Change.NONE


def _refresh_metadata(decision: ConsumerDecision, bump: bool, cause: Cause, member_id: str) -> None:
    """K10, K14: compare the group's topics with the cluster; begin a new epoch on a change."""
    group = decision.existing
    value = decision.topics.metadata_hash(group.topics)
    if bump:
        decision.bump_epoch(cause, member_id, value)
    elif value != group.metadata_hash:
        decision.bump_epoch(Cause.TOPICS_CHANGED, "", value)
    seen = decision.session.seen.set(group.group_id, decision.topics.version)
    decision.session = replace(decision.session, seen=seen)
    if group.has_partition_metadata:
        decision.write([partition_metadata_tombstone(group.group_id)])


# -------------------------------------------------------------------------------- the third step


def reconcile_and_reply(
    decision: ConsumerDecision,
    arrived: Heartbeat,
    member: Member,
    before: Owned,
    resubscribed: bool,
) -> None:
    """K12, K13: move the member one step, and send its partitions if they changed."""
    request = arrived.request
    member = reconcile(decision, member, reported(request), resubscribed=resubscribed)
    decision.start_session(member.member_id)
    tell = _is_full(request) or member.assigned != before
    moved = tell or member.epoch != request.member_epoch
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=decision.config.group_consumer_heartbeat_interval_ms,
        assignment=_assignment(member.assigned) if tell else None,
        should_compute_assignment=client_assignors.should_compute(decision, member),
        assignment_metadata=decision.existing.words.get(member.member_id) if moved else None,
    )
    decision.reply(arrived.token, response, arrived.version)


def reconcile(
    decision: ConsumerDecision, member: Member, said: Reported, *, resubscribed: bool
) -> Member:
    """K12: write the member's next step, and return the member after it.

    A classic member has no rebalance timeout here: it has a deadline to rejoin instead (K46).
    """
    group = decision.existing
    if not resubscribed and member.is_reconciled_to(group.assignment_epoch):
        return member
    after = next_step(member, _goal(decision, member), said, resubscribed)
    if after != member:
        member = after
        decision.write([log_records.current_record(group.group_id, member)])
        decision.say_reconciled(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            decision.start_rebalance(member)
        else:
            decision.cancel_rebalance(member.member_id)
    return member


def _goal(decision: ConsumerDecision, member: Member) -> Goal:
    group = decision.existing
    return Goal(
        group.assignment_epoch,
        group.target_of(member.member_id),
        decision.topics.ids(group.topics_of(member)),
        group.owners,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """K13: return whether the request is a full one: the member joins or restarts."""
    if request.member_epoch == validate.JOIN_EPOCH:
        return True
    subscription = request.subscribed_topic_names, request.subscribed_topic_regex
    return (
        request.rebalance_timeout_ms != -1
        and subscription != (None, None)
        and request.topic_partitions is not None
    )


def _assignment(owned: Owned) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in sorted(owned.items())
        )
    )


def reported(request: ConsumerGroupHeartbeatRequest) -> Reported:
    """Return the partitions that the sender reports, None without a report."""
    if request.topic_partitions is None:
        return None
    owned: dict[uuid.UUID, tuple[int, ...]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = (*owned.get(topic.topic_id, ()), *topic.partitions)
    return owned


def _heartbeat_failed(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    """Return the answer with only an error."""
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


# --------------------------------------------------------------------------------- the end of a job


def attempt(
    decision: ConsumerDecision,
    arrived: RequestArrived[R],
    work: Callable[[ConsumerDecision, RequestArrived[R]], None],
) -> ConsumerDecision:
    """Run a function for a request; if it raises `Refused`, the error is the only effect."""
    trial = decision.copy()
    try:
        work(trial, arrived)
    except Refused as refusal:
        response = failed(arrived, refusal.code, refusal.message)
        decision.reply(arrived.token, response, arrived.version)
        return decision
    return trial


def failed(arrived: RequestArrived[R], code: ErrorCode, message: str | None = None) -> Message:
    """Return the answer to a request, with only an error."""
    if isinstance(arrived.request, ConsumerGroupHeartbeatRequest):
        return _heartbeat_failed(code, message)
    if isinstance(arrived.request, JoinGroupRequest):
        # Unlike a classic group's answer, this one does not name the member (K45), except when
        # Kafka sends it before it reads the group.
        named = None if code is ErrorCode.INVALID_SESSION_TIMEOUT else ""
        return join_refused(arrived.request, arrived.version, code, named)
    response = refuse(cast("Request[Message]", arrived.request), arrived.version, code)
    if isinstance(response, (Prepared, Installed)):
        return replace(response, error_message=message)
    return response


def job_done(decision: ConsumerDecision, done: JobDone) -> ConsumerDecision:
    """Use the result of a job, unless it is obsolete."""
    match done.result:
        case NewTarget() as made:
            return _target_made(decision, done.token, made)
        case MatchedTopics() as found:
            return _regexes_resolved(decision, done.token, found)


def _target_made(decision: ConsumerDecision, token: int, made: NewTarget) -> ConsumerDecision:
    run = decision.session.targets.get(decision.group_id)
    if run is None or run.token != token:
        client_assignors.installed(decision, token, made)
        return decision
    target.end(decision, run)
    if decision.group is not None and made.error is None:
        target.store(decision, run.epoch, made)
    waiting = run.waiting
    if waiting is None:
        return decision
    return attempt(decision, waiting.arrived, lambda trial, _: _resume(trial, waiting, made))


def _resume(decision: ConsumerDecision, waiting: Waiting, made: NewTarget) -> None:
    """K12: continue the waiting heartbeat, if its member still exists.

    A static member that announced its return (K32) counts as gone. An older heartbeat must not
    bring it back, because its successor would be refused.
    """
    if made.error is not None:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, made.error)
    group = decision.group
    member = group.members.get(waiting.member_id) if group else None
    if member is None or member.epoch == LEAVE_STATIC_EPOCH:
        raise validate.unknown_member(waiting.arrived.request.group_id, waiting.member_id)
    match waiting.arrived:
        case RequestArrived(request=JoinGroupRequest()) as joined:
            decision.passage.go_on(
                decision,
                cast("RequestArrived[JoinGroupRequest]", joined),
                member,
                waiting.resubscribed,
            )
        case beat:
            reconcile_and_reply(
                decision, cast("Heartbeat", beat), member, waiting.before, waiting.resubscribed
            )


def _regexes_resolved(
    decision: ConsumerDecision, token: int, found: MatchedTopics
) -> ConsumerDecision:
    if decision.session.resolving.get(decision.group_id) == token:
        resolving = decision.session.resolving.delete(decision.group_id)
        decision.session = replace(decision.session, resolving=resolving)
        regex.store(decision, found)
    return decision
