"""User code called by the client: what happens if it raises, blocks or returns nonsense.

Each row of the table in docs/groups.md, "Your code in the client", is tested here. More tests of
listeners are in test_listener_calls.py.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer, RebalanceListener
from kohort.client.consumer.listener import Told
from kohort.errors import ConfigError, KohortError, LocalProtocolError
from kohort.group.assignors import Assignor, ClusterView
from kohort.group.assignors.interface import Assignment, GroupMetadata, RebalanceProtocol
from kohort.group.events import GroupEvent
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition
from tests.broker.processes import eventually
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka

RECORDS = 5
DEADLINE_S = 60


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as running:
        yield running.bootstrap_servers


@pytest.fixture(params=["embedded", "kafka"])
def broker(request: pytest.FixtureRequest, embedded: str) -> str:
    if request.param == "embedded":
        return embedded
    kafka: RealKafka = request.getfixturevalue("real_kafka")
    return kafka.bootstrap_servers


class Even(Assignor):
    """Assigns partitions in turn; the test adds other behaviour."""

    name = "even"

    def __init__(self) -> None:
        self.speaks: Callable[[frozenset[str]], object] = lambda _: b"hello"
        self.shares: Callable[[], object] = lambda: None
        self.notes: Callable[[], object] = lambda: None
        self.extra: list[TopicPartition] = []
        self.gives: object = None
        self.heard: list[bytes | None] = []
        self.threads: dict[str, str] = {}

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        self.threads["subscription_user_data"] = threading.current_thread().name
        return self.speaks(topics)  # type: ignore[return-value]  # nonsense is what some tests are about

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        self.threads["assign"] = threading.current_thread().name
        self.heard += [each.user_data for each in subscriptions.values()]
        if self.gives is not None:
            return dict.fromkeys(subscriptions, self.gives)  # type: ignore[arg-type]  # as above
        made = self.shares()
        if made is not None:
            return made  # type: ignore[return-value]  # as above
        given = {member: list(self.extra) for member in sorted(subscriptions)}
        turns = list(given)
        for topic, count in cluster.partitions.items():
            for number in range(count):
                given[turns[number % len(turns)]].append(TopicPartition(topic, number))
        return given

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.threads["on_assignment"] = threading.current_thread().name
        self.notes()


class Cooperative(Even):
    name = "even-cooperative"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)


def settings(kind: str, assignor: Assignor) -> dict[str, Any]:
    if kind == "consumer":
        return {"group_protocol": "consumer", "group_local_assignors": [assignor]}
    return {
        "partition_assignment_strategy": [assignor],
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 100,
    }


KINDS: dict[str, type[Even]] = {"eager": Even, "cooperative": Cooperative, "consumer": Even}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


class Member:
    """A consumer with its own assignor, and a topic with records."""

    def __init__(self, broker: str, kind: str, **more: object) -> None:
        self.assignor = KINDS[kind]()
        self.topic = foreign.new_topic(broker, 2)
        foreign.produce(broker, self.topic, [b"x"] * RECORDS)
        common: dict[str, Any] = {"auto_offset_reset": "earliest", "group_id": uuid.uuid4().hex}
        chosen = common | settings(kind, self.assignor) | more
        self.consumer = Consumer(self.topic, bootstrap_servers=broker, **chosen)
        self.read = 0

    def until_read(self) -> None:
        """Poll until all records have arrived; errors are not expected."""
        end = time.monotonic() + DEADLINE_S
        while self.read < RECORDS:
            assert time.monotonic() < end, "the records did not come"
            self.read += sum(map(len, self.consumer.poll(200).values()))

    def until_raised(self, match: str) -> KohortError:
        """Poll until an error is raised."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            try:
                self.read += sum(map(len, self.consumer.poll(200).values()))
            except KohortError as error:
                if match not in str(error):
                    raise
                return error
        raise AssertionError("no poll raised")

    def close_soon(self) -> None:
        """Close, which must not run out of time."""
        warned: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]  # all it is for
        logger = logging.getLogger("kohort.client")
        logger.addHandler(handler)
        try:
            self.consumer.close(timeout_s=DEADLINE_S / 4)
        finally:
            logger.removeHandler(handler)
        assert not any("could not be left in time" in each for each in warned)


