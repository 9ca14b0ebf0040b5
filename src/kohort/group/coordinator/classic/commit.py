"""OffsetCommit to a classic group: who may commit, and when (C50, C51)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.classic.identity import generation_error
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.refusals import commit_refused
from kohort.wire.messages.offsets import OffsetCommitRequest

Commit: TypeAlias = RequestArrived[OffsetCommitRequest]

_GROUP_ID_NOT_FOUND_SINCE = 9


def has_generation(_decision: ClassicDecision, commit: Commit) -> bool:
    """Whether the sender thinks it is a member."""
    return commit.request.generation_id_or_member_epoch >= 0


def refuse_unknown(decision: ClassicDecision, commit: Commit) -> None:
    """C50: there is no group that it could be a member of."""
    newer = commit.version >= _GROUP_ID_NOT_FOUND_SINCE
    _refuse(
        decision, commit, ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
    )


def create_and_store(decision: ClassicDecision, commit: Commit) -> None:
    """C50: whoever assigns partitions by hand still may store positions under a group's name."""
    store(decision, commit)
    if decision.records:
        decision.enter(GroupState.EMPTY)


def is_simple(_decision: ClassicDecision, commit: Commit) -> bool:
    """C51: a commit that claims no generation: of a tool, or of a consumer without a group."""
    return commit.request.generation_id_or_member_epoch < 0


def is_refused(decision: ClassicDecision, commit: Commit) -> bool:
    """C51: whether the sender is not a member of this generation."""
    return _error(decision, commit) is not None


def refuse(decision: ClassicDecision, commit: Commit) -> None:
    """C51: what a fenced member commits must not count (it may not own the partitions)."""
    _refuse(decision, commit, _error(decision, commit) or ErrorCode.UNKNOWN_MEMBER_ID)


def _error(decision: ClassicDecision, commit: Commit) -> ErrorCode | None:
    request = commit.request
    member_id, instance = request.member_id, request.group_instance_id
    generation = request.generation_id_or_member_epoch
    return generation_error(decision.group, member_id, instance, generation)


def send_back(decision: ClassicDecision, commit: Commit) -> None:
    """C51: between two generations it is not known who will own what."""
    _refuse(decision, commit, ErrorCode.REBALANCE_IN_PROGRESS)


def _refuse(decision: ClassicDecision, commit: Commit, code: ErrorCode) -> None:
    decision.reply(commit.token, commit_refused(commit.request, code), commit.version)


def store_and_stay(decision: ClassicDecision, commit: Commit) -> None:
    """C51: a commit also says that the member is alive."""
    rebalance.restart_session(decision, decision.group.members[commit.request.member_id])
    store(decision, commit)


def store(decision: ClassicDecision, commit: Commit) -> None:
    """C51, C52: write the positions to the log."""
    decision.store(commit)
