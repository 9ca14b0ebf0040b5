"""No log text ends before the cause that it should name."""

from __future__ import annotations

import itertools
import logging

import pytest

from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.consumer.membership.log import GroupLog
from kohort.errors import ErrorCode, error_text
from kohort.group.events import MemberStateChanged, Ownership, OwnershipChanged
from kohort.types import TopicPartition

OWNED = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
CODES = (
    0,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
REASONS = ("", "the consumer closes", "the application did not poll within max.poll.interval.ms")
STATES = ("JOINING", "PREPARE_LEAVING", "LEAVING", "UNSUBSCRIBED", "STALE", "FENCED", "FATAL")


def test_an_error_without_a_text_is_named_by_its_type() -> None:
    assert error_text(TimeoutError()) == "TimeoutError"
    assert error_text(ValueError("what")) == "what"


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("before", ["STABLE", "JOINING", "PREPARING_REBALANCE", "REVOKING"])
def test_each_loss_of_partitions_has_a_cause(
    before: str, is_member: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """For every state that a member leaves, every reason, and every last code."""
    for after, reason, code in itertools.product(STATES, REASONS, CODES):
        steps = GroupLog(make(ConsumerConfig, {"group_id": "g"}))
        steps.observed((), ("m", 1), OWNED)
        moved = MemberStateChanged(
            group="g", now=1, member="m", generation=1, before=before, after=after, reason=reason
        )
        lost = OwnershipChanged(
            group="g", now=1, member="m", generation=-1, change=Ownership.LOST, partitions=OWNED
        )
        identity = ("m", 1) if is_member else None
        steps.observed((moved,), identity, OWNED, code)
        steps.observed((lost,), identity, frozenset(), code)
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    losses = [line for line in lines if " lost t-0, t-1, as " in line]
    assert len(losses) == len(STATES) * len(REASONS) * len(CODES)
    for line in lines:
        for broken in ("as ;", "  ", ": .", "()", ": ;"):
            assert broken not in line, (broken, line)
