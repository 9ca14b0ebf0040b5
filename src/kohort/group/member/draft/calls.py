"""Calls of the application, their ends, news of the coordinator, and time."""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.draft import join, leave
from kohort.group.member.draft.session import (
    DraftMemberState,
    MemberChange,
    heartbeat_interval_ms,
)
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    LookupFailed,
    Polled,
    RetryDue,
    SessionOverdue,
    Subscribed,
)
from kohort.values import replace
from kohort.wire.messages.draft import DraftHeartbeatRequest

DISCOVER = DraftMemberState.DISCOVER_COORDINATOR
PART_OF_GROUP = DraftMemberState.PART_OF_GROUP
REDISCOVER = DraftMemberState.REDISCOVER_COORDINATOR

# ------------------------------------------------------------------------------- the application


def start_up(change: MemberChange, call: Subscribed) -> None:
    """D21: the first subscription: find the coordinator, join."""
    note_topics(change, call)
    change.session = replace(change.session, polled_at=change.now)
    change.enter(DISCOVER)
    join.go_on(change)


def note_topics(change: MemberChange, call: Subscribed) -> None:
    """Another subscription; it is compared with what we joined with when we are part of a group."""
    if not call.topics:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    change.session = replace(change.session, topics=call.topics)


def is_another_subscription(change: MemberChange, call: Subscribed) -> bool:
    """Whether it differs from what we joined with."""
    return call.topics != change.session.joined_topics


def resubscribe(change: MemberChange, call: Subscribed) -> None:
    """Another subscription needs another join."""
    note_topics(change, call)
    join.stop(change, "the subscription changed")


def subscribe_afterwards(change: MemberChange, call: Subscribed) -> None:
    """Give up first, then join."""
    note_topics(change, call)
    change.session = replace(change.session, after_leaving=DISCOVER)


def note_poll(change: MemberChange, _call: Polled) -> None:
    """D25: the application is alive; after a long silence the coordinator is told at once."""
    was_silent = is_silent(change)
    change.session = replace(change.session, polled_at=change.now)
    if was_silent and change.runs(HEARTBEAT_DUE):
        change.start(HEARTBEAT_DUE, 0)


def is_silent(change: MemberChange) -> bool:
    """Whether the application has stopped polling (`max.poll.interval.ms`)."""
    return change.now - change.session.polled_at > change.config.max_poll_interval_ms


def pass_over(_change: MemberChange, _event: object) -> None:
    """Nothing to do."""


# ---------------------------------------------------------------------------- its calls have ended


def _finish_call(change: MemberChange) -> None:
    """Note what the application knows now; that it failed changes nothing."""
    callback = change.session.callback
    assert callback is not None
    change.session = replace(change.session, callback=None)
    if callback.change is not Ownership.ASSIGNED:
        change.session = replace(change.session, owned=frozenset(), consuming=False)
    change.say_told(callback, callback.change)


def read_on(change: MemberChange, _done: CallbackDone) -> None:
    """D22: the application knows its partitions."""
    _finish_call(change)


def go_on_joining(change: MemberChange, _done: CallbackDone) -> None:
    """D24: the next step of joining again."""
    _finish_call(change)
    join.go_on(change)


def go_on_leaving(change: MemberChange, _done: CallbackDone) -> None:
    """D20: the next step of leaving."""
    _finish_call(change)
    leave.go_on(change)


def lose_the_rest(change: MemberChange, _done: CallbackDone) -> None:
    """What was assigned while the consumer failed is lost as well."""
    _finish_call(change)
    if change.session.consuming:
        join.give_up(change)


# -------------------------------------------------------------------------------- the coordinator


def join_coordinator(change: MemberChange, _event: CoordinatorKnown) -> None:
    """D21: now there is somebody to join."""
    lookup.note_coordinator(change)
    join.go_on(change)


def greet_coordinator(change: MemberChange, _event: CoordinatorKnown) -> None:
    """D2, D23: part of the group again, if the new coordinator accepts our ping."""
    lookup.note_coordinator(change)
    change.enter(PART_OF_GROUP)
    change.start(HEARTBEAT_DUE, 0)
    if change.session.topics != change.session.joined_topics:
        join.stop(change, "the subscription changed")


def note_no_coordinator(change: MemberChange, _event: CoordinatorLost) -> None:
    """Nobody needs it now."""
    join.forget(change)


def lose_coordinator(change: MemberChange, _event: object) -> None:
    """D23: look for the coordinator, and read on meanwhile."""
    join.forget(change)
    change.enter(REDISCOVER)
    lookup.look_up(change)


def lose_joined_coordinator(change: MemberChange, _event: object) -> None:
    """The coordinator is gone while we join it: what was sent will not be answered."""
    join.forget(change)
    if change.session.callback is None:
        join.try_again_later(change)
    lookup.look_up(change)


def give_up_lookup(change: MemberChange, event: LookupFailed) -> None:
    """The group has no coordinator for us."""
    join.fail(change, *lookup.end(change, event))


# ------------------------------------------------------------------------------------------- time


def retry(change: MemberChange, _event: RetryDue) -> None:
    """The wait is over."""
    join.go_on(change)


def beat(change: MemberChange, _event: HeartbeatDue) -> None:
    """D25: one heartbeat at a time, as long as the application polls."""
    session = change.session
    if not session.is_member:
        return
    change.start(HEARTBEAT_DUE, heartbeat_interval_ms(change.config))
    if session.coordinator_known and session.heartbeat is None and not is_silent(change):
        request = DraftHeartbeatRequest(
            group_id=change.config.group_id,
            group_generation_id=session.generation,
            consumer_id=session.member_id,
        )
        sent = change.send(request)
        change.session = replace(change.session, heartbeat=sent)


def doubt_coordinator(change: MemberChange, event: SessionOverdue) -> None:
    """D23: nothing heard for a whole session timeout: the coordinator may be somewhere else."""
    change.start(SESSION_OVERDUE, change.config.session_timeout_ms)
    if not is_silent(change):
        lose_coordinator(change, event)


def doubt_while_stopped(change: MemberChange, event: SessionOverdue) -> None:
    """The same, while the application gives its partitions up."""
    change.start(SESSION_OVERDUE, change.config.session_timeout_ms)
    if not is_silent(change):
        lose_joined_coordinator(change, event)


def never(change: MemberChange, event: object) -> None:
    """An event that this state has prevented."""
    raise AssertionError(f"{type(event).__name__} in {change.state.name}")
