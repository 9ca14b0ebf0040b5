"""Anything may happen to a draft group, in any order; afterwards it converges, and never did wrong.

Checked after every step: no partition was ever given to two consumers in one generation; consumers
that are in the present generation share nothing; generations grow; nothing is given twice or taken
twice (in `DraftWorld.run_callback`); a coordinator that reloads finds the log state it had. Checked
at the end: everybody is part of the group, every partition has exactly one owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.group.coordinator.draft.group import DraftState
from kohort.group.events import Assigned, GenerationStarted
from kohort.group.member.draft.machine import DraftMemberState
from kohort.group.member.events import Closing, LookupFailed, Polled, Subscribed, Unsubscribed
from kohort.types import TopicPartition
from tests.group.draft_world import Application, DraftWorld

NAMES = ("east", "north", "south", "west")
TOPIC_SETS = (frozenset({"flights"}), frozenset({"flights", "delays"}))
TOPICS = st.sampled_from(TOPIC_SETS)


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = DraftWorld()
        self.world.tell_topics(flights=6, delays=2)

    def some(self, index: int) -> Application | None:
        names = sorted(self.world.applications)
        return self.world.applications[names[index % len(names)]] if names else None

    @rule(name=st.sampled_from(NAMES), topics=TOPICS)
    def start(self, name: str, topics: frozenset[str]) -> None:
        if name not in self.world.applications:
            self.world.tell(self.world.start(name), Subscribed(topics))

    @rule(index=st.integers(0, 3), steps=st.integers(1, 8))
    def work(self, index: int, steps: int) -> None:
        application = self.some(index)
        for _ in range(steps):
            if application is not None:
                self.world.work(application)

    @rule()
    def assign(self) -> None:
        if self.world.jobs:
            self.world.run_job()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(milliseconds=st.sampled_from([1, 100, 3_000, 11_000, 61_000]), polls=st.booleans())
    def wait(self, milliseconds: int, polls: bool) -> None:
        """Time passes and nothing arrives."""
        self.world.now += milliseconds
        for application in self.world.applications.values():
            if polls and application.member.state is not DraftMemberState.CLOSED:
                self.world.tell(application, Polled())
        while self.world.expire():
            pass

    @rule(milliseconds=st.sampled_from([500, 5_000, 15_000]))
    def go_on(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @rule(index=st.integers(0, 3), how=st.sampled_from(["kill", "close", "unsubscribe", "drop"]))
    def trouble(self, index: int, how: str) -> None:
        application = self.some(index)
        if application is None:
            return
        if how == "kill":
            self.world.kill(application.name)
        elif how == "drop":
            self.world.drop_connection(application)
        elif how == "close":
            self.world.tell(application, Closing())
        elif application.member.state is not DraftMemberState.CLOSED:
            self.world.tell(application, Unsubscribed())

    @rule(index=st.integers(0, 3), topics=TOPICS)
    def subscribe(self, index: int, topics: frozenset[str]) -> None:
        application = self.some(index)
        if application is not None and self.is_open(application):
            self.world.tell(application, Subscribed(topics))

    @rule(index=st.integers(0, 3), deferring=st.booleans(), reachable=st.booleans())
    def be_slow(self, index: int, deferring: bool, reachable: bool) -> None:
        application = self.some(index)
        if application is not None:
            application.deferring, application.reachable = deferring, reachable

    @rule(index=st.integers(0, 3))
    def commit(self, index: int) -> None:
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

    @rule(flights=st.integers(1, 9))
    def grow(self, flights: int) -> None:
        self.world.tell_topics(flights=max(flights, self.world.topics["flights"]))

    @rule(seed=st.integers(0, 2**32))
    def storm(self, seed: int) -> None:
        """Many small things at once: random order reaches what single steps seldom do."""
        chance = random.Random(seed)
        hows = ["kill", "close", "unsubscribe", "drop"]
        deeds: list[Callable[[], None]] = [
            lambda: self.start(chance.choice(NAMES), TOPIC_SETS[0]),
            lambda: self.work(chance.randrange(4), chance.randrange(1, 4)),
            lambda: self.work(chance.randrange(4), 1),
            self.assign,
            lambda: self.wait(chance.choice([1, 500, 2_000, 4_000]), True),
            lambda: self.wait(chance.choice([500, 11_000]), chance.random() < 0.5),
            lambda: self.subscribe(chance.randrange(4), chance.choice(TOPIC_SETS)),
            lambda: self.commit(chance.randrange(4)),
            chance.choice([self.settle, self.settle, self.move_coordinator]),
            lambda: self.be_slow(chance.randrange(4), chance.random() < 0.3, True),
            chance.choice(
                [
                    lambda: self.trouble(chance.randrange(4), chance.choice(hows)),
                    lambda: self.fail_lookup(chance.randrange(4)),
                    lambda: self.grow(chance.randrange(6, 9)),
                ]
            ),
        ]
        for _ in range(40):
            chance.choice(deeds)()
            self.present_consumers_share_nothing()

    @staticmethod
    def is_open(application: Application) -> bool:
        session = application.member.session
        if session.state in (DraftMemberState.CLOSED, DraftMemberState.FATAL):
            return False
        leaving = session.state is DraftMemberState.LEAVING
        return not (leaving and session.after_leaving is DraftMemberState.CLOSED)

    @invariant()
    def a_partition_has_one_owner_in_each_generation(self) -> None:
        generations = [e for e in self.world.observed if isinstance(e, Assigned)]
        for earlier, later in pairwise(generations):
            assert earlier.generation < later.generation
        for event in generations:
            given = [partition for _, each in event.assignments for partition in each]
            assert len(given) == len(set(given))

    @invariant()
    def present_consumers_share_nothing(self) -> None:
        group = self.world.group
        seen: set[TopicPartition] = set()
        for application in self.world.applications.values():
            member = application.member
            present = member.generation_id == group.generation and member.member_id in (
                group.consumers
            )
            if present and group.state is DraftState.STEADY:
                assert not seen & application.believes
                seen |= application.believes

    @invariant()
    def generations_grow(self) -> None:
        started = [e.generation for e in self.world.observed if isinstance(e, GenerationStarted)]
        # A generation that no log knows yet is begun again by the next coordinator.
        assert all(later >= earlier for earlier, later in pairwise(started))

    @invariant()
    def ids_are_given_out_once(self) -> None:
        members = [application.member for application in self.world.applications.values()]
        ids = [member.member_id for member in members if member.member_id]
        assert len(ids) == len(set(ids))

    @invariant()
    def no_error_is_raised(self) -> None:
        assert not any(application.raised for application in self.world.applications.values())

    def teardown(self) -> None:
        world = self.world
        for application in list(world.applications.values()):
            application.deferring, application.reachable = False, True
            if not self.is_open(application) or not application.member.session.topics:
                world.kill(application.name)
        world.advance(60_000)
        assert world.everybody_is_part()
        if world.applications:
            wanted = set().union(*(a.member.session.topics for a in world.applications.values()))
            owners = world.owners()
            assert len(owners) == sum(world.topics[topic] for topic in wanted)
            assert {len(names) for names in owners.values()} == {1}
            assert all(a.believes == set(a.member.assigned) for a in world.applications.values())


Storm.TestCase.settings = settings(
    max_examples=40, stateful_step_count=12, deadline=None, derandomize=True
)
TestStorm = Storm.TestCase
