"""Our members in groups that a real Kafka moves to the consumer protocol and back.

And Kafka's own client in groups that our broker moves.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.java_clients import JavaMember
from tests.system.clients.group import Seen
from tests.system.clients.migration import (
    OUR_CONSUMER,
    OUR_RANGE,
    PAIRS,
    MakeMember,
    librdkafka_leads_a_group_that_stays,
    there_and_back,
)

# kafka-python drops sockets without closing them; they are collected before each test ends.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

OURS = [name for name in PAIRS if not name.startswith("librdkafka-")]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.parametrize("pair", OURS)
def test_a_running_group_is_moved_there_and_back(real_kafka: RealKafka, pair: str) -> None:
    """K40, K45, K47: the same as on our broker."""
    there_and_back(real_kafka.bootstrap_servers, *PAIRS[pair])


def test_a_group_that_librdkafka_leads_stays(real_kafka: RealKafka) -> None:
    """K41: the same as on our broker."""
    librdkafka_leads_a_group_that_stays(real_kafka.bootstrap_servers)


RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


class JavaMigrant:
    """Java's consumer in a process of its own, as a member that `Driver` polls."""

    def __init__(self, options: list[str], *where: str) -> None:
        servers, group, topic = where
        self._news = threading.Condition()
        self._told: Counter[Seen] = Counter()
        self._member = JavaMember(
            self._news,
            *("--bootstrap-server", servers, "--group-id", group, "--topic", topic),
            *("--reset-policy", "earliest", "--verbose"),
            *options,
        )

    def poll(self) -> list[Seen]:
        with self._news:
            self._news.wait(0.05)
            found = self._member.seen - self._told
            self._told.update(found)
        return list(found.elements())

    def assignment(self) -> set[int]:
        with self._news:
            return {*self._member.owned}

    def close(self) -> None:
        self._member.end(signal.SIGTERM)


JAVA_CONSUMER: MakeMember = partial(JavaMigrant, ["--group-protocol", "consumer"])


@pytest.fixture
def java_classic(tmp_path: Path) -> MakeMember:
    """A member that sees soon that its group rebalances."""
    often = tmp_path / "classic.properties"
    often.write_text("heartbeat.interval.ms=200\n")
    options = ["--group-protocol", "classic", "--assignment-strategy", RANGE]
    return partial(JavaMigrant, [*options, "--command-config", str(often)])


@pytest.mark.parametrize("which", ["both are Java's", "classic is Java's", "consumer is Java's"])
def test_java_members_move_there_and_back_on_our_broker(
    which: str, java_classic: MakeMember
) -> None:
    """K40, K45, K47: Kafka's own client, by itself and mixed with ours."""
    classic = OUR_RANGE if which == "consumer is Java's" else java_classic
    consumer = OUR_CONSUMER if which == "classic is Java's" else JAVA_CONSUMER
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=100) as broker:
        there_and_back(broker.bootstrap_servers, classic, consumer)


@pytest.mark.parametrize("which", ["classic is Java's", "consumer is Java's"])
def test_java_members_and_ours_move_there_and_back_on_kafka(
    which: str, java_classic: MakeMember, real_kafka: RealKafka
) -> None:
    """K40, K45, K47: the same as on our broker."""
    classic = OUR_RANGE if which == "consumer is Java's" else java_classic
    consumer = OUR_CONSUMER if which == "classic is Java's" else JAVA_CONSUMER
    there_and_back(real_kafka.bootstrap_servers, classic, consumer)
