"""The coordinator's half of the draft protocol: everything that can happen to a group.

The rules D1 to D16 are in docs/draft.md. Down, Catch-up and Ready, which the design draws in the
same picture, are the states of the shard: `kohort.group.coordinator.lifecycle`.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.coordinator.decision import on
from kohort.group.coordinator.draft import (
    commit,
    delete,
    expiry,
    heartbeat,
    join,
    lifecycle,
    offset_delete,
    rebalance,
    topics,
)
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.draft.jobs import DraftJobDone
from kohort.group.coordinator.events import (
    JoinExpired,
    LoadFinished,
    SessionExpired,
    TopicsChanged,
    Unload,
)
from kohort.group.machine import Row, Table, row
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

NONE = DraftState.NONE
PREPARE = DraftState.PREPARE_FOR_REBALANCE
REBALANCING = DraftState.REBALANCING
STEADY = DraftState.STEADY

HAS_CONSUMERS = (PREPARE, REBALANCING, STEADY)
ANY = (NONE, *HAS_CONSUMERS)
# A rebalance that finds everybody there goes through PREPARE at once, and ends the group where the
# last consumer is gone.
REBALANCE = (PREPARE, REBALANCING, NONE)

Rows: TypeAlias = tuple[Row[DraftState, DraftDecision], ...]


_JOIN = DraftJoinGroupRequest
JOIN_ROWS: Rows = (
    on(ANY, _JOIN, join.refuse_session_timeout, when=join.has_bad_session_timeout, rule="D12"),
    on(ANY, _JOIN, join.refuse_malformed, when=join.is_malformed),
    on(ANY, _JOIN, join.refuse_unknown, when=join.is_unknown, rule="D3 D11"),
    on(ANY, _JOIN, join.refuse_full, when=join.is_full, rule="KIP-389"),
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
    on(STEADY, _BEAT, heartbeat.accept, when=heartbeat.is_current, rule="D2 D6"),
    on(HAS_CONSUMERS, _BEAT, heartbeat.call_back, when=heartbeat.is_of_a_consumer, rule="D4"),
    on(ANY, _BEAT, heartbeat.refuse_unknown, rule="D3 D7"),
)

_COMMIT = OffsetCommitRequest
COMMIT_ROWS: Rows = (
    on(NONE, _COMMIT, commit.store, when=commit.is_of_a_tool),
    on(STEADY, _COMMIT, commit.store, when=commit.is_current, rule="D6"),
    on(HAS_CONSUMERS, _COMMIT, commit.send_back, when=commit.is_of_a_consumer, rule="D6"),
    on(ANY, _COMMIT, commit.refuse_unknown, rule="D7"),
)

JOB_ROWS: Rows = (
    row((NONE, PREPARE, STEADY), DraftJobDone, topics.pass_over),
    row(REBALANCING, DraftJobDone, topics.pass_over, when=rebalance.is_stale),
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
    row(NONE, SessionExpired, expiry.never),
    row(REBALANCING, SessionExpired, expiry.spare),
    row(PREPARE, SessionExpired, expiry.spare, when=expiry.is_parked),
    row(PREPARE, SessionExpired, expiry.expire_absent, to=(REBALANCING, NONE), rule="D12"),
    row(STEADY, SessionExpired, expiry.expire_consumer, to=REBALANCE, rule="D12"),
    row(PREPARE, JoinExpired, expiry.expire_join, to=(REBALANCING, NONE), rule="D13"),
    row((NONE, REBALANCING, STEADY), JoinExpired, expiry.never),
)

OTHER_ROWS: Rows = (
    row(
        STEADY,
        TopicsChanged,
        topics.call_everybody,
        when=topics.is_affected,
        to=PREPARE,
        rule="D14",
    ),
    row(ANY, TopicsChanged, topics.pass_over, rule="D14"),
    on(NONE, DeleteGroupsRequest, delete.delete, rule="D16 KIP-229"),
    on(HAS_CONSUMERS, DeleteGroupsRequest, delete.refuse, rule="KIP-229"),
    on(ANY, OffsetDeleteRequest, offset_delete.delete, rule="KIP-496"),
    row(
        STEADY,
        LoadFinished,
        lifecycle.restart_and_call,
        when=topics.is_affected,
        to=PREPARE,
        rule="D14 D15",
    ),
    row(ANY, LoadFinished, lifecycle.restart_sessions, rule="D2 D15"),
    row(ANY, Unload, lifecycle.release, to=NONE, rule="D1"),
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
