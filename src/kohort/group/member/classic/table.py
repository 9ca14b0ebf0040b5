"""The member's half of the classic protocol: every event that can happen to a member."""

from __future__ import annotations

from kohort.group.machine import Row, Table, row
from kohort.group.member import lookup
from kohort.group.member.classic import answers, calls, join, leave
from kohort.group.member.classic.answers import Remedy, remedy, says
from kohort.group.member.classic.session import ClassicMemberDecision, ClassicMemberState
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatAnswered,
    HeartbeatDue,
    JobDone,
    LookupDue,
    LookupFailed,
    Polled,
    PollOverdue,
    RejoinAsked,
    RetryDue,
    SessionOverdue,
    StaleReport,
    Subscribed,
    Unsubscribed,
)
from kohort.group.member.rows import both, note_poll, note_topics, only_in, pass_over
from kohort.wire.messages.membership import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse

Rows = tuple[Row[ClassicMemberState, ClassicMemberDecision], ...]

UNSUBSCRIBED, UNJOINED = ClassicMemberState.UNSUBSCRIBED, ClassicMemberState.UNJOINED
REVOKING, ASSIGNING = ClassicMemberState.REVOKING, ClassicMemberState.ASSIGNING
PREPARING = ClassicMemberState.PREPARING_REBALANCE
COMPLETING = ClassicMemberState.COMPLETING_REBALANCE
STABLE, STALE = ClassicMemberState.STABLE, ClassicMemberState.STALE
LEAVING, CLOSED = ClassicMemberState.LEAVING, ClassicMemberState.CLOSED
FATAL = ClassicMemberState.FATAL

# A call into the application is running, which may take long.
CALLING = (REVOKING, ASSIGNING)
# The states in which heartbeats are sent.
BEATING = (REVOKING, COMPLETING, ASSIGNING, STABLE, LEAVING)
JOINED = (UNJOINED, REVOKING, PREPARING, COMPLETING, ASSIGNING, STABLE)
ACTIVE = (*JOINED, LEAVING)
IDLE = (UNSUBSCRIBED, STALE, CLOSED, FATAL)
# The states in which a rebalance begins: a call into the application, JoinGroup, or, while no
# coordinator is known, the look-up.
REJOIN = (REVOKING, PREPARING, UNJOINED)
# The states after leaving: out of the group, or joining again at once.
LEFT = (CLOSED, UNSUBSCRIBED, UNJOINED, PREPARING)


CALL_ROWS: Rows = (
    row(
        UNSUBSCRIBED,
        Subscribed,
        both(note_topics, leave.start_joining),
        to=(PREPARING, UNJOINED),
        rule="L2",
    ),
    row(LEAVING, Subscribed, calls.subscribe_afterwards, when=calls.comes_back),
    row(STABLE, Subscribed, calls.resubscribe, when=calls.is_another_subscription, to=REJOIN),
    row((*JOINED, STALE), Subscribed, note_topics),
    row(UNSUBSCRIBED, Unsubscribed, pass_over),
    row(
        (*JOINED, STALE, FATAL),
        Unsubscribed,
        leave.unsubscribe,
        to=(LEAVING, UNSUBSCRIBED),
        rule="L7",
    ),
    row(LEAVING, Unsubscribed, leave.unsubscribe_afterwards),
    row((UNSUBSCRIBED, CLOSED), Closing, leave.close_at_once, to=CLOSED),
    row((*JOINED, STALE, FATAL), Closing, leave.close, to=(LEAVING, CLOSED), rule="L7"),
    row(LEAVING, Closing, leave.close_afterwards),
    row(JOINED, Polled, note_poll, rule="KIP-62"),
    row(STALE, Polled, leave.come_back, to=REJOIN, rule="L7"),
    row((UNSUBSCRIBED, LEAVING, FATAL), Polled, pass_over),
    row(STABLE, RejoinAsked, calls.rebalance, to=REJOIN, rule="L8 L15"),
    row((PREPARING, COMPLETING, ASSIGNING), RejoinAsked, calls.rebalance_later, rule="L15"),
    row((UNJOINED, REVOKING, STALE, LEAVING, FATAL), RejoinAsked, pass_over),
)

CALLBACK_ROWS: Rows = (
    row(REVOKING, CallbackDone, calls.revoked, to=(PREPARING, UNJOINED), rule="L3 L4 L6"),
    row(
        ASSIGNING, CallbackDone, calls.moved, when=calls.is_moving, to=REJOIN, rule="L5 L6 KIP-429"
    ),
    row(ASSIGNING, CallbackDone, calls.assigned, to=(STABLE, *REJOIN), rule="L5 L6"),
    row(LEAVING, CallbackDone, both(calls.finish_call, leave.go_on), to=LEFT, rule="L7"),
    row(STALE, CallbackDone, both(calls.finish_call, leave.come_back), to=REJOIN, rule="L7"),
    row(FATAL, CallbackDone, both(calls.finish_call, leave.lose_the_rest), rule="L3"),
)

