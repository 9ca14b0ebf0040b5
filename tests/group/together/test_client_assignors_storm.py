"""Members that compute the assignment themselves, in the same storm, with errors (K60, K61).

In addition to `test_consumer_groups_storm`, an assignor raises, never returns, or assigns
partitions that it must not; one member has no assignor. Still no partition has two owners, and in
the end each has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import rule

from kohort.group.assignors import Assignor, ClusterView, Subscription
from kohort.group.effects import AssignmentJob
from kohort.group.member.consumer import client_assignors
from kohort.group.member.events import Polled, Subscribed
from kohort.group.subscription import encode_assignment
from kohort.types import TopicPartition
from tests.group.together.consumer_world import GROUP, Compute, ConsumerWorld
from tests.group.together.test_consumer_groups_storm import Storm

FOREIGN = "east"


class Restless(Assignor):
    """Assigns every partition to another member each time."""

    name = "restless"
    turn = 0

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        self.turn += 1
        dealt: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic, count in sorted(cluster.partitions.items()):
            wanted = sorted(m for m in subscriptions if topic in subscriptions[m].topics)
            for number in range(count):
                receiver = wanted[(number + self.turn) % len(wanted)]
                dealt[receiver].append(TopicPartition(topic, number))
        return dealt


def raises(
    _job: AssignmentJob, _all: Mapping[str, Assignor], _view: ClusterView
) -> dict[str, bytes]:
    raise ValueError("no")


def everything_to_all(
    job: AssignmentJob, _all: Mapping[str, Assignor], view: ClusterView
) -> dict[str, bytes]:
    everything = [
        TopicPartition(t, n) for t, count in view.partitions.items() for n in range(count)
    ]
    return dict.fromkeys(job.subscriptions, encode_assignment(everything))


def to_a_stranger(
    _job: AssignmentJob, _all: Mapping[str, Assignor], _view: ClusterView
) -> dict[str, bytes]:
    return {"stranger": encode_assignment([])}


def what_is_not_there(
    job: AssignmentJob, _all: Mapping[str, Assignor], view: ClusterView
) -> dict[str, bytes]:
    ghosts = [TopicPartition(topic, count) for topic, count in view.partitions.items()]
    return {min(job.subscriptions): encode_assignment(ghosts)}


HABITS: list[Compute] = [
    client_assignors.compute,
    raises,
    everything_to_all,
    to_a_stranger,
    what_is_not_there,
]


def settled(*names: str) -> ConsumerWorld:
    world = ConsumerWorld(flights=4)
    for name in names:
        player = world.start(name, None, () if name == FOREIGN else (Restless(),))
        player.stage.tell(Subscribed(frozenset({"flights"})))
        player.stage.tell(Polled())
    world.advance(15_000)
    return world


def test_k61_in_fair_weather_members_make_the_assignment() -> None:
    """Both sides; otherwise the storm would prove nothing."""
    world = settled("north", "south")
    group = world.shard.log.consumer_groups[GROUP]
    assert {word.assignor for word in group.words.values()} == {"restless"}
    assert [len(player.stage.believes) for player in world.players.values()] == [2, 2]
    assert all(len(names) == 1 for names in world.owners().values())


def test_k60_with_a_stranger_among_them_the_coordinator_makes_it() -> None:
    world = settled("north", "south", FOREIGN)
    assert not world.shard.log.consumer_groups[GROUP].words
    assert len(world.owners()) == 4


class AssigningStorm(Storm):
    def begin(self, name: str, topics: frozenset[str], instance: str | None) -> None:
        assignors = () if name == FOREIGN else (Restless(),)
        player = self.world.start(name, instance, assignors)
        player.stage.tell(Subscribed(topics))
        player.stage.tell(Polled())

    @rule(index=st.integers(0, 2), habit=st.sampled_from(HABITS))
    def compute_badly(self, index: int, habit: Compute) -> None:
        player = self.some(index)
        if player is not None:
            player.compute = habit

    @rule(index=st.integers(0, 2))
    def forget_what_is_to_be_computed(self, index: int) -> None:
        """The assignor never returns."""
        player = self.some(index)
        if player is not None:
            player.stage.jobs.clear()

    def teardown(self) -> None:
        for player in self.world.players.values():
            player.compute = client_assignors.compute
        super().teardown()


TestAssigningStorm = AssigningStorm.TestCase
TestAssigningStorm.settings = settings(max_examples=60, stateful_step_count=40)
