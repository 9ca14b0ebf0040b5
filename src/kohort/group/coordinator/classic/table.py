"""The coordinator's half of the classic protocol: every event that can happen to a group.

A missing group is in `DEAD`. In Kafka, a request can find a group in that state while it is being
removed; here events are handled one by one, so Kafka's answers for that case do not occur (C12,
C40, C44, C47: COORDINATOR_NOT_AVAILABLE).
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.coordinator import services
from kohort.group.coordinator.classic import join, rebalance, sync
from kohort.group.coordinator.classic.group import ClassicDecision, GroupState
from kohort.group.coordinator.decision import on, refuse_unknown
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
from kohort.group.machine import Row, Table, never, refuse, row
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
# A rebalance in which all members have joined passes through PREPARING at once.
REBALANCE = (PREPARING, COMPLETING, EMPTY)
ENDED = (COMPLETING, EMPTY)

Rows: TypeAlias = tuple[Row[GroupState, ClassicDecision], ...]


_JOIN = JoinGroupRequest
JOIN_ROWS: Rows = (
    refuse(ANY, _JOIN, join.session_timeout_error, rule="C10"),
    refuse(ANY, _JOIN, join.size_error, rule="C14"),
    refuse(DEAD, _JOIN, join.member_id_error, rule="C11"),
    on(DEAD, _JOIN, join.create_group, to=EMPTY, again=True, rule="C11"),
    on(EXISTS, _JOIN, join.refuse_full, when=join.is_full, to=REBALANCE, rule="C14 KIP-389"),
    refuse(EXISTS, _JOIN, join.protocol_error, rule="C13"),
    on(EXISTS, _JOIN, join.hand_out_member_id, when=join.needs_member_id, rule="C15 KIP-394"),
    on(EXISTS, _JOIN, join.add_member, when=join.is_new, to=REBALANCE, rule="C15 C17 C20"),
    on(STABLE, _JOIN, join.swap_quietly, when=join.returns_unchanged, rule="C31"),
    on(
        (COMPLETING, STABLE),
        _JOIN,
        join.swap_and_rebalance,
        when=join.returns,
        to=REBALANCE,
        rule="C32",
    ),
    on(PREPARING, _JOIN, join.swap, when=join.returns, to=COMPLETING, rule="C32"),
    # In the rows below, the sender has a member id.
    refuse(HAS_MEMBERS, _JOIN, join.identity_error, rule="C18"),
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
    on(EMPTY, _JOIN, refuse_unknown, rule="C18 C19"),
)

_SYNC = SyncGroupRequest
SYNC_ROWS: Rows = (
    on((DEAD, EMPTY), _SYNC, refuse_unknown, rule="C40"),
    refuse(HAS_MEMBERS, _SYNC, sync.sync_error, rule="C18 C40"),
    on(PREPARING, _SYNC, sync.send_back, rule="C41"),
    on(COMPLETING, _SYNC, sync.assign, when=sync.is_leader, to=STABLE, rule="C41 C43"),
    on(COMPLETING, _SYNC, sync.park, rule="C41"),
    on(STABLE, _SYNC, sync.tell_assignment, rule="C41"),
)

_BEAT = HeartbeatRequest
HEARTBEAT_ROWS: Rows = (
    on((DEAD, EMPTY), _BEAT, refuse_unknown, rule="C44"),
    refuse(HAS_MEMBERS, _BEAT, sync.heartbeat_error, rule="C18 C44"),
    on(PREPARING, _BEAT, sync.call_back, rule="C44"),
    on((COMPLETING, STABLE), _BEAT, sync.accept, rule="C44"),
)

LEAVE_ROWS: Rows = (
    on(DEAD, LeaveGroupRequest, rebalance.leave, rule="C47"),
    on(EXISTS, LeaveGroupRequest, rebalance.leave, to=REBALANCE, rule="C47 KIP-345"),
)

_COMMIT = OffsetCommitRequest
COMMIT_ROWS: Rows = (
    refuse(ANY, _COMMIT, services.commit_error, rule="C18 C50 C51"),
    on(HAS_MEMBERS, _COMMIT, sync.store_and_stay, rule="C51 C52"),
    on(DEAD, _COMMIT, sync.create_and_store, to=EMPTY, rule="C50"),
    on(EMPTY, _COMMIT, services.store, rule="C51 C52"),
)

_DELETE = DeleteGroupsRequest
DELETE_ROWS: Rows = (
    refuse(ANY, _DELETE, services.deletion_error, rule="C57"),
    on(EMPTY, _DELETE, services.delete, to=DEAD, rule="C57 KIP-229"),
    on((DEAD, *HAS_MEMBERS), _DELETE, never),
)

_FORGET = OffsetDeleteRequest
OFFSET_DELETE_ROWS: Rows = (
    refuse(ANY, _FORGET, services.offset_deletion_error, rule="C56"),
    on(EXISTS, _FORGET, services.delete_offsets, rule="C56 KIP-496"),
    on(DEAD, _FORGET, never),
)

_CHECK = RetentionCheckDue
RETENTION_ROWS: Rows = (
    row(EMPTY, _CHECK, services.expire, to=DEAD, rule="C60 KIP-211"),
    row((DEAD, *HAS_MEMBERS), _CHECK, services.expire, rule="C60"),
)

EXPIRY_ROWS: Rows = (
    row((DEAD, EMPTY), SessionExpired, never),
    row(HAS_MEMBERS, SessionExpired, rebalance.spare, when=rebalance.is_parked, rule="C17 C43"),
    row(HAS_MEMBERS, SessionExpired, rebalance.expire_member, to=REBALANCE, rule="C46"),
    row(DEAD, PendingExpired, never),
    row((EMPTY, COMPLETING, STABLE), PendingExpired, rebalance.expire_pending, rule="C15"),
    row(
        PREPARING,
        PendingExpired,
        rebalance.expire_pending_join,
        to=ENDED,
        rule="C15 C16",
    ),
    row(PREPARING, JoinExpired, rebalance.expire_join, to=ENDED, rule="C21 C22 C23"),
    row((DEAD, EMPTY, COMPLETING, STABLE), JoinExpired, never),
    row(
        PREPARING,
        InitialDelayExpired,
        rebalance.expire_initial_delay,
        to=ENDED,
        rule="C20 KIP-134",
    ),
    row((DEAD, EMPTY, COMPLETING, STABLE), InitialDelayExpired, never),
    row((COMPLETING, STABLE), SyncExpired, rebalance.expire_sync, to=REBALANCE, rule="C42"),
    row((DEAD, EMPTY, PREPARING), SyncExpired, never),
)

LIFECYCLE_ROWS: Rows = (
    row(ANY, LoadFinished, rebalance.shrink, when=rebalance.is_too_large, to=PREPARING, rule="C72"),
    row(
        ANY,
        LoadFinished,
        rebalance.begin_again,
        when=rebalance.was_never_led,
        to=PREPARING,
        rule="K47",
    ),
    row(ANY, LoadFinished, rebalance.restart_sessions, rule="C72"),
    row(ANY, Unload, rebalance.release, to=DEAD, rule="C73"),
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
