"""The consumer's half of the draft protocol: every event that can happen to a consumer.

The rules D1 to D25 are in docs/internals/draft.md.
"""

from __future__ import annotations

from kohort.group.machine import Row, Table, row
from kohort.group.member import lookup
from kohort.group.member.draft import answers, calls, join, leave
from kohort.group.member.draft.session import DraftMemberDecision, DraftMemberState
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatAnswered,
    HeartbeatDue,
    LookupDue,
    LookupFailed,
    Polled,
    RejoinAsked,
    RetryDue,
    SessionOverdue,
    StaleReport,
    Subscribed,
    Unsubscribed,
)
from kohort.group.member.rows import both, note_topics, only_in, others, pass_over
from kohort.wire.messages.draft import DraftJoinGroupResponse

Rows = tuple[Row[DraftMemberState, DraftMemberDecision], ...]

DOWN = DraftMemberState.DOWN
DISCOVER = DraftMemberState.DISCOVER_COORDINATOR
PART = DraftMemberState.PART_OF_GROUP
REDISCOVER = DraftMemberState.REDISCOVER_COORDINATOR
STOPPED = DraftMemberState.STOPPED_CONSUMPTION
LEAVING = DraftMemberState.LEAVING
CLOSED = DraftMemberState.CLOSED
FATAL = DraftMemberState.FATAL

CONSUMING = (PART, REDISCOVER)
JOINING = (DISCOVER, STOPPED)
ACTIVE = (DISCOVER, PART, REDISCOVER, STOPPED)
IDLE = (DOWN, CLOSED, FATAL)
# The states of a consumer in the group that is not about to leave.
STAYING = (PART, REDISCOVER, STOPPED)
# The states in which heartbeats are sent, if the coordinator is known.
BEATING = (*STAYING, LEAVING)


CALL_ROWS: Rows = (
    row(DOWN, Subscribed, calls.start_up, to=DISCOVER, rule="D21"),
    row(LEAVING, Subscribed, calls.subscribe_afterwards, when=leave.comes_back, rule="D8"),
    row(
        PART,
        Subscribed,
        calls.resubscribe,
        when=calls.is_another_subscription,
        to=STOPPED,
        rule="D24",
    ),
    row(ACTIVE, Subscribed, note_topics),
    row(DOWN, Unsubscribed, pass_over),
    row((*ACTIVE, FATAL), Unsubscribed, leave.unsubscribe, to=(LEAVING, DOWN), rule="D20"),
    row(LEAVING, Unsubscribed, leave.unsubscribe_afterwards),
    row((DOWN, CLOSED), Closing, leave.close_at_once, to=CLOSED, rule="D20"),
    row((*ACTIVE, FATAL), Closing, leave.close, to=(LEAVING, CLOSED), rule="D20"),
    row(LEAVING, Closing, leave.close_afterwards),
    row(others(CLOSED), Polled, calls.note_poll, rule="D25"),
    row((*ACTIVE, LEAVING, FATAL), RejoinAsked, pass_over),
)

CALLBACK_ROWS: Rows = (
    row(CONSUMING, CallbackDone, calls.finish_call, rule="D22"),
    row(STOPPED, CallbackDone, both(calls.finish_call, join.go_on), rule="D24"),
    row(
        LEAVING,
        CallbackDone,
        both(calls.finish_call, leave.go_on),
        to=(DOWN, CLOSED, DISCOVER),
        rule="D20",
    ),
    row(FATAL, CallbackDone, both(calls.finish_call, join.lose_the_rest)),
)

_JOINED = DraftJoinGroupResponse
JOIN_ROWS: Rows = (
    row(
        JOINING,
        _JOINED,
        answers.become_part,
        when=answers.is_welcome,
        to=(PART, STOPPED),
        rule="D7 D22",
    ),
    row(JOINING, _JOINED, answers.join_as_new, when=answers.has_id, rule="D3 D11"),
    row(JOINING, _JOINED, answers.find_coordinator, when=answers.says_rediscover, rule="D1"),
    row(JOINING, _JOINED, join.try_again_later, when=answers.says_wait),
    row(JOINING, _JOINED, answers.give_up, to=FATAL),
)


