"""Whatever a listener or an assignor does wrong fails the test with the seed, and who did it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from kohort import EmbeddedBroker
from kohort.client import Consumer, RebalanceListener
from kohort.group.assignors import Assignor, ClusterView
from kohort.group.subscription import Subscription
from kohort.testing import (
    NotSimulatedError,
    SimulatedConsumer,
    SimulationFailedError,
    simulate,
)
from kohort.types import TopicPartition

SEED = r"run it again with seeds=\[0\], protocol='classic'"


def returning(value: object) -> type[RebalanceListener]:
    """Return a class of listeners that return a value."""

    class Returns(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> Any:
            return value

    return Returns


@pytest.mark.parametrize("value", [5, 0, False, "done", b"", (), [1], object()])
def test_a_listener_that_returns_what_cannot_be_awaited_fails_as_in_a_poll(value: object) -> None:
    listener = returning(value)
    with EmbeddedBroker() as broker:
        broker.create_topic("flights", partitions=1)
        servers = broker.bootstrap_servers
        with Consumer(bootstrap_servers=servers, group_id="delays") as consumer:
            consumer.subscribe(["flights"], listener=listener())
            with pytest.raises(TypeError) as real:  # noqa: PT012  # whichever poll has the call
                for _ in range(60):
                    consumer.poll(timeout_ms=1_000)
    with pytest.raises(SimulationFailedError, match=SEED) as caught:
        simulate(listener)
    assert repr(caught.value.__cause__) == repr(real.value)


class Later:
    """Something that can be awaited."""

    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize("value", [Later(), Future[None]()])
def test_what_is_done_later_is_not_simulated_and_nobodys_fault(value: Awaitable[None]) -> None:
    with pytest.raises(NotSimulatedError, match="asynchronous listener"):
        simulate(returning(value))


# -------------------------------------------------------------------------------- what is raised


class Exits(RebalanceListener):
    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        sys.exit(3)


class Interrupted(RebalanceListener):
    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        raise KeyboardInterrupt


class Fails(RebalanceListener):
    """Raises what is no `Exception`."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pytest.fail("never thought of")


@pytest.mark.parametrize(("listener", "name"), [(Exits, "SystemExit"), (Fails, "Failed")])
def test_what_is_no_exception_is_told_with_the_seed(
    listener: type[RebalanceListener], name: str
) -> None:
    with pytest.raises(SimulationFailedError, match=SEED) as caught:
        simulate(listener)
    assert caught.value.verdict == name
    assert "ms the listener of member-" in str(caught.value)
    assert f" raised: {caught.value.__cause__!r}" in str(caught.value)
    assert "on_partitions_assigned(" in str(caught.value)


def test_ctrl_c_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(Interrupted)


class Takes(Assignor):
    """One whose methods end the process, or do not."""

    name = "takes"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        raise self.error


def test_an_assignor_that_exits_is_told_with_the_seed() -> None:
    with pytest.raises(SimulationFailedError, match=r"takes raised: SystemExit\(3\)") as caught:
        simulate(assignors=[Takes(SystemExit(3))])
    assert "seeds=[0]" in str(caught.value)
    with pytest.raises(KeyboardInterrupt):
        simulate(assignors=[Takes(KeyboardInterrupt())])


# --------------------------------------------------------------------------- what makes listeners


class NeedsTwo(RebalanceListener):
    def __init__(self, consumer: object, other: object) -> None:
        pass


class Refuses(RebalanceListener):
    def __init__(self) -> None:
        raise ZeroDivisionError


class Half:
    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pass


def exits() -> RebalanceListener:
    sys.exit(3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (NeedsTwo, "missing 1 required positional argument: 'other'"),
        (Refuses, "ZeroDivisionError"),
        (exits, "SystemExit"),
        (Half, "listener must have on_partitions_revoked and on_partitions_assigned"),
        (lambda: RebalanceListener, "listener must have on_partitions_revoked"),
        (lambda: None, "returned None"),
        (RebalanceListener(), "not a class or function that makes a listener"),
        (5, "not a class or function that makes a listener"),
    ],
)
def test_a_listener_that_cannot_be_made_is_told_with_the_seed(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(SimulationFailedError, match=SEED) as caught:
        simulate(make)
    assert "the listener of member-" in str(caught.value)
    assert "could not be made" in str(caught.value)
    assert text in str(caught.value)


def test_a_listener_that_calls_its_consumer_too_early_is_told_so() -> None:
    class Polls(RebalanceListener):
        def __init__(self, consumer: SimulatedConsumer) -> None:
            consumer.poll()

    with pytest.raises(SimulationFailedError, match=r"could not be made, .*LocalProtocolError"):
        simulate(Polls)
