"""Anything may happen to a group, in any order; afterwards it converges, and never did wrong.

Checked after every step: no two present members own the same partition (S1), a partition is never
given twice or taken twice (S13, in `World.run_callback`), generations grow (S5). A coordinator that
reloads finds the log state it had (S15, in `World.reload`). Checked at the end: every partition has
exactly one owner and everybody is stable (L1, L2).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.events import Assigned, GroupDeleted
from kohort.group.member.classic.machine import MemberState
from kohort.group.member.events import (
    Closing,
    LookupFailed,
    Polled,
    RejoinAsked,
    Subscribed,
    Unsubscribed,
)
from tests.group.world import GROUP, Application, World

NAMES = ("east", "north", "south", "west")
TOPIC_SETS = (frozenset({"flights"}), frozenset({"flights", "delays"}))
TOPICS = st.sampled_from(TOPIC_SETS)


class Chaos(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.topics = {"flights": 6, "delays": 2}
        self.generations_seen = 0

    def assignors(self) -> tuple[Assignor, ...]:
        """What the next member is configured with."""
        return (RangeAssignor(),)

    def some(self, index: int) -> Application | None:
        names = sorted(self.world.applications)
        return self.world.applications[names[index % len(names)]] if names else None

    @rule(name=st.sampled_from(NAMES), topics=TOPICS, static=st.booleans())
    def start(self, name: str, topics: frozenset[str], static: bool) -> None:
        if name not in self.world.applications:
            instance = name if static else None
            application = self.world.start(name, *self.assignors(), instance=instance)
            self.world.tell(application, Subscribed(topics))

    @rule(index=st.integers(0, 3), steps=st.integers(1, 8))
    def work(self, index: int, steps: int) -> None:
        application = self.some(index)
        for _ in range(steps):
            if application is not None:
                self.world.work(application)

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(milliseconds=st.sampled_from([1, 100, 3_000, 11_000, 61_000]), polls=st.booleans())
    def wait(self, milliseconds: int, polls: bool) -> None:
        """Time passes and nothing arrives."""
        self.world.now += milliseconds
        for application in self.world.applications.values():
            if polls and application.member.state is not MemberState.CLOSED:
                self.world.tell(application, Polled())
        while self.world.expire():
            pass

    @rule(milliseconds=st.sampled_from([500, 5_000, 15_000]))
    def go_on(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @rule(index=st.integers(0, 3))
    def kill(self, index: int) -> None:
        application = self.some(index)
        if application is not None:
            self.world.kill(application.name)

    @rule(index=st.integers(0, 3))
    def close(self, index: int) -> None:
        application = self.some(index)
        if application is not None:
            self.world.tell(application, Closing())

    @rule(index=st.integers(0, 3))
    def unsubscribe(self, index: int) -> None:
        application = self.some(index)
        if application is not None and application.member.state is not MemberState.CLOSED:
            self.world.tell(application, Unsubscribed())

    @rule(index=st.integers(0, 3), topics=TOPICS)
    def subscribe(self, index: int, topics: frozenset[str]) -> None:
        application = self.some(index)
        if application is not None and self.is_open(application):
            self.world.tell(application, Subscribed(topics))

    @rule(index=st.integers(0, 3))
    def rejoin(self, index: int) -> None:
        application = self.some(index)
        if application is None or not self.is_open(application):
            return
        if application.member.state is not MemberState.UNSUBSCRIBED:
            self.world.tell(application, RejoinAsked("because"))

    @rule(index=st.integers(0, 3))
    def drop_connection(self, index: int) -> None:
        application = self.some(index)
        if application is not None:
            self.world.drop_connection(application)

    @rule(index=st.integers(0, 3), deferring=st.booleans())
    def defer(self, index: int, deferring: bool) -> None:
        application = self.some(index)
        if application is not None:
            application.deferring = deferring

    @rule(seed=st.integers(0, 2**32))
    def storm(self, seed: int) -> None:
        """Many small things at once: random order reaches what single steps seldom do."""
        chance = random.Random(seed)
        deeds: list[Callable[[], None]] = [
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
            lambda: self.defer(chance.randrange(4), chance.random() < 0.3),
            chance.choice(
                [
                    lambda: self.kill(chance.randrange(4)),
                    lambda: self.close(chance.randrange(4)),
                    lambda: self.unsubscribe(chance.randrange(4)),
                    lambda: self.drop_connection(chance.randrange(4)),
                    lambda: self.fail_lookup(chance.randrange(4)),
                ]
            ),
        ]
        for _ in range(40):
            chance.choice(deeds)()
            self.s1_one_owner()

    @rule(index=st.integers(0, 3))
    def commit(self, index: int) -> None:
        """Commit what the application has, in the member's name; fenced ones must not count."""
        application = self.some(index)
        if application is not None and application.member.session.is_member:
            self.world.commit(application)

    @rule(index=st.integers(0, 3))
    def fail_lookup(self, index: int) -> None:
        application = self.some(index)
        if application is not None and application.looking_up:
            application.looking_up = False
            self.world.tell(application, LookupFailed())

    @rule()
    def move_coordinator(self) -> None:
        self.world.reload()

    @staticmethod
    def is_open(application: Application) -> bool:
        session = application.member.session
        if session.state in (MemberState.CLOSED, MemberState.FATAL):
            return False
        leaving = session.state is MemberState.LEAVING
        return not (leaving and session.after_leaving is MemberState.CLOSED)

    @invariant()
    def s1_one_owner(self) -> None:
        """Who is a member of the present generation shares nothing with another such member."""
        group = self.world.shard.session.group(self.world.shard.log, GROUP)
        seen: set[object] = set()
        for application in self.world.applications.values():
            member = application.member
            present = member.generation_id == group.generation and member.member_id in group.members
            if present and group.state is GroupState.STABLE:
                assert not seen & application.believes
                seen |= application.believes

    @invariant()
    def s5_generations_grow(self) -> None:
        facts = self.world.observed
        # A group that nobody used for long is forgotten (C60), and its numbers with it.
        forgotten = max((n for n, e in enumerate(facts) if isinstance(e, GroupDeleted)), default=0)
        # Those that have an assignment, and so are in the log: what no log knows yet may be begun
        # again by the next coordinator.
        logged = [e.generation for e in facts[forgotten:] if isinstance(e, Assigned)]
        assert all(later > earlier for earlier, later in pairwise(logged))

    @invariant()
    def no_error_is_raised(self) -> None:
        for application in self.world.applications.values():
            assert all("FENCED_INSTANCE_ID" in str(error) for error in application.raised)

    def teardown(self) -> None:
        world = self.world
        for application in list(world.applications.values()):
            application.deferring = False
            if not self.is_open(application) or not application.member.session.topics:
                world.kill(application.name)
        world.advance(140_000)
        assert world.everybody_is_stable()
        if world.applications:
            wanted = set().union(*(a.member.session.topics for a in world.applications.values()))
            owners = world.owners()
            assert len(owners) == sum(world.topics[topic] for topic in wanted)
            assert {len(names) for names in owners.values()} == {1}
            assert all(a.believes == set(a.member.assigned) for a in world.applications.values())


Chaos.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestChaos = Chaos.TestCase