@pytest.fixture
def member(embedded: str, kind: str) -> Iterator[Member]:
    made = Member(embedded, kind)
    yield made
    made.consumer.close()


def fail(*_args: object) -> object:
    raise ArithmeticError("not today")


# ------------------------------------------------------------------ Assignor.subscription_user_data


def test_an_assignor_that_raises_as_it_is_asked_is_named_and_asked_again(member: Member) -> None:
    member.assignor.speaks = fail
    member.until_raised("subscription_user_data of assignor even")
    error = member.until_raised("ArithmeticError: not today")
    assert isinstance(error, KohortError)
    assert error.__cause__ is not None
    assert isinstance(error.__cause__.__cause__, ArithmeticError)  # between them: the hook's name
    member.assignor.speaks = lambda _: b"hello"
    member.until_read()
    assert set(member.assignor.heard) == {b"hello"}


def test_a_member_whose_assignor_raises_closes_at_once(member: Member) -> None:
    member.assignor.speaks = fail
    member.until_raised("not today")
    member.close_soon()


@pytest.mark.parametrize(
    "nonsense", ["text", 5, [b"x"], b"x" * (1 << 21)], ids=["str", "int", "list", "too large"]
)
def test_an_assignor_that_says_nonsense_is_named(member: Member, nonsense: object) -> None:
    member.assignor.speaks = lambda _: nonsense
    member.until_raised("subscription_user_data of assignor even")
    member.close_soon()


def test_a_member_whose_assignor_raises_in_a_later_rebalance_goes_on(broker: str) -> None:
    """The member had partitions before: it returns once the assignor works again."""
    member = Member(broker, "eager")
    with member.consumer:
        member.until_read()
        member.assignor.speaks = fail
        member.consumer.enforce_rebalance("to ask the assignor")
        member.until_raised("not today")
        member.assignor.speaks = lambda _: None
        foreign.produce(broker, member.topic, [b"x"] * RECORDS)
        member.read = 0
        member.until_read()


def test_an_assignor_that_blocks_as_it_is_asked_holds_nothing_else_up(member: Member) -> None:
    """The poll ends in time, and `close` works."""
    go_on = threading.Event()
    member.assignor.speaks = lambda _: go_on.wait() and None
    threads = member.assignor.threads

    def is_asked() -> bool:
        assert member.consumer.poll(500) == {}
        return "subscription_user_data" in threads

    eventually(is_asked, "the assignor is asked")
    assert threads["subscription_user_data"] == "kohort-assignor"
    member.close_soon()
    go_on.set()


def test_an_assignor_may_call_the_consumer_as_it_is_asked(member: Member) -> None:
    seen: list[object] = []
    member.assignor.speaks = lambda _: seen.append(member.consumer.assignment())
    member.until_read()
    assert seen
    assert seen[0] == frozenset()


# ------------------------------------------------------------------------------- Assignor.assign


@pytest.mark.parametrize("kind", ["eager", "cooperative"], indirect=True)
def test_a_leader_whose_assignor_raises_is_told_and_tries_again(member: Member) -> None:
    member.assignor.shares = fail
    error = member.until_raised("assignor even")
    assert isinstance(error.__cause__, ArithmeticError)
    member.assignor.shares = lambda: None
    member.until_read()


@pytest.mark.parametrize("kind", ["eager", "cooperative"], indirect=True)
@pytest.mark.parametrize("nonsense", [5, {"anybody": 5}, [("a", "b")], "text"], ids=repr)
def test_a_leader_whose_assignor_returns_nonsense_is_told(member: Member, nonsense: object) -> None:
    member.assignor.shares = lambda: nonsense
    member.until_raised("assignor even")
    member.close_soon()


