"""Random events for a draft group, in any order: it keeps its invariants, and converges afterwards.

Checked after every step: no partition was assigned to two consumers in one generation; consumers of
the current generation share no partition; generations grow; no partition is assigned or revoked
twice (in `DraftWorld.run_callback`); a reloaded coordinator has the same log state. Checked at the
end: all consumers are part of the group, and every partition has exactly one owner.
"""

from __future__ import annotations

import random
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from kohort.group.coordinator.draft.group import DraftState
from kohort.group.events import Assigned, GenerationStarted
from kohort.group.member.draft.machine import DraftMember
from kohort.group.member.events import Subscribed
from tests.group.together.draft_world import Application, DraftWorld
from tests.group.together.storm import NAMES, TOPIC_SETS, TOPICS, TROUBLES, Deed, GroupStorm


class Storm(GroupStorm[DraftMember]):
    patience_ms = 60_000

    def __init__(self) -> None:
        super().__init__()
        self.world: DraftWorld = DraftWorld()
        self.world.tell_topics(flights=6, delays=2)

    @rule(name=st.sampled_from(NAMES), topics=TOPICS)
    def start(self, name: str, topics: frozenset[str]) -> None:
        if name not in self.world.applications:
            self.world.tell(self.world.start(name), Subscribed(topics))

    @rule()
    def assign(self) -> None:
        self.world.run_own_job()

    @rule(flights=st.integers(1, 9))
    def grow(self, flights: int) -> None:
        self.world.tell_topics(flights=max(flights, self.world.topics["flights"]))

    def deeds(self, chance: random.Random) -> list[Deed]:
        return [
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
                    lambda: self.trouble(chance.randrange(4), chance.choice(TROUBLES)),
                    lambda: self.fail_lookup(chance.randrange(4)),
                    lambda: self.grow(chance.randrange(6, 9)),
                ]
            ),
        ]

    def present(self) -> list[Application]:
        group = self.world.group
        return [
            application
            for application in self.world.applications.values()
            if group.state is DraftState.STEADY
            and application.member.generation_id == group.generation
            and application.member.member_id in group.consumers
        ]

    def is_at_rest(self) -> bool:
        return self.world.everybody_is_part()

    @invariant()
    def a_partition_has_one_owner_in_each_generation(self) -> None:
        generations = [e for e in self.world.observed if isinstance(e, Assigned)]
        for earlier, later in pairwise(generations):
            assert earlier.generation < later.generation
        for event in generations:
            given = [partition for _, each in event.assignments for partition in each]
            assert len(given) == len(set(given))

    @invariant()
    def generations_grow(self) -> None:
        started = [e.generation for e in self.world.observed if isinstance(e, GenerationStarted)]
        # The next coordinator restarts a generation that is not in the log.
        assert all(later >= earlier for earlier, later in pairwise(started))

    @invariant()
    def ids_are_given_out_once(self) -> None:
        members = [application.member for application in self.world.applications.values()]
        ids = [member.member_id for member in members if member.member_id]
        assert len(ids) == len(set(ids))

    @invariant()
    def no_error_is_raised(self) -> None:
        assert not any(application.raised for application in self.world.applications.values())


Storm.TestCase.settings = settings(
    max_examples=40, stateful_step_count=12, deadline=None, derandomize=True
)
TestStorm = Storm.TestCase
