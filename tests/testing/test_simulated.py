"""A user's listener and assignors in simulated groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kohort.client import RebalanceListener
from kohort.errors import ConfigError
from kohort.group.assignors import (
    BUILTIN_ASSIGNORS,
    Assignor,
    ClusterView,
    RebalanceProtocol,
)
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.subscription import Subscription
from kohort.testing import SimulationFailedError, simulate
from kohort.types import TopicPartition

FEW = range(3)


class Open(RebalanceListener):
    """Keeps one handle for each partition, as a listener with files or caches does."""

    def __init__(self) -> None:
        self.handles: set[TopicPartition] = set()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        assert not self.handles & partitions
        self.handles |= partitions

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.handles
        self.handles -= partitions


class Forgetful(Open):
    """Does not let go of what it lost: the next assignment of the same partition shows it."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_a_listener_is_called_as_the_client_calls_it(protocol: str) -> None:
    made: list[Open] = []

    def make() -> Open:
        made.append(Open())
        return made[-1]

    outcomes = simulate(make, protocol=protocol, seeds=FEW, members=4)
    assert [outcome.verdict for outcome in outcomes] == ["ok"] * 3
    assert len(made) >= 3 * 4
    assert any(listener.handles for listener in made)


def test_a_listener_that_forgets_what_was_lost_is_found_out() -> None:
    with pytest.raises(SimulationFailedError, match="raised: AssertionError") as caught:
        simulate(Forgetful, faults=["pause", "stall"], members=3)
    assert caught.value.verdict == "AssertionError"
    # the same seed alone says the same
    seed = caught.value.scenario.seed
    with pytest.raises(SimulationFailedError) as again:
        simulate(Forgetful, faults=["pause", "stall"], members=3, seeds=[seed])
    assert again.value.scenario == caught.value.scenario
    assert f"seeds=[{seed}], protocol='classic'" in str(caught.value)


def test_a_listener_without_lost_is_told_of_it_as_of_revoked() -> None:
    class Plain:
        def __init__(self) -> None:
            self.owned: frozenset[TopicPartition] = frozenset()

        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            assert not self.owned & partitions
            self.owned |= partitions

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            self.owned -= partitions

    simulate(Plain, seeds=FEW, faults=["pause", "stall"])


def test_a_listener_that_is_done_later_is_refused() -> None:
    class Later(RebalanceListener):
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            pass

    with pytest.raises(SimulationFailedError, match="done later"):
        simulate(Later, seeds=[1])


class Mine(Assignor):
    """One that is right: all partitions to members in turn."""

    name = "mine"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
        for topic, count in sorted(cluster.partitions.items()):
            wanting = [m for m in given if topic in subscriptions[m].topics]
            for number in range(count if wanting else 0):
                member = wanting[number % len(wanting)]
                given[member].append(TopicPartition(topic, number))
        return given


class Twice(Mine):
    """One that gives the first partition of each topic to everybody."""

    name = "twice"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        given = super().assign(cluster, subscriptions)
        return {
            member: sorted({*each, *(TopicPartition(t, 0) for t in subscriptions[member].topics)})
            for member, each in given.items()
        }


class Hasty(Mine):
    """One that says it is cooperative, and moves partitions before their owners gave them up."""

    name = "hasty"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)


def test_an_assignor_that_is_right_passes() -> None:
    outcomes = simulate(assignors=[Mine()], seeds=range(5))
    assert all(outcome.rebalances for outcome in outcomes)


def test_an_assignor_that_gives_a_partition_twice_breaks_a_rule() -> None:
    with pytest.raises(SimulationFailedError, match="given to two members") as caught:
        simulate(assignors=[Twice()])
    assert caught.value.verdict == "S8"


def test_an_assignor_that_moves_too_early_breaks_a_rule_and_it_is_said_why() -> None:
    """The leader refuses what its assignor says (L8), so the group never converges."""
    with pytest.raises(SimulationFailedError, match="hasty") as caught:
        simulate(assignors=[Hasty()], protocol="cooperative", faults=["close"], minutes=2)
    assert caught.value.verdict.startswith("L")


def test_what_an_assignor_raises_is_told() -> None:
    class Broken(Mine):
        name = "broken"

        def assign(
            self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
        ) -> Mapping[str, Sequence[TopicPartition]]:
            raise ZeroDivisionError

    with pytest.raises(SimulationFailedError, match="broken raised: ZeroDivisionError"):
        simulate(assignors=[Broken()])


class Told(Mine):
    """Notes which generations it was told of."""

    name = "told"

    def __init__(self) -> None:
        self.generations: set[int] = set()

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.generations.add(metadata.generation_id)


def test_an_assignor_is_told_what_its_member_got() -> None:
    told = Told()
    simulate(assignors=[told], protocol="classic", seeds=FEW)
    assert len(told.generations) > 1


def test_several_assignors_and_those_of_kafka() -> None:
    simulate(assignors=[Mine(), BUILTIN_ASSIGNORS["range"]], seeds=[1])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"protocol": "clasic"}, "did you mean 'classic'"),
        ({"faults": ["kil"]}, "did you mean 'kill'"),
        ({"protocol": "consumer", "assignors": [Mine()]}, "no assignors"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        simulate(**arguments)  # type: ignore[arg-type]  # they are wrong on purpose