@pytest.mark.parametrize("kind", ["eager", "cooperative"], indirect=True)
@pytest.mark.parametrize("nonsense", [5, "ab", [1], [("t", "x")]], ids=repr)
def test_a_leader_that_gives_what_is_no_partition_is_told(member: Member, nonsense: object) -> None:
    member.assignor.gives = nonsense
    member.until_raised("assignor even")
    member.close_soon()


@pytest.mark.parametrize("kind", ["eager", "cooperative"], indirect=True)
def test_a_leader_that_gives_what_a_member_does_not_want_is_told(member: Member) -> None:
    """Otherwise each member would refuse it and rejoin, silently and forever."""
    member.assignor.extra = [TopicPartition("somebody-elses", 0)]
    member.until_raised("which it does not subscribe to")
    member.assignor.extra = []
    member.until_read()


def test_an_assignor_that_blocks_does_not_keep_close_waiting(embedded: str, kind: str) -> None:
    member = Member(embedded, kind)
    go_on, begun = threading.Event(), threading.Event()

    def shares() -> None:
        begun.set()
        go_on.wait()

    member.assignor.shares = shares
    end = time.monotonic() + DEADLINE_S
    while not begun.is_set():
        assert time.monotonic() < end
        member.consumer.poll(100)
    member.close_soon()
    go_on.set()


# ------------------------------------------------------------------------- Assignor.on_assignment


def test_an_assignor_that_raises_as_it_is_told_changes_nothing(member: Member) -> None:
    member.assignor.notes = fail
    with pytest.raises(ArithmeticError, match="not today"):
        member.until_read()
    member.until_read()


def test_an_assignor_is_told_in_the_thread_that_polls(member: Member) -> None:
    """It may use the consumer there, like a listener, and blocks only that poll."""
    seen: list[frozenset[TopicPartition]] = []
    refused: list[str] = []

    def notes() -> None:
        seen.append(member.consumer.assignment())
        for call in (member.consumer.poll, member.consumer.close, member.consumer.unsubscribe):
            with pytest.raises(LocalProtocolError) as caught:
                call()
            refused.append(str(caught.value))

    member.assignor.notes = notes
    member.until_read()
    assert member.assignor.threads["on_assignment"] == threading.current_thread().name
    assert seen
    assert refused
    assert all("inside a listener" in each for each in refused)


# ------------------------------------------------------------------------------- names, versions


@pytest.mark.parametrize("name", ["", None, 5, b"even"])
def test_a_name_that_cannot_be_sent_is_refused_at_once(embedded: str, name: object) -> None:
    assignor = Even()
    assignor.name = name  # type: ignore[assignment, misc]  # that is the point
    for kind in ("eager", "consumer"):
        with pytest.raises(ConfigError):
            Consumer("t", bootstrap_servers=embedded, group_id="g", **settings(kind, assignor))


# --------------------------------------------------------------------------------- event_listener


