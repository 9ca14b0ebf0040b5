"""The brokers that dialogues run on: a live Kafka, and ours."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kohort.broker import EmbeddedBroker
from tests.coordinator_dialogues.restarts import Restarts
from tests.coordinator_dialogues.runner import Outcome, run_all
from tests.coordinator_dialogues.script import Dialogue
from tests.coordinator_dialogues.settings import Kind, kafka_settings, our_settings
from tests.real_kafka.broker import RealKafka, free_ports


def on_kafka(dialogues: Iterable[Dialogue], folder: Path) -> list[Outcome]:
    """Run dialogues on a live Kafka, or on several if they need it to be set up otherwise."""
    outcomes: list[Outcome] = []
    for kind, chosen in _parted(dialogues):
        with RealKafka(folder / kind, kafka_settings(kind)) as kafka:
            restarts = Restarts(kafka, kafka.log_dir) if kind is Kind.RESTARTED else None
            outcomes += asyncio.run(run_all(kafka.bootstrap_servers, chosen, restarts))
    return outcomes


def on_ours(dialogues: Iterable[Dialogue]) -> list[Outcome]:
    """Run dialogues on our broker, set up the same way."""
    outcomes: list[Outcome] = []
    for kind, chosen in _parted(dialogues):
        with tempfile.TemporaryDirectory() as folder:
            (port,) = free_ports(1)  # which a restart keeps
            with EmbeddedBroker(folder, port=port, **our_settings(kind)) as broker:
                restarts = Restarts(broker, Path(folder)) if kind is Kind.RESTARTED else None
                outcomes += asyncio.run(run_all(broker.bootstrap_servers, chosen, restarts))
    return outcomes


def _parted(dialogues: Iterable[Dialogue]) -> list[tuple[Kind, list[Dialogue]]]:
    every = list(dialogues)
    parts = ((kind, [each for each in every if each.kind is kind]) for kind in Kind)
    return [(kind, chosen) for kind, chosen in parts if chosen]
