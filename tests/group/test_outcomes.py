"""The complete outcome of every event in every state matches the checked-in tables.

`python tools/outcomes.py` regenerates them. The difference of a table shows the effect of a change
of rules on a machine; an unintended difference is a bug.
"""

from __future__ import annotations

import json

import pytest

import outcomes
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.consumer.state.group import GroupState, MemberState
from kohort.group.coordinator.dispatch import requests
from kohort.group.coordinator.draft.group import DraftState
from kohort.group.coordinator.lifecycle import SHARD
from kohort.group.coordinator.session import Lifecycle
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.draft.machine import DraftMemberState
from tests.group.outcomes import (
    consumer_group,
    consumer_member,
    coordinator,
    draft_group,
    draft_member,
    member,
    shard,
)

NOT_HERE = {"SessionExpired", "PendingExpired", "JoinExpired", "InitialDelayExpired", "SyncExpired"}


@pytest.mark.parametrize("name", sorted(outcomes.MACHINES))
def test_every_outcome_is_the_one_written_down(name: str) -> None:
    written = json.loads((outcomes.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert outcomes.MACHINES[name]() == written


def test_a_group_is_asked_everything_in_every_state() -> None:
    """Only timers that cannot run in a state are left out."""
    for state, asked in coordinator.triggers().items():
        left_out = {trigger.__name__ for trigger in set(CLASSIC_GROUP.total) - asked}
        assert left_out <= NOT_HERE, state


def test_a_shard_is_asked_everything_in_every_state() -> None:
    assert set(shard.SITUATIONS) == set(Lifecycle)
    for make in shard.SITUATIONS.values():
        asked = {type(event) for _, event, _ in shard.cases(make())}
        assert asked == {*SHARD.total, *SHARD.local}
    assert {type(request) for request in shard.requests()} == requests()


def test_consumer_groups_are_asked_in_every_state() -> None:
    """K15, K20: of the group and of its members; no situation has an unknown state (127)."""
    states, members = set(), set()
    for make in consumer_group.SITUATIONS.values():
        group = make().shard.log.consumer_groups.get("g")
        if group is not None:
            states.add(group.state)
            members |= {each.state for each in group.members.values()}
    assert states == set(GroupState)
    assert members == set(MemberState) - {MemberState.UNKNOWN}


def test_members_are_asked_in_every_state() -> None:
    assert set(member.SITUATIONS) == set(ClassicMemberState)
    assert set(consumer_member.SITUATIONS) == set(ConsumerMemberState)
    drafts = {draft_member.state_of(situation) for situation in draft_member.SITUATIONS}
    assert drafts == set(DraftMemberState)


def test_draft_groups_are_asked_in_every_state() -> None:
    assert set(draft_group.SITUATIONS) == set(DraftState)
