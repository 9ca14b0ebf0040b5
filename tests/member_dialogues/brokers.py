"""Whose consumers run on whose brokers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kohort.broker import EmbeddedBroker
from tests.member_dialogues.applications import JavaHost
from tests.member_dialogues.ours import OurHost
from tests.member_dialogues.runner import Outcome, run_all
from tests.member_dialogues.script import Dialogue
from tests.member_dialogues.settings import KAFKA, OURS
from tests.real_kafka.broker import RealKafka


def java_on_kafka(dialogues: Iterable[Dialogue], folder: Path) -> list[Outcome]:
    """Kafka's consumers on a live Kafka."""
    with RealKafka(folder / "kafka", KAFKA) as kafka:
        servers = kafka.bootstrap_servers
        with JavaHost(servers, folder / "classes") as host:
            return run_all(dialogues, host, servers)


def java_on_ours(dialogues: Iterable[Dialogue], folder: Path) -> list[Outcome]:
    """Kafka's consumers on our broker."""
    with EmbeddedBroker(None, **OURS) as broker:
        servers = broker.bootstrap_servers
        with JavaHost(servers, folder / "classes") as host:
            return run_all(dialogues, host, servers)


def ours_on_kafka(dialogues: Iterable[Dialogue], folder: Path) -> list[Outcome]:
    """Our consumers on a live Kafka."""
    with RealKafka(folder / "kafka", KAFKA) as kafka:
        servers = kafka.bootstrap_servers
        with OurHost(servers) as host:
            return run_all(dialogues, host, servers)


def ours_on_ours(dialogues: Iterable[Dialogue]) -> list[Outcome]:
    """Our consumers on our broker."""
    with EmbeddedBroker(None, **OURS) as broker:
        servers = broker.bootstrap_servers
        with OurHost(servers) as host:
            return run_all(dialogues, host, servers)
