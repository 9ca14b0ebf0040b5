"""The member's half of the consumer protocol: every event that can happen to a member.

`ConsumerMemberState` and `PREDECESSORS` (L30) are in `session`; a row can enter a state
only from where L30 allows.
"""

from __future__ import annotations

from kohort.group.machine import Row, Table, row
from kohort.group.member import lookup
from kohort.group.member.consumer import answers, calls, client_assignors, leave, reconcile, rhythm
from kohort.group.member.consumer.answers import Remedy
from kohort.group.member.consumer.calls import LIVE
from kohort.group.member.consumer.client_assignors import ComputationLost
from kohort.group.member.consumer.session import (
    ConsumerMemberDecision,
    ConsumerMemberState,
    GoodByeAnswered,
    HeartbeatReady,
)
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    JobDone,
    LookupDue,
    LookupFailed,
    Polled,
    PollOverdue,
    RejoinAsked,
    RetryDue,
    StaleReport,
    Subscribed,
    TopicsNamed,
    Unsubscribed,
)
from kohort.group.member.rows import both, note_poll, only_in, others, pass_over
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse

Rows = tuple[Row[ConsumerMemberState, ConsumerMemberDecision], ...]

UNSUBSCRIBED, JOINING = ConsumerMemberState.UNSUBSCRIBED, ConsumerMemberState.JOINING
RECONCILING, ACKNOWLEDGING = ConsumerMemberState.RECONCILING, ConsumerMemberState.ACKNOWLEDGING
STABLE, FENCED = ConsumerMemberState.STABLE, ConsumerMemberState.FENCED
PREPARE_LEAVING, LEAVING = ConsumerMemberState.PREPARE_LEAVING, ConsumerMemberState.LEAVING
FATAL, STALE = ConsumerMemberState.FATAL, ConsumerMemberState.STALE

JOINED = (JOINING, RECONCILING, ACKNOWLEDGING, STABLE)
ALL = tuple(ConsumerMemberState)
# The states after leaving begins: further calls, the leave request, or out of the group.
LEAVES = (PREPARE_LEAVING, LEAVING, UNSUBSCRIBED)


CALL_ROWS: Rows = (
    row(JOINED, Subscribed, calls.resubscribe, rule="L31"),
    row(
        (UNSUBSCRIBED, FENCED, PREPARE_LEAVING, LEAVING, STALE),
        Subscribed,
        calls.note_topics,
        when=calls.is_open,
        rule="L32",
    ),
    row(JOINED, Unsubscribed, calls.unsubscribe, to=LEAVES, rule="L30"),
    row(others(*JOINED), Unsubscribed, calls.want_nothing),
    row(JOINED, Closing, calls.close, to=LEAVES, rule="L30 KIP-1092"),
    row(others(*JOINED), Closing, calls.close_afterwards),
    row(UNSUBSCRIBED, Polled, leave.join, when=calls.wants_to_join, to=JOINING, rule="L32"),
    row(JOINED, Polled, note_poll, rule="KIP-62"),
    row(STALE, Polled, leave.come_back, to=JOINING, rule="L35"),
    row(others(*JOINED, STALE), Polled, pass_over),
)

CALLBACK_ROWS: Rows = (
    row(RECONCILING, CallbackDone, reconcile.revoked, when=reconcile.is_revocation, rule="L32"),
    row(RECONCILING, CallbackDone, reconcile.assigned, to=ACKNOWLEDGING, rule="L32 L34"),
    row(
        FENCED,
        CallbackDone,
        both(reconcile.finish_call, leave.done_fenced),
        to=(JOINING, UNSUBSCRIBED),
        rule="L35",
    ),
    row(
        PREPARE_LEAVING,
        CallbackDone,
        both(reconcile.finish_call, leave.go_on),
        to=LEAVES,
        rule="L30",
    ),
    row(LEAVING, CallbackDone, reconcile.finish_call, rule="L35"),
    row(STALE, CallbackDone, both(reconcile.finish_call, leave.done_stale), to=JOINING, rule="L35"),
    row(FATAL, CallbackDone, both(reconcile.finish_call, leave.lose), rule="L36"),
    row(ALL, TopicsNamed, reconcile.note_names, rule="L32"),
)

