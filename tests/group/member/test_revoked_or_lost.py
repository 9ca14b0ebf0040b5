"""Whether partitions are revoked or lost: one rule for all protocols."""

from __future__ import annotations

import pytest

from kohort.group.events import Ownership
from kohort.group.member.classic.session import ClassicMemberSession, ClassicMemberState
from kohort.group.member.consumer.session import ConsumerMemberSession, ConsumerMemberState
from kohort.group.member.draft.session import DraftMemberSession, DraftMemberState
from kohort.group.member.session import Session, revoked_or_lost

CLASSIC = [state for state in ClassicMemberState if state is not ClassicMemberState.LEAVING]


def consumer(state: ConsumerMemberState, epoch: int) -> Session:
    return ConsumerMemberSession(member_id="m", state=state, epoch=epoch)


@pytest.mark.parametrize(
    "session",
    [
        *[
            ClassicMemberSession(member_id="m", generation=3, state=state)
            for state in ClassicMemberState
        ],
        *[consumer(state, 3) for state in ConsumerMemberState],
        *[
            DraftMemberSession(member_id="m", generation=3, state=state)
            for state in DraftMemberState
        ],
    ],
    ids=repr,
)
def test_l3_l30_a_member_of_the_group_gives_up_and_can_still_commit(session: Session) -> None:
    assert revoked_or_lost(session) is Ownership.REVOKED


@pytest.mark.parametrize(
    "session",
    [
        # KAFKA-13419: a classic member that is in no generation may keep its id
        *[ClassicMemberSession(member_id="m", state=state) for state in ClassicMemberState],
        *[ClassicMemberSession(generation=3, state=state) for state in ClassicMemberState],
        *[consumer(state, 0) for state in ConsumerMemberState],
        # D8: the id of a consumer is good until it is shut down, its generation is not
        *[DraftMemberSession(member_id="m", state=state) for state in DraftMemberState],
        *[DraftMemberSession(generation=3, state=state) for state in DraftMemberState],
    ],
    ids=repr,
)
def test_l3_l35_who_was_removed_has_lost_what_others_may_have_by_now(session: Session) -> None:
    assert revoked_or_lost(session) is Ownership.LOST


def test_l7_a_classic_member_that_leaves_in_the_middle_of_a_rebalance_loses_all() -> None:
    leaves = ClassicMemberSession(
        member_id="m", generation=3, state=ClassicMemberState.LEAVING, losing=True
    )
    assert revoked_or_lost(leaves) is Ownership.LOST


@pytest.mark.parametrize("state", CLASSIC)
def test_l7_that_is_over_when_it_has_left(state: ClassicMemberState) -> None:
    """It may have joined again since."""
    back = ClassicMemberSession(member_id="m", generation=4, state=state, losing=True)
    assert revoked_or_lost(back) is Ownership.REVOKED