def test_an_event_listener_that_raises_is_logged_and_changes_nothing(
    embedded: str, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(embedded, "eager", event_listener=fail)
    with member.consumer, caplog.at_level(logging.ERROR, "kohort.client"):
        member.until_read()
    assert "event_listener raised" in caplog.text


def test_an_event_listener_that_calls_back_is_refused_and_changes_nothing(embedded: str) -> None:
    refused: list[str] = []
    members: list[Member] = []

    def listen(_event: GroupEvent) -> None:
        if not members:
            return
        try:
            members[0].consumer.assignment()
        except KohortError as error:
            refused.append(str(error))

    member = Member(embedded, "eager", event_listener=listen)
    members.append(member)
    with member.consumer:
        member.until_read()
    assert refused


# -------------------------------------------------------------------------------------- listeners


class Listening(RebalanceListener):
    """Runs a function with its assignment."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed: Callable[[], object] = deed
        self.threads: list[str] = []

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        self.threads.append(threading.current_thread().name)
        return cast("Told", self.deed()) if partitions else None


@pytest.mark.parametrize("nonsense", [5, "text", [1]], ids=repr)
def test_a_listener_that_returns_nonsense_is_told_and_records_come(
    member: Member, nonsense: object
) -> None:
    listener = Listening(lambda: nonsense)
    member.consumer.subscribe([member.topic], listener=listener)
    with pytest.raises(TypeError):
        member.until_read()
    member.until_read()
    assert set(listener.threads) == {threading.current_thread().name}


def test_a_listener_that_raises_is_heard_once_and_records_come(member: Member) -> None:
    member.consumer.subscribe([member.topic], listener=Listening(fail))
    with pytest.raises(ArithmeticError, match="not today"):
        member.until_read()
    member.until_read()


# ------------------------------------------------------------------------ serializers and the like


def test_a_deserializer_runs_in_the_thread_that_polls_and_may_call_back(embedded: str) -> None:
    threads: list[str] = []
    members: list[Member] = []

    def shown(data: bytes) -> str:
        threads.append(threading.current_thread().name)
        assert members[0].consumer.assignment()
        return data.decode()

    member = Member(embedded, "eager", value_deserializer=shown)
    members.append(member)
    with member.consumer:
        member.until_read()
    assert threads == [threading.current_thread().name] * RECORDS


def test_a_deserializer_that_raises_is_heard(embedded: str) -> None:
    member = Member(embedded, "eager", value_deserializer=fail)
    with member.consumer, pytest.raises(Exception, match="not today"):
        member.until_read()


def test_a_serializer_that_raises_or_returns_nonsense_is_heard_and_spoils_nothing(
    embedded: str,
) -> None:
    topic = foreign.new_topic(embedded)
    deeds: list[Callable[[object], Any]] = [fail, lambda _: 5]
    with Producer(bootstrap_servers=embedded, value_serializer=lambda v: deeds[0](v)) as producer:
        with pytest.raises(ArithmeticError, match="not today"):
            producer.send(topic, "a")
        deeds.pop(0)
        with pytest.raises((TypeError, KohortError)):
            producer.send(topic, "b").result(DEADLINE_S)
        deeds[0] = str.encode  # type: ignore[assignment]  # what it should have been
        assert producer.send(topic, "c").result(DEADLINE_S).offset == 0


def nothing_left() -> NoReturn:
    """Raise like `next()` of an empty iterator."""
    raise StopIteration


class Exhausted(RebalanceListener):
    def on_partitions_assigned(self, partitions: frozenset[TopicPartition], /) -> Told:
        return nothing_left()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_that_raises_stop_iteration_ends_its_poll(broker: str, protocol: str) -> None:
    """A future does not accept StopIteration, so the poll would wait forever."""
    topic = foreign.new_topic(broker, 1)
    chosen: dict[str, Any] = {"group_protocol": protocol, "group_id": uuid.uuid4().hex}
    with Consumer(bootstrap_servers=broker, **chosen) as consumer:
        consumer.subscribe([topic], listener=Exhausted())
        with pytest.raises(RuntimeError, match="StopIteration"):
            poll_for_long(consumer)


def poll_for_long(consumer: Consumer) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        consumer.poll(200)


def test_an_assignor_that_raises_stop_iteration_is_named(broker: str) -> None:
    member = Member(broker, "eager")
    member.assignor.shares = nothing_left
    with member.consumer:
        with pytest.raises(KohortError, match=r"assignor even failed.*StopIteration"):
            poll_for_long(member.consumer)
        member.assignor.shares = lambda: None
        poll_through_errors(member)


def poll_through_errors(member: Member) -> None:
    """Poll until all records have arrived; the assignor may be called again before it works."""
    while member.read < RECORDS:
        try:
            member.until_read()
        except KohortError:
            continue
