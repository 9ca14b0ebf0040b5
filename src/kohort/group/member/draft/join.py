"""Stop consumption, join, and be part of the group (D21, D22, D24)."""

from __future__ import annotations

from kohort.errors import KafkaError
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.draft.session import (
    DraftMemberState,
    MemberChange,
    heartbeat_frequency,
    heartbeat_interval_ms,
)
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    RETRY_DUE,
    SESSION_OVERDUE,
)
from kohort.group.subscription import NO_GENERATION
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft import DraftJoinGroupRequest, DraftJoinGroupResponse

PART_OF_GROUP = DraftMemberState.PART_OF_GROUP
STOPPED = DraftMemberState.STOPPED_CONSUMPTION


def forget(change: MemberChange) -> None:
    """The coordinator is not where it was. What was sent to it will not be answered."""
    change.session = replace(change.session, coordinator_known=False, heartbeat=None, request=None)


def stop(change: MemberChange, reason: str) -> None:
    """D24: stop consumption; the application gives its partitions up before the next join."""
    change.enter(STOPPED, reason)
    go_on(change)


def go_on(change: MemberChange) -> None:
    """Take the next step towards the group: wait for an open call, give up, join."""
    if change.session.callback is not None:
        return
    if change.session.consuming:
        give_up(change)
    else:
        _join(change)


def give_up(change: MemberChange) -> None:
    """Tell the application to let go; what a consumer without an id had is lost already."""
    session = change.session
    change.call(Ownership.REVOKED if session.is_member else Ownership.LOST, session.owned)


def _join(change: MemberChange) -> None:
    """D8, D21: join with the id we have, or first find whom to join."""
    session, config = change.session, change.config
    if session.request is not None or change.runs(RETRY_DUE):
        return
    if not session.coordinator_known:
        lookup.look_up(change)
        return
    change.session = replace(session, joined_topics=session.topics, heartbeat=None)
    change.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    request = DraftJoinGroupRequest(
        group_id=config.group_id,
        consumer_host=change.host,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_frequency=heartbeat_frequency(config),
        topics=tuple(sorted(session.topics)),
        consumer_id=session.member_id,
    )
    # The answer is parked until all others have joined, which may take their session timeouts.
    sent = change.send(request, config.session_timeout_ms + config.max_poll_interval_ms)
    change.session = replace(change.session, request=sent)


def try_again_later(change: MemberChange) -> None:
    """Joining failed in a way that a wait may cure."""
    failures = change.session.failures + 1
    change.session = replace(change.session, request=None, failures=failures)
    change.start(RETRY_DUE, change.config.backoff_ms(failures))


# ---------------------------------------------------------------------------------- join answered


def partitions_of(answer: DraftJoinGroupResponse) -> frozenset[TopicPartition]:
    """Return what an answer gives."""
    return frozenset(
        TopicPartition(each.topic, each.partition) for each in answer.partitions_to_own
    )


def become_part(change: MemberChange, answer: DraftJoinGroupResponse) -> None:
    """D7, D22: we have an id, a generation and partitions; from here on heartbeats are due."""
    change.session = replace(
        change.session,
        request=None,
        member_id=answer.consumer_id,
        generation=answer.group_generation_id,
        owned=partitions_of(answer),
        consuming=True,
        failures=0,
    )
    change.enter(PART_OF_GROUP)
    change.start(HEARTBEAT_DUE, heartbeat_interval_ms(change.config))
    change.start(SESSION_OVERDUE, change.config.session_timeout_ms)
    change.call(Ownership.ASSIGNED, change.session.owned)


def drop_id(change: MemberChange) -> None:
    """D3: the coordinator has given us up; the next join is that of a new consumer."""
    change.cancel(HEARTBEAT_DUE, SESSION_OVERDUE)
    change.session = replace(change.session, member_id="", generation=NO_GENERATION, heartbeat=None)


def fail(change: MemberChange, code: int, what: str) -> None:
    """An error after which the consumer cannot go on; what it owns is lost."""
    change.raised.append(KafkaError(code, what))
    change.cancel(*change.session.deadlines.due_times())
    drop_id(change)
    change.session = replace(change.session, request=None)
    change.enter(DraftMemberState.FATAL, what)
    if change.session.consuming and change.session.callback is None:
        give_up(change)
