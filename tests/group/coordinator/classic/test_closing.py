"""Closing a member of a classic group (C33, KIP-1092)."""

from __future__ import annotations

import pytest

from kohort.group.member.events import Closing, GroupMembershipOperation, Subscribed
from kohort.wire.messages.membership import LeaveGroupRequest
from tests.group.together.world import World

DEFAULT = GroupMembershipOperation.DEFAULT
LEAVE = GroupMembershipOperation.LEAVE_GROUP
REMAIN = GroupMembershipOperation.REMAIN_IN_GROUP


@pytest.mark.parametrize(
    ("instance", "operation", "leaves"),
    [
        (None, DEFAULT, True),
        (None, LEAVE, True),
        (None, REMAIN, False),
        ("gate-7", DEFAULT, False),
        ("gate-7", LEAVE, True),
        ("gate-7", REMAIN, False),
    ],
)
def test_c33_l7_who_says_good_bye(
    instance: str | None, operation: GroupMembershipOperation, leaves: bool
) -> None:
    world = World()
    north = world.start("north", instance=instance)
    world.tell(north, Subscribed(frozenset({"flights"})))
    world.settle()
    world.tell(north, Closing(operation))
    world.run_callback(north)
    said = [send.request for send in north.requests if isinstance(send.request, LeaveGroupRequest)]
    assert bool(said) is leaves
    assert [entry.group_instance_id for request in said for entry in request.members] == (
        [instance] if leaves else []
    )
    world.settle()
    assert north.member.is_closed