_JOINED = JoinGroupResponse
JOIN_ROWS: Rows = (
    row(PREPARING, _JOINED, join.become_part, when=answers.is_welcome, to=COMPLETING, rule="L9"),
    row(
        PREPARING,
        _JOINED,
        answers.take_member_id,
        when=says(Remedy.KEEP_MEMBER_ID),
        rule="L10 KIP-394",
    ),
    row(PREPARING, _JOINED, join.send_join, when=says(Remedy.REJOIN), rule="L10"),
    row(PREPARING, _JOINED, join.join_anew, when=answers.says_gone, to=REJOIN, rule="L10"),
    row(
        PREPARING,
        _JOINED,
        answers.find_and_join,
        when=says(Remedy.FIND_COORDINATOR),
        to=UNJOINED,
        rule="L10",
    ),
    row(PREPARING, _JOINED, answers.wait_and_join, when=says(Remedy.WAIT), to=UNJOINED, rule="L10"),
    row(PREPARING, _JOINED, answers.refuse_generation, when=says(Remedy.NONE), to=FATAL),
    row(PREPARING, _JOINED, answers.give_up_joining, to=FATAL, rule="L10"),
    row(LEAVING, _JOINED, leave.leave_as_named, to=LEFT, rule="L7 KIP-394"),
)

_SYNCED = SyncGroupResponse
SYNC_ROWS: Rows = (
    row(
        COMPLETING,
        _SYNCED,
        join.take_assignment,
        when=says(Remedy.NONE),
        to=(ASSIGNING, UNJOINED),
        rule="L5",
    ),
    row(COMPLETING, _SYNCED, join.send_join, when=says(Remedy.REJOIN), to=PREPARING, rule="L10"),
    row(COMPLETING, _SYNCED, join.join_anew, when=answers.says_gone, to=REJOIN, rule="L10"),
    row(
        COMPLETING,
        _SYNCED,
        answers.find_and_join,
        when=says(Remedy.FIND_COORDINATOR),
        to=UNJOINED,
        rule="L10",
    ),
    row(
        COMPLETING, _SYNCED, answers.wait_and_join, when=says(Remedy.WAIT), to=UNJOINED, rule="C45"
    ),
    row(COMPLETING, _SYNCED, answers.give_up_joining, to=FATAL, rule="L10"),
)

JOB_ROWS: Rows = (
    row(PREPARING, JobDone, answers.cannot_speak, when=answers.is_failed, to=UNJOINED, rule="L2"),
    row(PREPARING, JobDone, join.join_as_said, rule="L2"),
    row(
        COMPLETING,
        JobDone,
        answers.give_back_the_lead,
        when=answers.is_failed,
        to=UNJOINED,
        rule="L8",
    ),
    row(COMPLETING, JobDone, join.hand_over, rule="L8"),
    row(LEAVING, LeaveGroupResponse, leave.finish, to=LEFT, rule="L7"),
    row(tuple(ClassicMemberState), StaleReport, pass_over),
)


def sent_good_bye_in_vain(decision: ClassicMemberDecision, answer: answers.Answered) -> bool:
    """Return whether LeaveGroup went to a broker that is no longer the coordinator."""
    moved = remedy(answer) is Remedy.FIND_COORDINATOR
    return moved and calls.has_said_good_bye(decision, answer)


def _membership_rows(trigger: type[HeartbeatAnswered | CommitAnswered]) -> Rows:
    """Return the rows for membership errors, common to heartbeats and commits (L3, L10, L11)."""
    return (
        row(
            STABLE,
            trigger,
            answers.follow_rebalance,
            when=says(Remedy.REJOIN),
            to=REJOIN,
            rule="L10",
        ),
        row(ASSIGNING, trigger, answers.follow_later, when=says(Remedy.REJOIN), rule="L10"),
        row(
            (STABLE, COMPLETING),
            trigger,
            join.join_anew,
            when=answers.says_gone,
            to=REJOIN,
            rule="L3 L10",
        ),
        row(
            (REVOKING, ASSIGNING, LEAVING),
            trigger,
            join.reset_identity,
            when=answers.says_gone,
            rule="L10",
        ),
        row(
            COMPLETING,
            trigger,
            answers.find_and_join,
            when=says(Remedy.FIND_COORDINATOR),
            to=UNJOINED,
            rule="L10",
        ),
        row(LEAVING, trigger, calls.leave_unheard, when=sent_good_bye_in_vain, to=LEFT, rule="L7"),
        row(
            (REVOKING, ASSIGNING, STABLE, LEAVING),
            trigger,
            join.forget_coordinator,
            when=says(Remedy.FIND_COORDINATOR),
            rule="L10",
        ),
    )


