"""The whole outcome of every event in every state is what the checked-in tables say.

`python tools/outcomes.py` writes them anew. What a change of a rule does to a machine is read in
the difference of its table; a line that changed without being meant to is a bug.
"""

from __future__ import annotations

import json

import pytest

import outcomes
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.member.classic.machine import MemberState
from kohort.group.member.consumer.machine import MemberState as ConsumerMemberState
from tests.group.outcomes import consumer_member, coordinator, member

NOT_HERE = {"SessionExpired", "PendingExpired", "JoinExpired", "InitialDelayExpired", "SyncExpired"}


@pytest.mark.parametrize("name", sorted(outcomes.MACHINES))
def test_every_outcome_is_the_one_written_down(name: str) -> None:
    written = json.loads((outcomes.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert outcomes.MACHINES[name]() == written


def test_a_group_is_asked_everything_in_every_state() -> None:
    """Clocks that cannot run in a state are left out there, and only those."""
    for state, asked in coordinator.triggers().items():
        left_out = {trigger.__name__ for trigger in set(CLASSIC_GROUP.total) - asked}
        assert left_out <= NOT_HERE, state


def test_members_are_asked_in_every_state() -> None:
    assert set(member.SITUATIONS) == set(MemberState)
    assert set(consumer_member.SITUATIONS) == set(ConsumerMemberState)
