"""Random events for a group, in any order: the parts common to all kinds of groups."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kohort.group.member.events import Closing, LookupFailed, Subscribed, Unsubscribed
from kohort.types import TopicPartition
from tests.group.together.network import Connected, M, Network

NAMES = ("east", "north", "south", "west")
TOPIC_SETS = (frozenset({"flights"}), frozenset({"flights", "delays"}))
TOPICS = st.sampled_from(TOPIC_SETS)
INDEX = st.integers(0, 3)
TROUBLES = ("kill", "close", "unsubscribe", "drop")

Deed = Callable[[], None]


class GroupStorm(RuleBasedStateMachine, Generic[M]):
    """A world, random events, and invariants.

    Attributes:
        patience_ms: How long a group may take to come to rest once no more events occur.
    """

    world: Network[M]
    patience_ms: int

    # -------------------------------------------------------------------- for each kind of group

    @abstractmethod
    def deeds(self, chance: random.Random) -> list[Deed]:
        """Return small steps that a storm combines."""

    @abstractmethod
    def present(self) -> list[Connected[M]]:
        """Return the members of the current generation, if that has an assignment."""

    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether all are in the group and have their assignments."""

    # -------------------------------------------------------------------------- random events

    def some(self, index: int) -> Connected[M] | None:
        names = sorted(self.world.applications)
        return self.world.applications[names[index % len(names)]] if names else None

    @rule(index=INDEX, steps=st.integers(1, 8))
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
        """Let time pass without delivering messages."""
        self.world.now += milliseconds
        if polls:
            self.world.poll()
        while self.world.expire():
            pass

    @rule(milliseconds=st.sampled_from([500, 5_000, 15_000]))
    def go_on(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @rule(index=INDEX, how=st.sampled_from(TROUBLES))
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
        elif not application.member.is_closed:
            self.world.tell(application, Unsubscribed())

    @rule(index=INDEX, topics=TOPICS)
    def subscribe(self, index: int, topics: frozenset[str]) -> None:
        application = self.some(index)
        if application is not None and self.is_open(application):
            self.world.tell(application, Subscribed(topics))

    @rule(index=INDEX, deferring=st.booleans(), reachable=st.booleans())
    def be_slow(self, index: int, deferring: bool, reachable: bool) -> None:
        application = self.some(index)
        if application is not None:
            application.deferring, application.reachable = deferring, reachable

    @rule(index=INDEX)
    def commit(self, index: int) -> None:
        """Commit the application's offsets as the member; fenced ones must have no effect."""
        application = self.some(index)
        if application is not None and application.member.session.is_member:
            self.world.commit(application)

    @rule(index=INDEX)
    def fail_lookup(self, index: int) -> None:
        application = self.some(index)
        if application is not None and application.looking_up:
            application.looking_up = False
            self.world.tell(application, LookupFailed())

    @rule()
    def move_coordinator(self) -> None:
        self.world.reload()

    @rule(seed=st.integers(0, 2**32))
    def storm(self, seed: int) -> None:
        """Take many small steps at once: their random order reaches what single steps rarely do."""
        chance = random.Random(seed)
        deeds = self.deeds(chance)
        for _ in range(40):
            chance.choice(deeds)()
            self.s1_one_owner()

    @staticmethod
    def is_open(application: Connected[M]) -> bool:
        session = application.member.session
        if session.state.name in ("CLOSED", "FATAL"):
            return False
        return not (session.state.name == "LEAVING" and session.after_leaving.name == "CLOSED")

    # --------------------------------------------------------------------------- invariants

    @invariant()
    def s1_one_owner(self) -> None:
        """Members of the current generation share no partition."""
        seen: set[TopicPartition] = set()
        for application in self.present():
            assert not seen & application.believes
            seen |= application.believes

    def teardown(self) -> None:
        """Check that in the end all are members, and each partition has one owner (L1, L2)."""
        world = self.world
        for application in list(world.applications.values()):
            application.deferring, application.reachable = False, True
            if not self.is_open(application) or not application.member.session.topics:
                world.kill(application.name)
        world.advance(self.patience_ms)
        assert self.is_at_rest()
        if world.applications:
            wanted = set().union(*(a.member.session.topics for a in world.applications.values()))
            owners = world.owners()
            assert len(owners) == sum(world.topics[topic] for topic in wanted)
            assert {len(names) for names in owners.values()} == {1}
            assert all(a.believes == set(a.member.assigned) for a in world.applications.values())
