"""Running groups are moved to the consumer protocol and back on the embedded broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.group.events import GroupEvent, ProtocolChanged
from tests.broker.processes import BrokerProcess
from tests.real_kafka import foreign
from tests.system.clients.migration import (
    OUR_CONSUMER,
    PAIRS,
    PARTITIONS,
    THEIR_CONSUMER,
    MakeMember,
    Move,
    librdkafka_leads_a_group_that_stays,
    there_and_back,
)

# kafka-python drops sockets without closing them; they are collected before each test ends.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def facts() -> list[GroupEvent]:
    return []


@pytest.fixture
def broker(facts: list[GroupEvent]) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as running:
        running.subscribe(facts.append)
        yield running
        gc.collect()


@pytest.mark.parametrize("pair", PAIRS)
def test_a_running_group_is_moved_there_and_back(
    broker: EmbeddedBroker, facts: list[GroupEvent], pair: str
) -> None:
    """K40, K45, K47."""
    there_and_back(broker.bootstrap_servers, *PAIRS[pair])
    moves = [fact.protocol for fact in facts if isinstance(fact, ProtocolChanged)]
    assert moves == ["consumer", "classic"]


def test_a_group_that_librdkafka_leads_stays(broker: EmbeddedBroker) -> None:
    """K41."""
    librdkafka_leads_a_group_that_stays(broker.bootstrap_servers)


CRASHES: dict[str, tuple[MakeMember, MakeMember]] = {
    "range": PAIRS["range"],
    "cooperative-sticky": PAIRS["cooperative-sticky"],
    "librdkafka": PAIRS["librdkafka-range"],
    "both": (PAIRS["librdkafka-range"][0], OUR_CONSUMER),
    "both, the other way": (PAIRS["range"][0], THEIR_CONSUMER),
}


@pytest.mark.parametrize("pair", CRASHES)
def test_a_broker_that_is_killed_while_it_moves_a_group_goes_on_with_it(
    pair: str, tmp_path: Path
) -> None:
    """K30, K40, K47: at each step there and back, while partitions are on their way.

    Each record is read, and what was committed stays.
    """
    classic, consumer = CRASHES[pair]
    options = ("--set", "group.consumer.heartbeat.interval.ms=100")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        move = Move(broker.bootstrap_servers)
        try:
            move.add(classic)
            move.add(classic)
            for make in (consumer, consumer, classic, classic):
                stored = positions(move)
                newcomer = move.begin(make)
                move.until_owns(newcomer)
                broker.kill()
                broker.start()
                move.settle()
                move.drop_oldest()
                assert all(now >= then for now, then in zip(positions(move), stored, strict=True))
            assert move.group_type() == "CLASSIC"
            # When two leave at once, one may commit for a generation that the other has just ended.
            move.drop_oldest()
        finally:
            move.driver.leave_all()
        ends = [1 + max(at for p, at in move.driver.seen if p == n) for n in range(PARTITIONS)]
        assert positions(move) == ends


def positions(move: Move) -> list[int]:
    """What the group has committed of each partition."""
    return [
        foreign.committed(move.servers, move.group, move.topic, number)
        for number in range(PARTITIONS)
    ]
