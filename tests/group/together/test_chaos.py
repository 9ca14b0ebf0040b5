"""Random events for a group, in any order: it keeps its invariants, and converges afterwards.

Checked after every step: no two current members own the same partition (S1), no partition is
assigned or revoked twice (S13, in `World.run_callback`), generations grow (S5). A reloaded
coordinator has the same log state (S15, in `World.reload`). Checked at the end: every partition has
exactly one owner and all members are stable (L1, L2).
"""

from __future__ import annotations

import random
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.events import Assigned, GroupDeleted
from kohort.group.member.classic.machine import ClassicMember, ClassicMemberState
from kohort.group.member.events import RejoinAsked, Subscribed
from tests.group.together.storm import INDEX, NAMES, TOPIC_SETS, TOPICS, TROUBLES, Deed, GroupStorm
from tests.group.together.world import GROUP, Application, World


class Chaos(GroupStorm[ClassicMember]):
    patience_ms = 140_000

    def __init__(self) -> None:
        super().__init__()
        self.world: World = World()
        self.world.topics = {"flights": 6, "delays": 2}

    def assignors(self) -> tuple[Assignor, ...]:
        """Return the assignors of the next member."""
        return (RangeAssignor(),)

    @rule(name=st.sampled_from(NAMES), topics=TOPICS, static=st.booleans())
    def start(self, name: str, topics: frozenset[str], static: bool) -> None:
        if name not in self.world.applications:
            instance = name if static else None
            application = self.world.start(name, *self.assignors(), instance=instance)
            self.world.tell(application, Subscribed(topics))

    @rule(index=INDEX)
    def rejoin(self, index: int) -> None:
        application = self.some(index)
        if application is None or not self.is_open(application):
            return
        if application.member.state is not ClassicMemberState.UNSUBSCRIBED:
            self.world.tell(application, RejoinAsked("because"))

    def deeds(self, chance: random.Random) -> list[Deed]:
        return [
            lambda: self.start(chance.choice(NAMES), TOPIC_SETS[0], chance.random() < 0.3),
            lambda: self.work(chance.randrange(4), chance.randrange(1, 4)),
            lambda: self.work(chance.randrange(4), 1),
            lambda: self.work(chance.randrange(4), 1),
            lambda: self.wait(chance.choice([1, 500, 2_000, 4_000]), True),
            lambda: self.wait(chance.choice([500, 11_000, 31_000]), chance.random() < 0.5),
            lambda: self.subscribe(chance.randrange(4), chance.choice(TOPIC_SETS)),
            lambda: self.rejoin(chance.randrange(4)),
            lambda: self.commit(chance.randrange(4)),
            lambda: self.commit(chance.randrange(4)),
            chance.choice([self.settle, self.settle, self.move_coordinator]),
            lambda: self.be_slow(chance.randrange(4), chance.random() < 0.3, True),
            chance.choice(
                [
                    lambda: self.trouble(chance.randrange(4), chance.choice(TROUBLES)),
                    lambda: self.fail_lookup(chance.randrange(4)),
                ]
            ),
        ]

    def present(self) -> list[Application]:
        group = self.world.shard.session.group(self.world.shard.log, GROUP)
        return [
            application
            for application in self.world.applications.values()
            if group.state is GroupState.STABLE
            and application.member.generation_id == group.generation
            and application.member.member_id in group.members
        ]

    def is_at_rest(self) -> bool:
        return self.world.everybody_is_stable()

    @invariant()
    def s5_generations_grow(self) -> None:
        facts = self.world.observed
        # A group that was unused for long expires (C60), and its generation numbers with it.
        forgotten = max((n for n, e in enumerate(facts) if isinstance(e, GroupDeleted)), default=0)
        # Generations with an assignment are in the log; the next coordinator may restart one that
        # is not in it.
        logged = [e.generation for e in facts[forgotten:] if isinstance(e, Assigned)]
        assert all(later > earlier for earlier, later in pairwise(logged))

    @invariant()
    def no_error_is_raised(self) -> None:
        for application in self.world.applications.values():
            assert all("FENCED_INSTANCE_ID" in str(error) for error in application.raised)


Chaos.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestChaos = Chaos.TestCase
