"""The simulated consumer takes, refuses and returns what a real one does in a listener."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from kohort import EmbeddedBroker
from kohort.client import Consumer, ConsumerRecord, RebalanceListener
from kohort.errors import KohortError, LocalProtocolError
from kohort.testing import (
    NotSimulatedError,
    SimulatedConsumer,
    SimulationFailedError,
    simulate,
)
from kohort.types import OffsetAndMetadata, TopicPartition

HERE = TopicPartition("flights", 0)
STRANGE = TopicPartition("nowhere", 0)
ONE = {"seeds": [0], "faults": []}

# What the simulation itself calls.
OWN = {"forget", "when_committed"}


def methods(kind: type) -> dict[str, Any]:
    """Return the public methods and properties, and those of iteration."""
    wanted = ("__iter__", "__next__", "__enter__", "__exit__")
    names = [name for name in dir(kind) if name in wanted or not name.startswith("_")]
    return {name: inspect.getattr_static(kind, name) for name in names}


def test_every_public_method_of_the_real_one_is_there_with_its_signature() -> None:
    mine, theirs = methods(SimulatedConsumer), methods(Consumer)
    assert theirs.keys() <= mine.keys()
    assert mine.keys() - theirs.keys() == OWN
    for name in mine.keys() & theirs.keys():
        assert isinstance(mine[name], property) == isinstance(theirs[name], property), name
        if not isinstance(mine[name], property):
            assert parameters(mine[name]) == parameters(theirs[name]), name


def parameters(method: Any) -> list[tuple[str, object, object]]:
    function = method.__func__ if isinstance(method, classmethod) else method
    found = list(inspect.signature(function).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in found]


# --------------------------------------------------------------------------------- side by side

Call = Callable[[Any], object]

WRONG: dict[str, Call] = {
    "a list of offsets": lambda c: c.commit([HERE]),
    "a negative offset": lambda c: c.commit({HERE: -1}),
    "a float as offset": lambda c: c.commit({HERE: 1.5}),
    "a name as partition": lambda c: c.commit({"flights": 1}),
    "no name of a topic": lambda c: c.commit({TopicPartition("a b", 0): 1}),
    "metadata of another kind": lambda c: c.commit({HERE: OffsetAndMetadata(1, b"x")}),  # type: ignore[arg-type]  # wrong on purpose
    "a time-out that is text": lambda c: c.commit({HERE: 1}, "soon"),
    "a negative time-out": lambda c: c.commit({}, -1),
    "asynchronously a negative offset": lambda c: c.commit_async({HERE: -1}),
    "asynchronously no function": lambda c: c.commit_async({HERE: 1}, 5),
    "committed of a name": lambda c: c.committed("flights"),
    "committed with a wrong time-out": lambda c: c.committed(HERE, timeout_ms="soon"),
    "a position of a name": lambda c: c.position("flights"),
    "a position with a wrong time-out": lambda c: c.position(HERE, Decimal(1)),
    "a position of a stranger": lambda c: c.position(STRANGE),
    "a highwater of a name": lambda c: c.highwater("flights"),
    "a highwater of a stranger": lambda c: c.highwater(STRANGE),
    "a lag of a stranger": lambda c: c.current_lag(STRANGE),
    "a seek to text": lambda c: c.seek(HERE, "1"),
    "a seek before the beginning": lambda c: c.seek(STRANGE, -1),
    "a seek in a stranger": lambda c: c.seek(STRANGE, 1),
    "the beginning of a name": lambda c: c.seek_to_beginning("flights"),
    "the beginning of a stranger": lambda c: c.seek_to_beginning(STRANGE),
    "the end of a list": lambda c: c.seek_to_end([HERE]),
    "a pause of a stranger": lambda c: c.pause(HERE, STRANGE),
    "a pause of a list": lambda c: c.pause([HERE]),
    "a resumption of a name": lambda c: c.resume("flights"),
    "first offsets of one": lambda c: c.beginning_offsets(HERE),
    "last offsets of a name": lambda c: c.end_offsets("flights"),
    "last offsets with a wrong time-out": lambda c: c.end_offsets([HERE], "soon"),
    "times of a list": lambda c: c.offsets_for_times([HERE]),
    "a negative time": lambda c: c.offsets_for_times({HERE: -1}),
    "partitions of a number": lambda c: c.partitions_for_topic(5),
    "metadata of one": lambda c: c.topic_metadata("flights"),
    "topics with a wrong time-out": lambda c: c.topics("soon"),
    "a reason that is a number": lambda c: c.enforce_rebalance(5),
    "to store a float": lambda c: c.store_offsets({HERE: 1.5}),
    "to store for a stranger": lambda c: c.store_offsets({STRANGE: 1}),
    "to subscribe to one": lambda c: c.subscribe("flights"),
    "to subscribe to nothing": lambda c: c.subscribe(),
    "to subscribe with a class": lambda c: c.subscribe(["flights"], listener=RebalanceListener),
    "to subscribe to a number": lambda c: c.subscribe(pattern=5),
    "to subscribe to no expression": lambda c: c.subscribe(pattern="("),
    "to assign one": lambda c: c.assign(HERE),
    "to assign": lambda c: c.assign([HERE]),
    "a poll": lambda c: c.poll(),
    "a poll of nothing": lambda c: c.poll(max_records=0),
    "a poll of columns": lambda c: c.poll_arrow(),
    "a poll of no columns": lambda c: c.poll_arrow(max_records=0),
    "a poll for membership": lambda c: c.poll_membership("soon"),
    "a loop": lambda c: next(iter(c)),
    "to unsubscribe": lambda c: c.unsubscribe(),
    "to close": lambda c: c.close("soon"),
    "to leave a block": lambda c: c.__exit__(None, None, None),
}


def told(consumer: Any, call: Call) -> str:
    """Return what a call raised."""
    try:
        call(consumer)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return repr(error)
    return "nothing"


class Wrong(RebalanceListener):
    """Makes every wrong call as soon as it has the partition."""

    said: dict[str, str]

    def __init__(self, consumer: object) -> None:
        self.consumer = consumer

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        if HERE in partitions:
            type(self).said = {name: told(self.consumer, call) for name, call in WRONG.items()}


@pytest.fixture(scope="module")
def real() -> dict[str, str]:
    """What a real consumer says to wrong calls in its listener."""

    class Real(Wrong):
        pass

    with EmbeddedBroker() as broker:
        broker.create_topic("flights", partitions=1)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="delays",
            enable_auto_offset_store=False,
        ) as consumer:
            consumer.subscribe(["flights"], listener=Real(consumer))
            for _ in range(60):
                if not hasattr(Real, "said"):
                    consumer.poll(timeout_ms=1_000)
    return Real.said


@pytest.fixture(scope="module")
def simulated() -> dict[str, str]:
    """What a simulated consumer says to them."""

    class Simulated(Wrong):
        pass

    simulate(Simulated, **ONE)  # type: ignore[arg-type]  # of various kinds
    return Simulated.said


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_raises_what_the_real_one_raises(
    name: str, real: dict[str, str], simulated: dict[str, str]
) -> None:
    assert real[name] != "nothing"
    assert simulated[name] == real[name]


# -------------------------------------------------------------------------------------- commits


class Saves(RebalanceListener):
    """Commits positions as plain numbers, as `docs/clients.md` has it."""

    def __init__(self, consumer: SimulatedConsumer) -> None:
        self.consumer = consumer

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.commit({each: self.consumer.position(each) for each in partitions})

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


class SavesLater(Saves):
    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.commit_async({each: self.consumer.position(each) for each in partitions})


class Stores(Saves):
    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.store_offsets({each: self.consumer.position(each) for each in partitions})
        self.consumer.commit()


@pytest.mark.parametrize("listener", [Saves, SavesLater, Stores])
@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_offsets_may_be_plain_numbers(listener: type[Saves], protocol: str) -> None:
    simulate(listener, protocol=protocol, seeds=range(3))


@pytest.mark.parametrize("listener", [Saves, SavesLater])
@pytest.mark.parametrize(("protocol", "seed"), [("cooperative", 15), ("consumer", 5)])
def test_a_commit_while_a_position_is_looked_up_is_right(
    listener: type[Saves], protocol: str, seed: int
) -> None:
    """What the look-up brings then is older than the commit, and nobody begins there."""
    simulate(listener, protocol=protocol, seeds=[seed])


class CommitsAhead(Saves):
    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.consumer.commit({each: self.consumer.position(each) + 5 for each in partitions})


def test_a_rule_that_a_call_breaks_is_the_verdict() -> None:
    with pytest.raises(SimulationFailedError, match="commits 5 of") as caught:
        simulate(CommitsAhead)
    assert caught.value.verdict == "S10"
    assert "on_partitions_revoked(" in str(caught.value)


class StoresFirst(Saves):
    """Stores what nothing was read of yet, so that a commit has nothing else to take."""

    taken: list[dict[TopicPartition, int]]

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        consumer = self.consumer
        for each in sorted(partitions):
            at = consumer.position(each)
            consumer.store_offsets(record(each, at - 1) if at else {each: at})
        wanted = {each: consumer.position(each) for each in partitions}
        consumer.commit_async(on_commit=lambda offsets, _: self.judge(wanted, offsets))

    def judge(
        self,
        wanted: dict[TopicPartition, int],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        taken = {each: offsets[each].offset for each in wanted}
        assert taken == wanted
        self.taken.append(taken)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(*partition, offset, 0, 0, b"", b"", (), -1)


def test_a_commit_takes_what_was_stored() -> None:
    StoresFirst.taken = []
    simulate(StoresFirst, seeds=range(3))
    assert any(StoresFirst.taken)
    assert any(any(taken.values()) for taken in StoresFirst.taken)


class Tells(Saves):
    """Is told what came of its commits."""

    answers: list[tuple[bool, str]]

    def __init__(self, consumer: SimulatedConsumer) -> None:
        super().__init__(consumer)
        self.is_called = False

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.is_called = True
        self.consumer.commit_async(on_commit=self.answered)
        self.is_called = False

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.on_partitions_revoked(partitions)

    def answered(self, _: object, error: KohortError | None) -> None:
        assert not self.is_called  # a later poll calls it, not the commit itself
        self.answers.append((error is None, type(error).__name__))


def test_on_commit_is_called_in_a_later_poll() -> None:
    Tells.answers = []
    simulate(Tells, seeds=range(3), faults=["pause", "stall"], members=3)
    assert set(Tells.answers) == {(True, "NoneType"), (False, "CommitFailedError")}


def test_what_on_commit_raises_is_the_listeners_fault() -> None:
    class Breaks(Tells):
        def answered(self, _: object, error: KohortError | None) -> None:
            raise ZeroDivisionError

    with pytest.raises(SimulationFailedError, match=r"on_commit of member-\d raised: ZeroDiv"):
        simulate(Breaks)


# ------------------------------------------------------------------------------------ questions


class Asks(Saves):
    """Asks everything that can be asked."""

    seen = 0

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        consumer = self.consumer
        group = consumer.metrics()["consumer-coordinator-metrics"]
        assert group["assigned-partitions"] == len(consumer.assignment())
        assert {each.topic for each in partitions} <= consumer.topics()
        assert consumer.partitions_for_topic("nowhere") is None
        assert consumer.topic_metadata(["nowhere"]) == {}
        for each in partitions:
            numbers = consumer.partitions_for_topic(each.topic)
            assert numbers is not None
            assert each.partition in numbers
            assert set(consumer.topic_metadata([each.topic])[each.topic].partitions) == numbers
            assert consumer.highwater(each) is None  # nothing was fetched yet
            assert consumer.current_lag(each) is None
            assert each not in consumer.positions()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        for each in partitions & self.consumer.positions().keys():
            end, lag = self.consumer.highwater(each), self.consumer.current_lag(each)
            assert end is not None
            assert lag == max(0, end - self.consumer.position(each))
            type(self).seen += 1


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_what_a_listener_may_ask_is_answered(protocol: str) -> None:
    Asks.seen = 0
    simulate(Asks, protocol=protocol, seeds=range(3), faults=["pause", "stall", "close"])
    assert Asks.seen


# --------------------------------------------------------------------------------- not simulated

UNSIMULATED: dict[str, Call] = {
    "offsets_for_times": lambda c: c.offsets_for_times({HERE: 0}),
    "subscribe": lambda c: c.subscribe(["flights"]),
    "from_config": lambda c: c.from_config({"bootstrap.servers": "localhost:9092"}),
}


@pytest.mark.parametrize("name", UNSIMULATED)
@pytest.mark.parametrize("catches", [False, True])
def test_what_there_is_not_is_named_and_blamed_on_nobody(name: str, catches: bool) -> None:
    class Calls(Saves):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            try:
                UNSIMULATED[name](self.consumer)
            except KohortError:
                if not catches:
                    raise

    with pytest.raises(NotSimulatedError, match=rf"Consumer\.{name} cannot be simulated") as caught:
        simulate(Calls)
    assert "EmbeddedBroker" in str(caught.value)
    assert "seeds=[0], protocol='classic'" in caught.value.__notes__[-1]


def test_a_rebalance_may_be_asked_for_where_members_may_ask() -> None:
    class Enforces(Saves):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            self.consumer.enforce_rebalance("new weights")

    simulate(Enforces, seeds=range(2))
    with pytest.raises(SimulationFailedError, match="coordinator alone") as caught:
        simulate(Enforces, protocol="consumer")
    assert isinstance(caught.value.__cause__, LocalProtocolError)
