"""Listeners that raise, block or call the consumer: the group continues without loss.

Each is tested in both protocols, with both kinds of consumer, as the listener of one member of a
group whose other member comes and goes.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AsyncConsumer, Consumer, RebalanceListener
from kohort.client.consumer.listener import Listens, Told
from kohort.errors import CommitFailedError, KohortError, LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.real_kafka import foreign
from tests.system.clients.group import DEADLINE_S, Driver, Seen, produce
from tests.system.clients.ours import OurAsyncMember, OurMember

PARTITIONS = 4
RECORDS = 40
Given = frozenset[TopicPartition]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        group_consumer_heartbeat_interval_ms=100, group_consumer_session_timeout_ms=6_000
    ) as running:
        yield running


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.leave_all()


PROTOCOLS: dict[str, dict[str, object]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, object]:
    return PROTOCOLS[request.param]


# ---------------------------------------------------------------------------- what listeners do


def raises(_consumer: Consumer, _partitions: Given) -> None:
    raise ArithmeticError("the application's own fault")


def does_all_that_it_may(consumer: Consumer, partitions: Given) -> None:
    """Queries, commits and seeks, without changing the member's positions."""
    here = {each: consumer.position(each) for each in partitions}
    consumer.commit({each: OffsetAndMetadata(at) for each, at in here.items()})
    consumer.commit()
    assert {each: at.offset for each, at in consumer.committed(*partitions).items()} == here
    for each, at in here.items():
        consumer.seek(each, at)
    consumer.pause(*partitions)
    consumer.resume(*partitions)
    with suppress(LocalProtocolError):  # it is closing
        consumer.subscribe(consumer.subscription())


def does_what_it_may_not(consumer: Consumer, _partitions: Given) -> None:
    """Calls that would wait for this listener itself."""
    for call in (consumer.unsubscribe, consumer.close, lambda: consumer.poll(10_000)):
        with pytest.raises(LocalProtocolError, match="inside a listener"):
            call()
    raise ArithmeticError("as well")


async def raises_later(_consumer: AsyncConsumer, _partitions: Given) -> None:
    raise ArithmeticError("the application's own fault")


async def waits_for_what_is_cancelled(_consumer: AsyncConsumer, _partitions: Given) -> None:
    raise asyncio.CancelledError


async def does_all_that_it_may_later(consumer: AsyncConsumer, partitions: Given) -> None:
    here = {each: await consumer.position(each) for each in partitions}
    await consumer.commit({each: OffsetAndMetadata(at) for each, at in here.items()})
    await consumer.commit()
    stored = await consumer.committed(*partitions)
    assert {each: at.offset for each, at in stored.items()} == here
    for each, at in here.items():
        consumer.seek(each, at)
    consumer.pause(*partitions)
    consumer.resume(*partitions)
    with suppress(LocalProtocolError):  # it is closing
        consumer.subscribe(consumer.subscription())


async def does_what_it_may_not_later(consumer: AsyncConsumer, _partitions: Given) -> None:
    for call in (consumer.unsubscribe, consumer.close, consumer.poll):
        with pytest.raises(LocalProtocolError, match="inside a listener"):
            await call()
    raise ArithmeticError("as well")


Deed = Callable[[Consumer, Given], Told]
AsyncDeed = Callable[[AsyncConsumer, Given], Told]
# the listeners, and what the polls raise then
DEEDS: dict[Deed, type[Exception] | None] = {
    raises: ArithmeticError,
    does_all_that_it_may: None,
    does_what_it_may_not: ArithmeticError,
}
ASYNC_DEEDS: dict[AsyncDeed, type[Exception] | None] = {
    raises_later: ArithmeticError,
    waits_for_what_is_cancelled: KohortError,
    does_all_that_it_may_later: None,
    does_what_it_may_not_later: ArithmeticError,
}


class Does(RebalanceListener):
    """Does the same thing in every call."""

    def __init__(self) -> None:
        self.act: Callable[[Given], Told] = lambda _: None

    def on_partitions_revoked(self, partitions: Given, /) -> Told:
        return self.act(partitions)

    def on_partitions_assigned(self, partitions: Given, /) -> Told:
        return self.act(partitions)


class Keeps:
    """Keeps the exceptions of polls and of the close, and continues."""

    def __init__(self, member: OurMember | OurAsyncMember) -> None:
        self.raised: list[Exception] = []
        self.assignment = member.assignment
        self._member = member

    def poll(self) -> list[Seen]:
        try:
            return self._member.poll()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            self.raised.append(error)
            return []

    def close(self) -> None:
        try:
            self._member.close()
        except Exception as error:  # noqa: BLE001  # as above
            self.raised.append(error)


