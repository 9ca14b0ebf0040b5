"""The coordinator's half of the draft protocol: every event that can happen to a group.

The rules D1 to D16 are in docs/internals/draft.md. Down, Catch-up and Ready, which the design draws
in the same picture, are the states of the shard: `kohort.group.coordinator.lifecycle`.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.coordinator import services
from kohort.group.coordinator.decision import on, refuse_unknown
from kohort.group.coordinator.draft import expiry, join, rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.events import (
    JoinExpired,
    LoadFinished,
    SessionExpired,
    TopicsChanged,
    Unload,
)
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.machine import Row, Table, never, refuse, row
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

NONE = DraftState.NONE
PREPARE = DraftState.PREPARE_FOR_REBALANCE
REBALANCING = DraftState.REBALANCING
STEADY = DraftState.STEADY

HAS_CONSUMERS = (PREPARE, REBALANCING, STEADY)
ANY = (NONE, *HAS_CONSUMERS)
# A rebalance in which all have joined passes through PREPARE at once, and ends the group when the
# last consumer is gone.
REBALANCE = (PREPARE, REBALANCING, NONE)

Rows: TypeAlias = tuple[Row[DraftState, DraftDecision], ...]


_JOIN = DraftJoinGroupRequest
JOIN_ROWS: Rows = (
    refuse(ANY, _JOIN, join.session_timeout_error, rule="D12"),
    refuse(ANY, _JOIN, join.form_error),
    refuse(ANY, _JOIN, join.identity_error, rule="D3 D11"),
    refuse(ANY, _JOIN, join.room_error, rule="KIP-389"),
    on(NONE, _JOIN, join.call_everybody, to=REBALANCE, rule="D10"),
    on(STEADY, _JOIN, join.call_everybody, when=join.is_new, to=REBALANCE, rule="D10"),
    on((PREPARE, REBALANCING), _JOIN, join.wait_for_id, when=join.is_new, rule="D9"),
    on(PREPARE, _JOIN, join.join_again, to=REBALANCING, rule="D4 D8"),
    on(REBALANCING, _JOIN, join.ask_again, when=join.wants_the_same, rule="D8"),
    on(REBALANCING, _JOIN, join.change_its_mind, rule="D8"),
    on(STEADY, _JOIN, join.tell_again, when=join.wants_the_same, rule="D8"),
    on(STEADY, _JOIN, join.join_with_other_topics, to=REBALANCE, rule="D8"),
)

_BEAT = DraftHeartbeatRequest
HEARTBEAT_ROWS: Rows = (
    on(NONE, _BEAT, refuse_unknown, rule="D3 D7"),
    refuse(HAS_CONSUMERS, _BEAT, join.sender_error, rule="D3 D7"),
    on(STEADY, _BEAT, join.call_back, when=join.has_missed_rebalance, rule="D4"),
    on(STEADY, _BEAT, join.accept, rule="D2 D6"),
    on((PREPARE, REBALANCING), _BEAT, join.call_back, rule="D4"),
)

_COMMIT = OffsetCommitRequest
COMMIT_ROWS: Rows = (
    refuse(ANY, _COMMIT, services.commit_error, rule="D6 D7"),
    on(STEADY, _COMMIT, join.store_and_stay, rule="D6"),
    on(NONE, _COMMIT, services.store),
    on((PREPARE, REBALANCING), _COMMIT, never),
)

JOB_ROWS: Rows = (
    row((NONE, PREPARE, STEADY), DraftJobDone, expiry.pass_over),
    row(REBALANCING, DraftJobDone, expiry.pass_over, when=rebalance.is_stale),
    row(REBALANCING, DraftJobDone, rebalance.give_up, when=rebalance.is_failed, to=PREPARE),
    row(
        REBALANCING,
        DraftJobDone,
        rebalance.become_steady,
        to=(STEADY, PREPARE),
        rule="D5 D6 D7",
    ),
)

TIME_ROWS: Rows = (
    row(NONE, SessionExpired, never),
    row(REBALANCING, SessionExpired, expiry.spare),
    row(PREPARE, SessionExpired, expiry.spare, when=expiry.is_parked),
    row(PREPARE, SessionExpired, expiry.expire_absent, to=(REBALANCING, NONE), rule="D12"),
    row(STEADY, SessionExpired, expiry.expire_consumer, to=REBALANCE, rule="D12"),
    row(PREPARE, JoinExpired, expiry.expire_join, to=(REBALANCING, NONE), rule="D13"),
    row((NONE, REBALANCING, STEADY), JoinExpired, never),
)

OTHER_ROWS: Rows = (
    row(
        STEADY,
        TopicsChanged,
        expiry.call_everybody,
        when=expiry.is_affected,
        to=PREPARE,
        rule="D14",
    ),
    row(ANY, TopicsChanged, expiry.pass_over, rule="D14"),
    refuse(ANY, DeleteGroupsRequest, services.deletion_error, rule="KIP-229"),
    on(NONE, DeleteGroupsRequest, services.delete, rule="D16 KIP-229"),
    on(HAS_CONSUMERS, DeleteGroupsRequest, never),
    on(ANY, OffsetDeleteRequest, services.delete_offsets, rule="KIP-496"),
    row(
        STEADY,
        LoadFinished,
        expiry.restart_and_call,
        when=expiry.is_affected,
        to=PREPARE,
        rule="D14 D15",
    ),
    row(ANY, LoadFinished, expiry.restart_sessions, rule="D2 D15"),
    row(ANY, Unload, expiry.release, to=NONE, rule="D1"),
)

DRAFT_GROUP: Table[DraftState, DraftDecision] = Table(
    "draft group",
    DraftState,
    JOIN_ROWS + HEARTBEAT_ROWS + COMMIT_ROWS + JOB_ROWS + TIME_ROWS + OTHER_ROWS,
    total=(
        DraftJoinGroupRequest,
        DraftHeartbeatRequest,
        OffsetCommitRequest,
        DraftJobDone,
        SessionExpired,
        JoinExpired,
        TopicsChanged,
        DeleteGroupsRequest,
        OffsetDeleteRequest,
        LoadFinished,
        Unload,
    ),
)
