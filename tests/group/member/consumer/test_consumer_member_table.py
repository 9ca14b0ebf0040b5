"""The table of the KIP-848 member: complete, and within Kafka's rules (L30)."""

from __future__ import annotations

from itertools import product

import pytest

from kohort.group.machine import TableError
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.session import (
    PREDECESSORS,
    ConsumerMemberDecision,
    ConsumerMemberSession,
    ConsumerMemberState,
)
from kohort.group.member.consumer.table import CONSUMER_MEMBER

S = ConsumerMemberState

# L30, as written in Kafka's MemberState.java.
ALLOWED = """
UNSUBSCRIBED: PREPARE_LEAVING LEAVING FENCED
JOINING: FENCED UNSUBSCRIBED STALE
RECONCILING: STABLE JOINING ACKNOWLEDGING RECONCILING
ACKNOWLEDGING: RECONCILING
STABLE: JOINING ACKNOWLEDGING RECONCILING
FENCED: JOINING STABLE RECONCILING ACKNOWLEDGING PREPARE_LEAVING LEAVING
PREPARE_LEAVING: JOINING STABLE RECONCILING ACKNOWLEDGING UNSUBSCRIBED
LEAVING: PREPARE_LEAVING
FATAL: JOINING STABLE RECONCILING ACKNOWLEDGING PREPARE_LEAVING LEAVING UNSUBSCRIBED
STALE: LEAVING
"""

# Kafka allows these, and this member does not need them.
UNUSED = {
    (S.PREPARE_LEAVING, S.FENCED),  # it leaves anyway, without a request
    (S.LEAVING, S.FENCED),
    (S.UNSUBSCRIBED, S.PREPARE_LEAVING),  # there is nothing to leave
    (S.LEAVING, S.FATAL),  # with any response, it has left
    (S.UNSUBSCRIBED, S.FATAL),
}


def allowed() -> set[tuple[ConsumerMemberState, ConsumerMemberState]]:
    lines = [line.split(": ") for line in ALLOWED.strip().splitlines()]
    return {
        (ConsumerMemberState[before], ConsumerMemberState[after])
        for after, befores in lines
        for before in befores.split()
    }


def test_l30_the_states_and_where_each_comes_from() -> None:
    ours = {(before, after) for after, befores in PREDECESSORS.items() for before in befores}
    assert ours == allowed()
    assert PREDECESSORS.keys() == set(S)


@pytest.mark.parametrize(("before", "after"), list(product(S, S)))
def test_l30_no_state_is_entered_from_elsewhere(
    before: ConsumerMemberState, after: ConsumerMemberState
) -> None:
    session = ConsumerMemberSession(member_id="m", state=before)
    decision = ConsumerMemberDecision(MemberConfig(group_id="g"), session, 0)
    if (before, after) in allowed():
        decision.enter(after)
        assert decision.state is after
    else:
        with pytest.raises(TableError):
            decision.enter(after)


def test_l30_no_row_claims_more_than_kafka_allows() -> None:
    """A row may pass through states; each path from its start to its end must be allowed."""
    ways = {
        (before, after) for line in CONSUMER_MEMBER.rows for before in line.states
        for after in line.to if before is not after
    }  # fmt: skip
    assert ways & UNUSED == set()
    reachable = {state: reached_from(state) for state in S}
    assert {(before, after) for before, after in ways if after not in reachable[before]} == set()


def reached_from(state: ConsumerMemberState) -> set[ConsumerMemberState]:
    reached = {state}
    for _ in S:
        reached |= {after for before, after in allowed() if before in reached}
    return reached