_BEATEN = HeartbeatAnswered
_FATAL_FROM = (REVOKING, COMPLETING, ASSIGNING, STABLE)
MEMBERSHIP_ROWS: Rows = (
    row(BEATING, _BEATEN, answers.note_alive, when=says(Remedy.NONE), rule="L9"),
    *_membership_rows(_BEATEN),
    row(
        (REVOKING, COMPLETING, LEAVING),
        _BEATEN,
        answers.note_alive,
        when=says(Remedy.REJOIN),
        rule="L10",
    ),
    row(BEATING, _BEATEN, pass_over, when=says(Remedy.WAIT), rule="L10"),
    row(LEAVING, _BEATEN, pass_over, rule="L7"),
    row(_FATAL_FROM, _BEATEN, answers.give_up, to=FATAL, rule="L10"),
    row(BEATING, CommitAnswered, pass_over, when=answers.is_outdated, rule="L11"),
    *_membership_rows(CommitAnswered),
    row(
        _FATAL_FROM,
        CommitAnswered,
        answers.give_up,
        when=answers.is_fatal_commit,
        to=FATAL,
        rule="L11",
    ),
    row(tuple(ClassicMemberState), CommitAnswered, pass_over, rule="L11"),
)

COORDINATOR_ROWS: Rows = (
    row(IDLE, CoordinatorKnown, lookup.note_coordinator),
    row(UNJOINED, CoordinatorKnown, lookup.note_coordinator, when=calls.is_waiting),
    row(
        UNJOINED,
        CoordinatorKnown,
        both(lookup.note_coordinator, calls.retry),
        to=(PREPARING, REVOKING),
    ),
    row((*BEATING, PREPARING), CoordinatorKnown, calls.greet_coordinator, rule="L9"),
    row(IDLE, CoordinatorLost, calls.note_no_coordinator),
    row((PREPARING, COMPLETING), CoordinatorLost, answers.find_and_join, to=UNJOINED, rule="L10"),
    row(
        LEAVING,
        CoordinatorLost,
        calls.leave_unheard,
        when=calls.has_said_good_bye,
        to=LEFT,
        rule="L7",
    ),
    row(
        (UNJOINED, REVOKING, ASSIGNING, STABLE, LEAVING),
        CoordinatorLost,
        join.forget_coordinator,
        rule="L10",
    ),
    row(JOINED, LookupFailed, calls.give_up_lookup, when=lookup.is_hopeless, to=FATAL, rule="L10"),
    row(ACTIVE, LookupFailed, lookup.look_up_later, rule="KIP-580"),
    row(IDLE, LookupFailed, lookup.note_lookup_failed),
)

TIME_ROWS: Rows = (
    row(BEATING, HeartbeatDue, calls.beat, rule="L9"),
    row(COMPLETING, SessionOverdue, answers.find_and_join, to=UNJOINED),
    row(
        LEAVING,
        SessionOverdue,
        calls.leave_unheard,
        when=calls.has_said_good_bye,
        to=LEFT,
        rule="L7",
    ),
    row((*CALLING, STABLE, LEAVING), SessionOverdue, calls.doubt_coordinator),
    row(JOINED, PollOverdue, leave.become_stale, to=STALE, rule="L7 KIP-62"),
    row(UNJOINED, RetryDue, calls.retry, to=(PREPARING, REVOKING), rule="KIP-580"),
    row(ACTIVE, LookupDue, lookup.look_up, rule="KIP-580"),
)

IMPOSSIBLE: Rows = (
    *only_in((*CALLING, LEAVING, STALE, FATAL), CallbackDone),
    *only_in((PREPARING, LEAVING), JoinGroupResponse),
    *only_in((COMPLETING,), SyncGroupResponse),
    *only_in((PREPARING, COMPLETING), JobDone),
    *only_in((LEAVING,), LeaveGroupResponse),
    *only_in(BEATING, HeartbeatAnswered, HeartbeatDue, SessionOverdue),
    *only_in(JOINED, PollOverdue),
    *only_in((UNJOINED,), RetryDue),
    *only_in(ACTIVE, LookupDue),
)

CLASSIC_MEMBER: Table[ClassicMemberState, ClassicMemberDecision] = Table(
    "classic member",
    ClassicMemberState,
    CALL_ROWS
    + CALLBACK_ROWS
    + JOIN_ROWS
    + SYNC_ROWS
    + JOB_ROWS
    + MEMBERSHIP_ROWS
    + COORDINATOR_ROWS
    + TIME_ROWS
    + IMPOSSIBLE,
    total=(
        CallbackDone,
        JoinGroupResponse,
        SyncGroupResponse,
        LeaveGroupResponse,
        HeartbeatAnswered,
        CommitAnswered,
        JobDone,
        StaleReport,
        CoordinatorKnown,
        CoordinatorLost,
        LookupFailed,
        HeartbeatDue,
        SessionOverdue,
        PollOverdue,
        RetryDue,
        LookupDue,
    ),
    local=(Subscribed, Unsubscribed, Closing, Polled, RejoinAsked),
)
