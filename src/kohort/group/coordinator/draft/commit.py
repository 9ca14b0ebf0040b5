"""OffsetCommit to a draft group: with the consumer's id, and only while it is steady (D6, D7)."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.refusals import commit_refused
from kohort.wire.messages.offsets import OffsetCommitRequest

Commit: TypeAlias = RequestArrived[OffsetCommitRequest]


def is_of_a_tool(_decision: DraftDecision, commit: Commit) -> bool:
    """Whether the sender does not claim to be a consumer: who resets a group's positions."""
    request = commit.request
    return not request.member_id and request.generation_id_or_member_epoch < 0


def is_of_a_consumer(decision: DraftDecision, commit: Commit) -> bool:
    """D7: whether the sender's id is in the group."""
    return commit.request.member_id in decision.group.consumers


def is_current(decision: DraftDecision, commit: Commit) -> bool:
    """Whether the sender is in the group, and has missed no rebalance.

    If it has missed one, others may own its partitions now.
    """
    of_now = commit.request.generation_id_or_member_epoch == decision.group.generation
    return of_now and is_of_a_consumer(decision, commit)


def refuse_unknown(decision: DraftDecision, commit: Commit) -> None:
    """D7: whose positions these are is not known."""
    _refuse(decision, commit, ErrorCode.UNKNOWN_MEMBER_ID)


def send_back(decision: DraftDecision, commit: Commit) -> None:
    """D6: not while the group rebalances, not for another generation: join again."""
    _refuse(decision, commit, ErrorCode.ILLEGAL_GENERATION)


def _refuse(decision: DraftDecision, commit: Commit, code: ErrorCode) -> None:
    decision.reply(commit.token, commit_refused(commit.request, code), commit.version)


def store(decision: DraftDecision, commit: Commit) -> None:
    """D6: write the positions to the log; a commit also says that its consumer is alive."""
    consumer = decision.group.consumers.get(commit.request.member_id)
    if consumer is not None:
        rebalance.restart_session(decision, consumer)
    decision.store(commit)
