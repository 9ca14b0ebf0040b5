"""Clients that are not ours on the embedded broker, each in one group with our consumer."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from tests.real_kafka.java_clients import DEADLINE_S, JavaMember
from tests.smoke.sharing import Make, Sharing
from tests.system.clients.group import (
    AiokafkaMember,
    ConfluentMember,
    ConsumerProtocolMember,
    Driver,
    KafkaPythonMember,
    Seen,
)
from tests.system.clients.ours import OurMember

# aiokafka and kafka-python leave connections to the garbage collector.
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.counts_records,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

# All commit often, so that nothing is left to commit when the group rebalances.
OFTEN: dict[str, object] = {"auto_commit_interval_ms": 100}
CLASSIC = OFTEN | {"session_timeout_ms": 30_000}
CONSUMER = OFTEN | {"group_protocol": "consumer"}


class VerifiableMember:
    """Apache Kafka's Java client; it commits each batch that it was given."""

    def __init__(self, servers: str, group: str, topic: str, *, options: Sequence[str]) -> None:
        self._news = threading.Condition()
        self._told: Counter[Seen] = Counter()
        where = ["--bootstrap-server", servers, "--group-id", group, "--topic", topic]
        self._member = JavaMember(self._news, *where, "--verbose", *options)
        with self._news:
            started = self._news.wait_for(self._has_started, DEADLINE_S)
        if not started:
            self._member.end(signal.SIGKILL)
        assert started, "Java takes too long to start"

    def _has_started(self) -> bool:
        return bool(self._member.named("startup_complete"))

    def poll(self) -> list[Seen]:
        with self._news:
            self._news.wait(0.1)
            new = self._member.seen - self._told
            self._told += new
            return list(new.elements())

    def assignment(self) -> set[int]:
        with self._news:
            return set(self._member.owned)

    def close(self) -> None:
        self._member.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_consumer_heartbeat_interval_ms=200) as running:
        yield running


@pytest.fixture
def sharing(broker: EmbeddedBroker, driver: Driver) -> Sharing:
    return Sharing(broker.bootstrap_servers, driver)


@pytest.fixture
def real_kafka() -> None:
    """Marks what needs the jars of Apache Kafka; the broker is ours."""


def they_share_and_take_over(
    sharing: Sharing, make: Make, theirs: Mapping[str, object], ours: Mapping[str, object]
) -> None:
    """Each joins beside the other, leaves it, and goes on where the other has committed."""
    first = sharing.join(OurMember, **ours)
    sharing.produce()
    sharing.until_committed()
    stranger = sharing.join(make, **theirs)
    sharing.produce()
    sharing.until_committed()
    sharing.leave(first)
    sharing.produce()
    sharing.until_committed()
    sharing.join(OurMember, **ours)
    sharing.leave(stranger)
    sharing.produce()
    sharing.until_committed()
    sharing.check()


def test_confluent_kafka_and_ours_share_a_classic_group(sharing: Sharing) -> None:
    they_share_and_take_over(sharing, ConfluentMember, CLASSIC, CLASSIC)


def test_confluent_kafka_and_ours_share_a_consumer_group(sharing: Sharing) -> None:
    they_share_and_take_over(sharing, ConsumerProtocolMember, OFTEN, CONSUMER)


def test_kafka_python_and_ours_share_a_group(sharing: Sharing) -> None:
    they_share_and_take_over(sharing, KafkaPythonMember, CLASSIC, CLASSIC)


def test_aiokafka_and_ours_share_a_group(sharing: Sharing) -> None:
    they_share_and_take_over(sharing, AiokafkaMember, CLASSIC, CLASSIC)


@pytest.mark.usefixtures("real_kafka")
def test_javas_client_and_ours_share_a_classic_group(sharing: Sharing, tmp_path: Path) -> None:
    # its heartbeats tell it of a rebalance
    (tmp_path / "settings").write_text("heartbeat.interval.ms=200\n")
    options = ["--command-config", str(tmp_path / "settings")]
    they_share_and_take_over(sharing, VerifiableMember, {"options": options}, CLASSIC)


@pytest.mark.usefixtures("real_kafka")
def test_javas_client_and_ours_share_a_consumer_group(sharing: Sharing) -> None:
    options = ["--group-protocol", "consumer"]
    they_share_and_take_over(sharing, VerifiableMember, {"options": options}, CONSUMER)
