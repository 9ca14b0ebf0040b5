"""Random events for a group while it moves from eager to cooperative, and back (M6).

The checks are those of `test_chaos`: one owner, valid callbacks, growing generations, and in the
end every partition has one owner and all members are stable.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import rule

from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.member.classic.session import ClassicMemberState
from kohort.group.member.events import Closing, RejoinAsked, Subscribed
from tests.group.together.cooperative import Keep
from tests.group.together.test_chaos import Chaos


class CooperativeChaos(Chaos):
    """All members are cooperative from the start."""

    def assignors(self) -> tuple[Assignor, ...]:
        return (Keep(),)


# The assignors of a member: before, between and after the two rolling bounces.
STEPS: tuple[tuple[type[Assignor], ...], ...] = ((RangeAssignor,), (Keep, RangeAssignor), (Keep,))


class BouncingChaos(Chaos):
    """Members are restarted one by one with the next or the previous configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def assignors(self) -> tuple[Assignor, ...]:
        return tuple(make() for make in STEPS[self.step])

    @rule(up=st.booleans(), kills=st.lists(st.booleans(), min_size=4, max_size=4))
    def roll(self, up: bool, kills: list[bool]) -> None:
        """Do a rolling bounce; the operator waits for the group between restarts."""
        # A coordinator that moved knows only each member's chosen assignor (C72), until the next
        # rebalance: before that it would reject a member that returns with only the other one.
        for application in self.world.applications.values():
            application.deferring, application.reachable = False, True
            if application.member.state is ClassicMemberState.STABLE:
                self.world.tell(application, RejoinAsked("before the bounce"))
        self.world.advance(75_000)
        self.step = max(0, min(self.step + (1 if up else -1), len(STEPS) - 1))
        for kill, (name, old) in zip(kills, sorted(self.world.applications.items()), strict=False):
            if not kill and self.is_open(old):
                self.world.tell(old, Closing())
                self.world.advance(1_000)
            topics = old.member.session.topics or frozenset({"flights"})
            instance = old.member.config.group_instance_id
            self.world.kill(name)
            self.world.advance(15_000)
            new = self.world.start(name, *self.assignors(), instance=instance)
            self.world.tell(new, Subscribed(topics))
            self.world.advance(2_000)
            self.s1_one_owner()


for chaos in (CooperativeChaos, BouncingChaos):
    chaos.TestCase.settings = settings(max_examples=30, stateful_step_count=12, deadline=None)
TestCooperativeChaos = CooperativeChaos.TestCase
TestBouncingChaos = BouncingChaos.TestCase
