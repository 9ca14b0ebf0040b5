"""Stopping consumption, joining, and becoming part of the group (D21, D22, D24)."""

from __future__ import annotations

from kohort.errors import KafkaError
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.draft.session import (
    DraftMemberDecision,
    DraftMemberState,
    heartbeat_frequency,
    heartbeat_interval_ms,
)
from kohort.group.member.events import HEARTBEAT_DUE, RETRY_DUE, SESSION_OVERDUE, CallbackDone
from kohort.group.member.session import revoked_or_lost
from kohort.group.subscription import NO_GENERATION
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft import DraftJoinGroupRequest, DraftJoinGroupResponse

PART_OF_GROUP = DraftMemberState.PART_OF_GROUP
STOPPED = DraftMemberState.STOPPED_CONSUMPTION


def forget(decision: DraftMemberDecision, _event: object = None) -> None:
    """Forget the coordinator, which has moved. Requests sent to it get no answer."""
    decision.session = replace(
        decision.session, coordinator_known=False, heartbeat=None, request=None
    )


def stop(decision: DraftMemberDecision, reason: str) -> None:
    """D24: stop consumption; the application gives its partitions up before the next join."""
    decision.enter(STOPPED, reason)
    go_on(decision)


def go_on(decision: DraftMemberDecision, _event: object = None) -> None:
    """Take the next step to join: wait for an open call, give up partitions, send the request."""
    if decision.session.callback is not None:
        return
    if decision.session.consuming:
        give_up(decision)
    else:
        _join(decision)


def give_up(decision: DraftMemberDecision) -> None:
    """Have the application give up its partitions; those of a consumer without an id are lost."""
    session = decision.session
    decision.call(revoked_or_lost(session), session.owned)


def _join(decision: DraftMemberDecision) -> None:
    """D8, D21: join with the present id, or find the coordinator first."""
    session, config = decision.session, decision.config
    if session.request is not None or decision.runs(RETRY_DUE):
        return
    if not session.coordinator_known:
        lookup.look_up(decision)
        return
    decision.session = replace(session, joined_topics=session.topics, heartbeat=None)
    decision.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    request = DraftJoinGroupRequest(
        group_id=config.group_id,
        consumer_host=decision.host,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_frequency=heartbeat_frequency(config),
        topics=tuple(sorted(session.topics)),
        consumer_id=session.member_id,
    )
    # The coordinator holds the answer until all others have joined, up to their session timeouts.
    sent = decision.send(request, config.session_timeout_ms + config.max_poll_interval_ms)
    decision.session = replace(decision.session, request=sent)


def try_again_later(decision: DraftMemberDecision, _answer: object = None) -> None:
    """Join again after a wait: the failure may be temporary."""
    decision.session = replace(decision.session, request=None)
    decision.back_off(RETRY_DUE)


# ---------------------------------------------------------------------------------- join answered


def partitions_of(answer: DraftJoinGroupResponse) -> frozenset[TopicPartition]:
    """Return the partitions in an answer."""
    return frozenset(
        TopicPartition(each.topic, each.partition) for each in answer.partitions_to_own
    )


def become_part(decision: DraftMemberDecision, answer: DraftJoinGroupResponse) -> None:
    """D7, D22: store the id, generation and partitions, and start sending heartbeats."""
    decision.session = replace(
        decision.session,
        request=None,
        member_id=answer.consumer_id,
        generation=answer.group_generation_id,
        owned=partitions_of(answer),
        consuming=True,
        failures=0,
    )
    decision.enter(PART_OF_GROUP)
    decision.start(HEARTBEAT_DUE, heartbeat_interval_ms(decision.config))
    decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    decision.call(Ownership.ASSIGNED, decision.session.owned)


def drop_id(decision: DraftMemberDecision, _answer: object = None) -> None:
    """D3: forget the id that the coordinator has dropped; the next join is a new consumer's."""
    decision.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    decision.session = replace(
        decision.session, member_id="", generation=NO_GENERATION, heartbeat=None
    )


def fail(decision: DraftMemberDecision, code: int, what: str) -> None:
    """Enter the failed state; the consumer's partitions are lost."""
    decision.raised.append(KafkaError(code, what))
    decision.cancel(*decision.session.deadlines.due_times())
    drop_id(decision)
    decision.session = replace(decision.session, request=None)
    decision.enter(DraftMemberState.FATAL, what)
    if decision.session.consuming and decision.session.callback is None:
        give_up(decision)


def lose_the_rest(decision: DraftMemberDecision, _done: CallbackDone) -> None:
    """Partitions whose assignment was being reported when the consumer failed are lost too."""
    if decision.session.consuming:
        give_up(decision)