def _membership_rows(trigger: type[HeartbeatAnswered | CommitAnswered]) -> Rows:
    """Return the rows for membership errors, common to heartbeats and commits."""
    illegal, unknown = answers.says_illegal_generation, answers.says_unknown_consumer
    return (
        row(CONSUMING, trigger, answers.lose_everything, when=unknown, to=STOPPED, rule="D3"),
        row((STOPPED, LEAVING), trigger, join.drop_id, when=unknown, rule="D3"),
        row(CONSUMING, trigger, answers.stop_consumption, when=illegal, to=STOPPED, rule="D4 D24"),
        row(
            CONSUMING,
            trigger,
            answers.rediscover,
            when=answers.says_rediscover,
            to=REDISCOVER,
            rule="D1 D23",
        ),
    )


_BEATEN = HeartbeatAnswered
MEMBERSHIP_ROWS: Rows = (
    *_membership_rows(_BEATEN),
    row(
        (STOPPED, LEAVING),
        _BEATEN,
        answers.find_coordinator,
        when=answers.says_rediscover,
        rule="D1",
    ),
    row(LEAVING, _BEATEN, pass_over, rule="D20"),
    row(STAYING, _BEATEN, answers.note_alive, when=answers.says_nothing, rule="D6"),
    row(STOPPED, _BEATEN, answers.note_alive, when=answers.says_illegal_generation, rule="D4"),
    row(STAYING, _BEATEN, pass_over, when=answers.says_wait),
    row(STAYING, _BEATEN, answers.leave_group, to=FATAL),
    row(BEATING, CommitAnswered, pass_over, when=answers.is_outdated, rule="D3"),
    *_membership_rows(CommitAnswered),
    row(tuple(DraftMemberState), CommitAnswered, pass_over),
)

COORDINATOR_ROWS: Rows = (
    row((*IDLE, LEAVING), CoordinatorKnown, lookup.note_coordinator),
    row(JOINING, CoordinatorKnown, both(lookup.note_coordinator, join.go_on), rule="D21"),
    row(CONSUMING, CoordinatorKnown, calls.greet_coordinator, to=(PART, STOPPED), rule="D2 D23"),
    row((*IDLE, LEAVING), CoordinatorLost, join.forget),
    row(JOINING, CoordinatorLost, calls.lose_joined_coordinator, rule="D21"),
    row(CONSUMING, CoordinatorLost, calls.lose_coordinator, to=REDISCOVER, rule="D23"),
    row(ACTIVE, LookupFailed, calls.give_up_lookup, when=lookup.is_hopeless, to=FATAL),
    row(ACTIVE, LookupFailed, lookup.look_up_later, rule="D23"),
    row((*IDLE, LEAVING), LookupFailed, lookup.note_lookup_failed),
)

TIME_ROWS: Rows = (
    row(BEATING, HeartbeatDue, calls.beat, rule="D25"),
    row(CONSUMING, SessionOverdue, calls.doubt_coordinator, to=REDISCOVER, rule="D23"),
    row(STOPPED, SessionOverdue, calls.doubt_while_stopped, rule="D23"),
    row(JOINING, RetryDue, join.go_on),
    row((*ACTIVE, LEAVING), LookupDue, lookup.look_up, rule="D23"),
    row(tuple(DraftMemberState), StaleReport, pass_over),
)

IMPOSSIBLE: Rows = (
    *only_in((*CONSUMING, STOPPED, LEAVING, FATAL), CallbackDone),
    *only_in(JOINING, DraftJoinGroupResponse, RetryDue),
    *only_in(BEATING, HeartbeatAnswered, HeartbeatDue),
    *only_in(STAYING, SessionOverdue),
    *only_in((*ACTIVE, LEAVING), LookupDue),
)

DRAFT_MEMBER: Table[DraftMemberState, DraftMemberDecision] = Table(
    "draft member",
    DraftMemberState,
    CALL_ROWS
    + CALLBACK_ROWS
    + JOIN_ROWS
    + MEMBERSHIP_ROWS
    + COORDINATOR_ROWS
    + TIME_ROWS
    + IMPOSSIBLE,
    total=(
        CallbackDone,
        DraftJoinGroupResponse,
        HeartbeatAnswered,
        CommitAnswered,
        StaleReport,
        CoordinatorKnown,
        CoordinatorLost,
        LookupFailed,
        HeartbeatDue,
        SessionOverdue,
        RetryDue,
        LookupDue,
    ),
    local=(Subscribed, Unsubscribed, Closing, Polled, RejoinAsked),
)
