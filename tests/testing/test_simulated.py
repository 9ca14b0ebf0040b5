"""A user's listener and assignors in simulated groups."""

from __future__ import annotations

import time as virtual  # nothing waits here: a simulated listener's sleep takes virtual time
from collections.abc import Mapping, Sequence

import pytest

from kohort.client import RebalanceListener
from kohort.errors import CommitFailedError, ConfigError, LocalProtocolError
from kohort.group.assignors import (
    BUILTIN_ASSIGNORS,
    Assignor,
    ClusterView,
    RebalanceProtocol,
)
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.subscription import Subscription
from kohort.testing import (
    NotSimulatedError,
    SimulatedConsumer,
    SimulationFailedError,
    simulate,
)
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

    with pytest.raises(NotSimulatedError, match="asynchronous listener"):
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


def test_an_assignor_that_gives_a_partition_twice_breaks_a_rule_and_it_is_said_why() -> None:
    """The leader refuses what its assignor says (S4), so the group never converges."""
    with pytest.raises(SimulationFailedError, match="gives flights-0 to two members") as caught:
        simulate(assignors=[Twice()], members=2, minutes=1, faults=[])
    assert caught.value.verdict.startswith("L")


def test_an_assignor_that_moves_too_early_breaks_a_rule_and_it_is_said_why() -> None:
    """The leader refuses what its assignor says (L8), so the group never converges."""
    with pytest.raises(SimulationFailedError, match="hasty") as caught:
        simulate(
            assignors=[Hasty()], protocol="cooperative", members=2, minutes=1, faults=["close"]
        )
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


# ------------------------------------------------------------------------------ with a consumer


class CommitsWhatIsLost(RebalanceListener):
    """The commonest bug: the method for revoked partitions serves for lost ones."""

    def __init__(self, consumer: SimulatedConsumer) -> None:
        self.consumer = consumer

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.commit()


class CommitsOnlyWhatIsRevoked(CommitsWhatIsLost):
    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_a_commit_of_what_is_lost_is_found_and_the_calls_before_are_shown(protocol: str) -> None:
    with pytest.raises(SimulationFailedError) as caught:
        simulate(CommitsWhatIsLost, protocol=protocol, faults=["pause", "stall"], members=3)
    assert caught.value.verdict == "CommitFailedError"
    said = str(caught.value)
    assert "last calls of listeners, and by listeners:" in said
    lost = said.index("on_partitions_lost(")
    assert 0 <= said.index("on_partitions_assigned(") < lost
    assert "commit(" in said[lost:]
    assert len(said) < 3_000


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer", "draft"])
def test_a_commit_of_what_is_revoked_is_right(protocol: str) -> None:
    outcomes = simulate(CommitsOnlyWhatIsRevoked, protocol=protocol, seeds=FEW)
    assert all(outcome.is_ok for outcome in outcomes)
    again = simulate(CommitsOnlyWhatIsRevoked, protocol=protocol, seeds=FEW)
    assert [each.events for each in again] == [each.events for each in outcomes]


def test_a_listener_that_sleeps_takes_virtual_time_up_to_what_a_poll_may() -> None:
    class Slow(RebalanceListener):
        seconds = 2.0

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            virtual.sleep(self.seconds)

    class Stuck(Slow):
        seconds = 86_400.0

    assert all(each.is_ok for each in simulate(Slow, seeds=FEW, protocol="classic"))
    with pytest.raises(SimulationFailedError, match=r"max\.poll\.interval\.ms") as caught:
        simulate(Stuck, seeds=FEW, protocol="classic")
    assert caught.value.verdict == "TimeoutError"
    assert "on_partitions_revoked slept for 86400000 ms" in str(caught.value)


class Asks(RebalanceListener):
    """Calls everything that it may, and what it may not."""

    calls = 0

    def __init__(self, consumer: SimulatedConsumer) -> None:
        self.consumer = consumer

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        consumer = self.consumer
        assert partitions <= consumer.assignment()
        assert {each.topic for each in partitions} <= consumer.subscription()
        stored = consumer.committed(*partitions)
        for each in sorted(partitions):
            at = consumer.position(each)
            assert at == (stored[each].offset if each in stored else 0)
            assert at <= consumer.end_offsets([each])[each]
            consumer.seek(each, at)
            assert consumer.position(each) == at
        consumer.pause(*partitions)
        assert partitions <= consumer.paused()
        consumer.resume(*partitions)
        assert not consumer.paused()
        calls = (consumer.poll, consumer.poll_membership, consumer.unsubscribe, consumer.close)
        for call in calls:
            with pytest.raises(LocalProtocolError, match="inside a listener"):
                call()
        with pytest.raises(LocalProtocolError, match="not assigned"):
            consumer.seek(TopicPartition("nowhere", 0), 1)
        with pytest.raises(ValueError, match="at least 0"):
            consumer.seek(TopicPartition("nowhere", 0), -1)
        type(self).calls += 1

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.commit_async()

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        assert isinstance(self.consumer.commit_async().exception(0), CommitFailedError)


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_a_listener_may_call_what_it_may_call_of_a_real_consumer(protocol: str) -> None:
    Asks.calls = 0
    simulate(Asks, protocol=protocol, seeds=range(5), faults=["pause", "stall", "kill"])
    assert Asks.calls


def test_a_listener_that_seeks_past_records_is_found() -> None:
    class Skips(CommitsOnlyWhatIsRevoked):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for each, end in self.consumer.end_offsets(partitions).items():
                self.consumer.seek(each, end + 3)

    with pytest.raises(SimulationFailedError, match="handed out") as caught:
        simulate(Skips, seeds=FEW)
    assert "seek(" in str(caught.value)


def test_outcomes_and_scenarios_are_short_to_read() -> None:
    (outcome,) = simulate(Open, seeds=[3])
    assert repr(outcome.scenario).startswith("<Scenario seed=3, protocol='classic', ")
    assert repr(outcome.scenario) in repr(outcome)
    assert len(repr(outcome)) < 250
