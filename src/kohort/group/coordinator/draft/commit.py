"""OffsetCommit to a draft group: with the consumer's id, and only while it is steady (D6, D7)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.refusals import commit_refused
from kohort.wire.messages.offsets import OffsetCommitRequest

Commit: TypeAlias = RequestArrived[OffsetCommitRequest]


def is_of_a_tool(_change: GroupChange, commit: Commit) -> bool:
    """Whether the sender does not claim to be a consumer: who resets a group's positions."""
    request = commit.request
    return not request.member_id and request.generation_id_or_member_epoch < 0


def is_unknown(change: GroupChange, commit: Commit) -> bool:
    """D7: whether the sender's id is not in the group."""
    return commit.request.member_id not in change.group.consumers


def refuse_unknown(change: GroupChange, commit: Commit) -> None:
    """D7: whose positions these are is not known."""
    _refuse(change, commit, ErrorCode.UNKNOWN_MEMBER_ID)


def is_of_another_generation(change: GroupChange, commit: Commit) -> bool:
    """Whether the sender has missed a rebalance: others may own its partitions now."""
    return commit.request.generation_id_or_member_epoch != change.group.generation


def send_back(change: GroupChange, commit: Commit) -> None:
    """D6: not while the group rebalances, not for another generation: join again."""
    _refuse(change, commit, ErrorCode.ILLEGAL_GENERATION)


def _refuse(change: GroupChange, commit: Commit, code: ErrorCode) -> None:
    change.reply(commit.token, commit_refused(commit.request, code), commit.version)


def store_and_stay(change: GroupChange, commit: Commit) -> None:
    """D6: a commit also says that the consumer is alive."""
    rebalance.restart_session(change, change.group.consumers[commit.request.member_id])
    store(change, commit)


def store(change: GroupChange, commit: Commit) -> None:
    """Write the positions to the log."""
    change.store(commit)