_ANSWER = ConsumerGroupHeartbeatResponse
_says = answers.says
ANSWER_ROWS: Rows = (
    row(LIVE, _ANSWER, rhythm.beat_later, when=answers.is_nonsense, rule="L35"),
    row(
        (JOINING, RECONCILING, STABLE),
        _ANSWER,
        answers.follow,
        when=_says(Remedy.NONE),
        to=(RECONCILING, STABLE),
        rule="L32 L33",
    ),
    row(ACKNOWLEDGING, _ANSWER, answers.note_newer_target, when=_says(Remedy.NONE), rule="L33"),
    row(PREPARE_LEAVING, _ANSWER, answers.note_answer, when=_says(Remedy.NONE)),
    row(JOINED, _ANSWER, leave.fence, when=_says(Remedy.REJOIN), to=(FENCED, JOINING), rule="L35"),
    row(PREPARE_LEAVING, _ANSWER, leave.lose_membership, when=_says(Remedy.REJOIN), rule="L35"),
    row(LIVE, _ANSWER, calls.find_coordinator, when=_says(Remedy.FIND_COORDINATOR), rule="L36"),
    row(LIVE, _ANSWER, rhythm.beat_later, when=_says(Remedy.WAIT), rule="L36"),
    row(LIVE, _ANSWER, answers.tell_and_try_again, when=_says(Remedy.TELL_AND_WAIT), rule="L36"),
    row(LIVE, _ANSWER, answers.give_up, to=FATAL, rule="L36"),
    row(others(*LIVE), _ANSWER, pass_over),
    row(LEAVING, GoodByeAnswered, leave.finish, to=UNSUBSCRIBED, rule="L37"),
    row(ALL, StaleReport, pass_over),
)

HEARTBEAT_ROWS: Rows = (
    row((JOINING, RECONCILING, STABLE, PREPARE_LEAVING), HeartbeatReady, calls.beat, rule="L31"),
    row(
        ACKNOWLEDGING,
        HeartbeatReady,
        both(calls.beat, reconcile.begin),
        to=(STABLE, RECONCILING),
        rule="L31 L32",
    ),
    row(LEAVING, HeartbeatReady, leave.say_good_bye, to=STALE, rule="L31 L35"),
    row(LIVE, HeartbeatDue, rhythm.end_pause, rule="L31"),
    row((*LIVE, FENCED), RetryDue, pass_over, rule="KIP-580"),
    row(JOINED, PollOverdue, leave.become_stale, to=(LEAVING, STALE), rule="L35 KIP-62"),
)

COORDINATOR_ROWS: Rows = (
    row(ALL, CoordinatorKnown, calls.note_coordinator, rule="L31"),
    row(LIVE, CoordinatorLost, calls.find_coordinator, rule="L36"),
    row(LEAVING, CoordinatorLost, leave.gone_unheard, to=(UNSUBSCRIBED, STALE), rule="L37"),
    row(others(*LIVE, LEAVING), CoordinatorLost, calls.forget_coordinator),
    row(JOINED, LookupFailed, calls.give_up_lookup, when=lookup.is_hopeless, to=FATAL, rule="L36"),
    row(LIVE, LookupFailed, lookup.look_up_later, rule="KIP-580"),
    row(others(*LIVE), LookupFailed, lookup.note_lookup_failed),
    row(LIVE, LookupDue, pass_over, rule="KIP-580"),
    row(LIVE, CommitAnswered, calls.find_coordinator, when=calls.has_moved, rule="L36"),
    row(ALL, CommitAnswered, pass_over, rule="L37"),
)

COMPUTATION_ROWS: Rows = (
    row(LIVE, client_assignors.Prepared, client_assignors.prepared, rule="K61"),
    row(LIVE, JobDone, client_assignors.ask_later, when=client_assignors.has_failed, rule="K60"),
    row(LIVE, JobDone, client_assignors.note_said, when=client_assignors.is_said, rule="K60"),
    row(LIVE, JobDone, client_assignors.computed, rule="K61"),
    row(LIVE, client_assignors.Installed, client_assignors.installed, rule="K61"),
    row(LIVE, ComputationLost, client_assignors.forget, rule="K61"),
)

IMPOSSIBLE: Rows = (
    *only_in((RECONCILING, FENCED, PREPARE_LEAVING, LEAVING, STALE, FATAL), CallbackDone),
    *only_in((LEAVING,), GoodByeAnswered),
    *only_in((*LIVE, LEAVING), HeartbeatReady),
    *only_in((*LIVE, FENCED), RetryDue),
    *only_in(JOINED, PollOverdue),
    *only_in(LIVE, HeartbeatDue, LookupDue),
    *only_in(LIVE, JobDone, ComputationLost, client_assignors.Prepared, client_assignors.Installed),
)

CONSUMER_MEMBER: Table[ConsumerMemberState, ConsumerMemberDecision] = Table(
    "consumer member",
    ConsumerMemberState,
    CALL_ROWS
    + CALLBACK_ROWS
    + ANSWER_ROWS
    + HEARTBEAT_ROWS
    + COORDINATOR_ROWS
    + COMPUTATION_ROWS
    + IMPOSSIBLE,
    total=(
        CallbackDone,
        TopicsNamed,
        ConsumerGroupHeartbeatResponse,
        GoodByeAnswered,
        StaleReport,
        HeartbeatReady,
        HeartbeatDue,
        RetryDue,
        PollOverdue,
        CoordinatorKnown,
        CoordinatorLost,
        LookupFailed,
        LookupDue,
        CommitAnswered,
        client_assignors.Prepared,
        JobDone,
        client_assignors.Installed,
        ComputationLost,
    ),
    local=(Subscribed, Unsubscribed, Closing, Polled, RejoinAsked),
)
