"""Several transactional producers and readers at once: nothing aborted, half or lost is read."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.broker.processes import BrokerProcess
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.isolation import PARTITIONS, Done, Outcome, Reader, violations, work
from tests.real_kafka.transactional import PAUSE

PRODUCERS, EACH = 4, 40
KILLS = 8


def play(
    bootstrap: str, broker: BrokerProcess | None, seed: int
) -> tuple[list[Done], list[Reader]]:
    """Let producers and a reader work, and kill the broker meanwhile; then read once more."""
    topic = foreign.new_topic(bootstrap, PARTITIONS)
    beside = Reader(bootstrap, topic)
    with ThreadPoolExecutor(PRODUCERS) as pool:
        workers = [
            pool.submit(work, bootstrap, topic, number, EACH, seed) for number in range(PRODUCERS)
        ]
        rng = random.Random(seed)
        for _ in range(KILLS if broker else 0):
            PAUSE.wait(rng.uniform(0.2, 1.5))
            assert broker is not None
            broker.kill()
            broker.start()
        history = [done for worker in workers for done in worker.result(300)]
    for number in range(PRODUCERS):  # a successor ends what is open
        work(bootstrap, topic, number, 0, seed)
    beside.stop()
    again = Reader(bootstrap, topic)
    again.stop()
    return history, [beside, again]


def check(history: list[Done], readers: list[Reader]) -> None:
    for reader in readers:
        assert violations(history, reader.read) == []
    assert readers[0].read == readers[1].read
    outcomes = {each.outcome for each in history}
    assert {Outcome.COMMITTED, Outcome.ABORTED} <= outcomes


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(2))
def test_on_the_embedded_broker_that_is_killed(tmp_path: Path, seed: int) -> None:
    with BrokerProcess(tmp_path) as broker:
        check(*play(broker.bootstrap_servers, broker, seed))


@pytest.mark.timeout(400)
def test_on_apache_kafka(real_kafka: RealKafka) -> None:
    check(*play(real_kafka.bootstrap_servers, None, 0))


DONE = Done("a", 0, (0, 1), Outcome.COMMITTED)


@pytest.mark.parametrize(
    ("history", "read", "told"),
    [
        ([DONE], {0: [b"a.0"], 1: [b"a.1"]}, ""),
        ([DONE], {0: [b"a.0"], 1: []}, "lost write"),
        ([DONE], {0: [b"a.0", b"a.0"], 1: [b"a.1"]}, "2 times"),
        ([], {0: [b"a.0"], 1: []}, "written by nobody"),
        ([Done("a", 0, (0, 1), Outcome.UNKNOWN)], {0: [b"a.0"], 1: []}, "intermediate read"),
        ([Done("a", 0, (0, 1), Outcome.UNKNOWN)], {0: [], 1: []}, ""),
        ([Done("a", 0, (0, 1), Outcome.ABORTED)], {0: [b"a.0"], 1: [b"a.1"]}, "aborted read"),
        (
            [DONE, Done("b", 0, (0,), Outcome.COMMITTED)],
            {0: [b"b.0", b"a.0"], 1: [b"a.1"]},
            "out of order",
        ),
    ],
)
def test_the_checker_sees_each_anomaly(
    history: list[Done], read: dict[int, list[bytes]], told: str
) -> None:
    found = violations(history, read)
    assert bool(found) == bool(told)
    assert told in " ".join(found)
