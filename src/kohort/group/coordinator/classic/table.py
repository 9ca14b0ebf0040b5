"""The coordinator's half of the classic protocol: everything that can happen to a group.

A group that does not exist is in `DEAD`. In Kafka that state can be met for a moment while a group
is removed; here one event follows another, so the answers that belong to it cannot arise (C12,
C40, C44, C47: COORDINATOR_NOT_AVAILABLE).
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.coordinator.classic import (
    commit,
    delete,
    expiry,
    heartbeat,
    join,
    leave,
    offset_delete,
    retention,
    sync,
    unload,
)
from kohort.group.coordinator.classic import static_members as static
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.decision import on
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    LoadFinished,
    PendingExpired,
    RetentionCheckDue,
    SessionExpired,
    SyncExpired,
    Unload,
)
from kohort.group.machine import Row, Table, row
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

DEAD = GroupState.DEAD
EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE

EXISTS = (EMPTY, PREPARING, COMPLETING, STABLE)
HAS_MEMBERS = (PREPARING, COMPLETING, STABLE)
ANY = (DEAD, *EXISTS)
# A rebalance that finds everybody there goes through PREPARING at once.
REBALANCE = (PREPARING, COMPLETING, EMPTY)
ENDED = (COMPLETING, EMPTY)

Rows: TypeAlias = tuple[Row[GroupState, ClassicDecision], ...]


_JOIN = JoinGroupRequest
JOIN_ROWS: Rows = (
    on(ANY, _JOIN, join.refuse_session_timeout, when=join.has_bad_session_timeout, rule="C10"),
    on(ANY, _JOIN, join.refuse_too_large, when=join.is_too_large, rule="C14"),
    on(DEAD, _JOIN, join.refuse_unknown, when=join.has_member_id, rule="C11"),
    on(DEAD, _JOIN, join.create_group, to=EMPTY, again=True, rule="C11"),
    on(EXISTS, _JOIN, join.refuse_full, when=join.is_full, to=REBALANCE, rule="C14 KIP-389"),
    on(EXISTS, _JOIN, join.refuse_inconsistent, when=join.is_inconsistent, rule="C13"),
    on(EXISTS, _JOIN, join.hand_out_member_id, when=join.needs_member_id, rule="C15 KIP-394"),
    on(EXISTS, _JOIN, join.add_member, when=join.is_new, to=REBALANCE, rule="C15 C17 C20"),
    on(STABLE, _JOIN, static.swap_quietly, when=static.returns_unchanged, rule="C31"),
    on(
        (COMPLETING, STABLE),
        _JOIN,
        static.swap_and_rebalance,
        when=static.returns,
        to=REBALANCE,
        rule="C32",
    ),
    on(PREPARING, _JOIN, static.swap, when=static.returns, to=COMPLETING, rule="C32"),
    # From here on the sender has a member id.
    on(HAS_MEMBERS, _JOIN, join.refuse_stranger, when=join.is_stranger, rule="C18"),
    on(PREPARING, _JOIN, join.rejoin, to=COMPLETING, rule="C19"),
    on(STABLE, _JOIN, join.rejoin_leader, when=join.is_leader, to=REBALANCE, rule="C19"),
    on(
        (COMPLETING, STABLE),
        _JOIN,
        join.rejoin_changed,
        when=join.says_something_new,
        to=REBALANCE,
        rule="C19",
    ),
    on((COMPLETING, STABLE), _JOIN, join.tell_generation, rule="C19"),
    on(EMPTY, _JOIN, join.refuse_stranger, rule="C18 C19"),
)

_SYNC = SyncGroupRequest
SYNC_ROWS: Rows = (
    on((DEAD, EMPTY), _SYNC, sync.refuse, rule="C40"),
    on(HAS_MEMBERS, _SYNC, sync.refuse, when=sync.is_refused, rule="C18 C40"),
    on(PREPARING, _SYNC, sync.send_back, rule="C41"),
    on(COMPLETING, _SYNC, sync.assign, when=sync.is_leader, to=STABLE, rule="C41 C43"),
    on(COMPLETING, _SYNC, sync.park, rule="C41"),
    on(STABLE, _SYNC, sync.tell_assignment, rule="C41"),
)

_BEAT = HeartbeatRequest
HEARTBEAT_ROWS: Rows = (
    on(PREPARING, _BEAT, heartbeat.call_back, when=heartbeat.is_current, rule="C44"),
    on((COMPLETING, STABLE), _BEAT, heartbeat.accept, when=heartbeat.is_current, rule="C44"),
    on(ANY, _BEAT, heartbeat.refuse, rule="C18 C44"),
)

LEAVE_ROWS: Rows = (
    on(DEAD, LeaveGroupRequest, leave.leave, rule="C47"),
    on(EXISTS, LeaveGroupRequest, leave.leave, to=REBALANCE, rule="C47 KIP-345"),
)

_COMMIT = OffsetCommitRequest
COMMIT_ROWS: Rows = (
    on(DEAD, _COMMIT, commit.refuse_unknown, when=commit.has_generation, rule="C50"),
    on(DEAD, _COMMIT, commit.create_and_store, to=EMPTY, rule="C50"),
    on(EMPTY, _COMMIT, commit.store, when=commit.is_simple, rule="C51"),
    on(EMPTY, _COMMIT, commit.refuse, rule="C51"),
    on(HAS_MEMBERS, _COMMIT, commit.refuse, when=commit.is_refused, rule="C18 C51"),
    on(COMPLETING, _COMMIT, commit.send_back, rule="C51"),
    on((PREPARING, STABLE), _COMMIT, commit.store_and_stay, rule="C51"),
)

DELETE_ROWS: Rows = (
    on(DEAD, DeleteGroupsRequest, delete.refuse_unknown, rule="C57"),
    on(EMPTY, DeleteGroupsRequest, delete.delete, to=DEAD, rule="C57"),
    on(HAS_MEMBERS, DeleteGroupsRequest, delete.refuse, rule="C57"),
)

_FORGET = OffsetDeleteRequest
OFFSET_DELETE_ROWS: Rows = (
    on(DEAD, _FORGET, offset_delete.refuse_unknown, rule="C56"),
    on(EMPTY, _FORGET, offset_delete.delete, rule="C56"),
    on(HAS_MEMBERS, _FORGET, offset_delete.refuse, when=offset_delete.is_of_others, rule="C56"),
    on(HAS_MEMBERS, _FORGET, offset_delete.delete, rule="C56 KIP-496"),
)

_CHECK = RetentionCheckDue
RETENTION_ROWS: Rows = (
    row(EMPTY, _CHECK, retention.expire, to=DEAD, rule="C60 KIP-211"),
    row(STABLE, _CHECK, retention.expire_unread, when=retention.are_consumers, rule="C60"),
    row((DEAD, PREPARING, COMPLETING, STABLE), _CHECK, retention.keep, rule="C60"),
)

EXPIRY_ROWS: Rows = (
    row((DEAD, EMPTY), SessionExpired, expiry.never),
    row(HAS_MEMBERS, SessionExpired, expiry.spare, when=expiry.is_parked, rule="C17 C43"),
    row(HAS_MEMBERS, SessionExpired, expiry.expire_member, to=REBALANCE, rule="C46"),
    row(DEAD, PendingExpired, expiry.never),
    row((EMPTY, COMPLETING, STABLE), PendingExpired, expiry.expire_pending, rule="C15"),
    row(
        PREPARING,
        PendingExpired,
        expiry.expire_pending_join,
        to=ENDED,
        rule="C15 C16",
    ),
    row(PREPARING, JoinExpired, expiry.expire_join, to=ENDED, rule="C21 C22 C23"),
    row((DEAD, EMPTY, COMPLETING, STABLE), JoinExpired, expiry.never),
    row(
        PREPARING,
        InitialDelayExpired,
        expiry.expire_initial_delay,
        to=ENDED,
        rule="C20 KIP-134",
    ),
    row((DEAD, EMPTY, COMPLETING, STABLE), InitialDelayExpired, expiry.never),
    row((COMPLETING, STABLE), SyncExpired, expiry.expire_sync, to=REBALANCE, rule="C42"),
    row((DEAD, EMPTY, PREPARING), SyncExpired, expiry.never),
)

LIFECYCLE_ROWS: Rows = (
    row(ANY, LoadFinished, unload.shrink, when=unload.is_too_large, to=PREPARING, rule="C72"),
    row(ANY, LoadFinished, unload.begin_again, when=unload.was_never_led, to=PREPARING, rule="K47"),
    row(ANY, LoadFinished, unload.restart_sessions, rule="C72"),
    row(ANY, Unload, unload.release, to=DEAD, rule="C73"),
)

CLASSIC_GROUP: Table[GroupState, ClassicDecision] = Table(
    "classic group",
    GroupState,
    JOIN_ROWS
    + SYNC_ROWS
    + HEARTBEAT_ROWS
    + LEAVE_ROWS
    + COMMIT_ROWS
    + DELETE_ROWS
    + OFFSET_DELETE_ROWS
    + RETENTION_ROWS
    + EXPIRY_ROWS
    + LIFECYCLE_ROWS,
    total=(
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        OffsetCommitRequest,
        DeleteGroupsRequest,
        OffsetDeleteRequest,
        RetentionCheckDue,
        SessionExpired,
        PendingExpired,
        JoinExpired,
        InitialDelayExpired,
        SyncExpired,
        LoadFinished,
        Unload,
    ),
)