class Case:
    """A topic and a group for one test."""

    def __init__(self, broker: EmbeddedBroker, driver: Driver, protocol: dict[str, object]) -> None:
        self.servers = broker.bootstrap_servers
        self.group = uuid.uuid4().hex
        self.topic = foreign.new_topic(self.servers, PARTITIONS)
        self.protocol = protocol
        self._driver = driver
        self._produced = 0

    def produce(self) -> None:
        """Append more records, and wait until they were read."""
        produce(self.servers, self.topic, RECORDS, first=self._produced)
        self._produced += RECORDS
        self._driver.until(lambda: len(self._driver.seen) == self._produced, "every record")

    def blocking(self, listener: Listens | None = None, **settings: object) -> OurMember:
        settings = self.protocol | settings
        return OurMember(self.servers, self.group, self.topic, listener, **settings)

    def asyncio(self, listener: Listens | None = None, **settings: object) -> OurAsyncMember:
        settings = self.protocol | settings
        return OurAsyncMember(self.servers, self.group, self.topic, listener, **settings)

    def committed(self) -> dict[int, int]:
        partitions = range(PARTITIONS)
        return {
            each: foreign.committed(self.servers, self.group, self.topic, each)
            for each in partitions
        }

    def play(self, subject: Keeps) -> None:
        """Another member comes and goes; every record is read once and all are committed."""
        driver = self._driver
        driver.add(lambda: subject)
        driver.until_shared([subject], PARTITIONS)
        self.produce()
        other = driver.add(self.blocking)
        driver.until_shared([subject, other], PARTITIONS)
        self.produce()
        driver.leave(other)
        driver.until_shared([subject], PARTITIONS)
        self.produce()
        driver.leave(subject)
        assert set(driver.seen.values()) == {1}
        ends = {number: 1 + max(at for p, at in driver.seen if p == number) for number in range(4)}
        assert self.committed() == ends


@pytest.fixture
def case(broker: EmbeddedBroker, driver: Driver, protocol: dict[str, object]) -> Case:
    return Case(broker, driver, protocol)


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_a_listener_does_the_group_goes_on(case: Case, deed: Deed) -> None:
    """L6, L33: in the thread that polls."""
    does = Does()
    member = case.blocking(does)
    does.act = lambda partitions: deed(member.consumer, partitions)
    subject = Keeps(member)
    case.play(subject)
    check(subject.raised, DEEDS[deed])


@pytest.mark.parametrize("deed", ASYNC_DEEDS)
def test_whatever_a_coroutine_does_the_group_goes_on(case: Case, deed: AsyncDeed) -> None:
    """L6, L33: on the client's loop."""
    does = Does()
    member = case.asyncio(does)
    does.act = lambda partitions: deed(member.consumer, partitions)
    subject = Keeps(member)
    case.play(subject)
    check(subject.raised, ASYNC_DEEDS[deed])


def check(raised: list[Exception], expected: type[Exception] | None) -> None:
    """Only expected exceptions were raised, for the joins, the leave and the close."""
    unexpected = [error for error in raised if type(error) is not expected]
    assert not unexpected
    assert bool(raised) is bool(expected)


# ------------------------------------------------------------------------- listeners that block


def test_who_blocks_too_long_loses_and_cannot_commit(case: Case, driver: Driver) -> None:
    """L7, L11, L37: the others continue, and a late commit does not set the group back."""
    entered, gate, errors = threading.Event(), threading.Event(), list[type[Exception]]()

    class Blocks(RebalanceListener):
        def on_partitions_revoked(self, partitions: Given, /) -> Told:
            if not gate.is_set():
                entered.set()
                gate.wait(DEADLINE_S)
                try:
                    subject.consumer.commit({each: OffsetAndMetadata(0) for each in partitions})
                except CommitFailedError as error:
                    errors.append(type(error))
            return None

        def on_partitions_lost(self, partitions: Given, /) -> Told:
            return None

    subject = case.blocking(Blocks(), max_poll_interval_ms=1_000)
    driver.add(lambda: subject)
    driver.until_shared([subject], PARTITIONS)
    case.produce()
    subject.consumer.commit()
    other = driver.add(case.blocking)
    assert entered.wait(DEADLINE_S)
    driver.until_shared([other], PARTITIONS)
    gate.set()
    driver.until_shared([subject, other], PARTITIONS)
    case.produce()
    assert errors == [CommitFailedError]
    assert set(driver.seen.values()) == {1}
