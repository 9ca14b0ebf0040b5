"""Transactions drawn at random: answers and logs are those of Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker
from tests.broker.processes import BrokerProcess
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.transaction_histories import Player, history, played

STEPS = 150
SEEDS = range(6)
STEPS_BETWEEN_KILLS = 30


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("embedded")) as broker:
        yield broker


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_is_answered_as_by_kafka(
    real_kafka: RealKafka, embedded: EmbeddedBroker, seed: int, version: int
) -> None:
    steps = history(seed, version, STEPS)
    prefix = f"random-{uuid.uuid4().hex[:8]}"
    answers = []
    for bootstrap in (embedded.bootstrap_servers, real_kafka.bootstrap_servers):
        player = Player(bootstrap, prefix, version)
        try:
            answers.append(played(player, steps))
        finally:
            player.close()
    assert_alike(steps, *answers)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_is_killed_forgets_nothing(
    real_kafka: RealKafka, tmp_path: Path, seed: int, version: int
) -> None:
    """Beside a Kafka that runs. But the epoch before the last is not in the log of either."""
    steps = [step for step in history(seed + 100, version, STEPS) if "old" not in step[1]]
    prefix = f"killed-{uuid.uuid4().hex[:8]}"
    kafka = Player(real_kafka.bootstrap_servers, prefix, version)
    theirs = played(kafka, steps)
    kafka.close()
    ours: list[Any] = []
    with BrokerProcess(tmp_path) as broker:
        player = Player(broker.bootstrap_servers, prefix, version)
        for start in range(0, len(steps), STEPS_BETWEEN_KILLS):
            ours += played(player, steps[start : start + STEPS_BETWEEN_KILLS])
            player.close()
            broker.kill()
            broker.start()
            player.connect(broker.bootstrap_servers)
        player.close()
    assert_alike(steps, ours, theirs)


def assert_alike(steps: list[Any], ours: list[Any], theirs: list[Any]) -> None:
    for at, (step, one, other) in enumerate(zip(steps, ours, theirs, strict=True)):
        assert one == other, (at, step, steps[max(at - 12, 0) : at])
