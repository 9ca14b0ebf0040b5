"""The brokers that dialogues run on: a live Kafka, and ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from kohort.broker import EmbeddedBroker
from tests.dialogues.runner import Outcome, run_all
from tests.dialogues.script import Dialogue
from tests.dialogues.settings import kafka_settings, our_settings
from tests.real_kafka.broker import RealKafka


def on_kafka(dialogues: Iterable[Dialogue], folder: Path) -> list[Outcome]:
    """Run dialogues on a live Kafka, or on two: one that looks often for what has expired."""
    outcomes: list[Outcome] = []
    for cleaned, chosen in _parted(dialogues):
        with RealKafka(folder / f"cleaned-{cleaned}", kafka_settings(cleaned=cleaned)) as kafka:
            outcomes += asyncio.run(run_all(kafka.bootstrap_servers, chosen))
    return outcomes


def on_ours(dialogues: Iterable[Dialogue]) -> list[Outcome]:
    """Run dialogues on our broker, set up the same way."""
    outcomes: list[Outcome] = []
    for cleaned, chosen in _parted(dialogues):
        with EmbeddedBroker(None, **our_settings(cleaned=cleaned)) as broker:
            outcomes += asyncio.run(run_all(broker.bootstrap_servers, chosen))
    return outcomes


def _parted(dialogues: Iterable[Dialogue]) -> list[tuple[bool, list[Dialogue]]]:
    every = list(dialogues)
    parts = ((kind, [each for each in every if each.cleaned is kind]) for kind in (False, True))
    return [(kind, chosen) for kind, chosen in parts if chosen]
